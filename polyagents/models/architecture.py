"""What every architecture offers to those who use it, and which architectures there are.

There are two kinds. A two-tower architecture encodes context and candidate apart, so candidates can be encoded ahead,
kept, and searched. A joint architecture reads both together. A further architecture meets one of the two protocols, is
registered, and is then trained, evaluated, indexed, searched and served like those that are built in
(docs/architecture.md shows one).
"""

import importlib.metadata
from typing import ClassVar, Protocol, TypeVar, get_type_hints

from torch import Tensor

from polyagents.errors import InputError
from polyagents.models.bi import BiEncoder
from polyagents.models.cross import CrossEncoder
from polyagents.models.encoder import Encoder
from polyagents.models.model_options import RankingOptions
from polyagents.models.poly import PolyEncoder
from polyagents.models.query import Query
from polyagents.models.reduction import ContextVectors
from polyagents.models.tokens import JointTokens, Tokens
from polyagents.models.uni import UniEncoder

ENTRY_POINTS = "polyagents.architectures"  # the group under which installed packages name theirs


class Architecture(Protocol):
    """What both kinds have.

    Attributes:
        short_name: what `polyagents train_model -m` takes.
        label: what people call it.
        options_type: the class of its options; its fields are the flags of its agent.
        logit_scale: what the training loss multiplies the scores by.
    """

    short_name: ClassVar[str]
    label: ClassVar[str]
    options_type: ClassVar[type[RankingOptions]]
    logit_scale: float

    def __init__(self, encoder: Encoder, options: RankingOptions):
        """Build it around an encoder; the options are of its `options_type`."""


class TwoTowerArchitecture(Architecture, Protocol):
    """Context and candidate are encoded apart; `two_towers.TwoTowers` has all of it but vectors and score.

    Attributes:
        context_encoder: encodes contexts.
        candidate_encoder: encodes candidates; it may be the same.
    """

    context_encoder: Encoder
    candidate_encoder: Encoder

    def context_vectors(self, chunk: Tokens) -> ContextVectors:
        """Encode a chunk of contexts: [b, T] -> vectors [b, M, D] and mask [b, M]."""
        ...

    def candidate_vectors(self, chunk: Tokens) -> Tensor:
        """Encode a chunk of candidates: [c, T] -> [c, D]."""
        ...

    def candidate_weights(self) -> dict[str, Tensor]:
        """All weights that decide a candidate's vector, by name: an index is stale when one of them has changed."""
        ...

    def encode_context(self, tokens: Tokens) -> ContextVectors:
        """Encode contexts [B, T], chunk by chunk: vectors [B, M, D] and mask [B, M]."""
        ...

    def encode_candidates(self, tokens: Tokens) -> Tensor:
        """Encode candidates [C, T], chunk by chunk: [C, D]."""
        ...

    def score(self, context: ContextVectors, candidates: Tensor) -> Tensor:
        """Score candidates [C, D], or [B, C, D], for context vectors [B, M, D]: [B, C] fp32."""
        ...

    def upper_bound(self, largest: Tensor) -> Tensor | None:
        """Bound scores by the largest dot products [n, B] (models/query.py); None where no bound is known."""
        ...

    def query(self, context: ContextVectors) -> Query:
        """Encoded contexts, as what a large set of candidates is searched for."""
        ...


class JointArchitecture(Architecture, Protocol):
    """Context and candidates are read together.

    Attributes:
        encoder: reads them.
        candidate_tokens: how many tokens of candidates may stand behind a context in one row, one candidate at least;
            0 gives each candidate a row of its own.
    """

    encoder: Encoder
    candidate_tokens: ClassVar[int]

    def chunk_scores(self, chunk: JointTokens) -> Tensor:
        """Score a chunk of rows: [r, T] -> [r, K], each with its K candidates; 0 where it has fewer."""
        ...

    def joint_scores(self, rows: JointTokens) -> Tensor:
        """Score rows [R, T], chunk by chunk: [R, K] fp32."""
        ...


def meets(module: object, protocol: type) -> bool:
    """Whether an architecture has all that one of the protocols above names.

    `isinstance` would not do: from Python 3.12 on it does not ask `__getattr__`, which finds the parts of an nn.Module.
    """
    methods = {name for name, value in vars(protocol).items() if callable(value) and not name.startswith("_")}
    return all(hasattr(module, name) for name in methods | get_type_hints(protocol).keys())


def reads_together(architecture: type) -> bool:
    """Whether a class is of the kind that reads context and candidate together."""
    return hasattr(architecture, "chunk_scores")


Registered = TypeVar("Registered", bound=type["Architecture"])
ARCHITECTURES: dict[str, type[Architecture]] = {
    kind.__name__: kind for kind in (BiEncoder, PolyEncoder, UniEncoder, CrossEncoder)
}


def register(architecture: Registered) -> Registered:
    """Make an architecture known by the name of its class, as a decorator does; its agent is `polyagents:<name>`."""
    ARCHITECTURES[architecture.__name__] = architecture
    return architecture


def is_known(name: str) -> bool:
    """Whether there is an architecture of this name: built in, registered, or named by an installed package."""
    if name not in ARCHITECTURES:
        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS, name=name):
            register(entry.load())
    return name in ARCHITECTURES


def find(name: str) -> type[Architecture]:
    """The architecture of a name.

    Raises:
        InputError: there is none.
    """
    if not is_known(name):
        raise InputError(
            f"There is no architecture {name}; there are {', '.join(sorted(ARCHITECTURES))}. One of another package is "
            f"found when that package is installed, or has been imported."
        )
    return ARCHITECTURES[name]
