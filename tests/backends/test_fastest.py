"""`polyagents tune` and `--backend auto`: the fastest runtime has torch's scores, and otherwise torch computes."""

import json
import os

import numpy as np
import pytest
from commands import copy_model, own, train_more
from fastapi.testclient import TestClient

from polyagents import InputError, Ranker, timings
from polyagents.backends import fastest
from polyagents.backends.exporting import export_model
from polyagents.commands import serve
from polyagents.serving.ranking_app import create_app
from polyagents.serving.sources import Sources

pytestmark = pytest.mark.usefixtures("traced_once")
CONTEXTS = ["where is canada", "hi", "your persona: i ski .\nhello\nhow are you ?"]
REPLIES = ["i am here", "canada is in north america", "fruits are still very nice , and so are nuts", "no"]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv(timings.FOLDER, str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wins(cache, monkeypatch):
    """Have a runtime be the fastest if it can be measured; the ways that were measured."""

    def make(name):
        asked = []

        def medians(ways):
            if "torch" not in ways:
                return real(ways)
            asked.append(list(ways))
            return {way: 1e-6 if way == name else 1.0 for way in ways}

        real = timings.medians
        monkeypatch.setattr(timings, "medians", medians)
        return asked

    return make


def tuned(file, **options):
    """Tune a model; it, and what was refused."""
    ranker = Ranker.load(file, **options)
    _, refused = fastest.tune(ranker.model, str(file))
    return ranker, refused


def auto(file, **options):
    """What computes a model that is loaded with --backend auto."""
    return Ranker.load(file, backend="auto", **options).model.backend


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "name"), [("bi", "onnx"), ("cross", "onnx"), ("bi", "openvino"), ("bi", "torch")])
def test_the_fastest_computes_what_torch_does(kind, name, trained, wins):
    asked = wins(name)
    assert auto(trained(kind)) == "torch-fp32"  # nothing was measured
    ranker, refused = tuned(trained(kind))
    assert ranker.model.backend == f"{name}-fp32" and asked == [["torch", "onnx", "openvino"]] and not refused
    found, expected = Ranker.load(trained(kind), backend="auto"), Ranker.load(trained(kind))
    assert found.model.backend == f"{name}-fp32" and len(asked) == 1
    np.testing.assert_allclose(found.score(CONTEXTS, REPLIES), expected.score(CONTEXTS, REPLIES), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_each_architecture_and_arithmetic_is_measured_for_itself(trained, wins):
    wins("onnx")
    tuned(trained("bi"))
    assert auto(trained("cross")) == "torch-fp32" and auto(trained("bi"), precision="bf16") == "torch-bf16"


@pytest.mark.slow
def test_arithmetics_share_an_export(trained, wins, monkeypatch):
    wins("openvino")
    tuned(trained("bi"))
    monkeypatch.setattr(fastest, "export_model", None)
    monkeypatch.setattr(fastest, "has_bf16", lambda: True)
    tuned(trained("bi"), precision="bf16")
    assert auto(trained("bi")) == "openvino-fp32" and auto(trained("bi"), precision="bf16") == "openvino-bf16"


@pytest.mark.slow
def test_the_export_beside_a_model_is_used_unless_its_scores_are_others(trained, tmp_path, cache, wins):
    wins("onnx")
    file = copy_model(trained("bi"), tmp_path / "M")
    export_model(Ranker.load(file).model, str(file), "onnx")
    tuned(file)
    assert auto(file) == "onnx-fp32" and not list((cache / "exports").glob("*.onnx"))
    export_model(Ranker.load(file).model, str(file), "onnx", int8=True)
    assert auto(file) == "torch-fp32"
    tuned(file)
    assert Ranker.load(file, backend="auto").model.context_encoder.backend.quantized is None


@pytest.mark.slow
def test_other_weights_need_another_export_and_say_so(trained, tmp_path, wins, capsys):
    wins("onnx")
    file = copy_model(trained("bi"), tmp_path / "M")
    ranker, _ = tuned(file)
    ranker = Ranker.load(file)
    train_more(ranker)
    ranker.save(file)
    assert auto(file) == "torch-fp32"
    assert f"run polyagents tune -mf {file}" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("fault", [InputError("no operator"), OSError(28, "No space left on device")])
def test_what_cannot_be_exported_is_torchs_until_it_can_be(fault, trained, wins, monkeypatch):
    wins("onnx")

    def export(*arguments):
        raise fault

    with monkeypatch.context() as patch:
        patch.setattr(fastest, "export_model", export)
        ranker, refused = tuned(trained("bi"))
    assert ranker.model.backend == auto(trained("bi")) == "torch-fp32"
    assert set(refused.values()) == {str(fault)} and refused.keys() == {"onnx", "openvino"}
    tuned(trained("bi"))
    assert auto(trained("bi")) == "onnx-fp32"


@pytest.mark.slow
@pytest.mark.parametrize(
    "damage", [lambda folder: folder.rename(folder.parent / "gone"), lambda folder: folder.chmod(0)]
)
def test_answers_do_not_depend_on_the_files_of_the_cache(damage, trained, cache, wins):
    wins("onnx")
    tuned(trained("bi"))
    found = Ranker.load(trained("bi"), backend="auto")
    damage(cache / "exports")
    assert found.rank("hi", REPLIES)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [lambda file: os.truncate(file, 100), os.remove])
def test_tune_replaces_a_damaged_export_of_the_cache(damage, trained, cache, wins, capsys):
    wins("onnx")
    tuned(trained("bi"))
    damage(next((cache / "exports").glob("*/*.onnx")))
    assert auto(trained("bi")) == "torch-fp32"
    assert f"export again with polyagents tune -mf {trained('bi')}." in capsys.readouterr().err
    assert not tuned(trained("bi"))[1] and auto(trained("bi")) == "onnx-fp32"


def test_tune_says_that_its_times_cannot_be_kept(trained, cache, wins, capsys):
    wins("torch")
    cache.write_text("a file")
    with pytest.raises(InputError, match=f"cache cannot be written to, so --backend auto .* {timings.FOLDER} "):
        own("tune", "-mf", trained("bi"))
    assert capsys.readouterr().out.startswith("torch ")


@pytest.mark.slow
def test_an_export_that_somebody_else_made_is_not_read(trained, wins, monkeypatch):
    wins("onnx")
    tuned(trained("bi"))
    monkeypatch.setattr(fastest.os, "getuid", lambda: 12345)
    monkeypatch.setattr(fastest, "belongs_to_user", lambda path: os.stat(path).st_uid == os.getuid())
    assert auto(trained("bi")) == "torch-fp32"


def test_fp16_is_torchs(trained, wins):
    wins("onnx")
    ranker, refused = tuned(trained("bi"), precision="fp16")
    assert ranker.model.backend == auto(trained("bi"), precision="fp16") == "torch-fp16" and len(refused) == 2


@pytest.mark.slow
def test_commands_use_it_by_default(trained, tmp_path, wins, capsys, monkeypatch):
    wins("openvino")
    (tmp_path / "replies.txt").write_text("\n".join(REPLIES))
    (tmp_path / "options.json").write_text(json.dumps(REPLIES))
    own("tune", "-mf", trained("bi"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("openvino  0.0 ms") and lines[-1] == "--backend auto: openvino-fp32"
    served = Sources(trained("bi"), str(tmp_path / "replies.txt"), backend="auto").load()
    with TestClient(create_app(served), "http://127.0.0.1:8008") as client:
        assert client.get("/healthz").json()["backend"] == "openvino-fp32"
        answer = client.post("/rank", json={"context": "hi"})
        assert answer.status_code == 200 and answer.headers["Polyagents-Backend"] == "openvino-fp32"
    used = []
    monkeypatch.setattr(fastest, "use_fastest", lambda model, file: used.append(file))
    for command in ("rank", "decide"):
        monkeypatch.setattr("sys.stdin", (tmp_path / "replies.txt").open())
        given = ("--candidates-file", "replies.txt") if command == "rank" else ("--options-file", "options.json")
        own(command, "-mf", trained("bi"), given[0], tmp_path / given[1])
    assert used == [trained("bi")] * 2 and serve.parser().parse_args(["-mf", "M"]).backend == "auto"


@pytest.mark.release
def test_auto_has_torchs_first_candidate_of_10_000(cache, wins):
    wins("openvino")
    ranker = Ranker.from_encoder("zoo:minilm")
    words = ["canada", "skiing", "a dog", "money", "work", "a card", "you", "food"]
    texts = [" ".join(row) for row in np.random.default_rng(0).choice(words, (11_000, 9))]
    ranker.save(cache.parent / "M")
    tuned(cache.parent / "M")
    found = Ranker.load(cache.parent / "M", backend="auto")
    assert found.model.backend == "openvino-fp32"
    scores, expected = (one.score(texts[:1_000], texts[1_000:]) for one in (found, ranker))
    assert (scores.argmax(1) == expected.argmax(1)).mean() >= 0.995
    np.testing.assert_allclose(scores, expected, atol=1e-4)
