"""The flags of the agents: the option classes' flags, and the training flags."""

from typing import Any

from parlai.core.loader import load_teacher_module
from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.core.teachers import FixedDialogTeacher

from polyagents.arguments import BACKEND, INDEX_URL, boolean, positive_int, positive_ints
from polyagents.errors import InputError, did_you_mean
from polyagents.models.architecture import Architecture, reads_together
from polyagents.models.model_options import EncoderOptions
from polyagents.options import Options, fields_of
from polyagents.text.text_options import TextOptions
from polyagents.training.training_options import CodesOptions, DistillationOptions, MemoryOptions, NegativesOptions

# What an evaluation of a ranker reports, besides hits@k.
REPORTED = ("accuracy", "f1", "bleu-4", "precision", "recall", "loss", "rank", "mrr")
PRETRAIN_TASKS = ("next_utterance", "next_sentence", "utterance_relevance")


def add_options(parser: ParlaiParser, options: type[Options]) -> None:
    """Add a flag for each field of a class, under the title of the class that declares it."""
    declared = [kind for kind in reversed(options.__mro__) if issubclass(kind, Options) and kind is not Options]
    fields = {field.name: field for field in fields_of(options)}
    for kind in declared:
        group = parser.add_argument_group(kind.title)
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
    add_encoder_flags(parser)
    add_options(parser, architecture.options_type)
    parser.add_argument_group("Candidates (polyagents)").add_argument(
        "--index-url", default=None, help=f"chat over {INDEX_URL}; in place of --fixed-candidates-path"
    )
    parser.add_argument_group("Runtime (polyagents)").add_argument(
        "--backend", choices=("torch", "onnx", "openvino"), default="torch", help=f"{BACKEND}; torch in training"
    )
    add_metric_flags(parser)
    add_training_flags(parser)
    add_options(parser, DistillationOptions)
    parser.set_defaults(
        optimizer="adamw",
        learningrate=5e-5,
        weight_decay=0.01,
        lr_scheduler="reduceonplateau",
        lr_scheduler_decay=0.4,
        lr_scheduler_patience=0,
    )
    if reads_together(architecture):  # negatives are the task's own, or random training labels
        add_options(parser, NegativesOptions)
        parser.set_defaults(candidates="inline", warmup_updates=1000)
    else:  # negatives are the other labels of the batch (paper 4.2)
        parser.set_defaults(candidates="batch", warmup_updates=100)
    if hasattr(architecture.options_type, "codes_init"):
        add_options(parser, CodesOptions)
    if is_training_command:
        # ParlAI's own batch size is 1, which a chat needs. A killed run is resumed from its last checkpoint, so runs
        # save checkpoints by default.
        parser.set_defaults(batchsize=16 if reads_together(architecture) else 64)
        parser.set_defaults(validation_every_n_epochs=0.5, save_after_valid=True, save_every_n_secs=600)


def add_encoder_flags(parser: ParlaiParser) -> None:
    """Add the flags of all agents."""
    add_options(parser, EncoderOptions)
    add_options(parser, TextOptions)


def add_metric_flags(parser: ParlaiParser) -> None:
    """Add the flags for metrics in addition to ParlAI's own."""
    group = parser.add_argument_group("Metrics (polyagents)")
    group.add_argument(
        "--recall-at",
        type=positive_ints,
        default="1,2,5,10,50",
        help="report hits@k for each of these k",
    )


def add_target_flags(parser: ParlaiParser) -> None:
    """Add the flags that choose the training targets."""
    group = parser.add_argument_group("Targets (polyagents)")
    group.add_argument(
        "--every-utterance",
        type="bool",
        default=False,
        help="in training, make every utterance of a dialogue a target, the partner's and those within a context "
        "included, after everything said before it; validation and test do not change",
    )


def add_training_flags(parser: ParlaiParser) -> None:
    """Add the flags of a ranker's training."""
    add_target_flags(parser)
    add_options(parser, MemoryOptions)
    for action in parser._actions:
        if action.dest == "candidates":
            action.choices = [*(action.choices or ()), "batch+inline"]
            action.help = (
                "negatives in training: batch (the other labels of the batch, of all processes), inline (the "
                "example's own candidates), batch+inline (both), batch-all-cands (labels and candidates of the whole "
                "batch), fixed (--fixed-candidates-path)"
            )


def add_pretraining_flags(parser: ParlaiParser) -> None:
    """Add the flags of pre-training (paper 4.1)."""
    add_target_flags(parser)
    group = parser.add_argument_group("Pre-training (polyagents)")
    group.add_argument(
        "--pretrain-task",
        choices=PRETRAIN_TASKS,
        default="next_utterance",
        help="what is learnt in addition to masked words: next_utterance, whether a label answers its context; "
        "next_sentence, the same for running text, one sentence per line, cut in two at random as for BERT; "
        "utterance_relevance, whether an utterance follows a few others, is from elsewhere in their dialogue, or from "
        "another one, in the same input as masked words (BERT-FP)",
    )
    group.add_argument(
        "--relevance-context",
        type=positive_int,
        default=3,
        help="the utterances of a context in --pretrain-task utterance_relevance (BERT-FP: 3, on Douban 2)",
    )
    group.add_argument(
        "--batch-tokens",
        type=positive_int,
        default=32_000,
        help="tokens of an update for each process, padding included; --batchsize is not read",
    )
    group.add_argument("--whole-word-masking", type="bool", default=False, help="hide words with all of their pieces")
    group.add_argument(
        "--activation-checkpointing",
        type="bool",
        default=False,
        help="keep each layer's input only, and compute the rest again in the backward pass: less memory, a third more "
        "work",
    )


def read_recall_at(opt: Opt) -> tuple[int, ...]:
    """Read the k of hits@k; M.opt has them as JSON."""
    value: Any = opt["recall_at"]
    return positive_ints(value) if isinstance(value, str) else tuple(value)


def check_metric(opt: Opt) -> None:
    """Refuse a --validation-metric that no report has, which ParlAI looks for only after the first validation.

    Raises:
        InputError: there is no such metric; a task with an evaluation of its own may have any.
    """
    name = opt.get("validation_metric", REPORTED[0])
    known = [*REPORTED, *(f"hits@{k}" for k in sorted({*read_recall_at(opt), 1, 5, 10, 100}))]
    given = opt.get("evaltask") or opt.get("task") or ""  # an agent may be made without a task
    teachers = [load_teacher_module(task) for task in filter(None, given.split(","))]
    usual = FixedDialogTeacher.custom_evaluation
    if name.rsplit("/")[-1] not in known and all(getattr(one, "custom_evaluation", usual) is usual for one in teachers):
        raise InputError(
            f"--validation-metric {name}: no evaluation reports that{did_you_mean(name, known)}; give one of "
            f"{', '.join(known)} (--recall-at adds others)."
        )


def check_not_reserved(opt: Opt) -> None:
    """Refuse ParlAI's values that have no meaning for these agents, before anything is loaded."""
    parts, tasks = opt.get("multitask_weights") or [1], str(opt.get("task")).split(",")
    if not isinstance(parts, str) and len(parts) not in (1, len(tasks)):
        raise InputError(f"--multitask-weights has {len(parts)} numbers for {len(tasks)} tasks; give one for each.")
    if any(not token.strip() or not token.isprintable() for token in (opt.get("special_tok_lst") or "-").split(",")):
        raise InputError(
            f"--special-tok-lst {opt['special_tok_lst']!r}: a token cannot be empty, or have a line end or another "
            f"control character; give words with commas between them."
        )
    if "vocab" in (opt["candidates"], opt["eval_candidates"], opt["interactive_candidates"]):
        raise InputError(
            "candidates 'vocab' (every word of the vocabulary) cannot be ranked by these agents; use inline, batch, "
            "batch-all-cands or fixed."
        )
    if opt.get("truncate", -1) > 0:
        raise InputError(
            "--truncate would cut contexts and candidates alike; give --text-truncate and --label-truncate."
        )
