"""Write the types of the options of Ranker.train, for type checkers and editors, from the tables of options.

python scripts/option_types.py            # write polyagents/training_loop/option_types.py
python scripts/option_types.py --check    # say whether it is what would be written
"""

import dataclasses
import sys
import types
import typing
from pathlib import Path
from typing import Any

from polyagents.models.architecture import ARCHITECTURES
from polyagents.models.model_options import EncoderOptions, TextOptions
from polyagents.options import Options, fields_of
from polyagents.training_loop.training_options import LoopOptions, training_groups

FILE = Path(__file__).resolve().parent.parent / "polyagents" / "training_loop" / "option_types.py"
PATHS = {"backbone", "teacher_model_file", "vocabulary"}  # texts that may be path objects
HEAD = '''"""The options of Ranker.train with their types, for type checkers; scripts/option_types.py writes it."""

import os
from typing import Literal, TypedDict


class TrainOptions(TypedDict, total=False):
    """Options by name; another package's architecture gets its own as **options of the type dict[str, Any]."""

    init_model: str | os.PathLike[str] | None
'''


def main() -> None:
    """Write the file, or compare it.

    Raises:
        SystemExit: the file is not what would be written.
    """
    written = HEAD + "".join(f"    {name}: {shown}\n" for name, shown in sorted(declared().items()))
    if "--check" not in sys.argv:
        FILE.write_text(written, encoding="utf-8")
    elif not FILE.exists() or FILE.read_text(encoding="utf-8") != written:
        sys.exit(f"{FILE.name} and the tables of options differ; run python {sys.argv[0]}")


def declared() -> dict[str, str]:
    """Return the type of each option, of all architectures that are built in.

    Raises:
        SystemExit: two architectures have an option of one name and two types.
    """
    groups: list[type[Options]] = [EncoderOptions, TextOptions, LoopOptions]
    for kind in ARCHITECTURES.values():
        groups += [kind.options_type, *training_groups(kind)]
    found: dict[str, str] = {}
    for group in groups:
        annotated = typing.get_type_hints(group)
        for field in fields_of(group):
            shown = type_of(field, annotated[field.name])
            if found.setdefault(field.name, shown) != shown:
                sys.exit(f"{field.name} is {found[field.name]} and, in {group.__name__}, {shown}; give it one type")
    return found


def type_of(field: "dataclasses.Field[Any]", annotated: Any) -> str:
    """Return the type of an option as source text."""
    parts = typing.get_args(annotated) if isinstance(annotated, types.UnionType) else (annotated,)
    names = [part.__name__ for part in parts if part is not types.NoneType]
    if field.metadata["choices"] is not None:
        names = [f"Literal[{', '.join(f'{one!r}' for one in field.metadata['choices'])}]".replace("'", '"')]
    if field.name in PATHS:
        names.append("os.PathLike[str]")
    return " | ".join([*names, *(["None"] if types.NoneType in parts else [])])


if __name__ == "__main__":
    main()
