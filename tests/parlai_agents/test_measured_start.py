"""Codes that start at the centres of the training contexts' states: which states, and when nothing is measured."""

import shutil

import pytest
import torch
from commands import KINDS, SAMPLE, largest_difference, options, run, train, weights
from parlai.core.agents import create_agent
from parlai.core.params import ParlaiParser

from polyagents.errors import InputError
from polyagents.models import codes_init
from polyagents.models.codes_init import centres
from polyagents.models.tokens import pad
from polyagents.parlai_agents.measured_start import TaskTexts
from polyagents.parlai_agents.task_reader import TaskReader

KMEANS = ("--codes-init", "kmeans")
SHORT = ("-t", SAMPLE, "--validation-max-exs", "8", "--short-final-eval", "true", "--max-train-steps", "1")


@pytest.fixture
def measured(monkeypatch):
    """The states that centres are taken of, each time."""
    seen = []
    monkeypatch.setattr(codes_init, "centres", lambda states, m: (seen.append(states), centres(states, m))[1])
    return seen


def slow_states(agent):
    """Context by context, as the model reads them: [N, D]."""
    pairs = TaskReader(agent.opt | {"datatype": "train"}, seed=0).read(codes_init.CONTEXTS)
    agent.model.eval()
    rows = []
    with torch.no_grad():
        for pair in pairs:
            ids = agent.dict.ready.context(agent.dict.ready.encode([pair.context])[0], agent.text_truncate)
            rows += list(agent.module.context_encoder(pad([ids], 0))[0])
    return torch.stack(rows)


def moments(states):
    """What does not depend on the order of the rows [N, D]: their mean, and the mean of their products."""
    return states.mean(0), states.T @ states / len(states)


def assert_codes_are_centres(agent, seen):
    (states,) = seen
    expected = slow_states(agent)
    assert len(states) == len(expected) > 100
    for one, other in zip(moments(states), moments(expected), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4 * float(expected.std()), rtol=1e-4)
    assert torch.equal(agent.module.codes.data, centres(states, 4))


def test_the_codes_are_the_centres_of_the_contexts_states(make, measured):
    """Without dropout, scaled, and cut as in training."""
    agent = make("poly", *KMEANS, "--dropout", "0.5", "--output-scaling", "0.3", "--text-truncate", "9")
    assert agent.module.context_encoder.training  # as it was
    assert_codes_are_centres(agent, measured)


def test_nothing_is_measured_for_other_codes_and_for_none(make, measured):
    assert make("poly", *KMEANS, "--polyencoder-type", "n_first").module.codes is None
    make("poly"), make("bi")
    assert not measured


def test_a_file_brings_its_own_codes(measured, tmp_path):
    train("poly", tmp_path / "M", *SHORT, *KMEANS)
    assert len(measured) == 1 and options(tmp_path / "M")["codes_init"] == "kmeans"
    train("poly", tmp_path / "M", *SHORT, *KMEANS, "--max-train-steps", "2")  # goes on from the checkpoint
    train("poly", tmp_path / "second", *SHORT, *KMEANS, "--init-model", tmp_path / "M", "-lr", "1e-12")
    run("eval_model", "-mf", tmp_path / "M", "-t", SAMPLE, "--num-examples", 8)
    assert len(measured) == 1
    first, second = (weights(tmp_path / name)["model"]["codes"] for name in ("M", "second"))
    torch.testing.assert_close(first, second)


def test_a_parlai_model_without_codes_is_measured_with_its_own_weights(written, measured, tmp_path):
    """ParlAI's pretrained poly-encoders have none."""
    for part in ("", ".opt", ".dict", ".dict.codecs"):
        shutil.copy(f"{written('poly')}{part}", f"{tmp_path / 'theirs'}{part}")
    state = torch.load(tmp_path / "theirs", weights_only=True)
    del state["model"]["codes"]
    torch.save(state, tmp_path / "theirs")
    flags = ["-m", KINDS["poly"], "-t", SAMPLE, "-dt", "train", "-bs", "8", "--init-model", str(tmp_path / "theirs")]
    opt = ParlaiParser(True, True).parse_args([*flags, *KMEANS, "--text-truncate", "30", "--label-truncate", "12"])
    agent = create_agent(opt)
    assert_codes_are_centres(agent, measured)
    theirs = state["model"]["encoder_ctxt.layers.0.ffn.lin1.weight"]
    assert torch.equal(agent.module.context_encoder.backbone.encoder.layer[0].intermediate.dense.weight, theirs)


def test_measuring_takes_nothing_from_what_training_draws(monkeypatch, tmp_path):
    flags, seen, measure = (*SHORT, *KMEANS, "--dropout", "0.2"), [], TaskTexts.codes
    monkeypatch.setattr(TaskTexts, "codes", lambda *given: (seen.append(measure(*given)), seen[0])[1])
    train("poly", tmp_path / "M", *flags)
    monkeypatch.setattr(TaskTexts, "codes", lambda *_: seen[0])  # the same codes, without measuring
    train("poly", tmp_path / "N", *flags)
    assert len(seen) == 1 and largest_difference(tmp_path / "M", tmp_path / "N") == 0


# ---- refused ---------------------------------------------------------------------------------------------------------


def test_a_chat_has_nothing_to_measure(backbone, replies):
    said = r"--codes-init kmeans measures the training examples of a task, .* give one of normal, uniform, unit"
    with pytest.raises(InputError, match=said):
        run("interactive", "-m", KINDS["poly"], "--backbone", backbone, *KMEANS, "--fixed-candidates-path", replies)
