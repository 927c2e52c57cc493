"""Human evaluation where importing ParlAI fails: all works but what asks for a task or an agent of ParlAI's."""

import json
import subprocess
import sys

import forks
import pytest
from commands import SAMPLE
from evaluation import conversation

from polyagents.commands.human_eval import STEPS
from polyagents.faults import INSTALL_PARLAI
from polyagents.human_eval.formats.parlai_format import write_conversations
from polyagents.human_eval.steps import serve_chats
from polyagents.human_eval.steps.load_partners import load_partner

WITHOUT_PARLAI = """
import json, sys
sys.modules["parlai"] = None  # importing it fails from now on
"""

STEPS_AND_SENTENCES = """
from polyagents.commands import human_eval
from polyagents.errors import InputError

said = []
for arguments in json.loads(sys.argv[1]):
    try:
        human_eval.run(vars(human_eval.parser().parse_args(arguments)))
        said.append("")
    except InputError as error:
        said.append(str(error))
    except SystemExit:
        said.append("--help")
print(json.dumps([said, sorted({name.partition(".")[0] for name in sys.modules})]))
"""

REPLIES = """
from polyagents.human_eval.steps import serve_chats
from polyagents.human_eval.steps.load_partners import load_partner

file, *flags = json.loads(sys.argv[1])
partner, said = load_partner(vars(serve_chats.parser().parse_args([file, *flags])), file), []
for text in ("hi there", "do you ski ?", "bye"):
    said += [text, partner.reply("your persona: i ski .", [*said, text], 0)]
print(json.dumps(said))
"""


@pytest.fixture
def without_parlai(tmp_path, monkeypatch):
    """Run a program in a process in which ParlAI cannot be imported: what it prints in its last line."""
    monkeypatch.chdir(tmp_path)

    def run(program, given):
        done = forks.run(WITHOUT_PARLAI + program, json.dumps(given), bare=True)
        assert not done.returncode, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


def test_flags_are_shown_without_a_heavy_library(tmp_path):
    command = [sys.executable, "-c", WITHOUT_PARLAI + STEPS_AND_SENTENCES]
    command.append(json.dumps([[step, "--help"] for step in STEPS]))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True)
    said, loaded = json.loads(done.stdout.splitlines()[-1])
    assert said == ["--help"] * len(STEPS)
    heavy = {"torch", "transformers", "numpy", "scipy", "matplotlib", "sqlalchemy", "fastapi", "starlette", "jinja2"}
    assert not heavy & set(loaded)


@pytest.mark.slow
def test_from_logs_to_a_report(without_parlai, tmp_path):
    write_conversations(str(tmp_path / "logs.jsonl"), [conversation(model, n) for model in "ab" for n in range(3)])
    steps = [
        ["import", "logs.jsonl"],
        ["pairs", "--per-matchup", "3"],
        ["invite", "ada"],
        ["export", "--to", "parlai", "--out", "again.jsonl"],
        ["export", "--to", "acute_eval", "--out", "pairs.jsonl"],
        ["report"],
        ["serve", "--port", "99999"],
    ]
    said, _ = without_parlai(STEPS_AND_SENTENCES, steps)
    assert said[:5] == [""] * 5 and "There are no judgements" in said[5] and said[6] == "--help"  # as of wrong flags
    assert len((tmp_path / "again.jsonl").read_text().splitlines()) == 6


def test_what_needs_parlai_says_so(trained, without_parlai):
    steps = [
        ["invite", "ada"],
        ["self_chat", "-m", "repeat_label", "-t", SAMPLE, "--out", "x.jsonl"],
        ["chat", trained("bi"), "-t", SAMPLE, "--port", "0"],
        ["chat", trained("bi"), "--inference", "topk", "--port", "0"],
    ]
    said, _ = without_parlai(STEPS_AND_SENTENCES, steps)
    what = ["human_eval self_chat", "--task", f"{trained('bi')} with --inference topk"]
    install = f"needs ParlAI, which is not installed: {INSTALL_PARLAI}"
    assert said == ["", *(f"{it} {install}" for it in what)]


RELEASE = pytest.mark.release


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bi", pytest.param("poly", marks=RELEASE), pytest.param("written", marks=RELEASE)])
def test_our_models_chat(kind, trained, written, without_parlai, tmp_path):
    """As they do with ParlAI (test_human_eval_chat compares that with its agents)."""
    file = written("poly") if kind == "written" else trained(kind)
    (tmp_path / "replies.txt").write_text("yes .\nno .\ni ski , too .\nbye .\n")
    flags = ("--fixed-candidates-path", str(tmp_path / "replies.txt"))
    partner, said = load_partner(vars(serve_chats.parser().parse_args([file, *flags])), file), []
    for text in ("hi there", "do you ski ?", "bye"):
        said += [text, partner.reply("your persona: i ski .", [*said, text], 0)]
    assert without_parlai(REPLIES, [file, *flags]) == said
