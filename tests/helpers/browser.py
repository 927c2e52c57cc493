"""Chromium for the tests marked `browser`: the system's, since no other can be downloaded everywhere."""

import os
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
MISSING = "There is no Chromium; install it (Debian: apt-get install chromium), or name it in CHROMIUM."


def executable():
    """The path of Chromium; None where there is none."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


def launched(playwright):
    """A headless Chromium."""
    path = executable()
    if path is None:
        pytest.skip(MISSING)
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return playwright.chromium.launch(executable_path=path, chromium_sandbox=not root)  # which root cannot have


def lose_receipt(route):
    """For `page.route`: the server gets the request, the page never hears of it."""
    route.fetch(max_redirects=0)
    route.abort()
