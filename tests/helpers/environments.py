"""Programs in virtual environments of their own, for what cannot be met beside ours, or is no part of it."""

import subprocess
import sys
import venv

import pytest


def installed(requirement, folder):
    """The Python of a new environment with a library; the test is skipped where none can be downloaded."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    # What is imported is compiled then; all the rest takes longer than to install it.
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile", requirement]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=600)
    if done.returncode:
        pytest.skip(f"{requirement} cannot be installed: {done.stderr.strip().splitlines()[-1]}")
    return str(python)
