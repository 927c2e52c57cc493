"""A small human evaluation: two models that talked, pairs of their conversations, annotators."""

import re
from html import unescape

from polyagents.commands import human_eval as command
from polyagents.human_eval.conversations import make_conversation, make_pair, sides_of
from polyagents.human_eval.storage.evaluation_store import EvaluationStore

MODELS = ("secret-poly", "secret-bi")
SCRIPT = "<script>document.title = 'broken'</script><img src=x onerror=\"document.title='broken'\">"


def human_eval(*arguments):
    """Run `polyagents human_eval ARGUMENTS` in this process."""
    command.run(vars(command.parser().parse_args(list(map(str, arguments)))))


def conversation(model, number, said="so it is"):
    """A person and a model; the model speaks second."""
    turns = [("human", f"hi , this is {number} ."), (model, f"{said} ."), ("human", "why ?"), (model, "it just is .")]
    return make_conversation(turns, {"human": "human", model: model}, ["i like blue ."], f"/logs/{model}.jsonl")


def evaluation(url, pairs=3, annotators=("ada",), checks=0, said="so it is"):
    """A store at a URL, with pairs, onboarding checks (the first side is right), and annotators; and their tokens."""
    store, made = EvaluationStore(url), []
    for number in range(checks + pairs):
        both = [conversation(model, number, said) for model in MODELS]
        store.add_conversations(both)
        sides = [sides_of(one)[model] for one, model in zip(both, MODELS, strict=True)]
        made.append(make_pair(*sides, right=0 if number < checks else None))
    store.add_pairs(made)
    return store, [annotator.token for annotator in store.invite(annotators)]


def fields(html):
    """The hidden fields of the page's form."""
    return {name: unescape(value) for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', html)}


def stored(store):
    """Every answer that is not to a check, in order: ((annotator, pair), (model that won, reason))."""
    return [((one.annotator, one.pair), (one.winner, one.reason)) for one in store.judgements()]
