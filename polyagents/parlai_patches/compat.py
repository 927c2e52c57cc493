"""The patches that ParlAI 1.7.2 needs on today's libraries: each says why, and does nothing if it is not needed."""

import contextlib
import functools
import inspect
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, NoReturn
from urllib.parse import urlsplit

# ParlAI's opt.py imports pkg_resources, which announces its end at every start; setup.py pins what still has it.
warnings.filterwarnings("ignore", message="pkg_resources is deprecated", category=UserWarning)

from polyagents.faults import INSTALL_PARLAI, users_fault  # noqa: E402  after the filter

try:
    import parlai.core.params
    import parlai.nn.lr_scheduler as parlai_schedulers
    import parlai.zoo
    from parlai.core import build_data
    from parlai.core.opt import Opt
    from parlai.core.params import ParlaiParser
    from parlai.utils import logging
except ImportError as error:
    raise type(error)(  # a ModuleNotFoundError is said in one sentence by our commands (faults.py)
        f"The agents of polyagents run on ParlAI, which cannot be imported ({error}). ParlAI's own pins can no "
        f"longer be met, so install it without them: {INSTALL_PARLAI}",
        name=error.name,
    ) from error

from torch.optim import lr_scheduler as torch_schedulers  # noqa: E402  after the check that explains itself

import polyagents.zoo  # noqa: E402
from polyagents.arguments import exit_with_one_line  # noqa: E402
from polyagents.console import one_line  # noqa: E402
from polyagents.errors import InputError, did_you_mean  # noqa: E402
from polyagents.network import is_reachable  # noqa: E402
from polyagents.parlai_patches import ranges, saved_options  # noqa: E402
from polyagents.zoo.recipes import recipe_flags  # noqa: E402


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence ParlAI's log, which reports each step of loading; a library should print nothing."""
    before, logging.logger.disabled = logging.logger.disabled, True
    try:
        yield
    finally:
        logging.logger.disabled = before


@functools.cache
def replace() -> None:
    """Replace what ParlAI has (idempotent); wrapped.py lists the functions that ours wrap."""
    if "verbose" not in inspect.signature(torch_schedulers.ReduceLROnPlateau.__init__).parameters:
        parlai_schedulers.ReduceOnPlateauLRScheduler.__init__ = accept_reduce_on_plateau
    parlai.core.params.fix_underscores = fix_underscores
    ParlaiParser.error = say_parse_errors_in_one_line
    exit_with_one_sentence()
    Opt.load = classmethod(lambda cls, optfile: saved_options.load_options(optfile))
    # ParlAI looks for parlai.zoo.<group>.build, and finds ours first (zoo/pretrained_transformers/build.py), whose
    # download resumes and checks.
    parlai.zoo.__path__[:0] = [folder for folder in polyagents.zoo.__path__ if folder not in parlai.zoo.__path__]


def refuse_unknown_models(modelzoo_path: Any, datapath: str, path: str | None) -> str | None:
    """Refuse names that are not in ParlAI's zoo."""
    try:
        return modelzoo_path(datapath, path)
    except (ImportError, RuntimeError) as error:  # there is no module of the name, or no folder for izoo:
        raise InputError(
            f"There is no model {path} in ParlAI's zoo; polyagents zoo list shows those that our agents read, and "
            f"parl.ai/docs/zoo.html all. Give a path without {str(path).split(':')[0]}: for a file of your own."
        ) from error


class NoSuchPreset(InputError, FileNotFoundError):
    """The error for an unknown preset.

    It is a FileNotFoundError, too: ParlAI takes `-opt adamax` for `-o pt` at first, and passes over that error.
    """


def find_our_recipes(load_init: Any, cls: Any, optfile: str) -> Any:
    """Find recipes by name (`-o convai2/poly-64/bert`, `paper`), after files and own presets, before ParlAI's."""
    own = os.path.expanduser(f"~/.parlai/opt_presets/{optfile}.opt")
    flags = recipe_flags.PAPERS if optfile == recipe_flags.PAPER else recipe_flags.flags_of(optfile)
    if flags is not None and not os.path.isfile(optfile) and not os.path.isfile(own):
        return cls(flags)
    try:
        with saved_options.given_by_the_user():
            return load_init(cls, optfile)  # which calls this function for each part of a comma-separated list
    except NoSuchPreset:
        raise
    except FileNotFoundError as error:
        raise NoSuchPreset(
            f"-o {optfile}: there is no file, recipe or preset of that name{recipe_flags.similar(optfile)}; "
            f"polyagents recipe list shows our recipes."
        ) from error


def compare_no_options_of_ours(compare_init_model_opts: Any, opt: Opt, current: Opt) -> None:
    """Warn of no options that differ from those of an --init-model or a checkpoint: our agents take them over."""
    if not str(opt.get("model")).startswith(saved_options.OURS):
        compare_init_model_opts(opt, current)
    elif opt.get("init_model"):
        # ParlAI's function does this, too, and the agent takes the path from here.
        opt["init_model"] = build_data.modelzoo_path(opt["datapath"], opt["init_model"])


def check_options_of_file(load_opts: Any, parser: ParlaiParser, opt: Opt) -> None:
    """Refuse options of `-o FILE` that no flag takes; ParlAI ends in a traceback, or takes any value."""
    file, given = opt["init_opt"], Opt.load_init(opt["init_opt"])
    if not opt.get("allow_missing_init_opts"):
        for name in given.keys() - opt.keys():
            raise InputError(f"-o {file}: there is no option {name}{did_you_mean(name, opt)} of this command.")
    ranges.check_values(given, (getattr(parser, "_help_subparser", None) or parser)._actions, f"-o {file}", whole=True)
    load_opts(parser, opt)


def accept_reduce_on_plateau(
    self: Any, optimizer: Any, patience: int, decay: float, warmup_updates: int, warmup_rate: float
) -> None:
    """Initialise ParlAI's default scheduler without `verbose`, which torch's ReduceLROnPlateau no longer accepts."""
    parlai_schedulers.ParlAILRScheduler.__init__(self, warmup_updates, warmup_rate)
    self.scheduler = torch_schedulers.ReduceLROnPlateau(optimizer, "min", factor=decay, patience=patience)


def fix_underscores(args: Sequence[Any] | None) -> list[Any]:
    """Do as ParlAI's function, but keep the underscores of a value in `--flag=value`: else it is another file."""
    fixed = []
    for arg in args or ():
        if isinstance(arg, str) and arg.startswith("-"):
            flag, equals, value = arg.partition("=")
            arg = f"{flag.replace('_', '-')}{equals}{value}"
        fixed.append(arg)
    return fixed


def say_parse_errors_in_one_line(parser: Any, message: str) -> NoReturn:
    """Report a wrong flag in one line; ParlAI prints hundreds of lines of help before it."""
    exit_with_one_line(getattr(parser, "_help_subparser", None) or parser, message)  # of `parlai train_model`


def exit_with_one_sentence() -> None:
    """End the `parlai` command after an InputError with its sentence and exit code 2, without a traceback.

    ParlAI's commands let every exception through. A script of the user's own keeps its traceback, and the
    `polyagents` command does the same in its main().
    """
    program = sys.argv[0] or ""
    if os.path.basename(program) == "__main__.py":  # python -m parlai
        program = os.path.dirname(program)
    is_script = os.path.dirname(program).endswith(os.path.join("parlai", "scripts"))  # such as distributed_train
    if os.path.basename(program) != "parlai" and not is_script:
        return
    previous = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        sentence = users_fault(error)
        if sentence is None:
            previous(kind, error, traceback)
            return
        sys.stdout.flush()
        sys.stderr.write(f"parlai: {one_line(sentence)}\n")
        raise SystemExit(2)

    sys.excepthook = hook


def say_what_cannot_be_downloaded(download: Any, url: str, path: str, fname: str, *given: Any, **named: Any) -> Any:
    """Refuse a download of ParlAI's tasks at once, in one sentence, if its server cannot be reached.

    ParlAI tries for a quarter of a minute and ends in a traceback.
    """
    if os.path.exists(os.path.join(path, fname)) or is_reachable(url):
        return download(url, path, fname, *given, **named)
    raise InputError(
        f"{fname} cannot be downloaded: {urlsplit(url).hostname} cannot be reached from here. Copy {path} from a "
        f"machine that has it (--datapath names its parent), or give a --task that needs no download: "
        f"polyagents.tasks.sample, or polyagents.tasks.table with your own data."
    )


def list_all_options_on_request(log_all: Any, opt: Opt, *header: str) -> None:
    """Log the options that were given; ParlAI logs all 170 of them before every run and chat.

    `--verbose true` still lists all, and so does the options file next to the model.
    """
    if opt.get("verbose"):
        log_all(opt, *header)
        return
    given = ", ".join(f"{name}: {value}" for name, value in sorted(opt.get("override", {}).items()))
    logging.info(f"Options that were given: {given or 'none'} (all of them: --verbose true)")
