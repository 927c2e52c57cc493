"""What the processes of a run share; those that run tests load the fixtures (tests/helpers/shared_fixtures.py)."""

import gc
import importlib
import os
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # before transformers is imported: no test asks the model hub
# Before torch is imported: models this small only wait for more threads, and two processes run at once (make test).
os.environ.setdefault("OMP_NUM_THREADS", "1")
if "POLYAGENTS_CACHE" not in os.environ:  # for this process and those that it starts; nothing is left in the user's own
    CACHE = tempfile.TemporaryDirectory()
    os.environ["POLYAGENTS_CACHE"] = CACHE.name
if "FORKS" not in os.environ:  # likewise; see tests/helpers/forks.py
    FORKS = tempfile.TemporaryDirectory()
    os.environ["FORKS"] = FORKS.name
    os.mkfifo(f"{FORKS.name}/alive")
    ALIVE = os.open(f"{FORKS.name}/alive", os.O_RDWR)  # closes when this process ends


def pytest_configure(config):
    """Load the fixtures, but not where pytest-xdist's other processes run the tests: their imports take seconds."""
    if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
        gc.disable()  # what is imported before the first test stays, and to look through it for garbage takes seconds
        config.pluginmanager.register(importlib.import_module("shared_fixtures"))


def pytest_collection_finish():
    """Look for garbage from here on, seldom, and never in what has been imported: a tenth of the time by default."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()
