"""The texts of the pages that people see, which a file in another language can replace."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from string import Formatter

from polyagents.errors import InputError
from polyagents.files.json_files import check_whole, read_json

ENGLISH = Path(__file__).parent / "templates" / "texts.json"  # every text, as its own translation
LANG = "lang"  # the key of the language's code, such as de


class Wording:
    """Texts by their English, in the language of the code `lang`; {} in one stands for a value."""

    def __init__(self, translations: Mapping[str, str]):
        self.lang, self.texts = translations.get(LANG, "en"), translations
        # For scripts.
        self.json = json.dumps({english: text for english, text in translations.items() if english != text})
        self.patterns = [
            (re.compile("(.*)".join(map(re.escape, english.split("{}"))), re.DOTALL), english)
            for english in sorted(translations, key=len, reverse=True)
            if "{}" in english and len(english) > len("{} of {}")  # which would match too much
        ]

    def __call__(self, english: str, *values: object) -> str:
        """Return a text with its values; what has no translation stays, such as an organiser's own question."""
        if not values and english not in self.texts:  # a sentence that has its values already
            for pattern, one in self.patterns:
                if found := pattern.fullmatch(english):
                    return self(one, *map(self, found.groups()))
            return english
        return self.texts.get(english, english).format(*values) if values else self.texts[english]


def read_wording(path: str = "") -> Wording:
    """Read the texts of a file; "" for English. A text is refused that is not a translation, or has other values."""
    english = read_json(ENGLISH)
    if not path:
        return Wording(english)
    try:
        given = read_json(path)
        check_whole(given)
    except (OSError, ValueError) as error:
        raise InputError(f"The texts {path} cannot be used ({getattr(error, 'strerror', None) or error}).") from error
    if not isinstance(given, dict) or not all(isinstance(text, str) for text in given.values()):
        raise InputError(f"The texts {path} are not a JSON object of texts; begin with a copy of {ENGLISH}.")
    for key, text in given.items():
        if key not in english or (key != LANG and not takes_values(text, key.count("{}"))):
            raise InputError(
                f"The texts {path} have {key!r:.80} as {text!r:.80}; it is not a text of {ENGLISH}, or has other {{}}."
            )
    return Wording(english | given)


def takes_values(text: str, values: int) -> bool:
    """Tell whether a text takes so many values, each once, in any order: {}, or {0} and {1}, without a format."""
    marks = [f"\0{value}\0" for value in range(values)]
    try:
        if any(spec or conversion for _, _, spec, conversion in Formatter().parse(text)):
            return False
        filled = text.format(*marks)
    except (LookupError, ValueError, AttributeError):
        return False
    return bool(text.strip()) and filled.count("\0") == 2 * values and all(mark in filled for mark in marks)
