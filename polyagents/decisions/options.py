"""The options of a decision: texts, or names with one text or several."""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polyagents.errors import InputError
from polyagents.evaluation.intervals import Floats
from polyagents.files.given_texts import texts_of
from polyagents.text.normalize import normalized


@dataclass(frozen=True)
class Options:
    """Options and their texts.

    Attributes:
        names: [O], different ones; of an option that is only a text, the text.
        texts: [C], different ones, at least one of each option; those of one option follow each other.
        first: [O], the place of each option's first text.
    """

    names: list[str]
    texts: list[str]
    first: np.ndarray

    @classmethod
    def plain(cls, texts: list[str]) -> "Options":
        """Make options of different texts."""
        return cls(texts, texts, np.arange(len(texts)))

    @functools.cached_property
    def places(self) -> dict[str, list[int]]:
        """The options of each name, as it is and as ParlAI's teachers compare texts."""
        found: dict[str, list[int]] = {}
        for place, name in enumerate(self.names):
            for key in {name, normalized(name)}:
                found.setdefault(key, []).append(place)
        return found

    def right(self, labels: Sequence[str]) -> list[int]:
        """Return the places of the options that labels name."""
        keys = {key for label in labels for key in (label, normalized(label))}
        return sorted({place for key in keys for place in self.places.get(key, ())})

    def best(self, scores: Floats) -> Floats:
        """Return the best score [B, O] of each option's texts [B, C]."""
        if len(self.names) == len(self.texts):
            return scores
        found: Floats = np.maximum.reduceat(scores, self.first, axis=1)
        return found

    def texts_at(self, option: int) -> list[str]:
        """Return the texts of an option."""
        stop = self.first[option + 1] if option + 1 < len(self.names) else len(self.texts)
        return self.texts[self.first[option] : stop]


def options_of(given: Any) -> Options:
    """Read options as a caller gives them: texts, of which equal ones are one option, or names with texts.

    Raises:
        InputError: there are none, one is blank, or two names have the same text.
    """
    if isinstance(given, Mapping):
        listed = {str(name): texts_of(texts, f"option {name!r}", one=True) for name, texts in given.items()}
    else:
        listed = {text: [text] for text in texts_of(given, "options")}
    if not listed:
        raise InputError("There are no options; give at least one text.")
    owner: dict[str, str] = {}
    first, names = [], []
    for name, texts in listed.items():
        if not texts or not all(text.strip() for text in texts):
            raise InputError(f"The option {name!r:.80} has a blank text, or none; give each option a text.")
        names.append(name)
        first.append(len(owner))
        for text in texts:
            if owner.setdefault(text, name) != name:
                raise InputError(
                    f"The options {owner[text]!r:.60} and {name!r:.60} have the same text, {text!r:.60}; make them one "
                    f"option, or give them different texts."
                )
    return Options(names, list(owner), np.array(first))


def distinct(texts: Iterable[str]) -> list[str]:
    """Return each text once, in order."""
    return list(dict.fromkeys(texts))
