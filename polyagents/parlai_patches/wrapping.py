"""Wraps functions of ParlAI's in ours."""

import functools
import inspect
from collections.abc import Callable
from typing import Any


def wrap(name: str, around: Callable[..., Any], *owners: Any) -> None:
    """Replace a function or method of ParlAI's by `around`, which gets what was there before, then the arguments.

    Args:
        owners: the class that has it, or the modules that have imported it.
    """
    found = getattr(owners[0], name)
    is_of_class = inspect.ismethod(found)
    original = found.__func__ if is_of_class else found

    @functools.wraps(original)
    def patched(*given: Any, **named: Any) -> Any:
        return around(original, *given, **named)

    for owner in owners:
        setattr(owner, name, classmethod(patched) if is_of_class else patched)
