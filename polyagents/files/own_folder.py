"""What a command may write: a folder that is new, empty, or its own; this is decided here for all commands."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from polyagents.errors import InputError

LOCK = ".lock"  # of `exclusive_folder`
# What a command finds by the name of a model file.
MODEL_PARTS = ("", ".opt", ".dict", ".dict.codecs", ".calibration.json", ".trainstats")
# What a task, or a model that ranks its examples, reads.
FILES_OF_TASKS = [f"{task}_datapath{second}" for task in ("fromfile", "jsonfile") for second in ("", "2")]
FILES_OF_TASKS += ["table_path", "hf_dataset", "pairs_path", "wiki_search_path", "fixed_candidates_path"]

# Endings by which other programs choose how they read a file.
FORMATS = {".json", ".jsonl", ".csv", ".tsv", ".parquet", ".gz", ".bz2", ".xz", ".zst", ".zip"}


def refuse_foreign(folder: str, kind: str, flag: str, is_own: Callable[[str], bool] = lambda folder: False) -> None:
    """Refuse a folder that holds files of others; nothing is written.

    Args:
        folder: may be missing.
        kind: the command, such as "demo"; an own folder may have a marker of that name.
        flag: the flag that gave the folder, for error sentences.
        is_own: recognises an own folder without a marker, by its files; asked if the folder is not empty.

    Raises:
        InputError: the path is not a folder, or the folder cannot be read or is another's.
    """
    try:
        there = sorted(os.listdir(folder))
        if marker_of(kind) in there or not {*there} - {LOCK} or is_own(folder):
            return
    except FileNotFoundError:
        if not os.path.lexists(folder):  # else a link to nothing
            return
        there = []
    except OSError as error:
        raise unwritable(folder, flag, error) from error
    holds = f"holds other files, such as {there[0]}" if there else "is a link to nothing"
    raise InputError(f"{folder} {holds}, and was not created by polyagents {kind}; give another {flag}, new or empty.")


def own_folder(folder: str, kind: str, flag: str, is_own: Callable[[str], bool] = lambda folder: False) -> None:
    """Prepare a folder, created if it is missing, in which a command may write and remove files; mark it as its own.

    Args:
        kind: as for `refuse_foreign`, as are `flag` and `is_own`; the marker's name.

    Raises:
        InputError: as `refuse_foreign`; or the folder cannot be written.
    """
    refuse_foreign(folder, kind, flag, is_own)
    try:
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, marker_of(kind)), "w", encoding="utf-8") as file:
            file.write(f"Made by polyagents {kind}, which may remove what is in here.\n")
    except OSError as error:
        raise unwritable(folder, flag, error) from error


def unwritable(folder: str, flag: str, error: OSError) -> InputError:
    """Say that a folder cannot be written to, and why."""
    return InputError(f"{folder} cannot be written to ({error.strerror}); give a folder of your own with {flag}.")


def marker_of(kind: str) -> str:
    """Return the name of the file that marks an own folder."""
    return f".polyagents-{kind.replace(' ', '-')}"


def check_out_file(flag: str, path: str, endings: Sequence[str], inputs: Iterable[str | None] = ()) -> None:
    """Refuse a file that cannot or must not be written, before hours are spent on its content.

    Args:
        endings: names for what the command writes; a name may have none, but none of another format.
        inputs: what the command reads: files, folders, models; None is skipped.

    Raises:
        InputError: it is a folder, in a folder that is missing or not writable, among `inputs`, or ends as a file of
            another format.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise InputError(f"{flag} {path} cannot be written; give the name of a file in a folder of your own.")
    target = os.path.realpath(path)
    for source in filter(None, inputs):
        own = os.path.realpath(source)
        parts = [f"{own}{checkpoint}{part}" for checkpoint in ("", ".checkpoint") for part in MODEL_PARTS]
        is_inside = target.startswith(f"{own}{os.sep}")  # a new file, too, may be read the next time
        if target in parts or is_inside:
            instead = "a name outside that folder" if is_inside else "another name"
            raise InputError(f"{flag} {path} would replace what is read from {source}; give {instead}.")
    check_format(flag, path, endings)


def check_format(flag: str, path: str, endings: Sequence[str]) -> None:
    """Refuse, with an InputError, a name of a format that is not written: others would read the file as that."""
    ending = os.path.splitext(path)[1].lower()
    if ending in FORMATS - {*endings}:
        give = f"give a name that ends in {' or '.join(endings)}"
        raise InputError(f"{flag} {path} would not be a {ending} file; {give}.")


def files_read(opt: Mapping[str, Any]) -> list[str | None]:
    """Return the files and folders that the flags of the task give; None for a flag that is not there."""
    return [opt.get(name) for name in FILES_OF_TASKS]


def make_folder_of(file: str) -> None:
    """Make the folder of a file that is to be written; an InputError says if it cannot be made."""
    folder = os.path.dirname(os.path.abspath(file))
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder} cannot be made ({error.strerror}); give a file in another folder.") from error
