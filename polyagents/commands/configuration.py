"""Flags of a command that the environment or a file can give as well: `--port 80`, POLYAGENTS_PORT=80, {"port": 80}.

Both are read with the parser's own flags, so that a new flag needs nothing here.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from typing import Any

from polyagents.arguments import CommandParser
from polyagents.errors import did_you_mean, first_line
from polyagents.files.json_files import read_json

PREFIX = "POLYAGENTS_"
READ_ELSEWHERE = ("POLYAGENTS_CACHE", "POLYAGENTS_INDEX_TOKEN")  # timings.py; index/engines/urls.py


class ConfiguredParser(CommandParser):
    """Takes each value from the command line, else from the environment, from the file of --config, or its default.

    A value hides the values of flags that exclude it, and what is for these, if they come from a later place.
    """

    def __init__(self, prog: str, description: str):
        super().__init__(prog, description)
        self.add_argument(
            "--config",
            metavar="FILE",
            help='JSON with values of these flags, such as {"model_file": "M", "port": 8008}; a variable of the '
            f"environment ({PREFIX}MODEL_FILE) overrides the file, and a flag overrides both",
        )

    def parse_known_args(  # type: ignore[override]  # as in CommandParser
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, and add what the environment and the file give; an error names the variable, or the key."""
        flags = {flag.dest: flag for flag in self._actions if flag.option_strings and flag.dest != "help"}
        seen, _ = super().parse_known_args(args, argparse.Namespace(**dict.fromkeys(flags)))
        given = {name for name in flags if getattr(seen, name) is not None}
        added = self.of_environment(flags, given)
        path = seen.config or added.get("config")
        if path:
            added |= self.of_file(path, flags, given | added.keys())
        return super().parse_known_args(args, argparse.Namespace(**(vars(namespace) if namespace else {}) | added))

    def of_environment(self, flags: Mapping[str, argparse.Action], given: set[str]) -> dict[str, Any]:
        """Return the values of the environment for flags that are not given, by name."""
        names = {f"{PREFIX}{name.upper()}": name for name in flags}
        found = {name: value for name, value in os.environ.items() if name.startswith(PREFIX)}
        if unknown := found.keys() - names.keys() - {*READ_ELSEWHERE}:
            hint = did_you_mean(min(unknown), [*names, *READ_ELSEWHERE], PREFIX)
            self.error(
                f"the environment has {min(unknown)}, which does not belong to a flag{hint}. In Kubernetes, a Service "
                f"named polyagents sets such variables: give it another name, or set enableServiceLinks: false"
            )
        return self.values({names[name]: (name, found[name]) for name in names if name in found}, flags, given)

    def of_file(self, path: str, flags: Mapping[str, argparse.Action], given: set[str]) -> dict[str, Any]:
        """Return the values of a file for flags that are not given, by name."""
        try:
            found = read_json(path)
        except (OSError, ValueError) as error:
            self.error(f"--config {path} cannot be read ({getattr(error, 'strerror', None) or first_line(error)})")
        if not isinstance(found, dict):
            self.error(f'--config {path} is not a JSON object, such as {{"port": 8008}}')
        known = flags.keys() - {"config"}
        if unknown := found.keys() - known:
            self.error(f"--config {path} has an unknown key, {min(unknown)}{did_you_mean(min(unknown), known)}")
        return self.values({name: (f"--config {path}, {name}", found[name]) for name in found}, flags, given)

    def values(
        self, found: Mapping[str, tuple[str, Any]], flags: Mapping[str, argparse.Action], given: set[str]
    ) -> dict[str, Any]:
        """Read values (flag -> place and value) as their flags do, without the given ones and those these exclude."""
        read = {name: self.value(flags[name], *found[name]) for name in found}
        for group in self._mutually_exclusive_groups:
            names = [flag.dest for flag in group._group_actions]
            inside = [name for name in names if name in read]
            if len(inside) > 1:
                self.error(f"{found[inside[1]][0]}: not allowed with {found[inside[0]][0]}")
            if given & {*names}:
                without = {*inside} - given
                names += [name for name, other in self.needed.items() if other in without]
                read = {name: value for name, value in read.items() if name not in names}
        return {name: value for name, value in read.items() if name not in given}

    def value(self, flag: argparse.Action, place: str, given: Any) -> Any:
        """Read one value as its flag does; only a flag with a type of its own takes a number."""
        if isinstance(given, int | float) and not isinstance(given, bool) and flag.type is not None:
            given = str(given)
        if not isinstance(given, str) or "\0" in given or not is_text(given):
            self.error(f"{place}: its value is not a text{' or a number' * (flag.type is not None)}")
        try:
            value = self._get_value(flag, given)
            self._check_value(flag, value)
        except argparse.ArgumentError as error:
            self.error(f"{place}: {error.message}")
        return value


def is_text(text: str) -> bool:
    """Return whether the system could have passed a text on: JSON also has halves of characters."""
    try:
        text.encode("utf-8", "surrogateescape")  # as of a file whose name is not in UTF-8
    except UnicodeError:
        return False
    return True
