"""Help is short at first, and a name that does not exist comes with the one that may be meant."""

import pytest
from commands import forked

from polyagents import InputError
from polyagents.errors import did_you_mean
from polyagents.parlai_patches import patches, saved_options


@pytest.fixture(scope="module")
def help_of():
    return lambda *arguments: forked(*arguments).out


def test_ours_come_first_and_the_rest_on_request(help_of):
    short, everything = (
        help_of("train_model", "-m", "poly", "--help"),
        help_of("train_model", "-m", "poly", "--helpall"),
    )
    assert short.startswith("usage: polyagents train_model -m poly -t TASK -mf FILE [flags]")
    for text in ("--poly-n-codes", "Poly-encoder (polyagents):", "--max-train-steps", "All flags, ParlAI's too:"):
        assert text in short
    assert short.count("Poly-encoder (polyagents):") == 1  # of the model's options and of those for its training
    assert "--wandb-log" not in short and "--wandb-log" in everything
    assert len(short.splitlines()) < 250 < len(everything.splitlines())


def test_a_command_of_ours_with_a_task_has_both(help_of):
    short, everything = (help_of("mine_negatives", flag) for flag in ("--help", "--helpall"))
    assert "--margin" in short and "--margin" in everything and len(everything) > len(short)


def test_without_an_agent_its_flags_are_pointed_to(help_of):
    short = help_of("train_model", "--help")
    assert "The flags of an agent of ours: polyagents train_model -m bi|poly|uni|cross --help" in short


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("polyagents.tasks.sampel", "polyagents.tasks.sample"),
        ("convia2", "convai2"),
        ("polyagents.tasks.tabel", "table"),
    ],
)
def test_a_task_that_may_be_meant(name, meant):
    assert f"(did you mean {'' if '.' not in name else 'polyagents.tasks.'}{meant.rsplit('.')[-1]}" in (
        saved_options.no_such_task(name)
    )


def test_an_agent_that_may_be_meant():
    patches.apply()
    import parlai.core.loader

    with pytest.raises(InputError, match=r"--model polyagents:PolyEnoder: there is no such agent \(did you mean polya"):
        parlai.core.loader.load_agent_module("polyagents:PolyEnoder")


def test_nothing_is_meant():
    assert did_you_mean("xyz", ["rank"]) == "" and did_you_mean("rnak", ["rank"]) == " (did you mean rank?)"
