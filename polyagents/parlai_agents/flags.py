"""The flags of the agents: adds those of all option classes, and declares those that only ParlAI's commands have."""

from dataclasses import dataclass
from typing import Any

from parlai.core.loader import load_teacher_module
from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.core.teachers import FixedDialogTeacher

from polyagents.arguments import BACKEND, BACKENDS, INDEX_URL, boolean, positive_int, positive_ints
from polyagents.console import number_of
from polyagents.errors import InputError, did_you_mean
from polyagents.models.architecture import Architecture
from polyagents.models.model_options import EncoderOptions, TextOptions, history_flags
from polyagents.options import Options, fields_of, option
from polyagents.training_loop.training_options import defaults_of, training_groups

# What an evaluation of a ranker reports, besides hits@k.
REPORTED = ("accuracy", "f1", "bleu-4", "precision", "recall", "loss", "rank", "mrr")
PRETRAIN_TASKS = ("next_utterance", "next_sentence", "utterance_relevance")


# Settings that only a run has: an evaluation and a chat have ParlAI's, such as a batch size of 1.
OF_A_RUN = {"batchsize", "save_every_n_secs"}


@dataclass(frozen=True)
class CandidateOptions(Options, title="Candidates (polyagents)"):
    """A chat's candidates, besides ParlAI's ways."""

    index_url: str | None = option(None, f"chat over {INDEX_URL}; instead of --fixed-candidates-path")


@dataclass(frozen=True)
class RuntimeOptions(Options, title="Runtime (polyagents)"):
    """What computes a model."""

    backend: str = option("torch", f"{BACKEND}; torch in training", choices=BACKENDS)


@dataclass(frozen=True)
class MetricOptions(Options, title="Metrics (polyagents)"):
    """Metrics besides ParlAI's own."""

    recall_at: str = option("1,2,5,10,50", "report hits@k for each of these k", positive_ints)


@dataclass(frozen=True)
class TargetOptions(Options, title="Targets (polyagents)"):
    """The targets of a training run."""

    every_utterance: bool = option(
        False,
        "in training, make a target of each utterance of a dialogue, also of the partner's and of those within a "
        "context, with what was said before it; validation and test stay as they are",
        boolean,
    )


@dataclass(frozen=True)
class PretrainOptions(Options, title="Pre-training (polyagents)"):
    """Options of pre-training (paper 4.1)."""

    pretrain_task: str = option(
        "next_utterance",
        "what is learnt besides masked words: next_utterance, whether a label answers its context; next_sentence, "
        "the same of running text, a sentence a line, cut in two at random as for BERT; utterance_relevance, whether "
        "an utterance follows on a few others, is from elsewhere in their dialogue, or from another one, in the same "
        "input as masked words (BERT-FP)",
        choices=PRETRAIN_TASKS,
    )
    relevance_context: int = option(
        3,
        "the utterances of a context in --pretrain-task utterance_relevance (BERT-FP: 3, on Douban 2)",
        positive_int,
    )
    batch_tokens: int = option(
        32_000, "tokens of an update, padding counted, of each process; --batchsize is not read", positive_int
    )
    whole_word_masking: bool = option(False, "hide words with all of their pieces", boolean)
    activation_checkpointing: bool = option(
        False,
        "keep each layer's input only, and compute the rest again in the backward pass: less memory, a third more work",
        boolean,
    )


def add_options(parser: ParlaiParser, options: type[Options]) -> None:
    """Add a flag for each field of a class, under the title of the class that declares it."""
    declared = [kind for kind in reversed(options.__mro__) if issubclass(kind, Options) and kind is not Options]
    fields = {field.name: field for field in fields_of(options)}
    for kind in declared:
        groups = {group.title: group for group in parser._action_groups}  # a title may be another class's, too
        group = groups.get(kind.title) or parser.add_argument_group(kind.title)
        for name in [name for name in kind.__annotations__ if name in fields]:
            field = fields.pop(name)  # the declaration of the most derived class
            parse = field.metadata["parse"]
            group.add_argument(
                f"--{name.replace('_', '-')}",
                default=field.default,
                type="bool" if parse is boolean else parse,
                choices=field.metadata["choices"],
                help=field.metadata["help"],
            )


def add_ranker_flags(parser: ParlaiParser, architecture: type[Architecture], is_training_command: bool) -> None:
    """Add all flags of a ranker, with the paper's training settings as defaults (5.1).

    Args:
        is_training_command: whether a run's own settings are read, such as its batch size.
    """
    of_agents = (CandidateOptions, RuntimeOptions, MetricOptions, TargetOptions)
    for group in (EncoderOptions, TextOptions, architecture.options_type, *of_agents, *training_groups(architecture)):
        add_options(parser, group)
    for action in parser._actions:
        if action.dest == "candidates":
            action.choices = [*(action.choices or ()), "batch+inline"]
            action.help = (
                "negatives in training: batch (the other labels of the batch, of all processes), inline (the "
                "example's own candidates), batch+inline (both), batch-all-cands (labels and candidates of the whole "
                "batch), fixed (--fixed-candidates-path)"
            )
    defaults = defaults_of(architecture)
    del defaults["validation_every_n_epochs"]  # ParlAI's -1: run_plan.py spreads the validations
    parser.set_defaults(**{n: value for n, value in defaults.items() if is_training_command or n not in OF_A_RUN})
    if is_training_command:  # a killed run is resumed from its last checkpoint
        parser.set_defaults(save_after_valid=True)


def read_recall_at(opt: Opt) -> tuple[int, ...]:
    """Read the k of hits@k; M.opt has them as JSON."""
    value: Any = opt["recall_at"]
    return positive_ints(value) if isinstance(value, str) else tuple(value)


def check_metric(opt: Opt) -> None:
    """Refuse a --validation-metric that no report has, which ParlAI looks for only after the first validation.

    The names before a slash are known when the tasks are (train_loop.py).

    Raises:
        InputError: there is no such metric; a task with an evaluation of its own may have any.
    """
    name = opt.get("validation_metric", REPORTED[0])
    known = [*REPORTED, *(f"hits@{k}" for k in sorted({*read_recall_at(opt), 1, 5, 10, 100}))]
    given = opt.get("evaltask") or opt.get("task") or ""  # an agent may be made without a task
    teachers = [load_teacher_module(task) for task in filter(None, given.split(","))]
    usual = FixedDialogTeacher.custom_evaluation
    bare = name.rsplit("/")[-1] if len(teachers) > 1 else name  # of one task, ParlAI's reports do not say its name
    if bare not in known and all(getattr(one, "custom_evaluation", usual) is usual for one in teachers):
        raise InputError(
            f"--validation-metric {name}: no evaluation reports that{did_you_mean(name, known)}; give one of "
            f"{', '.join(known)} (--recall-at adds others)."
        )


def check_contexts(opt: Opt) -> None:
    """Refuse ParlAI's flags that change contexts where a model is trained, and not where `Ranker` reads them."""
    for flag, value in history_flags(opt).items():
        raise InputError(
            f"{flag} {value!r}: a model reads contexts whose turns are lines, in their order; omit the flag, and put "
            f"such marks into the texts of the data."
        )


def check_not_reserved(opt: Opt) -> None:
    """Refuse ParlAI's values that have no meaning for these agents, before anything is loaded."""
    parts, tasks = opt.get("multitask_weights") or [1], str(opt.get("task")).split(",")
    if not isinstance(parts, str) and len(parts) not in (1, len(tasks)):
        raise InputError(
            f"--multitask-weights has {len(parts)} numbers for {number_of(len(tasks), 'task')}; give one for each."
        )
    if any(not token.strip() or not token.isprintable() for token in (opt.get("special_tok_lst") or "-").split(",")):
        raise InputError(
            f"--special-tok-lst {opt['special_tok_lst']!r}: a token cannot be empty, or have a line end or another "
            f"control character; give words with commas between them."
        )
    batch = opt.get("override", {}).get("batchsize") or 1  # and not a model's, of its training
    if batch > 1 and (opt.get("interactive_task") or opt.get("selfchat_task")):
        raise InputError(f"--batchsize {batch}: a chat is one conversation at a time; omit the flag.")
    if "vocab" in (opt["candidates"], opt["eval_candidates"], opt["interactive_candidates"]):
        raise InputError(
            "candidates 'vocab' (every word of the vocabulary) cannot be ranked by these agents; use inline, batch, "
            "batch-all-cands or fixed."
        )
    if opt.get("truncate", -1) > 0:
        raise InputError(
            "--truncate would cut contexts and candidates alike; give --text-truncate and --label-truncate."
        )
