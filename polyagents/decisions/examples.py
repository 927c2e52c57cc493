"""Examples of decisions: a context, its own options if it has any, and which options are right, perhaps none."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from polyagents.decisions.named_options import NamedOptions, named_options
from polyagents.errors import InputError
from polyagents.files.hashing import fingerprint
from polyagents.files.python_arguments import distinct
from polyagents.text.normalize import normalized
from polyagents.training_loop.text_example import TextExample, check_examples, read_example
from polyagents.training_loop.validation import MOST_ANSWERS


@dataclass(frozen=True)
class DecisionExamples:
    """Examples whose options are known."""

    contexts: list[str]
    labels: list[tuple[str, ...]]  # of each context; empty if none of its options is right
    shared: NamedOptions | None
    own: list[list[str]] | None  # the options of each context; None if all have `shared`
    groups: list[int]  # the dialogue of each, numbered from 0

    def __len__(self) -> int:
        return len(self.contexts)

    def digest(self) -> str:
        """Return a digest of contexts and labels."""
        rows = zip(self.contexts, self.labels, strict=True)
        return fingerprint(part for context, labels in rows for part in (context, "\t".join(labels)))[:16]


def examples_of(given: Iterable[Any], candidates: Any = None, groups: Sequence[int] | None = None) -> DecisionExamples:
    """Read examples as a caller gives them.

    Args:
        given: dicts with context, label and maybe candidates. A label that is None, empty, or an empty list says that
            none of the options is right.
        candidates: the options of all, as `named_options` takes them. None: each example's own, or, if none has any,
            all labels, at most MOST_ANSWERS.
        groups: the dialogue of each; None if each is alone.

    Raises:
        InputError: an example is not one, or has other options than the rest; or a label is not among the options.
    """
    read = enumerate(check_examples(given, "examples"))
    examples = [read_example(example, f"examples[{place}]", needs_label=False) for place, example in read]
    if not examples:
        raise InputError("There are no examples; give dicts with context and label.")
    labels = [example.labels for example in examples]
    numbers = list(range(len(examples)) if groups is None else groups)
    contexts = [example.context for example in examples]
    with_own = sum(example.candidates is not None for example in examples)
    if candidates is None and with_own:
        if with_own < len(examples):
            raise InputError(
                f"There are no candidates in {len(examples) - with_own:,} of {len(examples):,} examples; give all of "
                f"them their own, or options for all (--options-file)."
            )
        lists = [distinct([*(one.candidates or ()), *missing(one)]) for one in examples]
        if len({tuple(sorted(one)) for one in lists}) > 1:
            return DecisionExamples(contexts, labels, None, lists, numbers)
        candidates = lists[0]
    if candidates is None:
        candidates = distinct(label for own in labels for label in own)
        if len(candidates) > MOST_ANSWERS:
            raise InputError(
                f"The examples have {len(candidates):,} different labels, too many to be the options of each; give "
                f"candidates, or a file of them (--options-file)."
            )
    options = named_options(candidates, "candidates")
    for place, own in enumerate(labels):
        if own and not options.right(own):
            raise InputError(
                f"The label {own[0]!r:.60} of the context {contexts[place]!r:.60} is not among the options; add it, or "
                f"give the example an empty label if none of the options is right."
            )
    return DecisionExamples(contexts, labels, options, None, numbers)


def missing(example: TextExample) -> list[str]:
    """Return the label of an example that its candidates lack, as an evaluation adds it."""
    listed = {normalized(text) for text in example.candidates or ()}
    if not example.labels or any(normalized(label) in listed for label in example.labels):
        return []
    return [example.labels[0]]
