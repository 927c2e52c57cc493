"""What a table holds, before anybody trains on it: counts, lengths, repetitions, and what would spoil the model."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from polyagents.console import number_of
from polyagents.text.normalize import normalized

Length = Callable[[str], int]
"""A text -> how long it is."""

OFTEN, TIMES = 0.05, 5  # a label that is there as often, and answers a larger share of a split, is worth a sentence,
EVEN = 1.5  # if the share is also so many times as large as if as many labels were equally frequent
FEW = 500  # training examples; the demo's bi-encoder has seen twice as many
CUT = 0.1  # share of texts that are longer than what a model reads
ALIKE, LONGER = 0.9, 0.8  # share of common words of two labels that may mean the same; if one only has more words
LIST = re.compile(r"""\[\s*(['"]).*\1\s*\]""", re.DOTALL)  # of JSON or Python, as tables write lists into a cell
FEW_LABELS = 1_000  # whose pairs are compared in less than a second


@dataclass
class Split:
    """What is counted of a split; texts are kept as digests of 8 bytes, so that millions fit into memory.

    Attributes:
        examples: how many there are.
        contexts: how often each context is there.
        labels: how often each label is there; as ParlAI reads replies, without case, punctuation and articles.
        pairs: how often each context is there with each of its labels.
        answers: how often each context is there with each list of labels.
        context_lengths: of each example.
        label_lengths: of each label.
        with_candidates: examples that have candidates of their own.
        candidates: how many candidates those have.
        without_label: examples whose candidates lack their label.
        unlabelled: examples without any label.
        repeating: examples some of whose candidates are equal.
        lists: contexts and labels that are lists written as a text.
        most_used: the text of the label that is there most often.
        texts: the texts of different labels, up to FEW_LABELS and one.
    """

    examples: int = 0
    contexts: Counter[bytes] = field(default_factory=Counter)
    labels: Counter[bytes] = field(default_factory=Counter)
    pairs: Counter[bytes] = field(default_factory=Counter)
    answers: Counter[bytes] = field(default_factory=Counter)
    context_lengths: list[int] = field(default_factory=list)
    label_lengths: list[int] = field(default_factory=list)
    with_candidates: int = 0
    candidates: list[int] = field(default_factory=list)
    without_label: int = 0
    unlabelled: int = 0
    repeating: int = 0
    lists: int = 0
    most_used: str = ""
    texts: dict[str, None] = field(default_factory=dict)

    @classmethod
    def of(cls, examples: Iterable[Mapping[str, Any]], length: Length) -> "Split":
        """Count the examples of a split.

        Args:
            examples: `context`, `labels` and `candidates`, as `TableColumns.example` returns them.
        """
        found, most = cls(), 0
        for example in examples:
            found.examples += 1
            found.contexts[digest(example["context"])] += 1
            found.answers[digest(example["context"], *example["labels"])] += 1
            found.context_lengths.append(length(example["context"]))
            found.unlabelled += not example["labels"]
            found.lists += sum(1 for text in (example["context"], *example["labels"]) if LIST.fullmatch(text.strip()))
            for label in example["labels"]:
                key = digest(normalized(label) or label)
                found.labels[key] += 1
                if found.labels[key] > most:
                    most, found.most_used = found.labels[key], label
                if len(found.texts) <= FEW_LABELS:
                    found.texts[label] = None
                found.pairs[digest(example["context"], label)] += 1
                found.label_lengths.append(length(label))
            if own := example["candidates"]:
                found.with_candidates += 1
                found.candidates.append(len(own))
                found.without_label += bool(example["labels"]) and not set(own) & set(example["labels"])
                found.repeating += len(set(own)) < len(own)
        return found


def digest(*texts: str) -> bytes:
    """Make 8 bytes of texts, which stand for them."""
    return blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=8).digest()


# ---- what is printed -------------------------------------------------------------------------------------------------


def rows_of(splits: Mapping[str, Split]) -> Iterator[list[str]]:
    """Yield the rows of the table of counts: a name, and a cell for each split."""
    yield ["", *splits]
    yield ["examples", *(f"{one.examples:,}" for one in splits.values())]
    yield ["different contexts", *(f"{len(one.contexts):,}" for one in splits.values())]
    yield ["different labels", *(f"{len(one.labels):,}" for one in splits.values())]
    if any(one.with_candidates for one in splits.values()):
        yield ["with own candidates", *(f"{one.with_candidates:,}" for one in splits.values())]
        yield ["candidates of these", *(spread(one.candidates) for one in splits.values())]
    yield ["context length", *(spread(one.context_lengths) for one in splits.values())]
    yield ["label length", *(spread(one.label_lengths) for one in splits.values())]


def spread(counts: Sequence[int]) -> str:
    """Say the median, the 95th percentile and the largest of some counts."""
    if not counts:
        return "-"
    middle, high = np.percentile(counts, [50, 95], method="nearest")
    return f"{middle} / {high} / {max(counts)}"


def warnings_of(splits: Mapping[str, Split], limits: tuple[int, int], unit: str) -> Iterator[str]:
    """Yield a sentence for everything that may spoil training or evaluation, with what to do.

    Args:
        limits: how much of a context and of a label a model reads, in the unit of the lengths; 0 or below: all.
    """
    train = splits["train"]
    if train.examples < FEW:
        few = number_of(train.examples, "example")
        yield f"train has {few}, which is few: expect little beyond what the backbone knows."
    for name, one in splits.items():
        yield from repetitions(name, one)
        yield from cut_texts(name, one, limits, unit)
        if one.lists:
            yield (
                f"{name}: {number_of(one.lists, 'context or label', 'contexts and labels')} written as a list, and "
                f"read as one text with its brackets; give several turns or labels in JSON lines or Parquet."
            )
        yield from candidate_faults(name, one)
    for name, one in splits.items():
        if name != "train" and (leaked := sum((one.pairs & train.pairs).values())):
            yield (
                f"{name}: {leaked:,} of {number_of(one.examples, 'example')} in train as well, with the same label, "
                f"which makes a score on {name} too good. Remove from train what is in both."
            )
    yield from labels_alike({text: None for one in splits.values() for text in one.texts})
    if len(splits) == 1:
        yield "There are no validation examples: training cannot tell its best model. Add a file named valid."


def repetitions(name: str, split: Split) -> Iterator[str]:
    """Yield sentences about what is there more than once."""
    if doubled := split.examples - len(split.answers):
        yield f"{name}: {number_of(doubled, 'example')} with the context and label of another; keep one of each."
    if doubled := len(split.answers) - len(split.contexts):
        yield (
            f"{name}: {number_of(doubled, 'example')} with the context of another, and another label. If several "
            f"labels are right, give them as one list (JSON lines, Parquet), so that none counts as wrong."
        )
    if split.labels and len(split.labels) > 1:
        ((_, times),) = split.labels.most_common(1)
        if times >= TIMES and (often := times / sum(split.labels.values())) > max(OFTEN, EVEN / len(split.labels)):
            yield (
                f"{name}: {often:.0%} of the labels are {split.most_used!r:.60}; a model learns to always say it. Keep "
                f"fewer of them."
            )
    elif split.labels:
        yield f"{name}: all labels are {split.most_used!r:.60}; there is nothing to tell apart."


def labels_alike(labels: Iterable[str]) -> Iterator[str]:
    """Yield a sentence about different labels that may mean the same, if there are few enough to compare."""
    words = [(label, frozenset(normalized(label).split())) for label in labels]
    if len(words) > FEW_LABELS:
        return
    pairs = ((a, b) for (a, one), (b, other) in itertools.combinations(words, 2) if alike(one, other))
    if first := next(pairs, None):
        yield (
            f"{number_of(1 + sum(1 for _ in pairs), 'pair')} of nearly equal labels, such as {first[0]!r:.80} and "
            f"{first[1]!r:.80}. If they differ in more than case, punctuation and articles, one counts as wrong if the "
            f"other is right. If they mean the same, write them alike."
        )


def alike(one: frozenset[str], other: frozenset[str]) -> bool:
    """Return whether two sets of words have most words in common."""
    least = LONGER if one <= other or other <= one else ALIKE
    return len(one & other) >= least * len(one | other) > 0


def cut_texts(name: str, split: Split, limits: tuple[int, int], unit: str) -> Iterator[str]:
    """Yield sentences about texts of which a model reads a part only."""
    flags = ("--text-truncate", "--label-truncate")
    kept = ("contexts", "its end"), ("labels", "its beginning")
    for lengths, limit, flag, (what, part) in zip(
        (split.context_lengths, split.label_lengths), limits, flags, kept, strict=True
    ):
        longer = sum(length > limit for length in lengths) if limit > 0 else 0
        if lengths and longer / len(lengths) > CUT:
            yield (
                f"{name}: {longer / len(lengths):.0%} of the {what} are longer than {limit} {unit}, and only {part} is "
                f"read; raise {flag} if the rest matters."
            )


def candidate_faults(name: str, split: Split) -> Iterator[str]:
    """Yield sentences about the examples' own candidates, and about examples without a right one."""
    if split.unlabelled:
        use = "calibrate learns from them when to choose none" if name != "train" else "training skips them"
        unlabelled = number_of(split.unlabelled, "example")
        yield f"{name}: {unlabelled} without a label, so none of the candidates is right; {use}."
    if split.without_label:
        yield (
            f"{name}: the candidates of {number_of(split.without_label, 'example')} lack the label, which is then "
            f"added to them; check that both columns spell it alike."
        )
    if split.repeating:
        yield f"{name}: {number_of(split.repeating, 'example')} with a candidate more than once; write each once."
    if split.with_candidates and len(set(split.candidates)) > 1:
        low, high = min(split.candidates), max(split.candidates)
        yield (
            f"{name}: an example has {low} to {high} candidates, so R@1 mixes easy and hard lists; give all the same "
            f"number."
        )
