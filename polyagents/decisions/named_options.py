"""The options of a decision: texts, or names with one text or several."""

from collections.abc import Mapping, Sequence
from typing import Any

from polyagents.errors import InputError
from polyagents.files.python_arguments import distinct, texts_of
from polyagents.properties import cached_property
from polyagents.ranking.option_texts import OptionTexts
from polyagents.text.normalize import normalized


class NamedOptions(OptionTexts):
    """Options with different names and different texts; an option that is only a text has itself as name."""

    @classmethod
    def plain(cls, texts: list[str]) -> "NamedOptions":
        """Make options of different texts."""
        return cls(texts, texts, list(range(len(texts))))

    @cached_property
    def places(self) -> dict[str, int]:
        """The place of each option, by its name."""
        return {name: place for place, name in enumerate(self.names)}

    @cached_property
    def alike(self) -> dict[str, list[int]]:
        """The places of the options whose names read alike, by how they read."""
        found: dict[str, list[int]] = {}
        for place, name in enumerate(self.names):
            found.setdefault(normalized(name), []).append(place)
        return found

    def right(self, labels: Sequence[str]) -> list[int]:
        """Return the places of the options that labels name: exactly or, if there is none, by how they read."""
        named = ([self.places[one]] if one in self.places else self.alike.get(normalized(one), ()) for one in labels)
        return sorted({place for places in named for place in places})

    @cached_property
    def own_texts(self) -> list[list[str]]:
        """The texts of each option."""
        found: list[list[str]] = [[] for _ in self.names]
        for text, owner in zip(self.texts, self.owners, strict=True):
            found[owner].append(text)
        return found

    def part(self, chosen: Sequence[int]) -> "NamedOptions":
        """Return some options."""
        names = [self.names[option] for option in chosen]
        texts = [self.own_texts[option] for option in chosen]
        owners = [place for place, own in enumerate(texts) for _ in own]
        return NamedOptions(names, [text for own in texts for text in own], owners)


def named_options(given: Any, argument: str = "options") -> NamedOptions:
    """Read options: texts, of which equal ones are one option, or names with texts.

    An InputError says if there are none, a name or a text is blank, or two names have the same text; or, by the name of
    the argument, if they are neither.
    """
    if not isinstance(given, Mapping):
        read = NamedOptions.plain(distinct(texts_of(given, argument)))
    else:
        made = OptionTexts.of(given, argument)
        read = NamedOptions(made.names, made.texts, made.owners)
    if not read.names:
        raise InputError("There are no options; give at least one text.")
    owner: dict[str, int] = {}
    for text, place in zip(read.texts, read.owners, strict=True):
        name = read.names[place]
        if not text.strip():
            raise InputError(f"The option {name!r:.80} has a blank text; give it another one, or remove it.")
        if not name.strip():
            raise InputError(f"The option of {text!r:.80} has a blank name; give it another one, or remove it.")
        if owner.setdefault(text, place) != place:
            raise InputError(
                f"The options {read.names[owner[text]]!r:.60} and {name!r:.60} have the same text, {text!r:.60}; make "
                f"them one option, or give them different texts."
            )
    return read
