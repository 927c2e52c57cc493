"""The frozen options of models: what decides their shape and their arithmetic."""

from dataclasses import dataclass

TRAIN_LAYERS = ("all", "all_but_embeddings", "top4", "top")


PRECISIONS = ("fp32", "bf16", "fp16")


CODES_INITS = ("normal", "uniform")


@dataclass(frozen=True)
class BackboneOptions:
    """How one encoder is made and run."""

    name: str
    output_scaling: float
    train_layers: str
    precision: str
    dropout: float | None


@dataclass(frozen=True)
class ReductionOptions:
    """How states become vectors. `m` is the number of context vectors, and of the outputs that "first_m" averages."""

    kind: str
    m: int


@dataclass(frozen=True)
class TowerOptions:
    """What bi- and poly-encoder share: two encoders and a similarity."""

    share_encoders: bool
    similarity: str


@dataclass(frozen=True)
class PolyOptions:
    """What only a poly-encoder has."""

    context_vectors: str
    attention: str
    codes_init: str
