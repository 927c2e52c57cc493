"""Chats about a task, of a person with a model and of a model with itself, for our tasks and their samples."""

import pytest
from commands import SAMPLE, forked, run, write_task

SAMPLES = (SAMPLE, *(f"polyagents.tasks.{name}:sample" for name in ("convai2", "dstc7", "ubuntu", "ubuntu_v1")))
WITH_PERSONAS = SAMPLES[:2]
ENDS = {"[EXIT]": "how are you\n[EXIT]\n", "end of input": "how are you\n", "a new chat": "how are you\n[DONE]\nhi\n"}


@pytest.fixture
def talk(monkeypatch, capsys, replies):
    """Run a chat in this process; the result is what it prints."""

    def run_chat(command, model_file, *flags):
        capsys.readouterr()
        run(command, "-mf", model_file, "--fixed-candidates-path", replies, *flags)
        return capsys.readouterr().out

    return run_chat


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("task", SAMPLES)
def test_a_chat_about_a_task_ends_without_an_error(task, end, talk, model, monkeypatch):
    lines = iter(ENDS[end].splitlines())

    def typed(prompt):
        try:
            return next(lines)
        except StopIteration:
            raise EOFError from None

    monkeypatch.setattr("builtins.input", typed)
    said = talk("interactive", model("bi"), "-t", task)
    answers = [line for line in said.splitlines() if line.startswith("[BiEncoder]:")]
    assert len(answers) == (2 if end == "a new chat" else 1), said
    assert ("your persona:" in said) == (task in WITH_PERSONAS)
    assert said.count("CHAT DONE") == (2 if end == "a new chat" else 1)


@pytest.mark.parametrize("task", SAMPLES)
def test_a_model_talks_to_itself_as_dialogues_of_the_task_begin(task, talk, model):
    said = talk("self_chat", model("bi"), "-t", task, "--num-self-chats", 2, "--selfchat-max-turns", 3)
    assert said.count("-- end of episode --") == 2
    assert ("your persona:" in said) == (task in WITH_PERSONAS)
    assert said.count("[BiEncoder_1]:") >= 4, said


@pytest.mark.slow
def test_another_seed_begins_another_self_chat(talk, model):
    flags = ("-t", SAMPLE, "--selfchat-max-turns", 2)
    first, again, other = (talk("self_chat", model("bi"), *flags, "--seed", seed) for seed in (1, 1, 2))
    assert first == again != other


def test_a_chat_about_a_task_without_labels_says_so_and_leaves_nothing(ends_with_2, model, tmp_path):
    task = write_task(tmp_path, [("hello", "", None)])
    file = model("bi")
    before = {*tmp_path.iterdir()}
    (sentence,) = ends_with_2("self_chat", "-mf", file, *task, "--loglevel", "error")
    assert "has no labels that the model could reply with" in sentence
    assert {*tmp_path.iterdir()} == before


@pytest.mark.slow
def test_parlais_command_has_these_worlds(model):
    """It imports ours only where it loads the agent."""
    flags = ("-mf", model("bi"), "-t", SAMPLE, "--selfchat-max-turns", "2", "--loglevel", "error")
    done = forked("self_chat", *flags, program="parlai", bare=True)
    assert done.code == 0 and "your persona:" in done.out, done.err
