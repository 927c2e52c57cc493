"""ParlAI's data folder, without ParlAI: its path, and the `.built` files that say what is complete in it."""

import argparse
import datetime
import importlib.util
import os


def add_datapath_flag(parser: argparse.ArgumentParser) -> None:
    """Add ParlAI's flag `--datapath`."""
    parser.add_argument(
        "-dp", "--datapath", help="folder of data and models; by default ParlAI's, which PARLAI_DATAPATH names as well"
    )


def datapath(given: str | None = None) -> str:
    """Return the folder of data and models, chosen as in ParlAI.

    It is, in this order: the value of `--datapath`, the environment variable PARLAI_DATAPATH, the folder `data` next to
    the installed package `parlai`, and `~/.parlai/data` if ParlAI is not installed.

    Args:
        given: the value of `--datapath`; it becomes PARLAI_DATAPATH, as in ParlAI, so that all later calls agree.
    """
    os.environ["PARLAI_DATAPATH"] = chosen(given)
    return os.environ["PARLAI_DATAPATH"]


def chosen(given: str | None = None) -> str:
    """Return what `datapath` does, and leave PARLAI_DATAPATH as it is."""
    named = os.environ.get("PARLAI_DATAPATH")
    return given or (default_datapath() if named is None else named)


def default_datapath() -> str:
    """Return the folder of data and models if the user names none; ParlAI is looked for but not imported."""
    spec = importlib.util.find_spec("parlai")
    if spec is None or spec.origin is None:
        return os.path.join(os.path.expanduser("~"), ".parlai", "data")
    return os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(spec.origin))), "data")


def models_folder(data: str) -> str:
    """Return the folder of all models below a data folder."""
    return os.path.join(data, "models")


def is_built(folder: str, version: str | None = None) -> bool:
    """Return whether a folder is marked as complete.

    Args:
        version: the version that must be complete; None for any.
    """
    try:
        with open(os.path.join(folder, ".built"), encoding="utf-8") as file:
            lines = file.read().split("\n")
    except (FileNotFoundError, NotADirectoryError):
        return False
    return version is None or (len(lines) > 1 and lines[1] == version)


def mark_built(folder: str, version: str) -> None:
    """Mark a folder as complete: the time in the first line of `.built`, the version in the second."""
    with open(os.path.join(folder, ".built"), "w", encoding="utf-8") as file:
        file.write(f"{datetime.datetime.today()}\n{version}")
