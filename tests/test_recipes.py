"""Each recipe says what ParlAI's page and the paper say, is found by its name, and trains."""

import json
import math
import re

import pytest
from commands import KINDS, SAMPLE, options, parlai, run
from parlai.core.opt import Opt
from parlai.scripts.train_model import TrainModel

from polyagents.compat import find_our_recipes, zoo_folders
from polyagents.errors import InputError
from polyagents.zoo.models import find

TASKS = {"convai2": "convai2", "dstc7": "dstc7:DSTC7TeacherAugmentedSampled", "ubuntu": "ubuntu"}
RECIPES = [(task, kind) for task in TASKS for kind in KINDS]
NAMES = [f"{task}_{kind}" for task, kind in RECIPES]

# ParlAI's commands (projects/polyencoder/README.md), as far as training depends on them; 362: docs/recipes.md.
ALL = {
    "learningrate": 5e-5,
    "optimizer": "adamax",
    "weight_decay": 0.0,
    "lr_scheduler": "reduceonplateau",
    "lr_scheduler_patience": 0,
    "lr_scheduler_decay": 0.4,
    "history_size": 20,
    "text_truncate": 362,
    "label_truncate": 72,
    "truncate": -1,
    "validation_every_n_epochs": 0.5,
    "validation_metric": "accuracy",
    "save_after_valid": True,
    "eval_candidates": "inline",
    "max_train_time": -1,
    "output_scaling": 0.06,
    "train_layers": "all",
    "dropout": None,
    "fp16": False,
}
TOWERS = {"reduction_type": "mean", "share_encoders": False, "similarity": "dot", "candidates": "batch"}
OF_KIND = {
    "bi": TOWERS | {"warmup_updates": 100},
    "poly": TOWERS
    | {"warmup_updates": 100, "polyencoder_type": "codes", "poly_n_codes": 64, "poly_attention_type": "basic"},
    "cross": {"reduction_type": "first", "warmup_updates": 1000, "candidates": "inline", "cross_negatives": 15},
}
EPOCHS = {"bi": 10, "poly": 8, "cross": 12}
ALL_OF_VALID = -1


def published(task, kind):
    """The values of a recipe's flags."""
    batch = 16 if kind == "cross" else 512 if (task, kind) == ("convai2", "bi") else 256
    until_it_stands_still = task == "dstc7" and kind != "cross"  # ParlAI issues 2306 and 3133
    ends = {"num_epochs": -1, "validation_patience": 5} if until_it_stands_still else {"num_epochs": EPOCHS[kind]}
    validated = 2500 if kind == "cross" else 8000 if task == "ubuntu" else ALL_OF_VALID
    start = {"model": KINDS[kind], "task": TASKS[task], "batchsize": batch, "validation_max_exs": validated}
    return ALL | OF_KIND[kind] | start | ends


def parsed(*arguments):
    """The options of a `train_model`."""
    return TrainModel.setup_args().parse_args([*map(str, arguments)])


def test_there_are_nine():
    with pytest.raises(InputError) as error:
        Opt.load_init("nothing")
    assert str(error.value).endswith(f"preset of that name; the recipes are {', '.join(sorted(NAMES))}.")


@pytest.mark.parametrize(("task", "kind"), RECIPES, ids=NAMES)
def test_a_recipe_is_what_was_published(task, kind, tmp_path):
    """Parsing refuses a flag that does not exist."""
    opt = parsed("-o", f"{task}_{kind}", "-mf", tmp_path / "M")
    wanted = published(task, kind)
    assert {name: opt.get(name) for name in wanted} == wanted
    assert find(opt["init_model"]).kind == kind and find(opt["init_model"]).pretrained_on == "Reddit"
    assert opt["init_model"] == f"zoo:{find(opt['init_model']).name}"
    assert opt["precision"] == "bf16" and opt["chunk_tokens"] <= 16_384


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_is_flat_and_names_no_model_file(name):
    recipe = Opt.load_init(name)
    assert "model_file" not in recipe and len(recipe) < 30
    assert all(isinstance(value, (str, int, float)) for value in recipe.values())


# ---- names, paths, lists ---------------------------------------------------------------------------------------------


def write(path, **flags):
    path.write_text(json.dumps(flags))
    return str(path)


def test_a_flag_of_the_command_line_wins(tmp_path):
    opt = parsed("-o", "convai2_poly", "-mf", tmp_path / "M", "-bs", 32, "-opt", "sgd")  # -opt: not -o pt
    assert (opt["batchsize"], opt["optimizer"], opt["poly_n_codes"]) == (32, "sgd", 64)


def test_of_several_the_last_wins(tmp_path):
    mine = write(tmp_path / "mine.opt", batchsize=8)
    assert Opt.load_init(f"convai2_bi,{mine}")["batchsize"] == 8
    assert Opt.load_init(f"{mine},convai2_bi")["batchsize"] == 512
    assert Opt.load_init("convai2_bi,dstc7_bi")["task"] == TASKS["dstc7"]
    with pytest.raises(InputError, match=r"^-o nothing: "):
        Opt.load_init("convai2_bi,nothing")


def test_a_file_and_a_preset_of_the_users_own_come_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "convai2_poly").mkdir()  # a folder is no file of flags
    assert Opt.load_init("convai2_poly")["batchsize"] == 256
    (tmp_path / "convai2_poly").rmdir()
    presets = tmp_path / ".parlai" / "opt_presets"
    presets.mkdir(parents=True)
    write(presets / "convai2_poly.opt", batchsize=7)
    write(presets / "mine.opt", batchsize=6)
    assert Opt.load_init("convai2_poly") == {"batchsize": 7} and Opt.load_init("mine") == {"batchsize": 6}
    write(tmp_path / "convai2_poly", batchsize=5)
    assert Opt.load_init("convai2_poly") == {"batchsize": 5}


def test_a_path_is_taken_as_it_is(monkeypatch):
    (folder,) = zoo_folders()
    assert Opt.load_init(f"{folder}/recipes/ubuntu_bi.opt") == Opt.load_init("ubuntu_bi")
    monkeypatch.chdir(folder)
    assert Opt.load_init("recipes/ubuntu_bi.opt") == Opt.load_init("ubuntu_bi")
    with pytest.raises(InputError, match=r"^-o recipes/ubuntu\.opt: there is no file"):
        Opt.load_init("recipes/ubuntu.opt")


def test_a_wrong_name_is_a_missing_file_for_parlai():
    """It takes `-opt adamax` for `-o pt` until it knows the agent's flags, and passes over this error."""
    with pytest.raises(FileNotFoundError):
        Opt.load_init("pt")


def test_applied_twice_is_once(monkeypatch):
    monkeypatch.setattr(Opt, "load_init", Opt.load_init)
    find_our_recipes()
    assert Opt.load_init("convai2_bi")["batchsize"] == 512
    with pytest.raises(InputError, match=r"^-o nothing: "):
        Opt.load_init("nothing")


def test_plain_parlai_knows_the_names_with_our_agent(tmp_path):
    done = parlai("train_model", "-m", KINDS["bi"], "-o", "convai2", "-mf", tmp_path / "M")
    assert done.code == 2 and re.search(r"^parlai: -o convai2: .*convai2_bi, .*ubuntu_poly\.$", done.err, re.M)


# ---- training --------------------------------------------------------------------------------------------------------

# What a recipe needs that is not here: its task, its pretrained model, and hours.
HERE = ("-t", SAMPLE, "--init-model", "", "--backbone", "scratch:tiny", "--max-train-steps", "2", "-bs", "8")
HERE += ("-vme", "8", "--eval-batchsize", "8", "--short-final-eval", "true", "-veps", "-1")


@pytest.mark.parametrize("name", ["convai2_bi", "dstc7_poly", "ubuntu_cross"])
def test_a_recipe_trains(name, tmp_path):
    valid, _ = run("train_model", "-o", name, "-mf", tmp_path / "M", *HERE)
    assert math.isfinite(float(valid["loss"]))
    assert json.loads((tmp_path / "M.trainstats").read_text())["train_steps"] == 2
    saved, recipe = options(tmp_path / "M"), Opt.load_init(name)
    changed = ("task", "init_model", "batchsize", "eval_batchsize", "validation_max_exs")
    assert {key: saved[key] for key in recipe if key not in changed} == {
        key: value for key, value in recipe.items() if key not in changed
    }
