"""Hard negatives: the candidates that a trained bi- or poly-encoder ranks just below the label.

Among those that it ranks highest, some answer the context as well as the label does. Excluded are candidates that read
as the label, that the training set answers to the same context elsewhere, and that score about as high as the label or
higher: the difference must be at least a fraction of the label's score, the margin (NV-Retriever, arXiv 2407.15831;
sentence-transformers calls it relative_margin, pull request 3321).
"""

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from polyagents.console import Bar
from polyagents.files.hashing import fingerprint, text_key, utf8
from polyagents.index.builder import BLOCK, CandidateEncoder, Worker, write_shards
from polyagents.index.interface import Hits
from polyagents.index.manifest import Manifest, index_folder
from polyagents.index.store import CandidateStore
from polyagents.index.texts import Texts
from polyagents.index.top_k import TopCandidates
from polyagents.ranking.ranking_model import RankingModel, in_blocks
from polyagents.ranking.two_tower_model import TwoTowerModel, two_towers
from polyagents.text.normalize import normalize, normalized

SLACK = 100  # chosen here: how many more candidates than negatives are searched before all of them are scored
SEED = 0  # of the random negatives


class LabelledContext(NamedTuple):
    """A context and one of its labels."""

    text: str
    label: str


@dataclass(frozen=True)
class Mined:
    """A pair and its negatives.

    Attributes:
        pair: the context and the label.
        negatives: texts, highest score first; random ones after these.
        gap: the mean difference between the label's score and theirs; 0 if there are none.
        dropped: how many candidates the margin excluded.
        random: how many of the negatives were drawn at random.
    """

    pair: LabelledContext
    negatives: list[str]
    gap: float
    dropped: int
    random: int


@dataclass
class Counts:
    """Sums over all pairs; `short` counts those with fewer negatives than requested."""

    examples: int = 0
    negatives: int = 0
    gap: float = 0.0
    dropped: int = 0
    random: int = 0
    short: int = 0

    def add(self, mined: Mined, wanted: int) -> None:
        """Count one more pair, for which `wanted` negatives were requested."""
        self.examples += 1
        self.negatives += len(mined.negatives)
        self.gap += mined.gap
        self.dropped += mined.dropped
        self.random += mined.random
        self.short += len(mined.negatives) < wanted


def labelled_contexts(examples: Iterable[tuple[str, Sequence[str]]]) -> tuple[list[LabelledContext], int]:
    """Return a pair for every label of every example, and how many examples have no text or no label."""
    pairs, skipped = [], 0
    for text, labels in examples:
        own = [LabelledContext(text, label) for label in labels if text.strip() and label.strip()]
        pairs += own
        skipped += not own
    return pairs, skipped


def searchable(model: RankingModel) -> TwoTowerModel:
    """Return the model if it can search a pool of candidates.

    Raises:
        InputError: it is a joint model.
    """
    return two_towers(
        model,
        f"A {model.label} cannot search a pool of candidates; mine with a bi- or poly-encoder, and train the "
        f"{model.label} on the result.",
    )


def pool_in(folder: str, texts: Texts, model: TwoTowerModel) -> CandidateStore:
    """Encode the candidates that negatives come from in fp32; vectors of an earlier run are used again.

    Raises:
        InputError: the disk is full, the folder may not be written, or another version wrote it.
    """
    encoder = CandidateEncoder.of(model, "fp32")
    with index_folder(folder, "--outfile"):
        Manifest.read(folder)  # refuses another version's, which would otherwise be found after the encoding
        # Not Ranker.index, which reads lines: a label may have several.
        shards = write_shards(folder, texts, encoder, Worker())
        Manifest(encoder.model, fingerprint([texts.keys.tobytes()]), encoder.stored_as, shards).commit(folder)
        return CandidateStore.open(folder, encoder.model)


def mine(
    pairs: Sequence[LabelledContext], model: TwoTowerModel, pool: CandidateStore, wanted: int, margin: float
) -> Iterator[Mined]:
    """Find the hardest negatives of every pair, in order.

    Where a label scores so low that too few candidates are below it, the rest is drawn from those above.

    Args:
        pairs: all of the training set: they say what else answers the same context.
        model: the one that encoded the pool.
        pool: C candidates, none of them deleted.
        wanted: negatives of each pair; fewer if the pool has no more.
        margin: a negative scores at most `s - margin * |s|`, where s is the label's score.

    Yields:
        Every pair with its negatives.
    """
    miner = Miner(pairs, model, pool, wanted, margin)
    with Bar(total=len(pairs), unit=" examples", desc="Mining negatives", disable=len(pairs) < BLOCK) as bar:
        for block in in_blocks(pairs):
            yield from miner.mine(block)
            bar.update(len(block))


class Negatives(NamedTuple):
    """The possible negatives of a pair, highest score first.

    Attributes:
        below: [K], indices of candidates that score below the limit; `scores` are theirs.
        above: [A], indices of those that the margin excludes; `scores_above` are theirs.
    """

    below: np.ndarray
    scores: np.ndarray
    above: np.ndarray
    scores_above: np.ndarray


class Miner:
    """The training set and the pool, prepared for `mine`."""

    def __init__(
        self, pairs: Sequence[LabelledContext], model: TwoTowerModel, pool: CandidateStore, wanted: int, margin: float
    ):
        self.model, self.pool, self.wanted, self.margin = model, pool, wanted, margin
        self.reads_as = np.fromiter((reading(text) for text in pool.texts()), np.int64, len(pool))
        self.draw = random.Random(SEED)
        self.answers: defaultdict[bytes, list[int]] = defaultdict(list)
        for pair in pairs:
            self.answers[context_key(pair.text)].append(reading(pair.label))

    def mine(self, pairs: Sequence[LabelledContext]) -> Iterator[Mined]:
        """Find the negatives of some pairs."""
        query = self.model.query(self.model.context_ids([pair.text for pair in pairs]))
        vectors = self.model.encode_texts([pair.label for pair in pairs]).to(query.device)
        labels: list[float] = query.scores(vectors).diagonal().tolist()
        found = self.pool.search(query, self.wanted + SLACK)
        for i, (pair, label, hits) in enumerate(zip(pairs, labels, found, strict=True)):
            split = self.split(pair, label, hits)
            if len(split.below) < self.wanted and len(hits.indices) < len(self.pool):
                scores = self.pool.scores(query.one(i)).cpu().numpy()
                (every,) = self.pool.hits(TopCandidates.of(scores, len(self.pool)))
                split = self.split(pair, label, every)
            yield self.chosen(pair, label, split)

    def split(self, pair: LabelledContext, label: float, hits: Hits) -> Negatives:
        """Divide the candidates found for a pair, without its right answers, at the limit under its label's score."""
        indices, scores = hits.indices, hits.scores
        other = ~np.isin(self.reads_as[indices], self.answers[context_key(pair.text)])
        low = scores <= label - self.margin * abs(label)
        below, above = other & low, other & ~low
        return Negatives(indices[below], scores[below], indices[above], scores[above])

    def chosen(self, pair: LabelledContext, label: float, split: Negatives) -> Mined:
        """Select the hardest negatives, and random ones if there are too few."""
        indices, scores = split.below[: self.wanted], split.scores[: self.wanted]
        missing = min(self.wanted - len(indices), len(split.above))
        drawn = self.draw.sample(range(len(split.above)), missing)
        indices, scores = np.append(indices, split.above[drawn]), np.append(scores, split.scores_above[drawn])
        gap = label - float(scores.mean()) if len(scores) else 0.0
        return Mined(pair, [self.pool[int(index)] for index in indices], gap, len(split.above), missing)


def reading(text: str) -> int:
    """Return 8 bytes that are equal for texts that read the same, so that millions of texts need not fit in memory."""
    return hash(normalized(text))


def context_key(text: str) -> bytes:
    """Return bytes that are equal for contexts that read the same."""
    return text_key(utf8(normalize(text)))  # not cached: contexts are long, and seldom repeated
