"""A model whose candidates are encoded separately, so that their vectors can be cached, stored and searched."""

import contextlib
import dataclasses
import json
from collections.abc import Sequence

import torch
from torch import Tensor

from polyagents.models.adapters import without_frozen_weights
from polyagents.models.architecture import TwoTowerArchitecture
from polyagents.models.devices import to_device
from polyagents.models.encoder import Encoder
from polyagents.models.query import Query
from polyagents.models.two_towers import TwoTowers
from polyagents.ranking.candidate_set import Candidate, CandidateSet
from polyagents.ranking.pieces import Steps, pieces
from polyagents.ranking.ranking_model import RankingModel, Settings
from polyagents.ranking.vector_cache import VectorCache
from polyagents.text.tokenizer import RankingTokenizer
from polyagents.timings import encodes_in_bf16


class TwoTowerModel(RankingModel):
    """A bi- or poly-encoder, or a further architecture of two towers.

    Attributes:
        cache: vectors of candidates that were encoded since the weights changed.
    """

    module: TwoTowerArchitecture  # type: ignore[assignment]  # it is an nn.Module as well, which a protocol cannot say

    def __init__(self, module: TwoTowerArchitecture, tokenizer: RankingTokenizer, settings: Settings):
        super().__init__(tokenizer, settings)
        self.module = module
        self.cache = VectorCache(self.encode_ids)

    @property
    def context_encoder(self) -> Encoder:
        """The encoder of contexts."""
        return self.module.context_encoder

    def scores(self, contexts: Sequence[Sequence[int]], candidates: CandidateSet) -> Tensor:
        """Score a batch's candidates without gradient; cached vectors are not computed again.

        Args:
            contexts: token ids of B contexts.
            candidates: those that each of them ranks.

        Returns:
            [B, C] fp32.
        """
        with torch.no_grad():
            vectors = self.cache.vectors(candidates.ids, self.device)
            context = self.module.encode_context(self.tokens(contexts))
            if candidates.rows is None:
                return self.module.query(context).scores(vectors)
            return self.module.score(context, vectors[to_device(candidates.rows, self.device)])

    @torch.no_grad()
    def query(self, contexts: Sequence[Sequence[int]]) -> Query:
        """Encode token ids of B contexts as the query that a large set of candidates is searched with."""
        return self.module.query(self.module.encode_context(self.tokens(contexts)))

    @torch.no_grad()
    def encode_ids(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Encode token ids of C candidates: [C, D] on the model's device."""
        return self.module.encode_candidates(self.tokens(ids))

    def cached_in_pieces(self, candidates: Sequence[Candidate], tokens: int) -> Steps[None]:
        """Encode the candidates that are not cached yet, piece by piece; `scores` then finds them.

        Args:
            candidates: C of them.
            tokens: how many a piece may have.
        """
        ids = list(dict.fromkeys(candidate.ids for candidate in candidates))
        for piece in pieces(list(map(len, ids)), tokens):
            self.cache.vectors([ids[place] for place in piece], self.device)
            yield

    def encode_texts(self, texts: Sequence[str], low_precision: bool = False) -> Tensor:
        """Encode candidate texts.

        Args:
            texts: C of them.
            low_precision: encode in bf16 where the machine is fast in it, whatever `--precision` says: right for
                vectors that are rounded to 8 bits anyway.

        Returns:
            [C, D] fp32 on the CPU.
        """
        self.module.eval()  # type: ignore[attr-defined]
        encoder = self.module.candidate_encoder
        fp32 = encoder.arithmetic(self.device) == torch.float32
        low = low_precision and fp32 and (self.device.type != "cpu" or encodes_in_bf16(encoder.width))
        with torch.autocast(self.device.type, torch.bfloat16) if low else contextlib.nullcontext():
            return self.encode_ids([candidate.ids for candidate in self.candidates(texts)]).cpu()

    def weights_changed(self) -> None:
        """Discard the vectors that were computed with other weights."""
        self.cache.clear()

    def fingerprint(self) -> str:
        """Compute the SHA-256 of all that determines candidate vectors but their text.

        That is weights, tokenizer, reduction, similarity, scaling and truncation. The precision is not included, since
        it only rounds; nor is another runtime that computes with the same weights. A runtime with quantised weights is,
        as it computes with others.
        """
        ranking = self.settings.ranking
        settings = [ranking.reduction_type, self.similarity, self.context_encoder.output_scaling]
        settings += [ranking.poly_n_codes] if ranking.reduction_type == "first_m" else []
        settings.append(self.settings.label_truncate)
        settings += [ranking.candidate_prompt] if ranking.candidate_prompt else []
        settings += ["without its outputs"] if getattr(self.module, "left_out", (0, 0))[1] else []
        backend = self.module.candidate_encoder.backend
        settings += [backend.quantized] if backend is not None and backend.quantized else []
        if getattr(type(self.module), "candidate_vectors", None) is not TwoTowers.candidate_vectors:
            settings += [
                self.architecture,
                dataclasses.asdict(ranking),
            ]  # a further architecture may read any of its options
        weights = self.module.candidate_weights()
        # With adapters, a digest represents the frozen weights, which bitsandbytes re-orders when it first computes.
        if self.module.candidate_encoder.backbone_digest is not None:
            weights = without_frozen_weights(weights)
        return self.fingerprint_of(
            {name.removeprefix("candidate_encoder."): weight for name, weight in weights.items()}, json.dumps(settings)
        )

    @property
    def similarity(self) -> str:
        """The similarity, "dot" or "cosine"."""
        return str(getattr(self.settings.ranking, "similarity", "dot"))
