"""Agents as ParlAI's commands make them."""

import pytest
import torch
from commands import KINDS
from parlai.core.agents import create_agent
from parlai.core.params import ParlaiParser


@pytest.fixture
def make(backbone):
    """An agent as a command would make it."""

    def build(kind, *flags, datatype="train"):
        torch.manual_seed(0)
        arguments = ["-m", KINDS[kind], "--backbone", backbone, "-t", "integration_tests", "-dt", datatype, "-bs", "8"]
        arguments += ["--reduction-type", "mean", "--poly-n-codes", "4", *flags]
        return create_agent(ParlaiParser(True, True).parse_args(arguments))

    return build
