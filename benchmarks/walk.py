"""The path of one batch through the package: which of our functions it calls, in which files, and how deep.

    python benchmarks/walk.py [--list]

A tiny poly-encoder evaluates a batch over each source of candidates, replies, ranks as `Ranker`, and makes an update of
its weights in the loop of `Ranker.train`. Only functions of the package count, each once, however often it is called;
code inside one (a comprehension, a lambda) is part of it. Depth is the largest number of them that wait for each other.
A way back up is a call into a higher layer: from the core into `parlai_agents/`, or from anything else into the files
of the agent's own classes. A return is where a reader who looks at each function when it is first called has to return
to those files, after a function elsewhere.

Nothing that happens only once is counted: another batch takes the same path before, and its texts are different, so
that nothing of this one is cached. The file runs on older trees as well, so it imports nothing that they lack.
"""

import argparse
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

from parlai.core.agents import create_agent_from_model_file
from parlai.utils import logging

import polyagents

PACKAGE = os.path.join(os.path.dirname(os.path.abspath(polyagents.__file__)), "")
EXAMPLES, CANDIDATES = 4, 10
BATCHES = 2  # the last one is counted


@dataclass(frozen=True)
class Call:
    """A function that was called, and the functions that wait for it, outermost first."""

    function: CodeType
    callers: tuple[CodeType, ...]


def watched(work: Callable[[], Any]) -> list[Call]:
    """Record every call of the package's functions during some work."""
    waiting: list[CodeType] = []
    calls: list[Call] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if not is_ours(code):
            return
        if event == "call":  # also when a generator is resumed
            calls.append(Call(code, tuple(waiting)))
            waiting.append(code)
        elif event == "return":
            waiting.pop()

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def is_ours(code: CodeType) -> bool:
    """Return whether a function is in the package, and not only a part of the one around it."""
    return code.co_filename.startswith(PACKAGE) and code.co_filename != __file__ and not code.co_name.startswith("<")


def file_of(code: CodeType) -> str:
    """Return the file of a function, relative to the package."""
    return code.co_filename.removeprefix(PACKAGE)


def name_of(code: CodeType) -> str:
    """Return the name of a function, with its class from Python 3.11 on."""
    return str(getattr(code, "co_qualname", code.co_name))


@dataclass(frozen=True)
class Layers:
    """The order of the layers.

    Attributes:
        ranker: the file of the Python API.
        agent: the files of the agent's own classes.
    """

    ranker: str
    agent: frozenset[str]

    @classmethod
    def of(cls, agent: Any) -> "Layers":
        """Return the layers of a tree, found by one of its agents."""
        files = (getattr(sys.modules[kind.__module__], "__file__", None) or "" for kind in type(agent).__mro__)
        ours = frozenset(file.removeprefix(PACKAGE) for file in files if file.startswith(PACKAGE))
        return cls("ranker.py", ours)

    def height(self, code: CodeType) -> int:
        """Return the height of a function's layer: the core has 0."""
        file = file_of(code)
        if file == self.ranker:
            return 3
        return 2 if file in self.agent else int(file.startswith(f"parlai_agents{os.sep}"))

    def ways_up(self, calls: Sequence[Call]) -> list[tuple[CodeType, CodeType]]:
        """Return caller and callee of each distinct way back up."""
        pairs = ((call.callers[-1], call.function) for call in calls if call.callers)
        return [pair for pair in dict.fromkeys(pairs) if self.height(pair[1]) > self.height(pair[0])]

    def returns(self, calls: Sequence[Call]) -> int:
        """Return how often a reader returns to the agent."""
        of_agent = [file_of(code) in self.agent for code in dict.fromkeys(call.function for call in calls)]
        return sum(now and not before for before, now in itertools.pairwise(of_agent))


def below(start: str, calls: Sequence[Call]) -> list[Call]:
    """Return the calls of a function and of everything that it calls, without its callers.

    Args:
        start: its name, without a class.
        calls: all calls.
    """
    found = []
    for call in calls:
        names = [caller.co_name for caller in (*call.callers, call.function)]
        if start in names:
            found.append(Call(call.function, call.callers[names.index(start) :]))
    return found


def last_update(calls: Sequence[Call]) -> list[Call]:
    """Return the calls of the last batch of a run and of the update after it, without the loop's."""
    names = [call.function.co_name for call in calls]
    start = len(names) - 1 - names[::-1].index("_train_on")
    depth = len(calls[start].callers)
    end = names.index("_after_update", start)
    return [Call(call.function, call.callers[depth:]) for call in calls[start:end]]


# ---- what is watched -------------------------------------------------------------------------------------------------


def trained(folder: str) -> str:
    """Make a tiny poly-encoder of one training step in a folder."""
    file = os.path.join(folder, "M")
    flags = "-m poly -t integration_tests --backbone scratch:tiny --max-train-steps 1 --batchsize 2 --candidates inline"
    command = [sys.executable, "-m", "polyagents", "train_model", "-mf", file, *flags.split(), "--loglevel", "error"]
    subprocess.run(command, check=True, capture_output=True)
    return file


def texts(batch: int) -> list[str]:
    """Return the candidates of a batch; the first are its labels."""
    return [f"{batch} {number} 1 2 3" for number in range(CANDIDATES)]


def contexts(batch: int) -> list[str]:
    """Return the contexts of a batch."""
    return [f"{batch} 4 {number}" for number in range(EXAMPLES)]


def evaluate(agent: Any, labelled: bool = True) -> Callable[[int], Callable[[], Any]]:
    """Return a function from a batch number to an agent's work on it, after observing its messages.

    Args:
        labelled: whether the messages have labels.
    """

    def prepared(batch: int) -> Callable[[], Any]:
        seen = []
        for context, label in zip(contexts(batch), texts(batch), strict=False):
            fields = {"eval_labels": (label,), "label_candidates": texts(batch)} if labelled else {}
            agent.reset()
            seen.append(agent.observe({"text": context, "episode_done": True} | fields))
        return lambda: agent.batch_act(seen)

    return prepared


def train() -> None:
    """Train a tiny poly-encoder for some updates."""
    examples = [{"context": context, "label": text} for context, text in zip(contexts(0), texts(0), strict=False)]
    options: dict[str, Any] = {
        "backbone": "scratch:tiny",
        "batchsize": EXAMPLES,
        "max_train_steps": BATCHES,
        "precision": "fp32",
    }
    polyagents.Ranker.train(examples, progress=False, no_cuda=True, **options)


def ways(model_file: str, folder: str) -> tuple[Layers, dict[str, tuple[str, Callable[[int], Callable[[], Any]]]]]:
    """Return the paths of a batch: for each, the function that it is counted from, and batch number -> work."""
    replies = os.path.join(folder, "replies.txt")
    with open(replies, "w", encoding="utf-8") as file:
        file.writelines(f"{text}\n" for batch in range(BATCHES) for text in texts(batch))
    plain = {"datatype": "valid", "no_cuda": True, "fixed_candidates_path": replies}
    agents = {
        source: create_agent_from_model_file(model_file, plain | {"eval_candidates": source})
        for source in ("inline", "batch", "fixed")
    }
    ranker = polyagents.Ranker.load(model_file, no_cuda=True)
    index = ranker.index(replies, os.path.join(folder, "index"))
    return Layers.of(agents["inline"]), {
        "evaluation, inline candidates": ("eval_step", evaluate(agents["inline"])),
        "evaluation, batch candidates": ("eval_step", evaluate(agents["batch"])),
        "evaluation, fixed candidates": ("eval_step", evaluate(agents["fixed"])),
        "reply, fixed candidates": ("eval_step", evaluate(agents["fixed"], labelled=False)),
        "Ranker.rank, texts": ("rank", lambda batch: lambda: ranker.rank(contexts(batch), texts(batch))),
        "Ranker.rank, index": ("rank", lambda batch: lambda: ranker.rank(contexts(batch), index)),
    }


# ---- what is said ----------------------------------------------------------------------------------------------------


def counted(calls: Sequence[Call]) -> tuple[int, int, int]:
    """Return distinct functions, distinct files, and the greatest depth."""
    functions = {call.function for call in calls}
    return len(functions), len({file_of(code) for code in functions}), max(len(call.callers) + 1 for call in calls)


def listing(calls: Sequence[Call]) -> str:
    """List each function where it is called first, indented by its depth."""
    first = {call.function: len(call.callers) for call in reversed(calls)}
    order = dict.fromkeys(call.function for call in calls)
    return "\n".join(f"    {'  ' * first[code]}{name_of(code)}  ({file_of(code)})" for code in order)


def main() -> None:
    """Walk every way and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="name the functions, too")
    given = parser.parse_args()
    logging.disable()
    print("| | functions | files | depth | ways back up | returns | functions from batch_act | files |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    lists = []
    with tempfile.TemporaryDirectory() as folder:
        layers, found = ways(trained(folder), folder)
        for name, (start, work) in found.items():
            for batch in range(BATCHES):
                calls = watched(work(batch))
            inner, up = below(start, calls), layers.ways_up(calls)
            row = [name, *counted(inner), len(up), layers.returns(inner)]
            row += counted(calls)[:2] if start == "eval_step" else ["", ""]
            print(f"| {' | '.join(map(str, row))} |", flush=True)
            lists.append(f"\n{name}:\n{listing(calls)}")
            lists += [f"    back up: {name_of(caller)} -> {name_of(callee)}" for caller, callee in up]
        inner = last_update(watched(train))
        print(f"| {' | '.join(map(str, ['training, Ranker.train', *counted(inner), 0, 0, '', '']))} |")
        lists.append(f"\ntraining, Ranker.train:\n{listing(inner)}")
    if given.list:
        print("\n".join(lists))


if __name__ == "__main__":
    main()
