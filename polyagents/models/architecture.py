"""The registry of all architectures.

There are two kinds. `TwoTowers` encode context and candidate separately, so candidates can be encoded ahead, stored,
and searched. A `Joint` architecture reads both together. A new architecture extends one of the two, is registered, and
is then trained, evaluated, indexed, searched and served like those that are built in: docs/add-an-architecture.md.
"""

import dataclasses
import importlib.metadata
from typing import Any, TypeVar

from polyagents.errors import InputError, did_you_mean, first_line
from polyagents.models.base import Architecture as Architecture  # callers of `find` annotate with it
from polyagents.models.bi import BiEncoder
from polyagents.models.cross import CrossEncoder
from polyagents.models.joint import Joint
from polyagents.models.model_options import EncoderOptions, TextOptions
from polyagents.models.poly import PolyEncoder
from polyagents.models.two_towers import TwoTowers
from polyagents.models.uni import UniEncoder
from polyagents.options import ENTRY_POINTS, Role, fields_of

MISSING = (
    "an architecture that is neither built in nor of an installed package; install the package that it comes from, or "
    "import the module that registers it"
)


def reads_together(architecture: type[Architecture]) -> bool:
    """Tell whether a class is a joint architecture, which reads context and candidate together."""
    return issubclass(architecture, Joint)


Registered = TypeVar("Registered", bound=type[Architecture])
ARCHITECTURES: dict[str, type[Architecture]] = {
    kind.__name__: kind for kind in (BiEncoder, PolyEncoder, UniEncoder, CrossEncoder)
}


def register(architecture: Registered) -> Registered:
    """Register an architecture by the name of its class (usable as a decorator); its agent is `polyagents:<name>`.

    Raises:
        InputError: it is not a class of one of the two kinds, or lacks a name.
    """
    if not isinstance(architecture, type) or not issubclass(architecture, TwoTowers | Joint):
        raise InputError(f"{architecture!r:.80} is not an architecture; give a class that extends TwoTowers or Joint.")
    if missing := [name for name in ("short_name", "label") if not hasattr(architecture, name)]:
        raise InputError(
            f"The architecture {architecture.__name__} has no {' and no '.join(missing)}; give its class both, such as "
            f"short_name, label = 'max', 'max-encoder'."
        )
    ARCHITECTURES[architecture.__name__] = architecture
    return architecture


def load_architecture(entry: importlib.metadata.EntryPoint) -> None:
    """Import and register an architecture that an installed package names; refuse one that cannot be imported."""
    try:
        found = entry.load()
    except Exception as error:  # whatever the package's own code raises
        raise InputError(
            f"The architecture {entry.name} of an installed package, {entry.value}, cannot be imported "
            f"({type(error).__name__}: {first_line(error)}); repair that package, or uninstall it."
        ) from error
    register(found)


def is_known(name: str) -> bool:
    """Tell whether an architecture of this name is built in, registered, or named by an installed package."""
    if name not in ARCHITECTURES:
        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
            if name in (entry.name, entry.attr):
                load_architecture(entry)
    return name in ARCHITECTURES


def find(name: str) -> type[Architecture]:
    """Return the architecture of a name; an InputError says if there is none."""
    if not is_known(name):
        raise InputError(unknown(name))
    return ARCHITECTURES[name]


def unknown(name: str) -> str:
    """Say that there is no architecture of a name."""
    known = [*ARCHITECTURES, *(kind.short_name for kind in ARCHITECTURES.values())]
    return (
        f"There is no architecture {name or repr(name)}{did_you_mean(name, known)}; there are "
        f"{', '.join(sorted(ARCHITECTURES))}. An architecture of another package is found once that package is "
        f"installed or imported."
    )


def full_name(name: str) -> str | None:
    """Return the name of an architecture's class, given its name in `train_model -m`; None if there is none."""
    name = name.removeprefix("polyagents:")
    if name not in names_of_classes() and not is_known(name):
        for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
            load_architecture(entry)  # its class knows its short name
    name = names_of_classes().get(name, name)
    return name if name in ARCHITECTURES else None


def names_of_classes() -> dict[str, str]:
    """Return the names of the classes by their short names."""
    return {kind.short_name: known for known, kind in ARCHITECTURES.items()}


def architecture_named(name: str) -> str:
    """Return the class's name for a name in `train_model -m`; an InputError says if there is none."""
    if (found := full_name(name)) is None:
        raise InputError(unknown(name))
    return found


def options_of(architecture: str) -> "dict[str, dataclasses.Field[Any]]":
    """Return the options of a model by name; for an agent without an architecture, of its encoder and texts."""
    own = (find(architecture).options_type,) if is_known(architecture) else ()
    return {field.name: field for group in (EncoderOptions, TextOptions, *own) for field in fields_of(group)}


def options_with(architecture: str, role: Role) -> list[str]:
    """Return the names of a model's options that have one of these roles."""
    return [name for name, field in options_of(architecture).items() if field.metadata["role"] & role]
