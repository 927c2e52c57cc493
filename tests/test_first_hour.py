"""What somebody meets in the first hour: misspelt names and a chat without a wall of options."""

import re
from pathlib import Path

import pytest
from commands import SAMPLE, forked

from polyagents import InputError
from polyagents.__main__ import run_own
from polyagents.commands.names import AGENTS, listing
from polyagents.commands.parlai_command import SHORT_NAMES
from polyagents.errors import did_you_mean
from polyagents.models.architecture import ARCHITECTURES, find

# ---- misspelt names --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("evalute", "-mf", "M"), "evaluate"),
        (("display_data", "-t", "polyagents.tasks.sampel"), "polyagents.tasks.sample"),
        (("display_data", "-t", "convai"), "convai2"),
        (("train_model", "-m", "ploy", "-t", SAMPLE, "-mf", "M"), "poly"),
        (("train_model", "-m", "polyagents:PolyEncodr", "-t", SAMPLE, "-mf", "M"), "polyagents:PolyEncoder"),
    ],
)
def test_a_misspelt_name_brings_the_one_that_may_be_meant(arguments, meant, ends_with_2):
    (line,) = ends_with_2(*arguments)
    assert "(did you mean " in line and meant in line.split("(did you mean ")[1].split("?)")[0]


def test_a_misspelt_architecture_too():
    with pytest.raises(InputError, match=r"There is no architecture CrossEncodr \(did you mean CrossEncoder"):
        find("CrossEncodr")


def test_nothing_is_proposed_for_a_name_that_is_like_no_other():
    assert did_you_mean("xyzzy", ["poly", "bi"]) == ""


# ---- help ------------------------------------------------------------------------------------------------------------


def test_help_is_short_and_names_our_agents():
    lines = listing(with_hidden=False).splitlines()
    assert len(lines) < 50
    assert (
        SHORT_NAMES.items() == {kind.short_name: f"polyagents:{name}" for name, kind in ARCHITECTURES.items()}.items()
    )
    for name in AGENTS:
        assert sum(line.startswith(f"  -m {name} ") for line in lines) == 1


def test_a_chat_begins_without_a_list_of_all_options(model, replies):
    chat = ("interactive", "-mf", model("bi"), "--fixed-candidates-path", replies)
    done = forked(*chat, stdin="hi\n[EXIT]\n")
    assert done.code == 0 and "[BiEncoder]:" in done.out, done.err
    before = done.out.split("Enter Your Message:")[0].splitlines()
    assert len(before) < 60 and not any("label_truncate:" in line for line in before), before


# ---- an FAQ ----------------------------------------------------------------------------------------------------------


def test_the_table_of_the_faq_page_has_no_fault_but_that_it_is_small(capsys):
    """tests/test_pages.py pastes the page itself."""
    root = Path(__file__).parents[1]
    page = (root / "docs" / "faq.md").read_text("utf-8")
    assert page.startswith("# An FAQ with 24 answers") and "polyagents check_data docs/faq\n" in page
    run_own("check_data", [str(root / "docs" / "faq")])
    said = capsys.readouterr().out
    assert re.search(r"^examples +96 +24 +72$", said, re.MULTILINE)
    assert re.search(r"^different labels +24 +24 +24$", said, re.MULTILINE)
    assert said.count("Warning:") == 1 and "train has 96 examples, which is few" in " ".join(said.split())
