"""What ParlAI 1.7.2 needs on today's libraries, and nothing else.

Each item says why, and does nothing where it is not needed any more. Importing polyagents applies them, which
`-m polyagents:...` does in every ParlAI command.
"""

import difflib
import importlib.util
import inspect
import os
import re
import sys
import warnings
from types import TracebackType
from typing import Any, NoReturn

# ParlAI's opt.py imports pkg_resources, which announces its end at every start; setup.py pins what still has it.
warnings.filterwarnings("ignore", message="pkg_resources is deprecated", category=UserWarning)

try:
    import parlai.nn.lr_scheduler as parlai_schedulers
    import parlai.zoo
    from parlai.core.opt import Opt
    from parlai.core.params import ParlaiParser
except ImportError as error:
    raise ImportError(
        "polyagents runs on ParlAI, which is not installed. ParlAI's own pins cannot be met any more, so install it "
        "without them: pip install --no-deps parlai==1.7.2"
    ) from error

from torch.optim import lr_scheduler as torch_schedulers  # noqa: E402  after the check that explains itself

from polyagents.errors import InputError  # noqa: E402


def apply() -> None:
    """All of them; twice is once."""
    accept_reduce_on_plateau()
    say_parse_errors_in_one_line()
    exit_with_one_sentence()
    name_damaged_options()
    patch_multiprocessing()
    use_our_zoo()
    find_our_recipes()


def users_fault(error: BaseException) -> str | None:
    """The sentence of an error that the user can mend; None for all others."""
    if isinstance(error, RuntimeError) and "Model file does not exist" in str(error):  # parlai/core/agents.py:462
        return f"There is no trained model at {str(error).split(': ')[-1]}; give the --model-file of train_model."
    missing = re.match(r"(?:parlai|polyagents)\.tasks\.([^.]+)", getattr(error, "name", None) or "")
    if isinstance(error, ModuleNotFoundError) and missing:
        return (
            f"There is no task {missing.group(1)}; give --task a task of ParlAI's, polyagents.tasks.NAME, or for your "
            f"own text fromfile:parlaiformat with --fromfile-datapath."
        )
    return str(error) if isinstance(error, InputError) else None


def patch_multiprocessing() -> None:
    """`parlai multiprocessing_train` wants CUDA, and hangs when a process dies: launching.py mends it.

    Where ParlAI's command has loaded it, whose names are replaced; the `polyagents` command does it by itself.
    """
    if "parlai.scripts.multiprocessing_train" in sys.modules:
        from polyagents.parlai_agents import launching  # imports what imports this module

        launching.apply()


def use_our_zoo() -> None:
    """`zoo:pretrained_transformers/...` by our download, which resumes and checks; ParlAI's takes half a file for all.

    ParlAI looks for parlai.zoo.<group>.build, and finds ours first (zoo/pretrained_transformers/build.py).
    """
    parlai.zoo.__path__[:0] = [folder for folder in zoo_folders() if folder not in parlai.zoo.__path__]


def zoo_folders() -> list[str]:
    """Where polyagents.zoo lies. It is not imported: it imports what imports this module."""
    spec = importlib.util.find_spec("polyagents.zoo")
    return list(spec.submodule_search_locations or ()) if spec else []


class NoSuchPreset(InputError, FileNotFoundError):
    """A FileNotFoundError, too: ParlAI takes `-opt adamax` for `-o pt` at first, and passes over that error."""


def find_our_recipes() -> None:
    """`-o convai2/poly-64/bert` by name: after a file and a preset of the user's own, before ParlAI's presets."""
    load_init = Opt.load_init.__func__

    def load_recipe(cls: Any, optfile: str) -> Any:
        from polyagents.zoo.recipes import recipe  # which imports what imports this module

        own = os.path.expanduser(f"~/.parlai/opt_presets/{optfile}.opt")
        flags = recipe.flags_of(optfile)
        if flags is not None and not os.path.isfile(optfile) and not os.path.isfile(own):
            return cls(flags)
        try:
            return load_init(cls, optfile)  # which comes back here with each part of a comma-separated list
        except NoSuchPreset:
            raise
        except FileNotFoundError as error:
            raise NoSuchPreset(
                f"-o {optfile}: there is no file, recipe or preset of that name{recipe.similar(optfile)}; "
                f"polyagents recipe list shows our recipes."
            ) from error

    Opt.load_init = classmethod(load_recipe)


def name_damaged_options() -> None:
    """ParlAI lets json's own error through where M.opt is damaged, without the file's name.

    And it takes options that are no text for a pickle, which could run code: no file since 2019 is one.
    """
    load = Opt.load.__func__

    def load_named(cls: Any, optfile: str) -> Any:
        try:
            with open(optfile, encoding="utf-8") as file:
                file.read()
            return load(cls, optfile)
        except ValueError as error:
            raise InputError(f"{optfile} is damaged: no options in JSON; give another --model-file.") from error

    Opt.load = classmethod(load_named)


def accept_reduce_on_plateau() -> None:
    """torch dropped ReduceLROnPlateau's `verbose`, which ParlAI's default scheduler passes (lr_scheduler.py:338)."""
    if "verbose" in inspect.signature(torch_schedulers.ReduceLROnPlateau.__init__).parameters:
        return

    def __init__(
        self: Any, optimizer: Any, patience: int, decay: float, warmup_updates: int, warmup_rate: float
    ) -> None:
        parlai_schedulers.ParlAILRScheduler.__init__(self, warmup_updates, warmup_rate)
        self.scheduler = torch_schedulers.ReduceLROnPlateau(optimizer, "min", factor=decay, patience=patience)

    parlai_schedulers.ReduceOnPlateauLRScheduler.__init__ = __init__


def say_parse_errors_in_one_line() -> None:
    """ParlAI prints hundreds of lines of help before the one that says which flag is wrong."""

    def error(self: Any, message: str) -> NoReturn:
        command = getattr(self, "_help_subparser", None) or self  # `parlai train_model`, not `parlai`
        flags = [flag for action in command._actions for flag in action.option_strings]
        wrong = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        close = difflib.get_close_matches(wrong.group(1), flags, n=1) if wrong else []
        hint = f" (did you mean {close[0]}?)" if close else ""
        sys.stderr.write(f"{command.prog}: {message}{hint}. All flags: {command.prog} --help\n")
        sys.exit(2)

    ParlaiParser.error = error


def exit_with_one_sentence() -> None:
    """In the `parlai` command an InputError is its sentence and exit code 2, without a traceback.

    ParlAI's commands let every exception through. A script of the user's own keeps its traceback, and the
    `polyagents` command does the same in its main().
    """
    program = sys.argv[0] or ""
    if os.path.basename(program) == "__main__.py":  # python -m parlai
        program = os.path.dirname(program)
    if os.path.basename(program) != "parlai" or getattr(sys.excepthook, "of_polyagents", False):
        return
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        sentence = users_fault(error)
        if sentence is None:
            previous(kind, error, traceback)
            return
        sys.stdout.flush()
        sys.stderr.write(f"parlai: {sentence}\n")
        raise SystemExit(2)

    hook.of_polyagents = True  # type: ignore[attr-defined]
    sys.excepthook = hook
