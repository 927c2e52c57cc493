"""Folders that a command creates, and may therefore clear: a marker in them says whose they are."""

import os

from polyagents.errors import InputError


def own_folder(folder: str, command: str, flag: str) -> None:
    """Prepare a folder in which this command may write and remove files: a new one, an empty one, or its own.

    Args:
        folder: created where it is missing.
        command: the name of the command, such as "demo".
        flag: the flag that gave the folder, for the message of an error.

    Raises:
        InputError: the folder holds files that the command did not write, or cannot be written.
    """
    marker = os.path.join(folder, f".polyagents-{command}")
    try:
        os.makedirs(folder, exist_ok=True)
        there = os.listdir(folder)
        if os.path.basename(marker) in there:
            return
        if there:
            raise InputError(
                f"{folder} holds other files, such as {min(there)}, and was not created by polyagents {command}; give "
                f"another {flag}, new or empty."
            )
        with open(marker, "x", encoding="utf-8") as file:
            file.write(f"Made by polyagents {command}, which may remove what is in here.\n")
    except OSError as error:
        raise InputError(f"{folder} cannot be written to ({error.strerror}); give another {flag}.") from error
