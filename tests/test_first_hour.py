"""What somebody meets in the first hour: misspelt names, a chat without a wall of options, a hub that is not there."""

import pytest
import requests
from commands import SAMPLE, parlai
from huggingface_hub import constants

from polyagents import InputError, Ranker
from polyagents.commands.names import AGENTS, listing
from polyagents.commands.parlai_command import SHORT_NAMES
from polyagents.errors import did_you_mean
from polyagents.models.architecture import find
from polyagents.text import pretrained

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
    assert len(lines) < 50 and {*AGENTS} == {*SHORT_NAMES}
    for name in AGENTS:
        assert sum(line.startswith(f"  -m {name} ") for line in lines) == 1


def test_a_chat_begins_without_a_list_of_all_options(model, replies):
    chat = ("interactive", "-mf", model("bi"), "--fixed-candidates-path", replies)
    done = parlai(*chat, stdin="hi\n[EXIT]\n", program="polyagents")
    assert done.code == 0 and "[BiEncoder]:" in done.out, done.err
    before = done.out.split("Enter Your Message:")[0].splitlines()
    assert len(before) < 60 and not any("label_truncate:" in line for line in before), before


# ---- without a network -----------------------------------------------------------------------------------------------


@pytest.fixture
def no_hub(monkeypatch):
    """A hub that does not answer; the result is the list of timeouts of requests to it."""
    asked = []

    def head(url, timeout):
        asked.append(timeout)
        raise requests.ConnectionError

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(requests, "head", head)
    pretrained.hub_answers.cache_clear()
    yield asked
    pretrained.hub_answers.cache_clear()


def test_a_hub_that_does_not_answer_is_one_sentence_and_asked_once(no_hub):
    for _ in range(2):
        with pytest.raises(InputError, match=r"hub does not answer .* Connect to the network, or give a folder"):
            Ranker.train([{"context": "a", "label": "b"}] * 4, backbone="nobody/nothing", progress=False)
    assert no_hub == [pretrained.PATIENCE] and constants.HF_HUB_OFFLINE


def test_what_is_in_the_cache_is_taken_from_there_without_a_hub(no_hub, monkeypatch):
    monkeypatch.setattr(pretrained.huggingface_hub, "try_to_load_from_cache", lambda *_: "/cache/config.json")
    with pytest.raises(InputError, match="no fast tokenizer found there"):  # asked of the library, which has none
        pretrained.load_tokenizer("nobody/nothing")
    assert constants.HF_HUB_OFFLINE
