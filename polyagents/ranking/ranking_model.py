"""A model with its tokenizer and its options: texts in, scores out, whoever asks.

`Ranker`, `serve`, mining, distillation and ParlAI's agents all hold one of these. There are two kinds, as there are of
architectures: two towers, whose candidates can be encoded ahead (two_tower_model.py), and joint ones (joint_model.py).
"""

import abc
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from polyagents.errors import InputError, first_line
from polyagents.files.hashing import fingerprint
from polyagents.models.adapters import is_adapted, merge, take_over
from polyagents.models.encoder import Encoder
from polyagents.models.model_options import EncoderOptions, RankingOptions
from polyagents.models.tokens import Tokens, pad
from polyagents.ranking.candidate_set import Candidate, CandidateSet
from polyagents.text.tokenizer import RankingTokenizer


@dataclass(frozen=True)
class Settings:
    """What decides how a model reads texts, beside its weights.

    Attributes:
        architecture: the name of its class, such as "PolyEncoder".
        encoder: backbone, precision, trained layers, dropout.
        ranking: the architecture's own options.
        text_truncate: tokens of a context at most, with [S]; None is no limit.
        label_truncate: tokens of a candidate at most, with [S]; None is no limit.
        saved: all that was given: an agent's flags, or what the options file of a trained model holds, such as its
            task, with what the caller put in the place of some of it.
    """

    architecture: str
    encoder: EncoderOptions
    ranking: RankingOptions
    text_truncate: int | None
    label_truncate: int | None
    saved: Mapping[str, Any] = field(default_factory=dict)


class RankingModel(abc.ABC):
    """One model that ranks.

    Attributes:
        module: its architecture, with the weights.
        tokenizer: makes token ids of texts.
        settings: what decides how texts are read.
    """

    module: nn.Module

    def __init__(self, tokenizer: RankingTokenizer, settings: Settings):
        self.tokenizer, self.settings = tokenizer, settings

    @property
    def architecture(self) -> str:
        """The name of its architecture's class, such as "PolyEncoder"."""
        return self.settings.architecture

    @property
    def label(self) -> str:
        """What people call its architecture, such as "poly-encoder"."""
        return str(getattr(self.module, "label"))  # noqa: B009  an nn.Module's attributes are not typed

    @property
    def saved(self) -> Mapping[str, Any]:
        """All that was given: flags, or what the options file of a trained model holds."""
        return self.settings.saved

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.module.parameters()).device

    @property
    @abc.abstractmethod
    def context_encoder(self) -> Encoder:
        """What reads contexts; a pair architecture has only one encoder."""

    @property
    def longest_input(self) -> int:
        """Tokens of the longest text that the encoder will see."""
        return max(self.settings.text_truncate or 0, self.settings.label_truncate or 0)

    # ---- texts to token ids ----------------------------------------------------------------------------------------

    def context_ids(self, text: str) -> list[int]:
        """Token ids of a context between its [S], truncated; its turns are divided by line ends."""
        return self.tokenizer.context(self.tokenizer.encode([text])[0], self.settings.text_truncate)

    def candidates(self, texts: Sequence[str]) -> list[Candidate]:
        """Texts as candidates, with their token ids between [S], truncated."""
        encoded, limit = self.tokenizer.encode(texts), self.settings.label_truncate
        return [
            Candidate(text, tuple(self.tokenizer.candidate(ids, limit)))
            for text, ids in zip(texts, encoded, strict=True)
        ]

    def tokens(self, ids: Sequence[Sequence[int]]) -> Tokens:
        """Token ids as a padded batch on the CPU, from where an encoder takes it chunk by chunk."""
        return pad(ids, self.tokenizer.pad_id)

    # ---- scores ----------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def scores(self, contexts: Sequence[Sequence[int]], candidates: CandidateSet) -> Tensor:
        """Score a batch's candidates without gradient.

        Args:
            contexts: token ids of B contexts.
            candidates: what each of them ranks.

        Returns:
            [B, C] fp32.
        """

    def merged(self) -> "RankingModel":
        """Itself, or, where it has adapters (--lora-rank), a copy whose weights have taken them up.

        Raises:
            InputError: the weights are in 8 or 4 bits, which cannot take up anything so small.
        """
        if not is_adapted(self.module):
            return self
        if bits := self.settings.ranking.backbone_bits:
            raise InputError(
                f"The adapters stand beside weights in {bits} bits (--backbone-bits), with which they cannot be "
                f"merged; the model file and --backbone together are the model."
            )
        model = copy.deepcopy(self)
        merge(model.module)
        ranking = replace(self.settings.ranking, lora_rank=None)
        model.settings = replace(self.settings, ranking=ranking, saved={**self.saved, "lora_rank": None})
        model.weights_changed()
        return model

    def weights_changed(self) -> None:  # noqa: B027  most models keep nothing
        """Forget what was made with other weights."""

    def to(self, device: torch.device) -> None:
        """Move the weights, or leave them all where they are, and forget what was kept on the device before.

        Raises:
            InputError: there is no such device, or no room on it.
        """
        before = self.device
        try:
            self.module.to(device)
        except (AssertionError, RuntimeError) as error:  # torch asserts that it was built for the device
            self.module.to(before)
            raise InputError(f"The model cannot be moved to {device} ({first_line(error)}).") from error
        self.weights_changed()

    def compute_in(self, precision: str) -> None:
        """Compute in fp32, bf16 or fp16 from now on, as `--precision` says; the weights stay as they are."""
        self.settings = replace(self.settings, encoder=replace(self.settings.encoder, precision=precision))
        for part in self.module.modules():
            if isinstance(part, Encoder):
                part.precision = precision
        self.weights_changed()

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Take weights over; on a CPU they become the model's own, so that none are in memory twice.

        Raises:
            RuntimeError: some are missing, unknown or of another shape.
        """
        take_over(self.module, weights, assign=self.device.type == "cpu")
        self.weights_changed()

    def fingerprint_of(self, weights: Mapping[str, Tensor], settings: str) -> str:
        """SHA-256 over weights, the tokenizer, and further settings as text."""
        parts: list[str | bytes] = [settings, self.tokenizer.compiled.to_str()]
        for name in sorted(weights):
            parts += [name, bytes_of(weights[name])]
        return fingerprint(parts)


def bytes_of(tensor: Tensor) -> bytes:
    """A tensor as it lies in memory."""
    return tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
