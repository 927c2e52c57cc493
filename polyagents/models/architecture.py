"""The interface of an architecture, and the registry of all architectures.

There are two kinds. A two-tower architecture encodes context and candidate separately, so candidates can be encoded
ahead, stored, and searched. A joint architecture reads both together. A new architecture meets one of the two
protocols, is registered, and is then trained, evaluated, indexed, searched and served like those that are built in
(docs/architecture.md shows one).
"""

import importlib.metadata
from typing import ClassVar, Protocol, TypeVar, get_type_hints

from torch import Tensor

from polyagents.errors import InputError, did_you_mean
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
    """The interface that both kinds of architectures share.

    Attributes:
        short_name: the name that `polyagents train_model -m` takes.
        label: the name in messages and reports, such as "poly-encoder".
        options_type: the class of its options; its fields are the flags of its agent.
        logit_scale: the factor by which the training loss multiplies the scores.
    """

    short_name: ClassVar[str]
    label: ClassVar[str]
    options_type: ClassVar[type[RankingOptions]]
    logit_scale: float

    def __init__(self, encoder: Encoder, options: RankingOptions):
        """Build it around an encoder; the options are of its `options_type`."""


class TwoTowerArchitecture(Architecture, Protocol):
    """An architecture that encodes context and candidate separately.

    `two_towers.TwoTowers` implements all of it but `context_vectors` and `score`.

    Attributes:
        candidate_encoder: encodes candidates; it may be the same object.
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
        """Return all weights that decide a candidate's vector, by name: an index is stale if one has changed."""
        ...

    def encode_context(self, tokens: Tokens) -> ContextVectors:
        """Encode contexts [B, T], chunk by chunk, to vectors [B, M, D] and their mask [B, M]."""
        ...

    def encode_candidates(self, tokens: Tokens) -> Tensor:
        """Encode candidates [C, T], chunk by chunk, to vectors [C, D]."""
        ...

    def score(self, context: ContextVectors, candidates: Tensor) -> Tensor:
        """Score every candidate for every context.

        Args:
            context: vectors [B, M, D] and their mask [B, M].
            candidates: [C, D] shared by all contexts, or [B, C, D].

        Returns:
            [B, C] fp32.
        """
        ...

    def upper_bound(self, largest: Tensor) -> Tensor | None:
        """Bound scores by the largest dot products [n, B] (models/query.py); None if no bound is known."""
        ...

    def query(self, context: ContextVectors) -> Query:
        """Wrap encoded contexts in the query that an index is searched with."""
        ...


class JointArchitecture(Architecture, Protocol):
    """An architecture that reads context and candidates together.

    Attributes:
        candidate_tokens: how many tokens of candidates may follow a context in one row; a row holds one candidate at
            least, and 0 gives each candidate a row of its own.
    """

    encoder: Encoder
    candidate_tokens: ClassVar[int]

    def chunk_scores(self, chunk: JointTokens) -> Tensor:
        """Score a chunk of rows [r, T]: [r, K] for up to K candidates in a row, 0 where a row has fewer."""
        ...

    def joint_scores(self, rows: JointTokens) -> Tensor:
        """Score rows [R, T], chunk by chunk: [R, K] fp32."""
        ...


def meets(module: object, protocol: type) -> bool:
    """Tell whether an object has every member that one of the protocols above names.

    `isinstance` would not do: from Python 3.12 on it does not ask `__getattr__`, which finds the parts of an nn.Module.

    Returns:
        True if no member is missing.
    """
    methods = {name for name, value in vars(protocol).items() if callable(value) and not name.startswith("_")}
    return all(hasattr(module, name) for name in methods | get_type_hints(protocol).keys())


def reads_together(architecture: type) -> bool:
    """Tell whether a class is a joint architecture, which reads context and candidate together."""
    return hasattr(architecture, "chunk_scores")


Registered = TypeVar("Registered", bound=type["Architecture"])
ARCHITECTURES: dict[str, type[Architecture]] = {
    kind.__name__: kind for kind in (BiEncoder, PolyEncoder, UniEncoder, CrossEncoder)
}


def register(architecture: Registered) -> Registered:
    """Register an architecture by the name of its class (usable as a decorator); its agent is `polyagents:<name>`."""
    ARCHITECTURES[architecture.__name__] = architecture
    return architecture


def is_known(name: str) -> bool:
    """Tell whether an architecture of this name is built in, registered, or named by an installed package."""
    if name not in ARCHITECTURES:
        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS, name=name):
            register(entry.load())
    return name in ARCHITECTURES


def find(name: str) -> type[Architecture]:
    """Return the architecture of a name.

    Raises:
        InputError: there is no architecture of this name.
    """
    if not is_known(name):
        known = [*ARCHITECTURES, *(kind.short_name for kind in ARCHITECTURES.values())]
        raise InputError(
            f"There is no architecture {name}{did_you_mean(name, known)}; there are "
            f"{', '.join(sorted(ARCHITECTURES))}. One of another package is found when that package is installed, or "
            f"has been imported."
        )
    return ARCHITECTURES[name]
