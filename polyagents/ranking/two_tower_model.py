"""A model whose candidates are encoded separately, so that their vectors can be cached, stored and searched."""

import dataclasses
import json
from collections.abc import Sequence

import torch
from torch import Tensor

from polyagents.errors import InputError
from polyagents.models.adapters import without_frozen_weights
from polyagents.models.architecture import options_with
from polyagents.models.encoder import Encoder
from polyagents.models.model_options import TowerOptions
from polyagents.models.tokens import to_device
from polyagents.models.two_towers import Query, TwoTowers
from polyagents.models.versions import Versions
from polyagents.options import Role
from polyagents.ranking.candidate_set import CandidateSet
from polyagents.ranking.pieces import Steps, pieces
from polyagents.ranking.ranking_model import RankingModel, Settings
from polyagents.surroundings import undisturbed
from polyagents.text.tokenizer import RankingTokenizer
from polyagents.timings import encodes_in_bf16


class TwoTowerModel(RankingModel):
    """A bi- or poly-encoder, or another architecture of two towers."""

    module: TwoTowers
    encodes_candidates = True

    def __init__(self, module: TwoTowers, tokenizer: RankingTokenizer, settings: Settings):
        super().__init__(module, tokenizer, settings, Versions(module, without="context_encoder"))
        self._fingerprint: tuple[object, str] = (None, "")  # the last that was computed, and of which version

    @property
    def context_encoder(self) -> Encoder:
        """The encoder of contexts."""
        return self.module.context_encoder

    @undisturbed()
    def scores(self, contexts: Sequence[Sequence[int]], candidates: CandidateSet) -> Tensor:
        """Score as `RankingModel.scores` says; vectors that are remembered are not computed again."""
        vectors = torch.stack(self.encoded(candidates.ids))
        context = self.module.encode_context(self.tokens(contexts))
        # A shared list may be too large for all products at once, which Query splits; lists of their own are short.
        if candidates.rows is None:
            return Query(self.module, context).scores(vectors)
        return self.module.score(context, vectors[to_device(candidates.rows, self.device)])

    @undisturbed()
    def query(self, contexts: Sequence[Sequence[int]]) -> Query:
        """Encode token ids of B contexts as the query that a large set of candidates is searched with."""
        return Query(self.module, self.module.encode_context(self.tokens(contexts)))

    @undisturbed()
    def encode_ids(self, ids: Sequence[Sequence[int]]) -> Tensor:
        """Encode token ids of C candidates: [C, D] on the model's device."""
        return self.module.encode_candidates(self.tokens(ids))

    def scores_in_pieces(
        self, contexts: Sequence[Sequence[int]], candidates: CandidateSet, tokens: int
    ) -> Steps[Tensor]:
        """Score as `scores` does, once the candidates that are not cached yet are encoded piece by piece."""
        for piece in pieces(list(map(len, candidates.ids)), tokens):
            with undisturbed():  # not around the generator, whose caller computes between two pieces
                self.encoded([candidates.ids[place] for place in piece])
            yield
        return self.scores(contexts, candidates)

    @undisturbed()
    def encode_texts(self, texts: Sequence[str], low_precision: bool = False) -> Tensor:
        """Encode C candidate texts: [C, D] fp32 on the CPU.

        Args:
            low_precision: encode in bf16 if the machine is fast in it, whatever `--precision` says: right for
                vectors that are rounded to 8 bits anyway.
        """
        self.module.eval()
        encoder = self.module.candidate_encoder
        fp32 = encoder.arithmetic(self.device) == torch.float32
        low = low_precision and fp32 and (self.device.type != "cpu" or encodes_in_bf16(encoder.width))
        tokens = self.tokens([candidate.ids for candidate in self.candidates(texts)])
        # A cast that autocast keeps would outlive it within another one, and be of old weights after an update.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=low, cache_enabled=False):
            return self.module.encode_candidates(tokens).cpu()

    version = RankingModel.weights_version  # those of candidates are watched

    def check(self, encoded_by: object) -> None:
        """Refuse candidates that other weights encoded."""
        if encoded_by != (self.known_fingerprint() if isinstance(encoded_by, str) else self.version()):
            raise InputError(
                "These candidates were encoded with other weights than the model has now, or prepared by another "
                "Ranker: prepare them again, or build the index again."
            )

    def known_fingerprint(self) -> str:
        """Return the fingerprint of the present weights, computed once for them: it takes a second for a BERT-base."""
        return self._fingerprint[1] if self._fingerprint[0] is self.version() else self.fingerprint()

    def fingerprint(self) -> str:
        """Compute the SHA-256 of everything that determines candidate vectors, except their text.

        That is weights, tokenizer, reduction, similarity, scaling and truncation. The precision is not included, since
        it only rounds; nor is another runtime that computes with the same weights. A runtime with quantised weights is,
        as it computes with others.
        """
        version, ranking = self.version(), self.settings.ranking
        settings = [ranking.reduction_type, self.similarity, self.context_encoder.output_scaling]
        settings += [ranking.poly_n_codes] if ranking.reduction_type == "first_m" else []
        settings.append(self.settings.label_truncate)
        settings += [ranking.candidate_prompt] if ranking.candidate_prompt else []
        settings += [["plain"]] if self.settings.plain_texts else []
        settings += ["without its outputs"] if self.module.left_out[1] else []
        ours = {field.name for field in dataclasses.fields(TowerOptions)} | {"plain_texts"}
        own = [name for name in options_with(self.architecture, Role.VECTORS) if name not in ours]
        settings += [[name, getattr(ranking, name)] for name in own]  # of an architecture of somebody else
        backend = self.module.candidate_encoder.backend
        settings += [backend.quantized] if backend is not None and backend.quantized else []
        if type(self.module).candidate_vectors is not TwoTowers.candidate_vectors:
            # An architecture of somebody else may read any of its options.
            settings += [self.architecture, dataclasses.asdict(ranking)]
        weights = self.module.candidate_weights()
        # With adapters, a digest represents the frozen weights, which bitsandbytes re-orders when it first computes.
        if self.module.candidate_encoder.backbone_digest is not None:
            weights = without_frozen_weights(weights)
        named = {name.removeprefix("candidate_encoder."): weight for name, weight in weights.items()}
        self._fingerprint = version, self.fingerprint_of(named, json.dumps(settings))
        return self._fingerprint[1]


def two_towers(model: RankingModel, otherwise: str | None = None) -> TwoTowerModel:
    """Return a model of two towers; a joint one is refused, with an InputError that says `otherwise` if it is given."""
    if not isinstance(model, TwoTowerModel):
        raise InputError(
            otherwise or f"A {model.label} cannot encode candidates in advance; index them with a bi- or poly-encoder."
        )
    return model
