"""Properties that are computed once."""

import functools
from typing import TYPE_CHECKING, Any, TypeVar

Value = TypeVar("Value")


class cached_property(functools.cached_property[Value]):  # noqa: TID251
    """A property as functools has it, without the lock for all objects of a class that Python has before 3.12.

    Threads would wait for each other's texts there, and a process that was forked meanwhile would wait forever. Threads
    that ask at once may each compute, and all get the value of the first.
    """

    if not TYPE_CHECKING:  # the types stay functools' own

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            """Compute the value and keep it where attributes are, which have priority from then on."""
            if instance is None:
                return self
            return vars(instance).setdefault(self.attrname, self.func(instance))
