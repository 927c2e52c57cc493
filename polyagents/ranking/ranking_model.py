"""A model with its tokenizer and its options: it scores texts for every caller.

`Ranker`, `serve`, mining, distillation and ParlAI's agents all have one of these. There are two kinds, as there are of
architectures: two towers, whose candidates can be encoded ahead (two_tower_model.py), and joint ones (joint_model.py).
"""

import abc
import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from polyagents.errors import InputError, first_line
from polyagents.files.hashing import fingerprint
from polyagents.models.adapters import is_adapted, merge
from polyagents.models.base import Architecture
from polyagents.models.encoder import Encoder
from polyagents.models.model_options import EncoderOptions, RankingOptions
from polyagents.models.tokens import Tokens, pad
from polyagents.models.versions import Versions
from polyagents.ranking.candidate_set import Candidate, CandidateSet, inline_set
from polyagents.ranking.pieces import Steps
from polyagents.surroundings import undisturbed
from polyagents.text.tokenizer import RankingTokenizer

Item = TypeVar("Item")

ARITHMETIC = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
"""What an encoder computes in -> its name in `--precision`."""

CONTEXTS_AT_ONCE = 64  # chosen here: enough to fill the encoder, little enough to keep [B, C] scores small
# Bytes of encoded candidates after which all are forgotten: 150,000 vectors of width 384, several times the distinct
# replies of ParlAI's tasks, or the states of 12,000 replies. Without a limit, the candidates of requests to a server
# would fill the memory.
CACHED_BYTES = 300_000_000


@dataclass(frozen=True)
class Settings:
    """The settings that, together with its weights, decide how a model reads texts.

    Attributes:
        architecture: the name of its class, such as "PolyEncoder".
        ranking: the architecture's own options.
        text_truncate: the maximal tokens of a context, with [S]; None means no limit.
        label_truncate: the same of a candidate.
        plain_texts: whether texts are read as Hugging Face's libraries do.
        saved: all options: an agent's flags, or the content of the options file of a trained model, such as its task,
            some of them overridden by the caller.
    """

    architecture: str
    encoder: EncoderOptions
    ranking: RankingOptions
    text_truncate: int | None
    label_truncate: int | None
    plain_texts: bool
    saved: Mapping[str, Any] = field(default_factory=dict)


class RankingModel(abc.ABC):
    """A model that ranks candidates: an architecture with its weights, a tokenizer, and how texts are read.

    Attributes:
        encodes_candidates: whether candidates are encoded without a context, so that an index can keep their vectors.
    """

    encodes_candidates: ClassVar[bool] = False

    def __init__(self, module: Architecture, tokenizer: RankingTokenizer, settings: Settings, versions: Versions):
        """Make a model of its parts; `versions` watches the weights that decide what `encoded` returns."""
        self.module, self.tokenizer, self.settings = module, tokenizer, settings
        self._versions = versions
        self._version: object = object()
        self._encoded: dict[tuple[int, ...], Tensor] = {}
        self._encoded_bytes = 0
        self._encoded_by: object = None

    @property
    def architecture(self) -> str:
        """The name of its architecture's class, such as "PolyEncoder"."""
        return self.settings.architecture

    @property
    def label(self) -> str:
        """The name of its architecture in messages, such as "poly-encoder"."""
        return self.module.label

    @property
    def similarity(self) -> str:
        """What the vectors of two towers are compared by: "dot" or "cosine"."""
        return str(getattr(self.settings.ranking, "similarity", "dot"))

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.module.parameters()).device

    @property
    @abc.abstractmethod
    def context_encoder(self) -> Encoder:
        """The encoder of contexts; in a joint architecture, of contexts with their candidates."""

    @property
    def longest_input(self) -> int:
        """The tokens of the longest text that the encoder will read."""
        return max(self.settings.text_truncate or 0, self.settings.label_truncate or 0)

    @property
    def limits(self) -> tuple[int | None, int | None]:
        """The tokens to which a context and a candidate are truncated by themselves; None for no limit."""
        return self.settings.text_truncate, self.settings.label_truncate

    # ---- texts to token ids ----------------------------------------------------------------------------------------

    def context_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Encode contexts, whose turns are separated by line ends, as token ids between [S], truncated."""
        return self.tokenizer.contexts(texts, self.limits[0])

    def candidates(self, texts: Sequence[str]) -> list[Candidate]:
        """Encode texts as candidates, with token ids between [S], truncated."""
        encoded = self.tokenizer.candidates(texts, self.limits[1])
        return [Candidate(text, tuple(ids)) for text, ids in zip(texts, encoded, strict=True)]

    def tokens(self, ids: Sequence[Sequence[int]]) -> Tokens:
        """Pad token ids to a batch on the CPU, from where an encoder takes it chunk by chunk."""
        return pad(ids, self.tokenizer.pad_id)

    # ---- scores ----------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def scores(self, contexts: Sequence[Sequence[int]], candidates: CandidateSet) -> Tensor:
        """Score a batch's candidates for token ids of B contexts, without gradient: [B, C] fp32."""

    def scores_in_lists(self, contexts: Sequence[str], lists: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """Score each context's own candidates, which may be none: scores [C] for each list."""
        found: list[np.ndarray] = []
        for block in in_blocks(list(zip(contexts, lists, strict=True))):
            given = [self.candidates(own) for _, own in block]
            if any(given):
                scores = self.scores(self.context_ids([context for context, _ in block]), inline_set(given, None))
                found += [row[: len(own)] for row, own in zip(scores.cpu().numpy(), given, strict=True)]
            else:
                found += [np.zeros(0, np.float32)] * len(block)
        return found

    @abc.abstractmethod
    def encode_ids(self, ids: Sequence[Sequence[int]]) -> Sequence[Tensor] | Tensor:
        """Encode token ids of C candidates, each to what `encoded` returns of it."""

    def encoded(self, candidates: Sequence[tuple[int, ...]]) -> list[Tensor]:
        """Return what the encoder makes of token ids of U candidates; those that it has read before are remembered.

        In an evaluation the same replies occur as distractors many times (each about 20 times on ConvAI2). Another
        version of the weights, or dropout, makes it forget them.

        Several threads may call it. There is no lock: a candidate that is new to two of them is encoded twice, and a
        thread keeps the dictionary that it began with when another one forgets all.
        """
        by = self.weights_version(), self.module.training
        if by != self._encoded_by:
            self.forget()
            self._encoded_by = by
        known = self._encoded
        new = [ids for ids in dict.fromkeys(candidates) if ids not in known]
        if new and self._encoded_bytes > CACHED_BYTES:
            self.forget()
            known, new = self._encoded, list(dict.fromkeys(candidates))
        if new:
            for ids, result in zip(new, self.encode_ids(new), strict=True):
                known[ids] = result
                self._encoded_bytes += result.nbytes + 100 + 36 * len(ids)  # an object and a pointer for each id
        return [known[ids] for ids in candidates]

    def forget(self) -> None:
        """Discard what was encoded: needed when another backend, device or precision computes."""
        self._encoded, self._encoded_bytes = {}, 0

    @abc.abstractmethod
    def scores_in_pieces(
        self, contexts: Sequence[Sequence[int]], candidates: CandidateSet, tokens: int
    ) -> Steps[Tensor]:
        """Score as `scores` does, and encode at most `tokens` tokens between two steps."""

    def version(self) -> object:
        """Return an object that stands for the weights of encoded candidates; None if none are encoded in advance."""
        return None

    @undisturbed()
    def merged(self) -> "RankingModel":
        """Return the model itself, or, if it has adapters (--lora-rank), a copy whose weights contain them.

        An InputError says if the weights are in 8 or 4 bits, too coarse for adapters to be added.
        """
        if not is_adapted(self.module):
            return self
        if bits := self.settings.ranking.backbone_bits:
            raise InputError(
                f"The adapters belong to weights in {bits} bits (--backbone-bits), into which they cannot be merged; "
                f"the model file and --backbone together are the model."
            )
        model = copy.deepcopy(self)
        merge(model.module)
        ranking = replace(self.settings.ranking, lora_rank=None)
        model.settings = replace(self.settings, ranking=ranking, saved={**self.settings.saved, "lora_rank": None})
        return model

    def weights_version(self) -> object:
        """Return an object that stands for the weights that are watched: another one once they have changed."""
        if self._versions.have_changed():
            self._version = object()  # before `look`: another thread may ask meanwhile
            self._versions.look()
        return self._version

    def weights_changed(self) -> None:
        """Discard results of other weights: needed only after edits of `.data`; all others are noticed."""
        self._version = object()

    def to(self, device: torch.device) -> None:
        """Move the weights to a device, all or none; unchanged, so candidates that were encoded stay valid.

        An InputError says if there is no such device, or not enough memory on it.
        """
        before, version = self.device, self.weights_version()
        try:
            self.module.to(device)
        except (AssertionError, RuntimeError) as error:  # torch asserts that it was built for the device
            self.module.to(before)
            raise InputError(f"The model cannot be moved to {device} ({first_line(error)}).") from error
        self.forget()
        self._versions.look()
        self._version = version

    @property
    def precision(self) -> str:
        """In which arithmetic the encoders compute where the model is: fp32, bf16 or fp16."""
        return ARITHMETIC[self.context_encoder.arithmetic(self.device)]

    @property
    def backend(self) -> str:
        """What computes the encoders, and in which arithmetic, such as `openvino-bf16`."""
        backend = self.context_encoder.backend
        return f"{'torch' if backend is None else backend.name}-{self.precision}"

    def compute_in(self, precision: str) -> None:
        """Compute in fp32, bf16 or fp16 (or auto) from now on, as `--precision` says; the weights do not change."""
        self.settings = replace(self.settings, encoder=replace(self.settings.encoder, precision=precision))
        for part in self.module.modules():
            if isinstance(part, Encoder):
                part.precision = precision
        self.forget()

    def fingerprint_of(self, weights: Mapping[str, Tensor], settings: str) -> str:
        """Compute the SHA-256 of weights by name, the tokenizer, and other settings."""
        return fingerprint(itertools.chain([settings, self.tokenizer.compiled.to_str()], named_bytes(weights)))


def in_blocks(contexts: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Split a long list of contexts, or of what has one each, into blocks that fit the memory."""
    for start in range(0, len(contexts), CONTEXTS_AT_ONCE):
        yield contexts[start : start + CONTEXTS_AT_ONCE]


def named_bytes(weights: Mapping[str, Tensor]) -> Iterator[str | memoryview]:
    """Yield the name and the bytes of each weight, in the order of the names."""
    for name in sorted(weights):
        yield name
        yield bytes_of(weights[name])


def bytes_of(tensor: Tensor) -> memoryview:
    """Return the bytes of a tensor, without a copy if it is on the CPU: other threads would wait for the copy."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
