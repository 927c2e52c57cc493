"""Folders that a command makes, and may therefore clear: a marker in them says whose they are."""

import os

from polyagents.errors import InputError


def own_folder(folder: str, command: str, flag: str) -> None:
    """Have a folder that this command may write to and remove files from: a new one, an empty one, or its own.

    Args:
        folder: made where it is missing.
        command: its name, such as "demo".
        flag: which flag of the user's the folder depends on.

    Raises:
        InputError: it holds what somebody else has put there, or cannot be written.
    """
    marker = os.path.join(folder, f".polyagents-{command}")
    try:
        os.makedirs(folder, exist_ok=True)
        there = os.listdir(folder)
        if os.path.basename(marker) in there:
            return
        if there:
            raise InputError(
                f"{folder} holds other files, such as {min(there)}, and polyagents {command} has not made it; give "
                f"another {flag}, new or empty."
            )
        with open(marker, "x", encoding="utf-8") as file:
            file.write(f"Made by polyagents {command}, which may remove what is in here.\n")
    except OSError as error:
        raise InputError(f"{folder} cannot be written to ({error.strerror}); give another {flag}.") from error
