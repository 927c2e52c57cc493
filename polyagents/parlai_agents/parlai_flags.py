"""The flags of ParlAI's own rankers."""

from typing import Any

from parlai.core.params import ParlaiParser

from polyagents.parlai_files.parlai_options import AGENTS


def agent_flags(architecture: str) -> dict[str, Any]:
    """Return all flags of ParlAI's agent of an architecture, with their defaults."""
    return dict(ParlaiParser(True, True).parse_args(["--model", AGENTS[architecture]]))
