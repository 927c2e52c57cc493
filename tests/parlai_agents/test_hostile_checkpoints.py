"""A checkpoint or model file whose tensors are not what the model says is refused before anything uses them."""

import json
import shutil
import struct
from pathlib import Path

import pytest
import torch
from commands import colour_dialogues, copy_model, evaluate, train, write_task

from polyagents import InputError, Ranker
from polyagents.files import model_file


@pytest.fixture(scope="module")
def two_updates(tmp_path_factory):
    """A folder with a training that was stopped after two updates, and its flags."""
    tmp_path = tmp_path_factory.mktemp("stopped")
    schedule = ("--lr-scheduler", "reduceonplateau")  # which has a state of its own
    flags = (*write_task(tmp_path, colour_dialogues(8)), "--optimizer", "adamw", *schedule)
    train("poly", tmp_path / "M", *flags, "--max-train-steps", 2)
    file = f"{tmp_path / 'M'}.checkpoint"
    if not Path(file).exists():
        for part in ("", ".opt", ".dict", ".trainstats"):
            if Path(f"{tmp_path / 'M'}{part}").exists():
                Path(f"{file}{part}").write_bytes(Path(f"{tmp_path / 'M'}{part}").read_bytes())
    return tmp_path, flags


@pytest.fixture
def stopped(two_updates, tmp_path):
    """The same in a folder of the test's own: the flags that go on with it, its checkpoint, and its state."""
    folder, flags = two_updates
    for path in folder.glob("M*"):
        shutil.copy(path, tmp_path)
    file = f"{tmp_path / 'M'}.checkpoint"
    return (tmp_path / "M", *flags, "--max-train-steps", 4), file, model_file.read(file)


def first_of(state, name):
    """The state of the first weight whose tensor of this name is a matrix."""
    return next(held for held in state["optimizer"]["state"].values() if held[name].ndim > 1)


def change(**tensors):
    """A change of the state of one weight in the optimiser."""

    def apply(state):
        held = first_of(state, "exp_avg")
        for name, make in tensors.items():
            held[name] = make(held[name])

    return apply


def drop(name):
    return lambda state: first_of(state, "exp_avg").pop(name)


def setting(**values):
    return lambda state: state["optimizer"]["param_groups"][0].update(values)


def top(**values):
    return lambda state: state.update(values)


DAMAGES = {
    "a smaller moment": change(exp_avg=lambda tensor: tensor[:1]),
    "a moment of no numbers": change(exp_avg_sq=lambda tensor: tensor[:0]),
    "a larger moment": change(exp_avg_sq=lambda tensor: torch.cat([tensor, tensor])),
    "a moment turned round": change(exp_avg=lambda tensor: tensor.flatten()),
    "a moment that is not finite": change(exp_avg=lambda tensor: tensor * torch.nan),
    "a moment that is a number": change(exp_avg=lambda tensor: 1.0),
    "steps of another shape": change(step=lambda tensor: torch.zeros(7)),
    "steps below zero": change(step=lambda tensor: torch.tensor(-3.0)),
    "no moment": drop("exp_avg"),
    "no steps": drop("step"),
    "a rate in words": setting(lr="fast"),
    "a rate of many": setting(lr={"a": [1]}),
    "an optimiser that is a list": top(optimizer=[1, 2]),
    "schedules in words": top(lr_scheduler="soon"),
    "updates in words": top(number_training_updates="many"),
    "updates below zero": top(number_training_updates=-1),
    "draws that are none": top(draws={"torch": torch.zeros(3, dtype=torch.uint8), "python": [3, [1], None]}),
    "draws in words": top(draws="heads"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_state_that_does_not_fit_is_refused(stopped, damage):
    arguments, file, state = stopped
    DAMAGES[damage](state)
    model_file.write(file, state)
    before = Path(file).read_bytes()
    with pytest.raises(InputError, match="cannot be loaded"):
        train("poly", *arguments)
    assert Path(file).read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda weight: weight.double(), "is float64 instead of float32"),
        (lambda weight: weight.half(), "is float16 instead of float32"),
        (lambda weight: weight * torch.nan, "has numbers that are not finite"),
        (lambda weight: weight[:1], "has shape"),
    ],
)
def test_weights_that_are_not_the_models_are_refused(model, tmp_path, change, said):
    file = copy_model(model("poly"), tmp_path / "N")
    state = model_file.read(str(file))
    name = next(name for name, weight in state["model"].items() if weight.ndim == 2)
    state["model"][name] = change(state["model"][name])
    model_file.write(str(file), state)
    for load in (Ranker.load, lambda path: evaluate(path, "-t", "integration_tests")):
        with pytest.raises(InputError, match=rf"cannot be loaded as polyagents:PolyEncoder .*{name} {said}"):
            load(file)


METADATA = {
    "no state": {"state": None},
    "no JSON": {"state": "{"},
    "a list": {"state": "[1]"},
    "nested deeply": {"state": "[" * 100_000},
    "nested, and closed": {"state": '{"a": ' + "[" * 3_000 + "]" * 3_000 + "}"},
    "an unknown tensor": {"state": '{"a": {"tensor": "none"}}'},
    "no pairs": {"state": '{"a": {"pairs": [1]}}'},
    "a list as a key": {"state": '{"a": {"pairs": [[[1], 2]]}}'},
    "a name for none": {"same": '{"a": "none"}'},
    "names in a list": {"same": "[1]"},
}


@pytest.mark.parametrize("damage", METADATA)
def test_a_header_that_others_made_up_is_refused(model, tmp_path, damage):
    file = copy_model(model("bi"), tmp_path / "N")
    content = Path(file).read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] |= METADATA[damage]
    header["__metadata__"] = {name: text for name, text in header["__metadata__"].items() if text is not None}
    raw = json.dumps(header).encode()
    Path(file).write_bytes(struct.pack("<Q", len(raw)) + raw + content[8 + size :])
    with pytest.raises(InputError, match=r"is damaged|cannot be loaded"):
        Ranker.load(file)
