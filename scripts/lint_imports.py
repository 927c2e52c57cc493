"""Checks the import contracts of pyproject.toml, part of `make lint`.

import-linter reads packages from the disk, by their folders. polyagents.tasks, polyagents.zoo and
polyagents.benchmarks are beside polyagents/, not in it (setup.py maps them), so it would not see them. Here it is given
a folder of links with the structure of their imports.
"""

import os
import sys
import tempfile
from pathlib import Path

from importlinter.cli import lint_imports

ROOT = Path(__file__).resolve().parent.parent
INSIDE = ("benchmarks", "tasks", "zoo")


def main() -> int:
    """Check all contracts; the exit code is not 0 where one is broken."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "polyagents")
        package.mkdir()
        for entry in (*(ROOT / "polyagents").iterdir(), *(ROOT / name for name in INSIDE)):
            (package / entry.name).symlink_to(entry)
        os.chdir(folder)  # import-linter looks for packages in the current folder first
        return lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True, no_logo=True)


if __name__ == "__main__":
    sys.exit(main())
