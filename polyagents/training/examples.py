"""What a batch holds for a ranker: contexts, labels and candidates, as texts and as token ids."""

from dataclasses import dataclass

from polyagents.ranking.candidate_set import Candidate, Label


@dataclass(frozen=True)
class Examples:
    """B examples.

    Attributes:
        contexts: token ids of their contexts.
        texts: the contexts as texts.
        labels: what answers each; None for an example that has no label.
        given: the candidates that came with each; None where none came with any.
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
