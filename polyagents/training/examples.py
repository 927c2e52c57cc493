"""The examples of a batch: contexts, labels and candidates, as texts and as token ids."""

from dataclasses import dataclass

from polyagents.ranking.candidate_set import Candidate, Label


@dataclass(frozen=True)
class EncodedExamples:
    """B examples.

    Attributes:
        contexts: token ids of their contexts.
        labels: the right answers of each; None for an example without a label.
        given: the candidates that came with each; None if no example has candidates.
    """

    contexts: list[list[int]]
    texts: list[str]
    labels: list[Label | None]
    given: list[list[Candidate]] | None

    def __len__(self) -> int:
        return len(self.contexts)

    @property
    def labelled(self) -> bool:
        """Whether any example has a label."""
        return any(label is not None for label in self.labels)

    @property
    def without_own(self) -> int:
        """How many examples with a label came without candidates."""
        given = self.given or [[]] * len(self)
        return sum(label is not None and not own for label, own in zip(self.labels, given, strict=True))

    @property
    def lists(self) -> list[list[Candidate]]:
        """The candidates that each example ranks: its own, or else the distinct labels of the batch."""
        distinct: dict[tuple[int, ...], Candidate] = {}
        for label in self.labels:
            if label is not None:
                distinct.setdefault(label.candidate.ids, label.candidate)
        return [own or list(distinct.values()) for own in self.given or [[]] * len(self)]
