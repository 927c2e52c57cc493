"""Every number on a command line, in a file of options and in Python has a range."""

import argparse
import importlib
import json
import math

import parlai.core.script
import pytest
from commands import KINDS
from parlai.core.params import ParlaiParser

from polyagents import InputError
from polyagents.arguments import Whole, boolean, positive_int
from polyagents.commands.human_eval import STEPS
from polyagents.commands.names import OWN_COMMANDS, PARLAI_COMMANDS
from polyagents.options import fields_of
from polyagents.parlai_patches import ranges
from polyagents.training_loop.training_options import TrainingOptions

TASKS = "polyagents.tasks.sample,polyagents.tasks.table,fromfile"
AGENTS = [*KINDS.values(), "polyagents:Pretrain"]
NEVER = ["nan", "inf", "-inf", "-1e999", "x", "", " ", "1e", "0x10", "1,x", "\x1b[2J", "9" * 5_000, "--1", "None"]
ENDLESS = "1" + "0" * 30
MINUS_ONE = {  # where it is a number, or ParlAI's word for none
    *("max_train_steps", "num_examples", "num_episodes", "validation_max_exs", "validation_every_n_steps"),
    *("log_every_n_steps", "max_train_time", "num_epochs", "save_every_n_secs", "seconds", "validation_patience"),
    *("validation_every_n_epochs", "validation_every_n_secs", "log_every_n_secs", "gradient_clip", "warmup_updates"),
    *("invsqrt_lr_decay_gamma", "truncate", "history_size", "rank_top_k", "dict_maxexs", "dict_maxtokens", "gpu"),
    *("dict_max_ngram_size", "area_under_curve_digits", "text_truncate", "label_truncate"),
    *("validation_cutoff", "teacher_seed"),
}
ZERO = {
    *("learningrate", "weight_decay", "dropout", "margin", "momentum", "bpe_dropout", "warmup_rate"),
    *("lr_scheduler_decay", "lr_scheduler_patience", "seed", "agent", "port", "num_workers", "dict_minfreq"),
    *("distributed_world_size", "betas", "nus", "none", "hand_over"),
    *(MINUS_ONE - {"max_train_steps", "num_examples", "num_episodes", "validation_max_exs", "num_epochs", "seconds"}),
} - {"validation_every_n_steps", "log_every_n_steps", "max_train_time", "save_every_n_secs", "text_truncate"}
ZERO -= {"validation_every_n_epochs", "validation_every_n_secs", "label_truncate"}
NUMBERS = (int, float, int | None, float | None)
OTHER_TYPES = (None, str, bool, boolean, "bool", "nonestr", "class")  # of flags that take no number


def parsers():
    """Every parser by the words that lead to it."""
    for name in OWN_COMMANDS:
        yield name, importlib.import_module(f"polyagents.commands.{name}").parser()
    for step, module in STEPS.items():
        yield f"human_eval {step}", importlib.import_module(f"polyagents.human_eval.steps.{module}").parser()
    for name, command in PARLAI_COMMANDS.items():
        importlib.import_module(f"parlai.scripts.{command.script or name}")
        yield name, parlai.core.script.SCRIPT_REGISTRY[name].klass.setup_args()
    for agent in AGENTS:
        parser = parlai.core.script.SCRIPT_REGISTRY["train_model"].klass.setup_args()
        parser.add_extra_args(["-m", agent, "-t", TASKS])
        yield f"train_model -m {agent}", parser


@pytest.fixture(scope="module")
def numbers():
    """Every flag that takes a number: its parsers' names by destination and type."""
    found = {}
    for name, parser in parsers():
        for action in parser._actions:
            if isinstance(parser, ParlaiParser):
                ranges.limit_numbers(action)
            if action.type not in OTHER_TYPES or type(action.default) in (int, float):
                found.setdefault((action.dest, action.type), []).append(name)
    assert len(found) > 80
    return found


def takes(parse, text):
    """Whether a type takes a text; what it refuses is a line of argparse's, and no traceback."""
    try:
        parse(text)
    except argparse.ArgumentTypeError as error:
        assert len(str(error)) < 300
        return False
    return True


def test_every_number_has_a_range(numbers):
    for (name, parse), where in numbers.items():
        assert not isinstance(parse, type | str), f"--{name} of {where[0]} takes any {parse}"
        assert not [text for text in NEVER if takes(parse, text)], (name, where)
        assert takes(parse, "-1") == (name in MINUS_ONE and parse != positive_int), (name, where)
        several = "0,0" if takes(parse, ".5,.5") and not takes(parse, ".5") else "0"
        assert takes(parse, several) == (name in ZERO and parse != positive_int), (name, where)
        assert not takes(parse, "-2") or parse == ranges.any_number, (name, where)
        assert not takes(parse, ENDLESS), (name, where)
        if isinstance(parse, Whole):
            assert takes(parse, str(parse.least)), (name, where)
            assert not takes(parse, ".5"), (name, where)
    assert not ranges.RANGES.keys() - {name for name, _ in numbers}, "ranges of numbers that there are not"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batchsize": 0}, "batchsize cannot be '0'"),
        ({"batchsize": [1, 2]}, "batchsize cannot be '[1, 2]'"),
        ({"learningrate": math.nan}, "learningrate cannot be 'nan'"),
        ({"max_train_steps": -5}, "max_train_steps cannot be '-5'"),
        ({"poly_n_codes": True}, "poly_n_codes cannot be 'True'"),
        ({"betas": [0.9, 3]}, "betas cannot be '[0.9, 3]'"),
        ({"task": 3}, "task cannot be 3 (it is not a text)"),
        ({"model_file": ["M"]}, "is not a text"),
        ({"similarity": "evil"}, "give one of dot, cosine"),
        ({"share_encoders": "maybe"}, "is neither true nor false"),
        ({"bachsize": 3}, "there is no option bachsize (did you mean batchsize"),
        ({"\x1b[2J\npolyagents: fine": 3}, "there is no option \\u001b[2J\\u000apolyagents: fine of this command"),
    ],
)
def test_a_file_of_options_takes_what_its_flags_take(options, said, tmp_path, ends_with_2):
    (tmp_path / "o.opt").write_text(json.dumps(options))
    line = ("-m", "poly", "-mf", tmp_path / "M", "-t", "polyagents.tasks.sample", "-o", tmp_path / "o.opt")
    (sentence,) = ends_with_2("train_model", *line)
    assert "-o " in sentence and said in sentence


def test_the_options_file_of_a_model_takes_what_its_flags_take(model, ends_with_2):
    file = model("bi")
    options = json.loads(file.with_suffix(".opt").read_text())
    file.with_suffix(".opt").write_text(json.dumps(options | {"update_freq": 0}))
    (sentence,) = ends_with_2("eval_model", "-mf", file, "-t", "polyagents.tasks.sample")
    assert "update_freq cannot be '0'" in sentence


@pytest.mark.parametrize("name", [field.name for field in fields_of(TrainingOptions) if field.type in NUMBERS])
def test_options_in_python_have_the_ranges_of_flags(name):
    for value in (math.nan, math.inf, -2, 10.0**30, "x", "", [1], b"1"):
        with pytest.raises(InputError):
            TrainingOptions.read({name: value})
