"""Checks of the files that a command is to write."""

import os

from polyagents.errors import InputError


def check_out_file(flag: str, path: str) -> None:
    """Refuse a file that cannot be written, before hours are spent on its content.

    Args:
        path: its path.

    Raises:
        InputError: it is a folder, or in a folder that is missing or not writable.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if os.path.isdir(path) or not os.path.isdir(folder) or not os.access(folder, os.W_OK):
        raise InputError(f"{flag} {path} cannot be written; give the name of a file in a folder of your own.")
