"""The options that a model's file may decide when ParlAI reads it, whoever wrote it.

ParlAI imports what `M.opt` calls "model", and calls it with all other options: `{"model": "subprocess:Popen"}` is a
command line. Therefore only this is read from a file: which of our agents it is, and values of that agent's own flags.
Any other agent is loaded only if the user names it. What `-o FILE` reads is the user's own command line, and passes as
a whole.

The plain `parlai` command has read the file before anything of ours is imported (SECURITY.md).
"""

import argparse
import contextlib
import contextvars
import functools
import importlib.util
import pkgutil
import re
import traceback
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import parlai.core.loader
import parlai.core.mutators
import parlai.tasks
from parlai.core.agents import Agent
from parlai.core.opt import Opt
from parlai.core.params import ParlaiParser
from parlai.utils import logging

from polyagents.console import one_line
from polyagents.errors import InputError, did_you_mean
from polyagents.models.architecture import ARCHITECTURES, MISSING, is_known
from polyagents.models.model_options import of_finished_model
from polyagents.parlai_files.parlai_options import read_whole
from polyagents.parlai_patches import own_files, ranges

OURS = "polyagents:"
OUR_TASKS = "polyagents.tasks."
PARLAIS = re.compile(r"\w+(/\w+)?")  # a name that ParlAI looks up below parlai.agents
# A task below parlai.tasks, whose class ParlAI makes by adding "Teacher", or one of ours.
TASK = re.compile(r"((?!internal|projects)[a-z0-9_]+(:[^.,=]*)?|polyagents\.tasks\.[a-z0-9_]+(:[A-Za-z]\w*)?)")
# Other modules that ParlAI imports by name.
NAME_CODE = {"dict_class", "evaltask", "mutators", "pytorch_teacher_dataset", "pytorch_teacher_task"}

# Where ParlAI looks for agents and tasks: in its own package, and in others for names such as `internal:NAME`.
PACKAGES = ("parlai", *(found["repo"] for found in parlai.core.loader.REGISTERED_REPOS.values()))

# What decides which flags there are.
NAMES = ("model", "model_file", "task", "evaltask", "image_mode", "mutators", "init_opt")

# What a misspelt name of an agent may mean.
AGENTS = [
    *(kind.short_name for kind in ARCHITECTURES.values()),
    *(f"{OURS}{name}" for name in (*ARCHITECTURES, "Pretrain")),
]

of_the_user: contextvars.ContextVar[bool] = contextvars.ContextVar("of_the_user", default=False)


class NamedByFile(str):
    """The name of an agent that only a file has given, not the user."""


def load_agent_class(load_agent_module: Any, name: str) -> Any:
    """Load the class of an agent as ParlAI does, unless only a file names it."""
    if isinstance(name, NamedByFile):
        raise InputError(refused_agent(name))
    ours = "bi, poly, uni, cross (with polyagents instead of parlai), polyagents:PolyEncoder and so on"
    hint = did_you_mean(name, AGENTS, OURS)
    sentence = f"--model {name}: there is no such agent{hint}; give {ours}, or one of ParlAI's"
    if not name:
        raise InputError(f"{sentence}.")
    with naming(sentence, "agents", name):
        return load_agent_module(name)


def load_teacher(load_teacher_module: Any, name: str) -> Any:
    """Load the class of a task as ParlAI does."""
    parts = name.strip().split(":")[0].split(".")
    if name not in parlai.core.loader.TEACHER_REGISTRY and not all(map(str.isidentifier, parts)):
        raise InputError(no_such_task(name))  # no module can have this name
    if parts[:2] == ["polyagents", "tasks"] and name.count(":") > 1:  # ParlAI leaves more to the task; ours have no use
        raise InputError(f"--task {name}: a task of polyagents has one : at most; remove the second and what follows.")
    sentence = f"--task {name}: that task has no such teacher; give the task without what follows :"
    with naming(no_such_task(name).rstrip("."), "tasks", name), naming(sentence, "", name):
        return load_teacher_module(name)


def load_mutators(load_mutator_types: Any, cls: Any, names: str | None) -> Any:
    """Load the classes of mutators as ParlAI does."""
    try:
        return load_mutator_types(cls, names)
    except KeyError as error:
        hint = did_you_mean(str(error.args[0]), parlai.core.mutators.MUTATOR_REGISTRY)
        raise InputError(f"--mutators {error.args[0]}: there is no such mutator{hint}.") from error


def create_task_agents(create: Any, opt: Opt) -> Any:
    """Create the teachers of the tasks as ParlAI does, if there are such tasks, with their files."""
    for name in filter(None, (opt.get("task") or "").split(",")):
        found = parlai.core.loader.load_teacher_module(name)
        if not isinstance(found, type) or not issubclass(found, Agent):  # such as ParlAI's tasks for people
            raise InputError(f"--task {name}: that task has no messages to read; give another.")
        own_files.check_task_file(name, opt)
    return create(opt)


@functools.cache  # asked whenever a task is loaded
def no_such_task(name: str) -> str:
    """Return the sentence for a task that does not exist."""
    known = [*submodules("polyagents.tasks", OUR_TASKS), *submodules("parlai.tasks")]
    hint = did_you_mean(name.split(":")[0], known, OUR_TASKS)
    return (
        f"There is no task {name or 'without a name'}{hint}; give --task a task of ParlAI's, polyagents.tasks.NAME, or "
        f"for your own text fromfile:parlaiformat with --fromfile-datapath."
    )


def submodules(package: str, prefix: str = "") -> list[str]:
    """Return the names of the modules in a package, each after `prefix`, without importing one of them."""
    found = importlib.util.find_spec(package)
    folders = [] if found is None else found.submodule_search_locations
    return [module.name for module in pkgutil.iter_modules(folders, prefix)]


@contextlib.contextmanager
def naming(sentence: str, folder: str, name: str) -> Iterator[None]:
    """Report in one sentence that a name does not exist, whatever Python raises in looking for it.

    Args:
        folder: where ParlAI looks for a short name, below `parlai`; "" if only an attribute is looked for here.
        name: the name, perhaps of a module with `:` and its attribute.

    Raises:
        InputError: there is nothing of that name. What its module fails to import is its own error, and passes.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        missing, module = str(error.name), name.split(":")[0]
        if folder == "tasks" and "." not in module and not missing.startswith("parlai"):
            raise InputError(f"--task {name} needs {missing}, which is not installed: pip install {missing}") from error
        below = ("projects", *(f"{package}.{folder}." for package in PACKAGES))
        if not folder or not (missing.startswith(below) or f"{module}.".startswith(f"{missing}.")):
            raise
        raise InputError(f"{sentence}.") from error
    except Exception as error:
        *_, (frame, _) = traceback.walk_tb(error.__traceback__)
        is_of_loader = frame.f_globals is vars(parlai.core.loader)  # and not of a module that it imports
        is_missing = isinstance(error, AttributeError) and isinstance(error.obj, ModuleType)
        if not (is_missing or (is_of_loader and (folder or isinstance(error, IndexError)))):
            raise
        raise InputError(f"{sentence}.") from error


@contextlib.contextmanager
def given_by_the_user() -> Iterator[None]:
    """Mark that files that are loaded inside were named by `-o`: all of their content counts."""
    token = of_the_user.set(True)
    try:
        yield
    finally:
        of_the_user.reset(token)


def load_options(optfile: str) -> Opt:
    """Read an options file, as far as it may decide anything; refuse one that cannot be read."""
    options = read_whole(optfile)
    if of_the_user.get():
        if wrong := [name for name in NAMES if not isinstance(options.get(name, ""), str | None)]:
            raise InputError(f"-o {optfile}: {wrong[0]} cannot be {options[wrong[0]]!r} (it is not a text).")
        return Opt(options)
    options = {key: value for key, value in options.items() if key not in NAME_CODE}
    if options.get("task") and not is_trusted_task(str(options["task"])):
        task = one_line(str(options["task"]))
        logging.warning(f"{optfile} names the task {task}, which is loaded only if --task names it.")
        del options["task"]
    name = str(options.get("model"))
    if name.startswith(OURS) and (is_known(name.removeprefix(OURS)) or name == f"{OURS}Pretrain"):
        options = of_finished_model(options, optfile.removesuffix(".opt"))
        flags = flags_of(name, options)
        ranges.check_values(options, flags, optfile)
        known = {"model", *(flag.dest for flag in flags)}
    else:
        known, options["model"] = {*options}, NamedByFile(name)
    return Opt({key: value for key, value in options.items() if key in known})


def flags_of(agent: str, options: dict[str, Any]) -> list[argparse.Action]:
    """Return the flags of ParlAI, of an agent, and of its training task."""
    parser = ParlaiParser(True, False)
    parlai.core.loader.load_agent_module(agent).add_cmdline_args(parser, Opt(options))
    if options.get("task"):
        with contextlib.suppress(ImportError, AttributeError):  # no such task: reported where the task is needed
            parser.add_task_args(options["task"], Opt(options))
    return list(parser._actions)


def is_trusted_task(names: str) -> bool:
    """Return whether all of these tasks are ParlAI's or ours, so that a file may name them."""
    return all(TASK.fullmatch(name.strip()) for name in names.split(","))


def refused_agent(name: str) -> str:
    """Return the sentence for an agent that a file names, and that is not one of ours."""
    if name.startswith(OURS):
        return f"The options file of this model names {name}, {MISSING} (a file may not decide which code runs)."
    how = f"; if you trust the file, name it yourself with --model {name}" if PARLAIS.fullmatch(name) else ""
    return (
        f"The options file of this model names the agent {name}, which is not one of polyagents, and a file may not "
        f"decide which code runs{how}."
    )
