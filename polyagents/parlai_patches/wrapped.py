"""The functions of ParlAI's that ours wrap, in two tables."""

import functools
import inspect
import pkgutil
from collections.abc import Callable
from typing import Any

from polyagents.parlai_patches import (
    compat,
    every_utterance,
    exchanges,
    loop_bar,
    out_files,
    own_files,
    ranges,
    run_plan,
    saved_options,
    short_help,
    train_loop,
    training_end,
    worlds,
)

CORE, TEACHERS, LOOP = "parlai.core", "parlai.core.teachers", "parlai.scripts.train_model:TrainLoop"
PARSER, OPT = "parlai.core.params:ParlaiParser", "parlai.core.opt:Opt"

Patch = tuple[str, Callable[..., Any], tuple[str, ...]]
"""The name of a function, what is called around it, and the class that has it, or the modules that have imported it."""

# The last of several for one function is called first.
OF_ALL: tuple[Patch, ...] = (
    ("_load_opts", compat.check_options_of_file, (PARSER,)),
    ("parse_known_args", ranges.parse_limited, (PARSER,)),
    ("format_help", short_help.format_help, ("parlai.core.script:_SubcommandParser",)),
    ("load_init", compat.find_our_recipes, (OPT,)),
    ("log", compat.list_all_options_on_request, (OPT,)),
    ("compare_init_model_opts", compat.compare_no_options_of_ours, (f"{CORE}.agents",)),
    # what is found by its name
    (
        "modelzoo_path",
        compat.refuse_unknown_models,
        (f"{CORE}.build_data", f"{CORE}.agents", f"{CORE}.dict", f"{CORE}.params"),
    ),
    ("download", compat.say_what_cannot_be_downloaded, (f"{CORE}.build_data",)),
    ("load_agent_module", saved_options.load_agent_class, (f"{CORE}.loader", f"{CORE}.agents", f"{CORE}.params")),
    ("load_teacher_module", saved_options.load_teacher, (f"{CORE}.loader", f"{CORE}.params", TEACHERS)),
    ("load_world_module", worlds.with_our_worlds, (f"{CORE}.worlds", f"{CORE}.params")),
    ("load_mutator_types", saved_options.load_mutators, (f"{CORE}.mutators:Mutator",)),
    ("create_task_agent_from_taskname", saved_options.create_task_agents, (TEACHERS, f"{CORE}.worlds")),
    # tasks, chats and what their commands write
    ("setup_data", own_files.yield_examples, (f"{TEACHERS}:ConversationTeacher",)),
    ("setup_data", own_files.yield_examples, (f"{TEACHERS}:FbDeprecatedDialogTeacher",)),
    ("_setup_data", own_files.keep_examples, (f"{TEACHERS}:ParlAIDialogTeacher",)),
    ("_load_conversations", own_files.parsed_dialogues, ("parlai.utils.conversations:Conversations",)),
    ("__init__", own_files.with_examples, (f"{TEACHERS}:DialogData",)),
    ("load_length", own_files.count_anew, (f"{TEACHERS}:StreamDialogData",)),
    ("str_to_msg", own_files.message_of, (TEACHERS,)),
    ("__init__", every_utterance.with_added_targets, (f"{TEACHERS}:FixedDialogTeacher",)),
    ("act", worlds.until_input_ends, ("parlai.agents.local_human.local_human:LocalHumanAgent",)),
    ("_run_from_parser_and_opt", out_files.run_checked, ("parlai.core.script:ParlaiScript",)),
    ("get_task_world_logs", out_files.name_of_log, ("parlai.scripts.eval_model", "parlai.scripts.train_model")),
    # train_model
    ("create_task", train_loop.in_this_process, ("parlai.scripts.build_dict",)),
    ("load_eval_worlds", exchanges.with_ours_in_order, ("parlai.scripts.train_model",)),
    ("load_eval_worlds", train_loop.without_missing_test_sets, ("parlai.scripts.train_model",)),
    ("__init__", train_loop.of_training_data, (LOOP,)),
    ("_run_eval", train_loop.over_test_worlds, (LOOP,)),
    ("_run_eval", train_loop.over_first_examples, (LOOP,)),
    ("_run_eval", train_loop.with_the_metric, (LOOP,)),
)
OF_OUR_RUNS: tuple[Patch, ...] = (
    ("train", training_end.with_summary, (LOOP,)),
    ("train_steps", train_loop.resume_and_train, (LOOP,)),
    ("save_model", train_loop.save_with_checkpoint, (LOOP,)),
    ("_save_train_stats", train_loop.save_progress, (LOOP,)),
    ("_get_time", loop_bar.move_the_bar, (LOOP,)),
    ("_get_time", run_plan.follow_progress, (LOOP,)),
    ("validate", run_plan.validate_with_grace, (LOOP,)),
    ("_run_single_eval", loop_bar.with_evaluation_bar, (LOOP,)),
    ("_run_single_eval", train_loop.note_report, (LOOP,)),
)


def wrap(name: str, around: Callable[..., Any], *owners: Any) -> None:
    """Replace a function or method of ParlAI's by `around`, which gets what was there before, then the arguments.

    Args:
        owners: the class that has it, or the modules that have imported it.
    """
    found = getattr(owners[0], name)
    is_of_class = inspect.ismethod(found)
    original = found.__func__ if is_of_class else found

    @functools.wraps(original)
    def patched(*given: Any, **named: Any) -> Any:
        return around(original, *given, **named)

    for owner in owners:
        setattr(owner, name, classmethod(patched) if is_of_class else patched)


@functools.cache
def make(patches: tuple[Patch, ...]) -> None:
    """Wrap the functions of a table (idempotent)."""
    for name, around, owners in patches:
        wrap(name, around, *map(pkgutil.resolve_name, owners))


def wrap_all() -> None:
    """Replace and wrap what ParlAI has, for all agents and tasks (idempotent)."""
    compat.replace()
    make(OF_ALL)


def wrap_loop() -> None:
    """Wrap ParlAI's training loop for a run of one of our agents (idempotent)."""
    make(OF_OUR_RUNS)


def wrap_eval_model() -> None:
    """Let ParlAI's eval_model evaluate our rankers in order, and exactly `--num-examples` (idempotent)."""
    script = pkgutil.resolve_name("parlai.scripts.eval_model")
    if not hasattr(script._eval_single_world, "__wrapped__"):
        wrap("_eval_single_world", exchanges.evaluate_in_order, script)
