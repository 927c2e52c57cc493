"""A small human evaluation: two models that talked, pairs of their conversations, annotators."""

import contextlib
import functools
import os
import re
import signal
import subprocess
import tempfile
from html import unescape
from pathlib import Path

import forks

from polyagents.commands import human_eval as command
from polyagents.human_eval.conversations import make_conversation, make_pair, sides_of
from polyagents.human_eval.storage.evaluation_store import EvaluationStore

MODELS = ("secret-poly", "secret-bi")
SCRIPT = "<script>document.title = 'broken'</script><img src=x onerror=\"document.title='broken'\">"


def human_eval(*arguments):
    """Run `polyagents human_eval ARGUMENTS` in this process."""
    command.run(vars(command.parser().parse_args(list(map(str, arguments)))))


@contextlib.contextmanager
def serving(*arguments, links, **how):
    """`polyagents human_eval ARGUMENTS` in a process of its own: it, and so many links that it prints, by name."""
    with open(os.devnull, "r+") as null:
        files = {"stdin": null, "stdout": subprocess.PIPE, "stderr": null}
        with forks.Child(forks.COMMAND, "human_eval", *arguments, **files, **how) as process:
            try:
                yield process, dict(process.stdout.readline().strip().split("\t") for _ in range(links))
            finally:
                process.send_signal(signal.SIGKILL)


def conversation(model, number, said="so it is"):
    """A person and a model; the model speaks second."""
    turns = [("human", f"hi , this is {number} ."), (model, f"{said} ."), ("human", "why ?"), (model, "it just is .")]
    return make_conversation(turns, {"human": "human", model: model}, ["i like blue ."], f"/logs/{model}.jsonl")


def evaluation(url, pairs=3, annotators=("ada",), checks=0, said="so it is"):
    """A store at a URL, with pairs, onboarding checks (the first side is right), and annotators; and their tokens."""
    is_new = "://" not in url and not Path(url).exists()
    if is_new:
        Path(url).write_bytes(filled(pairs, checks, said))
    store = EvaluationStore(url)
    if not is_new:
        fill(store, pairs, checks, said)
    return store, [annotator.token for annotator in store.invite(annotators)]


@functools.cache
def filled(pairs, checks, said):
    """The file of a database with pairs and checks: to make one takes as long as the rest of many a test."""
    with tempfile.TemporaryDirectory() as folder:
        with contextlib.closing(EvaluationStore(f"{folder}/s.db")) as store:
            fill(store, pairs, checks, said)
        return Path(f"{folder}/s.db").read_bytes()


def fill(store, pairs, checks, said):
    """Add pairs and checks to a store."""
    made = []
    for number in range(checks + pairs):
        both = [conversation(model, number, said) for model in MODELS]
        store.add_conversations(both)
        sides = [sides_of(one)[model] for one, model in zip(both, MODELS, strict=True)]
        made.append(make_pair(*sides, right=0 if number < checks else None))
    store.add_pairs(made)


def fields(html):
    """The hidden fields of the page's form."""
    return {name: unescape(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', html)}


def stored(store):
    """Every answer that is not to a check, in order: ((annotator, pair), (model that won, reason))."""
    return [((one.annotator, one.pair), (one.winner, one.reason)) for one in store.judgements()]
