"""Texts that callers give in Python: lists, arrays and columns of them."""

from collections.abc import Iterable, Mapping
from typing import Any

from polyagents.errors import InputError


def texts_of(given: Any, name: str, one: bool = False) -> list[str]:
    """Return texts as a list; an empty text is valid.

    Args:
        given: an iterable of strings: a list, a generator, a numpy array, a column of pandas, pyarrow or datasets.
        name: the argument's name in error sentences.
        one: whether a string is one text; otherwise it is refused, since it would be read letter by letter.

    Raises:
        InputError: it is something else, or an item is not a string, or has half a surrogate pair.
    """
    wanted = "a text, or a list of texts" if one else "a list of texts"
    iterable = isinstance(given, Iterable) or hasattr(given, "__getitem__")  # which is enough for a loop
    if isinstance(given, str) and one:
        texts: list[Any] = [given]
    elif isinstance(given, (str, bytes, bytearray, Mapping)) or not iterable:
        raise InputError(f"{name} is {given!r:.80}; give {wanted}.")
    elif getattr(given, "ndim", 1) != 1:
        raise InputError(f"{name} is a {type(given).__name__} of {given.ndim} dimensions; give {wanted}.")
    else:  # the items of an array, as Python's own
        convert = getattr(given, "to_pylist", None) or getattr(given, "tolist", None)
        texts = convert() if convert else list(given)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"{name} has {text!r:.80} at place {place}; give {wanted}.")
        if not is_whole(text):
            raise InputError(f"{name} has half a character at place {place} ({text[:40]!a}); remove it.")
    return texts


def is_whole(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair, which JSON can spell and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
