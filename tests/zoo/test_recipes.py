"""Each recipe says what the paper and ParlAI's page say, is found by its name, and trains; reports are held to it."""

import json
import math
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from commands import KINDS, forked, options, run
from parlai.core.opt import Opt
from parlai.scripts.train_model import TrainModel

from polyagents.__main__ import main
from polyagents.commands import recipe_report as report
from polyagents.commands.recipe import as_training
from polyagents.errors import InputError
from polyagents.parlai_patches.compat import find_our_recipes
from polyagents.parlai_patches.wrapped import wrap
from polyagents.zoo.models import find as find_model
from polyagents.zoo.recipes import describe
from polyagents.zoo.recipes.paper import TABLES, expected
from polyagents.zoo.recipes.recipe_flags import RECIPES, find, flags_of

DIALOGUE = ("convai2", "dstc7", "ubuntu")
PUBLISHED = {"bi": "bi", "poly": "poly-64", "cross": "cross"}  # ParlAI has one command for each
FROM_REDDIT = [(task, kind) for task in DIALOGUE for kind in PUBLISHED]

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
    "cross": {"reduction_type": "first", "warmup_updates": 1000, "candidates": "inline"},
}
EPOCHS = {"bi": 10, "poly": 8, "cross": 12}
ALL_OF_VALID = -1


def published(task, kind):
    """The values of ParlAI's flags."""
    batch = 16 if kind == "cross" else 512 if (task, kind) == ("convai2", "bi") else 256
    until_it_stands_still = task == "dstc7" and kind != "cross"  # ParlAI issues 2306 and 3133
    ends = {"num_epochs": -1, "validation_patience": 5} if until_it_stands_still else {"num_epochs": EPOCHS[kind]}
    validated = 2500 if kind == "cross" else 8000 if task == "ubuntu" else ALL_OF_VALID
    start = {
        "model": KINDS[kind],
        "task": f"polyagents.tasks.{task}",
        "batchsize": batch,
        "validation_max_exs": validated,
    }
    return ALL | OF_KIND[kind] | start | ends


def parsed(*arguments):
    """The options of a `train_model`."""
    return TrainModel.setup_args().parse_args([*map(str, arguments)])


def test_each_row_of_the_papers_tables_is_a_recipe():
    assert Counter(name.split("/")[0] for name in RECIPES) == {"convai2": 50, "dstc7": 37, "ubuntu": 24, "wikipedia": 4}
    cells = sum(len(re.findall(r"\d+\.\d+", row.split(maxsplit=1)[1].replace("±", " ±"))) for table in TABLES.values()
                for row in table.strip().splitlines()[1:])  # fmt: skip
    values = [value for recipe in RECIPES.values() for value in recipe.expected]
    assert cells == sum(1 + (value.deviation is not None) for value in values)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("convai2/bi/bert/31-negatives", ["valid R@1 81.0 Table 2"]),
        ("convai2/cross/bert/top-4-layers", ["valid R@1 86.3 Table 3"]),
        ("wikipedia/poly-360/reddit", ["test R@1 71.8 Table 4"]),
        ("dstc7/poly-4-last/bert", ["valid R@1 56.0 ± 0.5 Table 8", "test R@1 65.8 ± 0.5 Table 8"]),
        ("convai2/poly-64/wikito", ["test R@1 83.3 ± 0.1 Table 4", "valid R@1 85.6 ± 0.1 Table 10",
                                    "test R@1 83.3 ± 0.1 Table 10", "valid R@1 86.1 ParlAI"]),
        ("ubuntu/cross/reddit", ["test R@1 86.5 ± 0.1 Table 4", "test MRR 91.9 ± 0.0 Table 4",
                                 "valid R@1 86.7 ± 0.1 Table 10", "test R@1 86.5 ± 0.1 Table 10",
                                 "test R@5 99.1 ± 0.0 Table 10"]),
    ],
)  # fmt: skip
def test_numbers_of_the_paper(name, wanted):
    assert [f"{value.split} {value.metric} {value} {value.source}" for value in expected()[name]] == wanted


@pytest.mark.parametrize(("task", "kind"), FROM_REDDIT)
def test_a_recipe_is_what_parlai_published(task, kind, tmp_path):
    """Parsing refuses a flag that does not exist."""
    opt = parsed("-o", f"{task}/{PUBLISHED[kind]}/reddit", "-mf", tmp_path / "M")
    wanted = published(task, kind)
    assert {name: opt.get(name) for name in wanted} == wanted
    model = find_model(opt["init_model"])
    assert model.kind == kind and model.pretrained_on == "Reddit" and opt["init_model"] == f"zoo:{model.name}"
    assert opt["precision"] == "bf16" and opt["chunk_tokens"] <= 16_384


# Paper 5.1, for BERT's weights.
BERT = {
    "backbone": "bert-base-uncased",
    "optimizer": "adamw",
    "weight_decay": 0.01,
    "learningrate": 5e-5,
    "lr_scheduler_decay": 0.4,
    "validation_every_n_epochs": 0.5,
    "train_layers": "all_but_embeddings",
    "reduction_type": "first",
    "text_truncate": 360,
    "label_truncate": 72,
    "output_scaling": 1.0,
    "init_model": None,
}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("convai2/bi/bert", {"batchsize": 512, "warmup_updates": 100, "candidates": "batch"}),
        ("dstc7/poly-16/bert", {"batchsize": 256, "warmup_updates": 100, "poly_n_codes": 16}),
        ("convai2/poly-360-last-and-first/bert", {"polyencoder_type": "n_last_and_first", "poly_n_codes": 360}),
        ("ubuntu/cross/bert", {"batchsize": 16, "warmup_updates": 1000, "cross_negatives": 15}),
        ("convai2/cross/bert", {"batchsize": 16, "candidates": "inline"}),
        ("convai2/bi/bert/63-negatives", {"batchsize": 64}),
        ("convai2/cross/bert/every-layer", {"train_layers": "all"}),
        ("convai2/bi/bert/mean-of-first-16", {"reduction_type": "first_m", "poly_n_codes": 16}),
    ],
)
def test_a_recipe_with_berts_weights_is_the_papers(name, wanted, tmp_path):
    opt = parsed("-o", name, "-mf", tmp_path / "M")
    assert {key: opt.get(key) for key in BERT | wanted} == BERT | wanted


@pytest.mark.parametrize("kind", PUBLISHED)
def test_the_other_weights_of_parlai_are_trained_alike(kind):
    reddit, wikito = (RECIPES[f"ubuntu/{PUBLISHED[kind]}/{weights}"].flags for weights in ("reddit", "wikito"))
    assert wikito == reddit | {"init_model": str(reddit["init_model"]).replace("reddit", "wikito")}


def test_parlais_weights_in_an_architecture_that_parlai_has_none_of(tmp_path):
    opt = parsed("-o", "dstc7/poly-360-first/wikito", "-mf", tmp_path / "M")
    assert (opt["backbone"], opt["init_model"], opt["optimizer"]) == ("zoo:wikito", None, "adamax")


def held(file):
    """By recipe, the options that decided a training by it when all of train_model's defaults were the paper's."""
    shared, rows = (part.strip("\n").splitlines() for part in file.read_text().split("\n\n"))
    shared = dict(line.split("\t") for line in shared if not line.startswith("#"))
    head, *rows = (row.split("\t") for row in rows)
    cells = {row[0]: shared | dict(zip(head[1:], row[1:], strict=True)) for row in rows}
    return {name: {key: json.loads(cell) for key, cell in own.items() if cell} for name, own in cells.items()}


HELD = held(Path(__file__).with_name("recipe_options.tsv"))


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_flags_that_exist_and_no_default_changes_it(name, tmp_path):
    for preset in (name, f"{name}/smoke"):
        flags = Opt.load_init(preset)
        opt = parsed("-o", preset, "-mf", tmp_path / "M")
        assert {key: opt[key] for key in flags} == flags and "model_file" not in flags
        if preset == name:
            assert json.loads(json.dumps({key: opt[key] for key in HELD[name]})) == HELD[name]


# ---- names, paths, lists ---------------------------------------------------------------------------------------------


def write(path, **flags):
    path.write_text(json.dumps(flags))
    return str(path)


def test_a_flag_of_the_command_line_wins(tmp_path):
    opt = parsed("-o", "convai2/poly-64/reddit", "-mf", tmp_path / "M", "-bs", 32, "-opt", "sgd")  # -opt: not -o pt
    assert (opt["batchsize"], opt["optimizer"], opt["poly_n_codes"]) == (32, "sgd", 64)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "warm_up"), [("poly", 100), ("cross", 1000)])
def test_the_papers_schedule_is_that_of_the_architecture(kind, warm_up, tmp_path):
    flags = ("-m", KINDS[kind], "-t", "polyagents.tasks.sample", "--candidates", "inline", "-bs", 2)
    opt = parsed("-o", "paper", *flags, "-mf", tmp_path / "M")
    schedule = {name: BERT[name] for name in ("optimizer", "weight_decay", "learningrate", "validation_every_n_epochs")}
    schedule |= {"lr_scheduler": "reduceonplateau", "lr_scheduler_decay": 0.4, "num_epochs": -1}
    assert {name: opt[name] for name in schedule} == schedule
    short = ("--backbone", "scratch:tiny", "--max-train-steps", 1, "-veps", -1, "-vme", 2, "--short-final-eval", "true")
    run("train_model", "-o", "paper", *flags, "-mf", tmp_path / "M", *short)
    assert options(tmp_path / "M")["warmup_updates"] == warm_up


def test_of_several_the_last_wins(tmp_path):
    mine = write(tmp_path / "mine.opt", batchsize=8)
    assert Opt.load_init(f"convai2/bi/reddit,{mine}")["batchsize"] == 8
    assert Opt.load_init(f"{mine},convai2/bi/reddit")["batchsize"] == 512
    assert Opt.load_init("convai2/bi/reddit,dstc7/bi/reddit")["task"] == "polyagents.tasks.dstc7"
    with pytest.raises(InputError, match=r"^-o nothing: "):
        Opt.load_init("convai2/bi/reddit,nothing")


def test_a_file_and_a_preset_of_the_users_own_come_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    name = "convai2/poly-64/reddit"
    (tmp_path / name).mkdir(parents=True)  # a folder is no file of flags
    assert Opt.load_init(name)["batchsize"] == 256
    (tmp_path / name).rmdir()
    presets = tmp_path / ".parlai" / "opt_presets"
    (presets / name).parent.mkdir(parents=True)
    write(presets / f"{name}.opt", batchsize=7)
    write(presets / "mine.opt", batchsize=6)
    assert Opt.load_init(name) == {"batchsize": 7} and Opt.load_init("mine") == {"batchsize": 6}
    write(tmp_path / name, batchsize=5)
    assert Opt.load_init(name) == {"batchsize": 5}


def test_a_wrong_name_is_a_missing_file_for_parlai():
    """It takes `-opt adamax` for `-o pt` until it knows the agent's flags, and passes over this error."""
    with pytest.raises(FileNotFoundError):
        Opt.load_init("pt")


def test_applied_twice_is_once(monkeypatch):
    monkeypatch.setattr(Opt, "load_init", Opt.load_init)
    wrap("load_init", find_our_recipes, Opt)
    assert Opt.load_init("convai2/bi/reddit")["batchsize"] == 512
    with pytest.raises(InputError, match=r"^-o nothing: "):
        Opt.load_init("nothing")


@pytest.mark.slow
def test_plain_parlai_knows_the_names_with_our_agent(tmp_path):
    flags = ("-m", KINDS["bi"], "-o", "convai2/bi/redit", "-mf", tmp_path / "M")
    done = forked("train_model", *flags, program="parlai", bare=True)
    wanted = (
        r"^parlai: -o convai2/bi/redit: .*did you mean convai2/bi/reddit.*; polyagents recipe list shows our recipes\.$"
    )
    assert done.code == 2 and re.search(wanted, done.err, re.M)


# ---- the command -----------------------------------------------------------------------------------------------------


def polyagents(monkeypatch, capsys, *arguments):
    """What the `polyagents` command prints, run in this process."""
    monkeypatch.setattr("sys.argv", ["polyagents", *map(str, arguments)])
    main()
    return capsys.readouterr().out


def test_list_has_a_line_for_each(monkeypatch, capsys):
    lines = polyagents(monkeypatch, capsys, "recipe", "list").splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(RECIPES)]] == list(RECIPES)
    assert next(line for line in lines if line.startswith("convai2/poly-64/reddit ")).split("  ")[-1].strip() == "2.8"
    assert "89.0 ± 0.1; 89.42" in next(line for line in lines if line.startswith("convai2/poly-64/reddit "))


def test_show_says_all_of_one(monkeypatch, capsys):
    out = polyagents(monkeypatch, capsys, "recipe", "show", "dstc7/poly-64/bert")
    wanted = ("valid R@1/100     58.3 ± 0.4", "test  MRR         74.7 ± 0.6", "8 Nvidia Volta 100", "5.7 hours",
              "--chunk-tokens 8192 with 24 GB or --chunk-tokens 49152 with 80 GB", "--poly-n-codes 64",
              "polyagents recipe run dstc7/poly-64/bert -mf M --smoke")  # fmt: skip
    assert [part for part in wanted if part not in out] == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), r"Give one of: polyagents recipe list, .* report FOLDER\.$"),
        (("run",), r"recipe run needs a NAME first; give one of: polyagents recipe list, "),
        (("run", "--smoke", "convai2/bi/bert", "-mf", "M"), r"recipe run needs a NAME first"),
        (("run", "convai2/bi/bert", "-mf", "M", "--init-opt=x"), r"train_model -o convai2/bi/bert,FILE\.$"),
        (("run", "convai2/bi/bert", "--model_file", "M", "--init_opt", "x"), r"train_model -o convai2/bi/bert,FILE\.$"),
        (("list", "convai2"), r"Give one of: "),
        (
            ("run", "convai2/poly64/bert", "-mf", "M"),
            r"no recipe 'convai2/poly64/bert' \(did you mean convai2/poly-64/bert",
        ),
        (("run", "convai2/bi/bert"), r"needs -mf M, the file to write the model to\.$"),
        (("run", "convai2/bi/bert", "-mf", "M", "-o", "x"), r"train_model -o convai2/bi/bert,FILE\.$"),
        (("show", "bi"), r"no recipe 'bi'.*; polyagents recipe list shows all of them\.$"),
    ],
)
def test_what_is_wrong_is_said(arguments, sentence, ends_with_2):
    (line,) = ends_with_2("recipe", *arguments)
    assert re.search(sentence, line)


def test_the_documents_table_is_the_codes(request):
    text = (request.config.rootpath / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert describe.markdown_table() in text


# ---- training --------------------------------------------------------------------------------------------------------

OF_EACH_KIND = (
    "convai2/bi/bert/mean-of-first-16",
    "convai2/poly-64/reddit",
    "dstc7/poly-360-last-and-first/bert",
    "ubuntu/cross/wikito",
    "wikipedia/poly-16/reddit",
)


def run_smoke(monkeypatch, name, folder, *arguments):
    """`polyagents recipe run NAME --smoke`: the flags that its model was trained with."""
    given = ("recipe", "run", name, "-mf", folder / "M", "--smoke", "--loglevel", "error", *arguments)
    monkeypatch.setattr("sys.argv", ["polyagents", *map(str, given)])
    main()
    return options(folder / "M")


def check_smoke(name, folder, saved):
    """It trained, it was evaluated on both splits that there are, and all that the recipe says stayed."""
    stats = json.loads((folder / "M.trainstats").read_text())
    assert stats["train_steps"] == 2 and math.isfinite(stats["final_valid_report"]["loss"])
    assert bool(stats["final_test_report"]) == (find(name).task != "convai2")  # which has no test set
    wanted = find(name).smoke_flags
    assert {key: saved[key] for key in wanted} == wanted


def test_a_name_with_smoke_is_the_flag(monkeypatch):
    for given in (("dstc7/bi/bert/smoke", "-mf", "M"), ("dstc7/bi/bert", "-mf", "M", "--smoke")):
        assert as_training(["recipe", "run", *given]) == ["train_model", "-o", "dstc7/bi/bert/smoke", "-mf", "M"]


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_one_of_each_kind_trains(name, tmp_path, monkeypatch):
    check_smoke(name, tmp_path, run_smoke(monkeypatch, name, tmp_path))


@pytest.mark.release
@pytest.mark.parametrize("name", [name for name in RECIPES if name not in OF_EACH_KIND])
def test_every_recipe_trains(name, tmp_path, monkeypatch):
    check_smoke(name, tmp_path, run_smoke(monkeypatch, name, tmp_path))


# ---- reports ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def smoked(tmp_path_factory):
    """Two models of one recipe and one of another, each in a folder."""
    folder = tmp_path_factory.mktemp("smoked")
    with pytest.MonkeyPatch.context() as patched:
        for number, name in enumerate(("bi", "bi", "poly-16"), 1):
            (folder / str(number)).mkdir()
            run_smoke(patched, f"wikipedia/{name}/reddit", folder / str(number), "--seed", number)
    return folder


@pytest.fixture
def reported(smoked, tmp_path, monkeypatch, capsys):
    """`recipe report` on a copy of these models: what it prints."""
    shutil.copytree(smoked, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(report, "TIMED_CANDIDATES", 20)
    monkeypatch.setattr(report, "MESSAGES", dict.fromkeys(PUBLISHED, 2))
    return lambda: polyagents(monkeypatch, capsys, "recipe", "report", tmp_path)


def rewrite(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.slow
def test_a_report_holds_models_to_the_paper(reported, tmp_path):
    out = reported()
    (row,) = (line for line in out.splitlines() if line.startswith("| wikipedia/bi/reddit/smoke | test"))
    assert " | R@1/13 | " in row and "| 71.0 | Table 4 | 2 | 4 | 0.4 | smoke: on a sample |" in row
    assert out.strip() == (tmp_path / "report.md").read_text().strip()
    assert (tmp_path / "report.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_report_has_means_deviations_and_what_was_changed(reported, tmp_path, ends_with_2):
    for folder, r_at_1 in (("1", 0.700), ("2", 0.720), ("3", 0.710)):
        rewrite(tmp_path / folder / "M.trainstats", final_test_report={"exs": 9925, "hits@1": r_at_1})
        name = "wikipedia/poly-16/reddit" if folder == "3" else "wikipedia/bi/reddit"
        flags = find(name).flags | ({"batchsize": 64} if folder == "3" else {})
        pool = tmp_path / "pool.txt"
        pool.write_text("an article\n" * 10_000)
        unlike = ("backbone", "max_train_steps")
        flags = {key: flags[key] for key in flags if key not in unlike} | {"fixed_candidates_path": str(pool)}
        rewrite(tmp_path / folder / "M.opt", init_opt=name, **flags)
    lines = reported().splitlines()
    bi, poly = (next(line for line in lines if line.startswith(f"| wikipedia/{model}")) for model in ("bi", "poly"))
    assert "| test | R@1/10001 | 71.0 ± 1.4 | 71.0 | Table 4 | 2 | 9,925 |" in bi
    assert "| 71.0 | 71.5 | Table 4 | 1 | 9,925 |" in poly and "batchsize 64 (recipe: 256)" in poly
    assert "max_train_steps 2 (recipe: -1)" in poly and "backbone scratch:tiny (recipe: zoo:reddit)" in poly
    assert "started from scratch:tiny (recipe: pretrained_transformers/bi_model_huge_reddit/model)" in bi

    stats = json.loads((tmp_path / "3" / "M.trainstats").read_text())
    rewrite(tmp_path / "3" / "M.trainstats", evaluated=stats["evaluated"] | {"test": ["of other data"]})
    (line,) = ends_with_2("recipe", "report", tmp_path)
    assert "were evaluated on different examples of test" in line


@pytest.mark.parametrize(
    ("name", "given", "said"),
    [
        ("convai2/bi/bert", {"lora_rank": 8, "backbone_bits": "4"}, "lora_rank 8 (recipe: None), backbone_bits 4"),
        ("convai2/bi/bert", {"every_utterance": True}, "every_utterance True (recipe: False)"),
        ("convai2/poly-64/reddit", {"teacher_model_file": "T"}, "teacher_model_file T (recipe: None)"),
        ("convai2/poly-64/bert", {"codes_learningrate": 1e-3}, "codes_learningrate 0.001 (recipe: None)"),
        ("convai2/cross/bert", {"cross_negatives": 3}, "cross_negatives 3 (recipe: None)"),
        ("dstc7/cross/bert", {"mutators": "word_shuffle"}, "mutators word_shuffle (recipe: None)"),
        ("wikipedia/bi/reddit/smoke", {"max_train_steps": 9}, "smoke: on a sample, max_train_steps 9 (recipe: 2)"),
        ("convai2/bi/bert", {"chunk_tokens": 512, "compile": True, "keep_checkpoint": False, "seed": 3}, ""),
    ],
)
def test_a_flag_that_no_recipe_has_is_a_change_too(name, given, said):
    flags = flags_of(name)
    trained = flags | {"backbone": flags.get("backbone", flags.get("init_model"))}
    changed = report.changed_flags(name, trained | given)
    assert changed.startswith(said) and bool(changed) == bool(said)


@pytest.mark.parametrize("files", ["mine.opt,{}", "wikipedia/bi/reddit,{}", "{},mine.opt"])
def test_of_several_files_the_last_recipe_is_reported(files, smoked, tmp_path):
    shutil.copytree(smoked / "3", tmp_path / "3")
    name = "wikipedia/poly-16/reddit/smoke"
    rewrite(tmp_path / "3" / "M.opt", init_opt=files.format(name))
    assert [model.name for model in report.trained_in(tmp_path)] == [name]


@pytest.mark.parametrize(
    ("part", "values", "said"),
    [
        ("trainstats", {"final_test_report": "none"}, "M.trainstats is damaged"),
        ("trainstats", {"final_test_report": {"hits@1": 0.5}}, "M.trainstats is damaged"),
        ("trainstats", {"final_valid_report": {"hits@1": "half", "exs": 4}}, "M.trainstats is damaged"),
        ("trainstats", {"total_epochs": None}, "M.trainstats is damaged"),
        ("opt", {"fixed_candidates_path": "gone.txt"}, "3/M was evaluated among the candidates of gone.txt"),
    ],
)
def test_what_a_report_cannot_read_is_said(part, values, said, smoked, tmp_path, ends_with_2):
    shutil.copytree(smoked / "3", tmp_path / "3")
    rewrite(tmp_path / "3" / f"M.{part}", **values)
    (line,) = ends_with_2("recipe", "report", tmp_path)
    assert said in line


def test_a_picture_that_cannot_be_written_leaves_the_former_one_and_the_tables_are_told(monkeypatch, tmp_path, capsys):
    def half(figure, path, **settings):
        Path(path).write_bytes(b"half")
        raise OSError("full")

    (tmp_path / "report.png").write_bytes(b"former")
    model = report.Trained("M", "dstc7/bi/bert", "", 1.0, 100, {"valid": {"hits@1": 0.5, "exs": 4}, "test": {}}, 9.0)
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", half)
    monkeypatch.setattr(report, "trained_in", lambda folder: [model])
    with pytest.raises((OSError, InputError)):
        report.print_report(str(tmp_path))
    assert (tmp_path / "report.png").read_bytes() == b"former"
    assert {file.name for file in tmp_path.iterdir()} == {"report.png", "report.md"}
    assert capsys.readouterr().out.strip() == (tmp_path / "report.md").read_text().strip()


def test_a_folder_without_such_models(tmp_path, ends_with_2):
    (line,) = ends_with_2("recipe", "report", tmp_path)
    assert line.endswith("train one with polyagents recipe run NAME -mf " + str(tmp_path / "M") + ".")
