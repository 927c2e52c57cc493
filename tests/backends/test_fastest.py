"""`--backend auto` and `polyagents tune`: the fastest runtime has torch's scores, and whatever fails leaves torch."""

import math

import numpy as np
import pytest
from commands import copy_model, own

from polyagents import InputError, Ranker, timings
from polyagents.backends import fastest
from polyagents.backends.exporting import export_model

pytestmark = pytest.mark.usefixtures("traced_once")
CONTEXTS = ["where is canada", "hi", "your persona: i ski .\nhello\nhow are you ?"]
REPLIES = ["i am here", "canada is in north america", "fruits are still very nice , and so are nuts", "no"]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder, and a runtime that is worth its export for every encoder."""
    monkeypatch.setenv(timings.FOLDER, str(tmp_path / "cache"))
    monkeypatch.setattr(fastest, "WORTH", 0)
    return tmp_path / "cache"


@pytest.fixture
def wins(monkeypatch):
    """Have a runtime be the fastest, whatever is measured; the ways that were measured."""
    asked = []

    def make(name):
        def medians(ways):
            if "torch" in ways:
                asked.append(list(ways))
            times = real(ways)
            return times | ({name: 1e-6} if times.get(name, math.inf) < math.inf else {})

        monkeypatch.setattr(timings, "medians", medians)
        return asked

    real = timings.medians
    return make


@pytest.mark.parametrize(("kind", "name"), [("bi", "onnx"), ("cross", "onnx"), ("bi", "openvino"), ("bi", "torch")])
def test_the_fastest_computes_what_torch_does(kind, name, trained, cache, wins, monkeypatch):
    asked = wins(name)
    found = Ranker.load(trained(kind), backend="auto")
    assert found.model.backend == f"{name} fp32" and asked == [["torch", "onnx", "openvino"]]
    expected = Ranker.load(trained(kind))
    np.testing.assert_allclose(found.score(CONTEXTS, REPLIES), expected.score(CONTEXTS, REPLIES), rtol=1e-4, atol=1e-4)
    # The next load measures and exports nothing.
    monkeypatch.setattr(fastest, "export_model", None)
    assert Ranker.load(trained(kind), backend="auto").model.backend == f"{name} fp32" and len(asked) == 1


def test_the_export_beside_a_model_is_used_unless_its_scores_are_others(trained, tmp_path, cache, wins, capsys):
    wins("onnx")
    file = str(copy_model(trained("bi"), tmp_path / "M"))
    export_model(Ranker.load(file).model, file, "onnx")
    assert Ranker.load(file, backend="auto").model.backend == "onnx fp32"
    assert "Exporting the encoder for ONNX" not in capsys.readouterr().err
    export_model(Ranker.load(file).model, file, "onnx", int8=True)
    found = Ranker.load(file, backend="auto").model
    assert found.backend == "onnx fp32" and found.context_encoder.backend.quantized is None
    assert "Exporting the encoder for ONNX" in capsys.readouterr().err


@pytest.mark.parametrize("fault", [InputError("no operator"), OSError(28, "No space left on device")])
def test_what_cannot_be_exported_is_torchs_and_is_tried_once(fault, trained, cache, monkeypatch, capsys):
    def export(*arguments):
        raise fault

    monkeypatch.setattr(fastest, "export_model", export)
    assert Ranker.load(trained("bi"), backend="auto").model.backend == "torch fp32"
    said = capsys.readouterr().err
    assert said.count("leaves onnx out: ") == said.count("leaves openvino out: ") == 1
    assert Ranker.load(trained("bi"), backend="auto").model.backend == "torch fp32"
    assert "leaves" not in capsys.readouterr().err


def test_an_export_that_was_deleted_is_made_again_or_leaves_torch(trained, cache, wins, monkeypatch, capsys):
    wins("onnx")
    Ranker.load(trained("bi"), backend="auto")
    (cache / "exports").rename(cache / "gone")
    assert Ranker.load(trained("bi"), backend="auto").model.backend == "onnx fp32"
    (cache / "exports").rename(cache / "again")
    (cache / "exports").write_text("no folder")
    assert Ranker.load(trained("bi"), backend="auto").model.backend == "torch fp32"
    assert "torch computes" in capsys.readouterr().err


def test_answers_do_not_depend_on_the_files_of_the_cache(trained, cache, wins):
    wins("onnx")
    found = Ranker.load(trained("bi"), backend="auto")
    (cache / "exports").rename(cache / "gone")
    assert found.rank("hi", REPLIES)


@pytest.mark.parametrize(
    ("installed", "options"),
    [
        (False, {}),
        (True, {"precision": "fp16"}),
    ],
)
def test_there_may_be_nothing_to_choose(installed, options, trained, cache, monkeypatch):
    if not installed:
        monkeypatch.setattr(fastest.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(fastest, "Trial", None)
    assert Ranker.load(trained("bi"), backend="auto", **options).model.backend.startswith("torch ")


def test_a_small_encoder_is_left_to_torch(trained, cache, monkeypatch):
    monkeypatch.setattr(fastest, "WORTH", math.inf)
    monkeypatch.setattr(fastest, "measured_once", None)
    assert Ranker.load(trained("bi"), backend="auto").model.backend == "torch fp32"


def test_tune_measures_again_and_prints_what_it_found(trained, cache, wins, capsys):
    asked = wins("openvino")
    for _ in range(2):
        own("tune", "-mf", trained("bi"))
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("openvino  0.0 ms") and lines[-1] == "--backend auto: openvino fp32"
    assert len(asked) == 2


@pytest.mark.slow
def test_auto_has_torchs_first_candidate_of_10_000(cache, wins):
    wins("openvino")
    ranker = Ranker.from_encoder("zoo:minilm")
    words = np.random.default_rng(0).choice(
        ["canada", "skiing", "a dog", "money", "work", "a card", "you", "food"], (11_000, 9)
    )
    texts = [" ".join(row) for row in words]
    ranker.save(str(cache.parent / "M"))
    auto = Ranker.load(cache.parent / "M", backend="auto")
    expected = ranker.score(texts[:1_000], texts[1_000:])
    found = auto.score(texts[:1_000], texts[1_000:])
    assert auto.model.backend == "openvino fp32"
    assert (found.argmax(1) == expected.argmax(1)).mean() >= 0.995
    np.testing.assert_allclose(found, expected, atol=1e-4)
