"""Files of the user's own in ParlAI's text format: what ParlAI would read as something else."""

import pytest
from parlai.core.teachers import ParlAIDialogTeacher, create_task_agent_from_taskname
from parlai.scripts.display_data import setup_args

from polyagents.errors import InputError
from polyagents.parlai_patches import patches


@pytest.fixture
def messages(tmp_path):
    """Returns the messages of a file with these lines."""
    patches.apply()

    def read(content):
        (tmp_path / "mine.txt").write_bytes(content.encode())
        flags = ["-t", "fromfile:parlaiformat", "--fromfile-datapath", str(tmp_path / "mine.txt"), "-dt", "valid"]
        (teacher,) = create_task_agent_from_taskname(setup_args().parse_args(flags))
        return [teacher.act() for _ in range(teacher.num_examples())]

    return read


def test_lines_of_windows_have_no_carriage_returns(messages):
    lines = "text:a\tlabels:b\tmood:c\t\r\n", "\r\n", "text:d\tepisode_done:True\tlabels:e\tlabel_candidates:e|f\r\n"
    first, second = messages("".join(lines))
    assert (first["eval_labels"], first["mood"], first["episode_done"]) == (["b"], "c", False)
    assert (second["label_candidates"], second["episode_done"]) == (["e", "f"], True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("text:a\tb\tlabels:c", r"has 'b', which has no name such as text:; write tabs as \\t"),
        ("text:a\tlabels:b\ttext:c\tlabels:d", "has two fields text"),
        ("text:a\tlabels:b\tepisode_done:False", "has episode_done:False, which ParlAI reads as true; leave it out"),
        ("text:a\tlabels:b\tepsiode_done:True", "has the field epsiode_done; did you mean episode_done?"),
        ("text:a\tlabels:b\tlabels_candidates:b|c", "has the field labels_candidates; did you mean label_candidates?"),
        ("text:a\tlabels:b\tcandidates:b|c", "has the field candidates; did you mean label_candidates?"),
    ],
)
def test_what_would_be_read_as_something_else_is_refused(line, said, messages):
    with pytest.raises(InputError, match=f"the line that begins with .* {said}"):
        messages(f"text:hi\tlabels:hello\tepisode_done:True\n{line}\n")


@pytest.mark.parametrize(
    "field",
    [
        "text_candidates",
        "hard_candidates",
        "candidate_ids",
        "n_candidates",
        "is_episode_done",
        "episode_done",
        "label_type",
    ],
)
def test_fields_of_ones_own_are_kept(field, messages):
    (message,) = messages(f"text:a\tlabels:b\t\t{field}:1\n")
    assert field in message and "" not in message


def test_lines_of_others_are_read_as_parlai_does(tmp_path, monkeypatch):
    """Its builders of CoQA, QuAC and HotpotQA end dialogues with two tabs, and leave tabs of the texts as they are."""
    patches.apply()
    (tmp_path / "coqa.txt").write_text("text:a\tb\tlabels:c\t\tepisode_done:True\n")
    teacher = ParlAIDialogTeacher(
        {"parlaidialogteacher_datafile": str(tmp_path / "coqa.txt"), "datatype": "valid", "task": "coqa"}
    )
    assert (teacher.act()["eval_labels"], teacher.num_examples()) == (["c"], 1)


DIALOGUE = '{"dialog": [[{"id": "a", "text": "hi\u2028you"}, {"id": "b", "text": "yes"}]]}\n'
DAMAGED = {
    '{"dialog":': "line 3 is not JSON",
    "": "line 3 is not JSON",
    '{"dialogue": []}': "line 3 has no dialog, a list of lists of turns",
    '{"dialog": ["hi"]}': "line 3 has no dialog, a list of lists of turns",
    "[]": "line 3 has no dialog, a list of lists of turns",
}


def dialogues(path, datatype):
    """Return the teacher of a file of JSON lines."""
    patches.apply()
    flags = ["-t", "jsonfile", "--jsonfile-datapath", str(path), "-dt", datatype]
    return create_task_agent_from_taskname(setup_args().parse_args(flags))[0]


@pytest.mark.parametrize(("line", "said"), DAMAGED.items())
def test_a_dialogue_that_cannot_be_read_is_named_by_its_line(line, said, tmp_path):
    (tmp_path / "mine.jsonl").write_text(2 * DIALOGUE + line + "\n" + DIALOGUE, encoding="utf-8")
    with pytest.raises(InputError, match=said):
        dialogues(tmp_path / "mine.jsonl", "valid")


def test_no_character_of_a_text_ends_its_dialogue(tmp_path):
    (tmp_path / "mine.jsonl").write_text(DIALOGUE, encoding="utf-8")
    assert dialogues(tmp_path / "mine.jsonl", "valid").act()["text"] == "hi\u2028you"


def test_the_examples_of_a_stream_are_those_of_its_file_now(tmp_path):
    for count in (3, 5):
        (tmp_path / "mine.jsonl").write_text(DIALOGUE * count, encoding="utf-8")
        teacher = dialogues(tmp_path / "mine.jsonl", "train:stream")
        assert teacher.num_examples() == teacher.num_episodes() == count
    assert [file.name for file in tmp_path.iterdir()] == ["mine.jsonl"]
