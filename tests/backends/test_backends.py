"""Exported encoders: torch's scores from another runtime, and what is refused instead of wrong ones."""

import hashlib
import io
import json
import re
import shlex
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
from backbones import FAMILIES, save
from commands import SAMPLE, copy_model, own, run, train

from polyagents import InputError, Ranker
from polyagents.backends import exporting, onnx_runtime, openvino_runtime, runtimes
from polyagents.backends.export_folder import backbone_fingerprint
from polyagents.backends.exporting import export_model
from polyagents.backends.tracing import encoders_of
from polyagents.commands.names import OWN_COMMANDS
from polyagents.files import locks
from polyagents.model_files.building import build_encoder, build_model, settings_of
from polyagents.model_files.saving import save_model
from polyagents.text.pretrained import load_tokenizer

pytestmark = pytest.mark.usefixtures("traced_once")
RUNTIMES = ["onnx", "openvino"]
CONTEXTS = ["where is canada", "hi", "your persona: i ski .\nhello\nhow are you ? " + "and what do you do ? " * 9]
REPLIES = ["i am here", "canada is in north america", "fruits are still very nice , and so are nuts", "no"]
# Scores in fp32 differ in the order of their sums only. int8 has steps of a 127th of the largest weight of a column:
# of the deviation of a model's scores, it may be off by a tenth in the mean.
FP32 = {"rtol": 1e-4, "atol": 1e-4}
INT8 = 0.1


@pytest.fixture(scope="module")
def source(trained, once):
    """Model files by kind. A graph takes a second, so the poly-encoder has one encoder; the bi-encoder has two."""

    def of(kind):
        if kind != "poly":
            return trained(kind)
        flags = ("--share-encoders", "true", "--reduction-type", "first", "--max-train-steps", 4)
        flags += ("--validation-max-exs", "8", "--short-final-eval", "true")
        return once("trained/poly-shared", lambda file: train(kind, file, "-t", SAMPLE, *flags))

    return of


@pytest.fixture(scope="module")
def exported(source, tmp_path_factory):
    """Model files of a kind with an export beside them, each made when it is first asked for."""
    made = {}

    def of(kind, to, int8=False):
        if (kind, to, int8) not in made:
            file = copy_model(source(kind), tmp_path_factory.mktemp("exported") / "M")
            export_model(Ranker.load(file).model, str(file), to, int8)
            made[kind, to, int8] = file
        return made[kind, to, int8]

    return of


@pytest.fixture
def export(exported, tmp_path):
    """A model file with an export, in a folder of the test's own; the folder of the export."""

    def of(kind, to, int8=False):
        file = copy_model(exported(kind, to, int8), tmp_path / "M")
        folder = tmp_path / f"M.{to}"
        shutil.copytree(f"{exported(kind, to, int8)}.{to}", folder)
        return file, folder

    return of


def refusal(file, backend, **options):
    """What is said of a model that cannot be loaded or used."""
    with pytest.raises(InputError) as refused:
        Ranker.load(file, backend=backend, **options).score(CONTEXTS, REPLIES)
    assert "\n" not in str(refused.value)
    return str(refused.value)


# Every trace takes a second: what another test exports anyway is tried in every run.
OFTEN = {("bi", "onnx"), ("poly", "onnx"), ("poly", "openvino"), ("uni", "openvino"), ("cross", "onnx")}
ALL = [(kind, to) for kind in ("bi", "poly", "uni", "cross") for to in RUNTIMES]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "to"), [pytest.param(*one, marks=() if one in OFTEN else pytest.mark.release) for one in ALL]
)
def test_scores_are_torchs(kind, to, exported):
    file = exported(kind, to)
    torchs, other = Ranker.load(file), Ranker.load(file, backend=to)
    for contexts in (CONTEXTS, CONTEXTS[:1], CONTEXTS * 20):  # several chunks
        np.testing.assert_allclose(other.score(contexts, REPLIES), torchs.score(contexts, REPLIES), **FP32)
    assert other.rank(CONTEXTS[0], REPLIES)[0].index == torchs.rank(CONTEXTS[0], REPLIES)[0].index


@pytest.mark.slow
def test_it_is_the_exported_graph_that_computes(exported, monkeypatch):
    ranker = Ranker.load(exported("bi", "onnx"), backend="onnx")
    for encoder in encoders_of(ranker.model.module).values():
        _ = encoder.causal  # of which the backbone is asked
        monkeypatch.setattr(encoder.backbone, "forward", None)
    assert np.isfinite(ranker.score(CONTEXTS, REPLIES)).all()


@pytest.mark.slow
@pytest.mark.parametrize("to", RUNTIMES)
@pytest.mark.parametrize("kind", ["poly", pytest.param("cross", marks=pytest.mark.release)])
def test_int8_scores_are_near_torchs(kind, to, exported):
    file = exported(kind, to, int8=True)
    expected, found = Ranker.load(file).score(CONTEXTS, REPLIES), Ranker.load(file, backend=to).score(CONTEXTS, REPLIES)
    assert 0 < np.abs(found - expected).mean() < INT8 * expected.std()


@pytest.mark.slow
@pytest.mark.parametrize("to", RUNTIMES)
def test_an_index_is_torchs_as_long_as_the_weights_are(to, exported, tmp_path):
    (tmp_path / "replies.txt").write_text("\n".join(REPLIES))
    file = exported("poly", to)
    Ranker.load(file).index(tmp_path / "replies.txt", tmp_path / "torch", stored_as="fp32")
    same = Ranker.load(file, backend=to)
    found = same.rank(CONTEXTS[0], same.open_index(tmp_path / "torch"))
    assert [match.index for match in found] == [match.index for match in same.rank(CONTEXTS[0], REPLIES)]
    rounded = Ranker.load(exported("poly", to, int8=True), backend=to)
    with pytest.raises(InputError):
        rounded.open_index(tmp_path / "torch")
    rounded.index(tmp_path / "replies.txt", tmp_path / to)
    assert len(rounded.open_index(tmp_path / to)) == len(REPLIES)
    with pytest.raises(InputError):
        same.open_index(tmp_path / to)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "to"), [pytest.param("uni", "onnx", marks=pytest.mark.release), ("cross", "openvino")]
)
def test_a_similarity_beside_the_joint_pass_is_a_graph_of_its_own(kind, to, trained, tmp_path):
    torchs = Ranker.load(trained(kind), joint_head="dot")
    file = str(tmp_path / "M")
    save_model(torchs.model, file)
    saved = json.loads((tmp_path / "M.opt").read_text()) | {"joint_head": "dot"}
    (tmp_path / "M.opt").write_text(json.dumps(saved))
    export_model(Ranker.load(file).model, file, to)
    assert len(json.loads((tmp_path / f"M.{to}" / "manifest.json").read_text())["graphs"]) == 2
    found = Ranker.load(file, backend=to).score(CONTEXTS, REPLIES)
    np.testing.assert_allclose(found, torchs.score(CONTEXTS, REPLIES), **FP32)


@pytest.mark.parametrize("to", RUNTIMES)
@pytest.mark.parametrize("family", [pytest.param(name, marks=pytest.mark.release) for name in FAMILIES])
def test_every_family_of_backbones(family, to, tmp_path):
    folder = save(family, tmp_path / "backbone")
    settings = settings_of("PolyEncoder", {"backbone": folder, "poly_n_codes": 4, "text_truncate": 48})
    tokenizer = load_tokenizer(folder)
    model = build_model(build_encoder(settings, tokenizer, training=False), tokenizer, settings)
    torchs = Ranker(model)
    expected = torchs.score(CONTEXTS, REPLIES)
    save_model(model, str(tmp_path / "M"))
    export_model(model, str(tmp_path / "M"), to)
    np.testing.assert_allclose(Ranker.load(tmp_path / "M", backend=to).score(CONTEXTS, REPLIES), expected, **FP32)


@pytest.mark.parametrize("to", RUNTIMES)
def test_several_threads_ask_at_once(to, exported):
    ranker = Ranker.load(exported("poly", to), backend=to)
    alone = [ranker.score(context, REPLIES) for context in CONTEXTS * 4]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda context: ranker.score(context, REPLIES), CONTEXTS * 4))
    np.testing.assert_allclose(together, alone, **FP32)


@pytest.mark.slow
def test_openvino_computes_in_bf16_where_it_is_asked_to(exported):
    file = exported("poly", "openvino")
    expected = Ranker.load(file).score(CONTEXTS, REPLIES)
    found = Ranker.load(file, backend="openvino", precision="bf16").score(CONTEXTS, REPLIES)
    np.testing.assert_allclose(found, expected, atol=0.05 * np.abs(expected).max())
    assert "--precision bf16" in refusal(exported("bi", "onnx"), "onnx", precision="bf16")


# ---- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["onnx", pytest.param("openvino", marks=pytest.mark.release)])
def test_an_export_of_other_weights_is_refused(to, export):
    file, _ = export("poly", to)
    other = Ranker.load(file)
    with torch.no_grad():
        next(other.model.module.candidate_encoder.parameters())[0, 0] += 1
    save_model(other.model, str(file))
    assert "other weights" in refusal(file, to) and f"--to {to}" in refusal(file, to)
    export_model(Ranker.load(file).model, str(file), to)
    np.testing.assert_allclose(Ranker.load(file, backend=to).score("hi", REPLIES), other.score("hi", REPLIES), **FP32)


def test_weights_that_change_after_loading_are_not_those_of_the_export(exported):
    ranker = Ranker.load(exported("bi", "onnx"), backend="onnx")
    ranker.score(CONTEXTS, REPLIES)
    with torch.no_grad():
        next(ranker.model.module.context_encoder.backbone.parameters()).mul_(2)
    with pytest.raises(InputError, match="have changed since it was loaded, and ONNX Runtime"):
        ranker.score(CONTEXTS, REPLIES)


def test_weights_and_configuration_decide_the_fingerprint(trained):
    (one, other) = encoders_of(Ranker.load(trained("bi")).model.module).values()
    assert backbone_fingerprint(one) != backbone_fingerprint(other)  # they have been trained apart
    before = backbone_fingerprint(one)
    one.backbone.config.transformers_version = "0"
    assert backbone_fingerprint(one) == before
    one.backbone.config.num_attention_heads *= 2
    assert backbone_fingerprint(one) != before


@pytest.mark.slow
def test_other_options_of_the_model_are_refused(exported):
    assert "other model options" in refusal(exported("cross", "onnx"), "onnx", joint_head="dot")


@pytest.mark.parametrize("to", RUNTIMES)
def test_what_is_not_there_is_said_in_one_sentence(to, trained, monkeypatch):
    assert shlex.join(["polyagents", "export", "-mf", trained("bi"), "--to", to]) in refusal(trained("bi"), to)
    assert "give auto, torch, onnx or openvino" in refusal(trained("bi"), "tensorrt")
    monkeypatch.setattr(runtimes.importlib.util, "find_spec", lambda name: None)
    assert f"pip install 'polyagents[{to}]'" in refusal(trained("bi"), to)
    with pytest.raises(InputError, match="pip install"):
        export_model(Ranker.load(trained("bi")).model, trained("bi"), to)


def shapes_of_damage(folder):
    """What somebody may have done to an export, by name: each changes the folder when it is called."""
    manifest = folder / "manifest.json"
    content = json.loads(manifest.read_text())
    graph = next(path for path in folder.iterdir() if path.suffix in (".onnx", ".xml"))

    def rewritten(**fields):
        return lambda: manifest.write_text(json.dumps(content | fields))

    def graphs(**fields):
        return rewritten(graphs=[one | fields for one in content["graphs"]])

    outside = folder.parent / f"stolen-{'0' * 16}{graph.suffix}"
    return {
        "no JSON": lambda: manifest.write_text("{"),
        "a list": lambda: manifest.write_text("[]"),
        "another format": rewritten(format="polyagents-export-0"),
        "an unknown field": rewritten(evil=1),
        "no graphs": rewritten(graphs=[]),
        "a graph without fields": rewritten(graphs=[{}]),
        "a path": lambda: (shutil.copy(graph, outside), graphs(stem=f"../stolen-{'0' * 16}")()),
        "sizes": graphs(files=[[1, "0" * 64], [1, "0" * 64]]),
        "no files": graphs(files=[]),
        "nested": lambda: manifest.write_text("[" * 100_000),
        "a changed byte": lambda: graph.write_bytes(graph.read_bytes()[:-1] + b"\0"),
        "cut short": lambda: graph.write_bytes(graph.read_bytes()[:100]),
        "a missing graph": graph.unlink,
        "a folder in its place": lambda: (graph.unlink(), graph.mkdir()),
    }


@pytest.mark.slow
@pytest.mark.parametrize("to", RUNTIMES)
def test_a_damaged_export_is_refused(to, export):
    file, folder = export("poly", to)
    names = list(shapes_of_damage(folder))
    for name in names:
        shutil.copytree(folder, folder.parent / "kept")
        shapes_of_damage(folder)[name]()
        assert "polyagents export" in refusal(file, to), name
        shutil.rmtree(folder)
        (folder.parent / "kept").rename(folder)
    assert Ranker.load(file, backend=to).score("hi", REPLIES).shape == (4,)


@pytest.mark.slow
@pytest.mark.parametrize("to", RUNTIMES)
def test_a_graph_that_somebody_else_made_is_refused(to, export, exported):
    """Its name, size and digest are as the manifest says, which the same hand has written."""
    file, folder = export("poly", to)
    manifest = json.loads((folder / "manifest.json").read_text())
    others = json.loads(
        (exported("cross" if to == "onnx" else "uni", to).parent / f"M.{to}" / "manifest.json").read_text()
    )
    for graph in manifest["graphs"]:
        graph |= {name: others["graphs"][0][name] for name in ("stem", "files")}  # with other inputs
    (folder / "manifest.json").write_text(json.dumps(manifest))
    for path in (exported("cross" if to == "onnx" else "uni", to).parent / f"M.{to}").iterdir():
        shutil.copy(path, folder)
    assert "polyagents export" in refusal(file, to)
    garbage = b"<net/>" if to == "openvino" else b"\x08\x09garbage"
    for graph in manifest["graphs"]:
        graph["stem"] = f"evil-{'0' * 16}"
        graph["files"] = [[len(garbage), digest(garbage)]] * len(graph["files"])
    for ending in runtimes.RUNTIMES[to].endings:
        (folder / f"evil-{'0' * 16}{ending}").write_bytes(garbage)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert "polyagents export" in refusal(file, to)


def graphs_of_other_files():
    """Models in the ONNX format with a tensor whose numbers are in another file, by the tensor's place."""
    tensor = onnx.TensorProto(data_type=1, dims=[1, 32], name="w", data_location=1)
    tensor.external_data.add(key="location", value="../weights.bin")
    hidden = onnx.TensorProto(data_type=1, dims=[1, 32], name="w")  # no location: some versions take it nevertheless
    hidden.external_data.add(key="location", value="/etc/passwd")
    graph = onnx.GraphProto(initializer=[onnx.TensorProto(name="in"), tensor])
    constant = onnx.NodeProto(op_type="Constant", attribute=[onnx.AttributeProto(name="value", t=tensor)])
    branch = onnx.NodeProto(op_type="If", attribute=[onnx.AttributeProto(name="then_branch", g=graph)])
    listed = onnx.NodeProto(op_type="X", attribute=[onnx.AttributeProto(graphs=[onnx.GraphProto(node=[branch])])])
    sparse = onnx.GraphProto(sparse_initializer=[onnx.SparseTensorProto(values=tensor)])
    many = onnx.NodeProto(op_type="X", attribute=[onnx.AttributeProto(tensors=[tensor])])
    return {
        "initializer": onnx.ModelProto(graph=graph),
        "no location": onnx.ModelProto(graph=onnx.GraphProto(initializer=[hidden])),
        "constant": onnx.ModelProto(graph=onnx.GraphProto(node=[constant])),
        "branch": onnx.ModelProto(graph=onnx.GraphProto(node=[branch])),
        "nested": onnx.ModelProto(graph=onnx.GraphProto(node=[listed])),
        "sparse": onnx.ModelProto(graph=sparse),
        "list": onnx.ModelProto(graph=onnx.GraphProto(node=[many])),
        "function": onnx.ModelProto(functions=[onnx.FunctionProto(node=[constant])]),
        "default of a function": onnx.ModelProto(functions=[onnx.FunctionProto(attribute_proto=constant.attribute)]),
        "training": onnx.ModelProto(training_info=[onnx.TrainingInfoProto(initialization=graph)]),
    }


def test_a_graph_that_reads_other_files_is_refused(tmp_path):
    for name, model in graphs_of_other_files().items():
        (tmp_path / "a.onnx").write_bytes(model.SerializeToString())
        with pytest.raises(ValueError, match="a file that its manifest does not name"):
            onnx_runtime.open_graph(str(tmp_path / "a.onnx"))
        (tmp_path / "a.onnx").write_bytes(model.SerializeToString()[:-9])
        with pytest.raises(ValueError):
            onnx_runtime.open_graph(str(tmp_path / "a.onnx")), name
    net = b'<net name="a" version="11"><layers/><edges/></net>'
    entity = b'<!DOCTYPE net [<!ENTITY e SYSTEM "file:///etc/passwd">]>'
    head = openvino_runtime.HEAD.split(b"<net")[0]
    cases = [entity + net, head + entity + net, head + net + b"<!-- -->", (head + net).decode().encode("utf-16"), b""]
    for content in (*cases, b"\xef\xbb\xbf" + head + net, graphs_of_other_files()["constant"].SerializeToString()):
        (tmp_path / "a.xml").write_bytes(content)
        with pytest.raises(ValueError, match="was not written by OpenVINO"):
            openvino_runtime.open_graph(str(tmp_path / "a.xml"))


@pytest.mark.parametrize("to", RUNTIMES)
def test_a_hostile_graph_is_refused_in_a_sentence_that_says_why(to, export):
    """Weights in another file, whose graph has the digest of the manifest; and weights that are cut off."""
    file, folder = export("poly", to)
    manifest = json.loads((folder / "manifest.json").read_text())
    for graph in manifest["graphs"]:
        path = folder / (graph["stem"] + (".onnx" if to == "onnx" else ".bin"))
        if to == "onnx":
            model = onnx.load(path)
            onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
        else:
            path.write_bytes(path.read_bytes()[:1_000])
        graph["files"][-1] = [path.stat().st_size, digest(path.read_bytes())]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    said = {"onnx": "numbers from a file that its manifest does not name", "openvino": "Incorrect weights in bin file"}
    assert said[to] in refusal(file, to)


def digest(content):
    """SHA-256 in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def test_a_second_export_takes_the_place_of_the_first(export):
    file, folder = export("cross", "onnx")
    before = {path.name for path in folder.iterdir()}
    export_model(Ranker.load(file).model, str(file), "onnx", int8=True)
    after = {path.name for path in folder.iterdir()}
    graphs = {name for name in after if name.endswith(".onnx")}
    assert not graphs & before and len(graphs) == 1 and len(after) == len(before)


@pytest.mark.slow
def test_a_second_export_waits_for_the_first(export, monkeypatch):
    """Otherwise the one that ends first removes the graphs of the other, whose manifest would name them."""
    file, _ = export("cross", "onnx")
    model, told, threads = Ranker.load(file).model, threading.Event(), []
    monkeypatch.setattr(locks, "say", lambda sentence: told.set())
    write = exporting.write_graph

    def write_while_another_begins(*given):
        if not threads:
            threads.append(threading.Thread(target=export_model, args=(Ranker.load(file).model, str(file), "onnx")))
            threads[0].start()
            assert told.wait(30)
        return write(*given)

    monkeypatch.setattr(exporting, "write_graph", write_while_another_begins)
    export_model(model, str(file), "onnx", int8=True)
    threads[0].join(60)
    assert np.isfinite(Ranker.load(file, backend="onnx").score("hi", REPLIES)).all()


def test_somebody_elses_folder_is_left_alone(trained, tmp_path):
    file = copy_model(trained("bi"), tmp_path / "M")
    (tmp_path / "M.onnx").mkdir()
    (tmp_path / "M.onnx" / "thesis.txt").write_text("mine")
    with pytest.raises(InputError, match="other files"):
        export_model(Ranker.load(file).model, str(file), "onnx")
    assert [path.name for path in (tmp_path / "M.onnx").iterdir()] == ["thesis.txt"]


def test_what_computes_something_else_is_not_published(trained, tmp_path, monkeypatch):
    file = copy_model(trained("cross"), tmp_path / "M")
    runtime = runtimes.RUNTIMES["onnx"].own
    opened = runtime.open_graph
    monkeypatch.setattr(runtime, "open_graph", lambda path: lambda *given: opened(path)(*given) * 1.01)
    with pytest.raises(InputError, match="does not compute the same as torch"):
        export_model(Ranker.load(file).model, str(file), "onnx")
    assert {path.name for path in (tmp_path / "M.onnx").iterdir()} - {".lock"} == {".polyagents-export"}


def test_no_graph_is_left_if_a_later_one_cannot_be_written(trained, tmp_path, monkeypatch):
    file, written = copy_model(trained("bi"), tmp_path / "M"), []

    def first_only(encoder, calls, path, *_):
        if written:
            raise InputError("no operator")
        written.append(Path(path).write_text("a graph"))
        return 0.0

    monkeypatch.setattr(exporting, "write_graph", first_only)
    with pytest.raises(InputError, match="no operator"):
        export_model(Ranker.load(file).model, str(file), "onnx")
    assert not list((tmp_path / "M.onnx").glob("*.onnx"))


@pytest.mark.parametrize(
    ("fault", "free", "said"),
    [
        (OSError(28, "No space left on device"), 2**30, "M.onnx cannot be written (No space left on device)"),
        (RuntimeError("iostream error"), 0, "M.onnx cannot be written (No space left on device)"),
        (RuntimeError("step 3/3"), 2**30, "cannot be exported to ONNX Runtime (no operator)"),
    ],
)
def test_a_full_disk_and_what_a_runtime_lacks_are_told_apart(fault, free, said, trained, tmp_path, monkeypatch):
    def write(*given):
        raise fault from ValueError("no operator")

    file = copy_model(trained("cross"), tmp_path / "M")
    monkeypatch.setattr(runtimes.RUNTIMES["onnx"].own, "write", write)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    with pytest.raises(InputError, match=re.escape(said)):
        export_model(Ranker.load(file).model, str(file), "onnx")
    assert {path.name for path in (tmp_path / "M.onnx").iterdir()} - {".lock"} == {".polyagents-export"}


# ---- commands --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_commands_compute_with_what_was_exported(source, tmp_path, capsys, monkeypatch, chat):
    file = copy_model(source("poly"), tmp_path / "M")
    (tmp_path / "replies.txt").write_text("\n".join(REPLIES))
    own("export", "-mf", file, "--to", "onnx", "--int8")
    assert f"{file}.onnx" in capsys.readouterr().out
    assert "export" in OWN_COMMANDS
    lines = {}
    for backend in ("torch", "onnx"):
        monkeypatch.setattr("sys.stdin", io.StringIO("where is canada\n"))
        own("rank", "-mf", file, "--candidates-file", tmp_path / "replies.txt", "--backend", backend)
        lines[backend] = json.loads(capsys.readouterr().out)["candidates"]
    assert [one["score"] for one in lines["torch"]] != [one["score"] for one in lines["onnx"]]
    own("build_index", "-mf", file, "--candidates-file", tmp_path / "replies.txt", "--index-dir", tmp_path / "index",
        "--backend", "onnx")  # fmt: skip
    assert len(Ranker.load(file, backend="onnx").open_index(tmp_path / "index")) == len(REPLIES)
    with pytest.raises(InputError):
        Ranker.load(file).open_index(tmp_path / "index")
    (answer,) = chat(
        file, ["where is canada"], "--backend", "onnx", "--fixed-candidates-path", tmp_path / "replies.txt"
    )
    assert any(reply in answer[0] for reply in REPLIES)
    with pytest.raises(InputError, match="no gradients"):
        run("train_model", "-mf", file, "-t", "polyagents.tasks.sample", "--backend", "onnx")
