"""Measurements of polyagents, side by side with its alternatives; only commands that measure import this package.

A wheel has of it what `bench_inference` and `bench_training` need; everything else runs in a clone.
"""

import sys
from pathlib import Path


class NeedsClone:
    """Says of a measurement that an installation lacks, and that `python -m` asks for, where it is."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Find nothing; end the command with a sentence if it names a module of this package."""
        if name.startswith(f"{__name__}.") and sys.argv[:1] == ["-m"]:  # as long as `python -m` looks for the module
            sys.stderr.write(f"{name} is not installed; run it in a clone of the repository, after pip install -e .\n")
            sys.exit(2)


if not (Path(__file__).resolve().parents[1] / "setup.py").exists():
    sys.meta_path.append(NeedsClone)
