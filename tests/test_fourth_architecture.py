"""A further architecture, added as docs/add-an-architecture.md says, has the same scores wherever it is asked.

And so has a poly-encoder, with either sharpness. The page's own code, in a package, is trained by its short names.
"""

import dataclasses
import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from agent_batches import act
from commands import SAMPLE, TINY, run
from parlai.core.agents import create_agent
from parlai.core.message import Message
from parlai.core.params import ParlaiParser
from starlette.testclient import TestClient

from polyagents import InputError, Ranker
from polyagents.commands import rank as rank_command
from polyagents.commands.parlai_command import with_full_names
from polyagents.model_files.building import build_model
from polyagents.models import architecture
from polyagents.models.bi import BiEncoder
from polyagents.models.formulas import ContextVectors, dot_products
from polyagents.models.model_options import TowerOptions
from polyagents.models.poly import PolyEncoder
from polyagents.models.two_towers import TwoTowers
from polyagents.options import fields_of, option
from polyagents.serving.ranking_app import create_app
from polyagents.serving.sources import Sources

MODELS = Path(__file__).parent / "version_0_1"
CONTEXTS = ["hi , do you ski ?", "i own a dog", "your persona: i ski .\nwhat do you do ?"]
CANDIDATES = ["i like red", "so you like blue", "my dog barks", "yes", "no , never"]


# ---- all that it takes -----------------------------------------------------------------------------------------------


class MaxEncoder(TwoTowers):
    """Every output of the context is a vector of its own, and the nearest one decides."""

    short_name, label = "max", "max-encoder"

    def context_vectors(self, chunk):
        return ContextVectors(self.normalise(self.context_encoder(chunk)), chunk.mask)

    def score(self, context, candidates):
        products = dot_products(context.vectors, candidates)
        return products.masked_fill(~context.mask.unsqueeze(-1), torch.finfo(torch.float32).min).amax(1)

    def upper_bound(self, largest):
        return largest


class UnboundedMaxEncoder(MaxEncoder):
    """The same without a bound: a search scores every candidate."""

    upper_bound = TwoTowers.upper_bound


# ---- and what comes with it ------------------------------------------------------------------------------------------


# Codes that attend to different outputs, and products that a softmax neither makes equal nor lets one win.
POLY = ("--codes-init", "unit", "--output-scaling", "0.3")
KINDS = {
    "bounded": (MaxEncoder, ()),
    "unbounded": (UnboundedMaxEncoder, ()),
    "soft poly": (PolyEncoder, (*POLY, "--poly-attention-type", "sqrt")),
    "sharp poly": (PolyEncoder, POLY),
}


@pytest.fixture(scope="module", params=KINDS)
def made(request, tmp_path_factory):
    """A trained model file, and the obvious scores of contexts with candidates."""
    kind, flags = KINDS[request.param]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(architecture.ARCHITECTURES, kind.__name__, kind)
        file, name = str(tmp_path_factory.mktemp("kind") / "M"), f"polyagents:{kind.__name__}"
        short = ("--max-train-steps", 4, "--validation-max-exs", 8, "--short-final-eval", "true")
        run("train_model", "-m", name, "-mf", file, *TINY, "-t", SAMPLE, *short, *flags)
        model = Ranker.load(file).model
        sharpness = model.context_encoder.width**-0.5 if "sqrt" in flags else 1.0
        yield file, name, obvious_scores(model, sharpness)


@torch.no_grad()
def obvious_scores(model, sharpness):
    """Text by text and output by output."""
    rows = []
    for context in CONTEXTS:
        states = model.module.context_encoder(model.tokens(model.context_ids([context])))[0]
        vectors = [model.encode_texts([text])[0] for text in CANDIDATES]
        if isinstance(model.module, PolyEncoder):
            attended = [(code @ states.T).softmax(0) @ states for code in model.module.codes]
            products = torch.stack(attended) @ torch.stack(vectors).T
            rows.append(((sharpness * products).softmax(0) * products).sum(0).tolist())
        else:
            rows.append([max(float(state @ vector) for state in states) for vector in vectors])
    return np.array(rows)


def order(row):
    return sorted(range(len(row)), key=lambda i: -row[i])


def replies_to_a_batch(name, file, candidates_file, source, datatype):
    """One batch in training or evaluation: every context with the candidates, of which the i-th is the label."""
    key = "labels" if datatype == "train" else "eval_labels"
    flags = ["-m", name, "-mf", file, "-t", SAMPLE, "-dt", datatype, "-bs", "3", "--dropout", "0", "-lr", "0"]
    flags += ["--candidates", source, "--eval-candidates", source, "--fixed-candidates-path", str(candidates_file)]
    agent = create_agent(ParlaiParser(True, True).parse_args(flags))
    messages = [
        Message({"id": "x", "text": text, key: (CANDIDATES[i],), "label_candidates": CANDIDATES, "episode_done": True})
        for i, text in enumerate(CONTEXTS)
    ]
    return act(agent, messages)


@pytest.mark.slow
@pytest.mark.parametrize("made", ["bounded", "soft poly", "sharp poly"], indirect=True)  # bounds are for searches
@pytest.mark.parametrize("datatype", ["train", "valid"])
@pytest.mark.parametrize("source", ["batch", "inline", "fixed"])
def test_training_and_evaluation_use_its_formula(made, source, datatype, tmp_path):
    file, name, expected = made
    (tmp_path / "candidates.txt").write_text("\n".join(CANDIDATES))
    ranked = range(len(CONTEXTS)) if source == "batch" else range(len(CANDIDATES))
    for i, reply in enumerate(replies_to_a_batch(name, file, tmp_path / "candidates.txt", source, datatype)):
        row = expected[i, list(ranked)]
        loss = float(reply["metrics"]["mean_loss" if datatype == "train" else "loss"].value())
        assert loss == pytest.approx(float(np.log(np.exp(row - row[i]).sum())), abs=1e-4)
        if datatype == "valid":
            assert reply["text_candidates"] == [CANDIDATES[ranked[place]] for place in order(row)]


@pytest.mark.slow
def test_every_search_finds_the_same(made, tmp_path):
    file, _, expected = made
    ranker = Ranker.load(file)
    np.testing.assert_allclose(ranker.score(CONTEXTS, CANDIDATES), expected, atol=1e-4)
    (tmp_path / "candidates.txt").write_text("\n".join(CANDIDATES))
    index = ranker.index(tmp_path / "candidates.txt", tmp_path / "index", stored_as="fp32")
    answers = {
        "texts": ranker.rank(CONTEXTS, CANDIDATES, 3),
        "memory": ranker.rank(CONTEXTS, ranker.prepare(CANDIDATES), 3),
    }
    answers["exact"] = ranker.rank(CONTEXTS, index, 3)
    ranker.approximate(index, "hnsw")
    answers["approximate"] = ranker.rank(CONTEXTS, index, 3)
    for name, found in answers.items():
        for matches, row in zip(found, expected, strict=True):
            assert [match.index for match in matches] == order(row)[:3], name
            assert [match.score for match in matches] == pytest.approx(sorted(row, reverse=True)[:3], abs=1e-4), name


def test_commands_and_server_rank_alike(made, tmp_path, monkeypatch, capsys):
    file, _, expected = made
    path = tmp_path / "candidates.txt"
    path.write_text("\n".join(CANDIDATES))
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(json.dumps({"context": text}) + "\n" for text in CONTEXTS)))
    rank_command.run(vars(rank_command.parser().parse_args(["-mf", file, "--candidates-file", str(path)])))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    with TestClient(create_app(Sources(file, str(path)).read()), "http://127.0.0.1:8008") as client:
        served = [client.post("/rank", json={"context": text}).json() for text in CONTEXTS]
    for line, answer, row in zip(lines, served, expected, strict=True):
        for matches in (line["candidates"], answer["matches"]):
            assert [match["index"] for match in matches] == order(row)
            assert [match["score"] for match in matches] == pytest.approx(sorted(row, reverse=True), abs=1e-4)


class ProjectedEncoder(BiEncoder):
    """Candidates pass through a layer of their own."""

    def __init__(self, encoder, options):
        super().__init__(encoder, options)
        self.projection = torch.nn.Linear(encoder.width, encoder.width)

    def candidate_vectors(self, chunk):
        return self.projection(super().candidate_vectors(chunk))


def test_an_index_is_stale_once_a_candidates_own_weight_has_changed(monkeypatch):
    monkeypatch.setitem(architecture.ARCHITECTURES, "ProjectedEncoder", ProjectedEncoder)
    model = Ranker.load(MODELS / "bi").model
    encoder, settings = model.context_encoder, dataclasses.replace(model.settings, architecture="ProjectedEncoder")
    projected = build_model(encoder, model.tokenizer, settings)
    before = projected.fingerprint()
    assert before not in (model.fingerprint(), build_model(encoder, model.tokenizer, settings).fingerprint())
    with torch.no_grad():
        projected.module.projection.weight += 1
    assert projected.fingerprint() != before


def test_a_class_of_neither_kind_is_no_architecture(monkeypatch):
    model = Ranker.load(MODELS / "bi").model
    neither = type("Neither", (torch.nn.Module,), {"__init__": lambda self, *_: torch.nn.Module.__init__(self)})
    monkeypatch.setitem(architecture.ARCHITECTURES, "Neither", neither)
    settings = dataclasses.replace(model.settings, architecture="Neither")
    with pytest.raises(TypeError, match="Neither extends neither TwoTowers nor Joint"):
        build_model(model.context_encoder, model.tokenizer, settings)


# ---- in another package ----------------------------------------------------------------------------------------------

PAGE = (Path(__file__).parents[1] / "docs" / "add-an-architecture.md").read_text("utf-8")
CODE = "".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[:2])
ENTRIES = re.findall(r'^(\w+) = "(max_encoder:\w+)"$', PAGE, re.MULTILINE)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a package with architectures on the path, as pip does; it is gone after the test."""
    known = {name: kind for name, kind in architecture.ARCHITECTURES.items() if kind.__module__ != __name__}
    monkeypatch.setattr(architecture, "ARCHITECTURES", known)  # `made` may still have its own there

    def write(entries, code=CODE, module="max_encoder"):
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        lines = [f"{name} = {value}\n" for name, value in entries]
        (info / "entry_points.txt").write_text("[polyagents.architectures]\n" + "".join(lines))
        (tmp_path / f"{module}.py").write_text(code)
        monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.syspath_prepend(str(tmp_path))

    return write


@pytest.mark.slow
def test_the_pages_package_is_trained_by_its_short_names_and_missed_once_it_is_gone(install, tmp_path, monkeypatch):
    install(ENTRIES)
    file, pairs = str(tmp_path / "M"), [{"context": one, "label": one} for one in CONTEXTS]
    command = with_full_names(["train_model", "-m", "max", "-mf", file])
    assert command[2] == "polyagents:MaxEncoder"
    short = ("--max-train-steps", 2, "--validation-max-exs", 8, "--short-final-eval", "true")
    run(*command, *TINY, "-t", SAMPLE, "--nearest", "2", *short)
    loaded = Ranker.load(file)
    model = loaded.model
    with torch.no_grad():
        for context, row in zip(CONTEXTS, loaded.score(CONTEXTS, CANDIDATES), strict=True):
            states = model.module.context_encoder(model.tokens(model.context_ids([context])))[0]
            products = states @ model.encode_texts(CANDIDATES).T
            np.testing.assert_allclose(row, products.topk(2, 0).values.mean(0), atol=1e-4)
    assert Ranker.load(file, nearest=1).score("hi", ["a"]) > loaded.score("hi", ["a"])
    tiny = {"backbone": "scratch:tiny", "max_train_steps": 1, "progress": False}
    joint = Ranker.train(pairs, model="maxcross", **tiny)
    assert joint.score(CONTEXTS, CANDIDATES).shape == (3, 5) and joint.model.label == "max-cross-encoder"

    monkeypatch.undo()  # the package is no longer there
    missed = f"{re.escape(file)} was trained as polyagents:MaxEncoder, an architecture that is neither built in nor"
    with pytest.raises(InputError, match=missed):
        Ranker.load(file)
    with pytest.raises(InputError, match="names polyagents:MaxEncoder, an architecture that is neither built in"):
        run("eval_model", "-mf", file, "-t", SAMPLE)


@pytest.mark.parametrize("entry", [("MaxEncoder", "max_encoder:MaxEncoder"), ("max", "max_encoder:MaxEncoder")])
@pytest.mark.parametrize("name", ["max", "MaxEncoder", "polyagents:MaxEncoder"])
def test_an_entry_point_has_the_short_name_or_that_of_the_class(install, entry, name):
    install([entry])
    assert architecture.architecture_named(name) == "MaxEncoder"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import nothing_of_that_name", r"max_encoder:MaxEncoder, cannot be imported \(ModuleNotFoundError: No module"),
        ("MaxEncoder = 3", "3 is not an architecture; give a class that extends TwoTowers or Joint"),
        (
            CODE.replace("    short_name, label", "    other, label"),
            "MaxEncoder has no short_name; give its class both",
        ),
    ],
)
def test_a_package_that_cannot_be_used_is_named(install, code, said):
    install(ENTRIES[:1], code)
    with pytest.raises(InputError, match=said):
        architecture.architecture_named("max")


def declared(**fields):
    """A group of options with these fields, each with its annotation and its value."""
    made = type(
        "Made",
        (TowerOptions,),
        {"__annotations__": {n: kind for n, (kind, _) in fields.items()}}
        | {n: value for n, (_, value) in fields.items()},
    )
    return dataclasses.dataclass(frozen=True)(made)


def test_an_option_is_of_its_annotated_type():
    made = declared(
        depth=(int, option(3, "h")), rate=(float | None, option(None, "h")), loud=(bool, option(False, "h"))
    )
    read = made.read({"depth": "4", "rate": "0.5", "loud": "yes"})
    assert (read.depth, read.rate, read.loud) == (4, 0.5, True)
    with pytest.raises(InputError, match="--depth: 'x' is not a whole number"):
        made.read({"depth": "x"})


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ((int, 3), r"Made.depth is not declared as an option.*write depth: ... = option\(DEFAULT"),
        ((list, option(None, "h")), "Made.depth is of the type .*list.*annotate it with str, int, float or bool"),
        ((int | str, option(None, "h")), r"Made.depth is of the type int \| str"),
    ],
)
def test_an_option_that_no_flag_could_be_is_refused(field, said):
    with pytest.raises(InputError, match=said):
        fields_of(declared(depth=field))
