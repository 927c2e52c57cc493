"""`zoo:` names from download to use: an archive like ParlAI's, on loopback, with models that ParlAI's agents wrote."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from archive_server import tgz
from commands import KINDS, SAMPLE, options, run
from parlai.core.build_data import modelzoo_path

from polyagents import InputError, Ranker
from polyagents.commands.parlai_command import with_our_agent
from polyagents.commands.serve import write_replies_of_task
from polyagents.parlai_files.parlai_options import read
from polyagents.ranking.task_candidates import task_candidates_path
from polyagents.serving.sources import Sources
from polyagents.zoo.models import ARCHIVE, find
from polyagents.zoo.resolve import zoo_file

ZOO = "zoo:pretrained_transformers"
CANDIDATES = ["i am fine", "i work at the museum", "do you like tea?"]


@pytest.fixture
def archive(written):
    """The files of an archive; pretrained models come without options, as ParlAI needs none to start from them."""
    files = {"convai_trainset_cands.txt": "\n".join(CANDIDATES).encode()}
    for name, variant in {"model_poly": "poly", "poly_model_huge_reddit": "poly", "model_bi": "bi"}.items():
        for part in ("", ".opt", ".dict", ".dict.codecs"):
            files[f"{name}/model{part}"] = Path(written(variant) + part).read_bytes()
    return files


@pytest.fixture
def datapath(server, archive, tmp_path, monkeypatch):
    """A folder where nothing is downloaded yet."""
    server.content = tgz(archive)
    entry = type(ARCHIVE)(server.url, ARCHIVE.folder, ARCHIVE.version)
    import parlai.zoo.pretrained_transformers.build as build  # ours, in the place of ParlAI's

    monkeypatch.setattr(build, "ARCHIVE", entry)
    monkeypatch.setattr("polyagents.zoo.resolve.ARCHIVE", entry)
    return str(tmp_path / "data")


@pytest.mark.slow
def test_a_fine_tuned_model(datapath, written, server):
    ranker = Ranker.load(f"{ZOO}/model_poly/model", datapath=datapath)
    assert (ranker.score("hi", CANDIDATES) == Ranker.load(written("poly")).score("hi", CANDIDATES)).all()
    flags = ("-dp", datapath, "-t", SAMPLE, "--num-examples", "8", "--eval-candidates", "inline")
    report = run(*with_our_agent(["eval_model", "-mf", f"{ZOO}/model_poly/model", *flags]))
    assert float(report["exs"]) == 8 and len(server.asked) == 1


def test_chatting_with_the_archives_candidates(datapath, chat):
    path = f"{ZOO}/convai_trainset_cands.txt"
    flags = ("-m", KINDS["bi"], "-dp", datapath, "-t", "interactive", "--fixed-candidates-path", path)
    answers = chat(f"{ZOO}/model_bi/model", ["hello", "what do you do?"], *flags)
    assert all(any(text in " ".join(lines) for text in CANDIDATES) for lines in answers)


def test_serving_the_replies_of_its_task(datapath, archive, monkeypatch):
    """Without candidates: all labels of the task, which lie beside the model, as for a model of one's own."""
    monkeypatch.setenv("PARLAI_DATAPATH", datapath)
    name = f"{ZOO}/model_poly/model"
    file = zoo_file(name, datapath)
    with open(task_candidates_path(file, str(read(file)["task"])), "w") as replies:
        replies.write("\n".join(CANDIDATES))
    write_replies_of_task(file)  # which are there
    served = Sources(name).read()
    assert served.model == name and [served.candidates[i] for i in range(len(served.candidates))] == CANDIDATES


STEP = ("-t", SAMPLE, "--max-train-steps", "1", "--batchsize", "4", "--text-truncate", "40", "--label-truncate", "12")
STEP += ("--validation-max-exs", "4", "--short-final-eval", "true")


@pytest.mark.slow
def test_fine_tuning_starts_from_it(datapath, tmp_path):
    start = f"{ZOO}/poly_model_huge_reddit/model"
    run("train_model", "-m", KINDS["poly"], "-mf", tmp_path / "M", "-dp", datapath, *STEP, "--init-model", start)
    assert options(tmp_path / "M")["output_scaling"] == 0.5
    assert Ranker.load(tmp_path / "M").rank("hi", CANDIDATES, top_k=1)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["poly", "cross"])
def test_its_transformer_under_each_agent(kind, datapath, tmp_path):
    run("train_model", "-m", KINDS[kind], "-mf", tmp_path / "M", "-dp", datapath, *STEP, "--backbone", "zoo:reddit")
    made = options(tmp_path / "M")
    assert (made["backbone"], made["output_scaling"]) == ("zoo:reddit", 0.5)
    assert Ranker.load(tmp_path / "M").rank("hi", CANDIDATES, top_k=1)


def test_an_unknown_backbone_of_the_zoo(tmp_path):
    with pytest.raises(InputError, match=r"The zoo holds no 'zoo:redit'.*polyagents zoo list"):
        run("train_model", "-m", KINDS["bi"], "-mf", tmp_path / "M", *STEP, "--backbone", "zoo:redit")


def test_options_of_the_zoo_where_the_archive_has_none(datapath, archive, server):
    server.content = tgz({name: content for name, content in archive.items() if not name.endswith(".opt")})
    folder = Path(modelzoo_path(datapath, f"{ZOO}/model_poly/model")).parent
    assert options(folder / "model") == {"model": "transformer/polyencoder", **find("model_poly").options}


def test_code_in_an_archive_is_not_run(datapath, archive, server, tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "trace",))

    torch.save({"model": Evil()}, tmp_path / "evil")
    server.content = tgz(archive | {"model_poly/model": (tmp_path / "evil").read_bytes()})
    with pytest.raises(InputError, match="could run code"):
        Ranker.load(f"{ZOO}/model_poly/model", datapath=datapath)
    assert not (tmp_path / "trace").exists()


LOAD = """
import sys
from polyagents import Ranker
Ranker.load(sys.argv[1], no_cuda=True)
print(next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.release
@pytest.mark.parametrize("zipped", [True, False], ids=["today's format", "the format before torch 1.6"])
def test_the_published_shapes_fit_in_twice_their_size(zipped, written, tmp_path):
    """12 layers of width 768, 54,944 tokens, 1,024 positions, twice: 1.02 GB; the whole process, libraries included."""
    file, width = tmp_path / "model", 768
    shapes = {"embeddings.weight": (54_944, width), "position_embeddings.weight": (1_024, width)}
    shapes |= {"segment_embeddings.weight": (2, width), "norm_embeddings.weight": (width,)}
    shapes |= {"norm_embeddings.bias": (width,)}
    for i in range(12):
        linear = {f"attention.{name}_lin": (width, width) for name in ("q", "k", "v", "out")}
        linear |= {"ffn.lin1": (4 * width, width), "ffn.lin2": (width, 4 * width)}
        for name, shape in linear.items():
            shapes |= {f"layers.{i}.{name}.weight": shape, f"layers.{i}.{name}.bias": shape[:1]}
        for name in ("norm1", "norm2"):
            shapes |= {f"layers.{i}.{name}.{part}": (width,) for part in ("weight", "bias")}
    towers = ("encoder_ctxt", "encoder_cand")
    weights = {f"{tower}.{name}": torch.randn(shape) / 30 for tower in towers for name, shape in shapes.items()}
    torch.save({"model": weights | {"codes": torch.rand(64, width)}}, file, _use_new_zipfile_serialization=zipped)
    del weights
    entry = find("poly_model_huge_reddit")
    (tmp_path / "model.opt").write_text(json.dumps({"model": entry.agent, **entry.options}))
    words = {part: Path(f"{written('poly')}.dict{part}").read_text() for part in ("", ".codecs")}
    extra = "".join(f"word{i}\t1\n" for i in range(54_944 - words[""].count("\n")))
    (tmp_path / "model.dict").write_text(words[""] + extra)
    (tmp_path / "model.dict.codecs").write_text(words[".codecs"])
    done = subprocess.run([sys.executable, "-c", LOAD, file], capture_output=True, text=True, check=True, timeout=300)
    assert int(done.stdout.split()[-1]) < 2 * file.stat().st_size
