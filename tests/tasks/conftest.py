"""What the tests of several tasks need."""

import pytest
from parlai.utils import logging, misc


@pytest.fixture
def said(monkeypatch):
    """The warnings that ParlAI's log gets, as in a process that has just begun."""
    found = []
    monkeypatch.setattr(misc, "_seen_logs", set())
    monkeypatch.setattr(logging, "warning", found.append)
    return found
