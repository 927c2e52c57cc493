"""Every command that writes, killed at each of its writes, renames, removals and syncs, and with a full disk at each.

What a user finds then is what was there before, or what was to come, and nothing else; the same command ends as an
undisturbed one, and leaves no other files. `docs/reliability.md` has the figures:

    FAULTS=1000 python -m pytest tests/reliability/test_faults.py -m release -rP
"""

import abc
import functools
import hashlib
import json
import os
import random
import shutil
from collections import Counter

import pytest
import wiki_dump
from commands import SAMPLE, copy_model
from evaluation import evaluation
from faults import Victims, can_trace

from polyagents import InputError, Ranker
from polyagents.files import model_file
from polyagents.human_eval.storage.evaluation_store import EvaluationStore

REPLIES = [f"reply number {number}" for number in range(20)]
MORE = [f"another reply {number}" for number in range(7)]


class Command(abc.ABC):
    """A command that writes, on files of its own.

    Attributes:
        varies: files whose content is another one each time (times, mostly); `state` has what matters of them.
    """

    varies: tuple[str, ...] = ()

    @abc.abstractmethod
    def prepare(self, folder, model):
        """Make what the command needs."""

    @abc.abstractmethod
    def arguments(self, folder):
        """The command line."""

    @abc.abstractmethod
    def look(self, folder):
        """Use what is there as a user would, after a fault; what must not be is an AssertionError, or no InputError."""

    def state(self, folder):
        """Everything that is there, to be compared."""
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return {
            str(path.relative_to(folder)): ""
            if path.name in self.varies
            else hashlib.sha256(path.read_bytes()).hexdigest()
            for path in files
        }


class BuildIndex(Command):
    """A candidate index, with an approximate one."""

    varies = ("verified.json",)
    texts: tuple[list[str], ...] = ([], REPLIES)
    """What the index may hold."""

    def prepare(self, folder, model):
        copy_model(model, folder / "M")
        (folder / "replies.txt").write_text("\n".join(REPLIES))
        (folder / "more.txt").write_text("\n".join(MORE))

    def arguments(self, folder):
        return ["build_index", "-mf", folder / "M", "--candidates-file", folder / "replies.txt", "--index-dir",
                folder / "index", "--index-type", "hnsw"]  # fmt: skip

    def look(self, folder):
        ranker = Ranker.load(folder / "M")
        try:
            index = ranker.open_index(folder / "index")
        except InputError as error:
            assert [] in self.texts, error
            return
        found = {match.text for match in ranker.rank("hello", index, top_k=100)}
        assert found in [set(texts) for texts in self.texts] and len(index) in map(len, self.texts)


class AppendToIndex(BuildIndex):
    """More candidates for an index that is there."""

    texts = (REPLIES, REPLIES + MORE)

    def prepare(self, folder, model):
        super().prepare(folder, model)
        ranker = Ranker.load(folder / "M")
        ranker.approximate(ranker.index(folder / "replies.txt", folder / "index"), "hnsw")

    def arguments(self, folder):
        return ["build_index", "-mf", folder / "M", "--candidates-file", folder / "more.txt", "--index-dir",
                folder / "index", "--append"]  # fmt: skip


class DeleteFromIndex(AppendToIndex):
    """Fewer candidates of an index that is there."""

    texts = (REPLIES + MORE, REPLIES)

    def prepare(self, folder, model):
        super().prepare(folder, model)
        (folder / "replies.txt").write_text("\n".join(REPLIES + MORE))
        shutil.rmtree(folder / "index")
        ranker = Ranker.load(folder / "M")
        ranker.approximate(ranker.index(folder / "replies.txt", folder / "index"), "hnsw")

    def arguments(self, folder):
        return [*super().arguments(folder)[:-1], "--delete"]


class Train(Command):
    """Four updates with two validations. A resumed run reads the task from its beginning, so its weights are others."""

    varies = ("M", "M.checkpoint", "M.opt", "M.checkpoint.opt", "M.trainstats", "M.checkpoint.trainstats", "M.test")
    varies += ("M.valid", "M.png")

    def prepare(self, folder, model):
        """Nothing: the sample task is ours."""

    def arguments(self, folder):
        return ["train_model", "-m", "bi", "-mf", folder / "M", "-t", SAMPLE, "--backbone", "scratch:tiny", "-bs", "4",
                "--validation-every-n-steps", "2", "--validation-max-exs", "4", "--short-final-eval", "true",
                "--max-train-steps", "5", "--loglevel", "error", "-vmt", "loss", "--text-truncate", "16",
                "--label-truncate", "8", "--dict-maxexs", "100"]  # fmt: skip

    def look(self, folder):
        if (folder / "M").exists() and (folder / "M.opt").exists():  # the second is written last
            assert Ranker.load(folder / "M").rank("hello", REPLIES, top_k=1)

    def state(self, folder):
        stats = json.loads((folder / "M.checkpoint.trainstats").read_text())
        held = json.loads(model_file.read(str(folder / "M.checkpoint"))["progress"])
        assert held["train_steps"] == stats["train_steps"]
        validated = [report["train_steps"] for report in stats["valid_reports"]]
        ended = json.loads((folder / "M.trainstats").read_text())["train_steps"]
        return super().state(folder) | {"checkpoint": [stats["train_steps"], validated], "ended": ended}


class Answer(Command):
    """An annotator judges twelve pairs."""

    varies = ("evaluation.db",)

    def prepare(self, folder, model):
        store, _ = evaluation(str(folder / "evaluation.db"), pairs=12)
        store.close()

    def arguments(self, folder):
        store = EvaluationStore(str(folder / "evaluation.db"))
        (ada,) = store.invite(["ada"])
        store.close()
        return ["answer", folder / "evaluation.db", ada.token, folder.parent / "confirmed"]

    def look(self, folder):
        confirmed = folder.parent / "confirmed"
        told = confirmed.read_text().split() if confirmed.exists() else []
        store = EvaluationStore(str(folder / "evaluation.db"))
        assert len(told) <= len(store.judgements()) <= len(told) + 1  # the last may be stored and not confirmed
        store.close()

    def state(self, folder):
        (folder.parent / "confirmed").unlink(missing_ok=True)
        store = EvaluationStore(str(folder / "evaluation.db"))
        judged = [(one.annotator, one.pair, one.reason) for one in store.judgements()]
        store.close()
        return super().state(folder) | {"judged": sorted(judged)}


class BuildPairs(Command):
    """Training data of plain text files."""

    def prepare(self, folder, model):
        draw = random.Random(0)
        (folder / "texts").mkdir()
        for name in ("a.txt", "b.txt", "c.txt"):
            lines = [" ".join(draw.choices(["one", "two", "three", "four", "five", "six"], k=12)) for _ in range(60)]
            (folder / "texts" / name).write_text("\n".join(lines))

    def arguments(self, folder):
        return ["build_pairs", "--source", folder / "texts", "--outdir", folder / "out"]

    def look(self, folder):
        manifest = folder / "out" / "manifest.json"
        if manifest.exists():
            said = json.loads(manifest.read_text())
            lines = sum(len(path.read_text().splitlines()) for path in (folder / "out").glob("*.jsonl"))
            assert lines == sum(said["examples"].get(name, 0) for name in ("train", "valid", "test"))


class BuildWikiSearch(BuildPairs):
    """Data for article search of a dump."""

    def prepare(self, folder, model):
        (folder / "dump.xml").write_bytes(wiki_dump.dump(60))

    def arguments(self, folder):
        return ["build_wiki_search", "--source", folder / "dump.xml", "--outdir", folder / "out", "--workers", "1",
                "--eval-pool", "10", "--valid-examples", "5", "--test-examples", "5"]  # fmt: skip


COMMANDS = (BuildIndex, AppendToIndex, DeleteFromIndex, Train, Answer, BuildPairs, BuildWikiSearch)


@pytest.fixture(scope="module")
def victims(tmp_path_factory):
    """The process that runs them; what needs it is skipped where processes cannot be traced."""
    if not can_trace():
        pytest.skip("needs strace, and to be allowed to trace processes")
    running = Victims(tmp_path_factory.mktemp("victims"))
    yield running
    running.close()


class Trial:
    """A command, what it needs, and what it does when nothing disturbs it."""

    def __init__(self, command, victims, folder, model):
        self.command, self.victims = command, victims
        self.base, self.folder = folder / "base", folder / "now"
        self.base.mkdir()
        command.prepare(self.base, model)
        self.renew()
        self.points = victims.points(self.arguments(), self.folder)
        self.expected = command.state(self.folder)

    def arguments(self):
        """The command line."""
        return self.command.arguments(self.folder)

    def renew(self):
        """Put everything back to where it was before."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder.parent / "confirmed").unlink(missing_ok=True)
        shutil.copytree(self.base, self.folder)

    def check(self, point, fault):
        """Run with a fault at a point, look, run again, compare; whether the fault came."""
        self.renew()
        ended = getattr(self.victims, fault)(self.arguments(), point)
        if fault == "killed" and ended.code == 0:
            return False  # the point was of another run: how often a file is looked for may depend on the time
        if fault == "refused":
            lines = [line for line in ended.said.splitlines() if line.startswith("polyagents")]
            assert "Traceback" not in ended.said and (ended.code == 0 or (ended.code == 2 and len(lines) == 1)), ended
        else:
            assert ended.code == -9, ended
        self.command.look(self.folder)
        again = self.victims.run(self.arguments())
        assert again.code == 0, again.said
        assert self.command.state(self.folder) == self.expected
        return True


def some_of(points, count):
    """So many of the points, the same ones each time, those of each kind among them."""
    order = random.Random(0).sample(points, len(points))
    first = {point.kind: point for point in reversed(order)}
    rest = [point for point in order if point not in first.values()]
    return [*first.values(), *rest][:count]


@pytest.fixture(scope="module")
def trial_of(victims, tmp_path_factory, trained):
    """The trial of a command, made once."""
    return functools.cache(lambda of: Trial(of(), victims, tmp_path_factory.mktemp("trial"), trained("bi")))


BUDGETS = [1, pytest.param(int(os.environ.get("FAULTS", "20")), marks=pytest.mark.release)]


@pytest.mark.slow
@pytest.mark.parametrize("count", BUDGETS)
@pytest.mark.parametrize("fault", ["killed", "refused"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_fault_at_each_point_loses_nothing(command, fault, count, trial_of):
    trial = trial_of(command)
    points = [point for point in trial.points if fault == "killed" or point.kind != "remove"]
    assert points
    tried, wrong = Counter(), []
    for point in some_of(points, count):
        try:
            tried[point.kind] += trial.check(point, fault)
        except AssertionError as error:
            wrong.append((point, str(error)))
    print(f"\n{command.__name__} {fault}: {dict(tried)} of {len(points)}, wrong {len(wrong)}")
    assert not wrong, "\n".join(f"{point}: {error[:1_000]}" for point, error in wrong)
