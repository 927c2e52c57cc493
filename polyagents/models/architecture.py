"""The registry of all architectures.

There are two kinds. `TwoTowers` encode context and candidate separately, so candidates can be encoded ahead, stored,
and searched. A `Joint` architecture reads both together. A new architecture extends one of the two, is registered, and
is then trained, evaluated, indexed, searched and served like those that are built in (docs/architecture.md shows one).
"""

import dataclasses
import importlib.metadata
from typing import Any, TypeVar

from polyagents.errors import InputError, did_you_mean
from polyagents.models.base import Architecture as Architecture  # callers of `find` annotate with it
from polyagents.models.bi import BiEncoder
from polyagents.models.cross import CrossEncoder
from polyagents.models.joint import Joint
from polyagents.models.model_options import EncoderOptions, TextOptions
from polyagents.models.poly import PolyEncoder
from polyagents.models.uni import UniEncoder
from polyagents.options import Role, fields_of

ENTRY_POINTS = "polyagents.architectures"  # the group under which installed packages name theirs


def reads_together(architecture: type[Architecture]) -> bool:
    """Tell whether a class is a joint architecture, which reads context and candidate together."""
    return issubclass(architecture, Joint)


Registered = TypeVar("Registered", bound=type[Architecture])
ARCHITECTURES: dict[str, type[Architecture]] = {
    kind.__name__: kind for kind in (BiEncoder, PolyEncoder, UniEncoder, CrossEncoder)
}


def register(architecture: Registered) -> Registered:
    """Register an architecture by the name of its class (usable as a decorator); its agent is `polyagents:<name>`."""
    ARCHITECTURES[architecture.__name__] = architecture
    return architecture


def is_known(name: str) -> bool:
    """Tell whether an architecture of this name is built in, registered, or named by an installed package."""
    if name not in ARCHITECTURES:
        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS, name=name):
            register(entry.load())
    return name in ARCHITECTURES


def find(name: str) -> type[Architecture]:
    """Return the architecture of a name.

    Raises:
        InputError: there is no architecture of this name.
    """
    if not is_known(name):
        known = [*ARCHITECTURES, *(kind.short_name for kind in ARCHITECTURES.values())]
        raise InputError(
            f"There is no architecture {name}{did_you_mean(name, known)}; there are "
            f"{', '.join(sorted(ARCHITECTURES))}. An architecture of another package is found once that package is "
            f"installed or imported."
        )
    return ARCHITECTURES[name]


def architecture_named(name: str) -> str:
    """Return the name of an architecture's class, given its name in `train_model -m`."""
    short = {kind.short_name: known for known, kind in ARCHITECTURES.items()}
    known = short.get(name, name.removeprefix("polyagents:"))
    find(known)
    return known


def options_of(architecture: str) -> "dict[str, dataclasses.Field[Any]]":
    """Return the options of a model by name; of an agent without an architecture, those of its encoder and texts."""
    own = (find(architecture).options_type,) if is_known(architecture) else ()
    return {field.name: field for group in (EncoderOptions, TextOptions, *own) for field in fields_of(group)}


def options_with(architecture: str, role: Role) -> list[str]:
    """Return the names of a model's options that have one of these roles."""
    return [name for name, field in options_of(architecture).items() if field.metadata["role"] & role]
