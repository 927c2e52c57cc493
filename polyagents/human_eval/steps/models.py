"""Models that a step loads by their files."""

import itertools
import os

from parlai.core.agents import Agent, add_datapath_and_model_args, create_agent
from parlai.core.build_data import get_model_dir
from parlai.core.opt import Opt

from polyagents.errors import InputError
from polyagents.zoo.models import our_agent


def with_our_agent(args: list[str]) -> list[str]:
    """Flags of a command, which load a model that one of ParlAI's agents wrote with ours."""
    files = [value for flag, value in itertools.pairwise(args) if flag in ("-mf", "--model-file")]
    agent = our_agent(files[-1]) if files and not {"-m", "--model"} & set(args) else None
    return [*args, *(["-m", agent] if agent else [])]


def model_name(file: str, datapath: str) -> str:
    """A model file as it was given: ParlAI's parser puts its path in place of zoo:."""
    zoo = os.path.join(get_model_dir(datapath), "")
    return f"zoo:{file.removeprefix(zoo)}" if file.startswith(zoo) else file


def check_there(file: str, given_as: str) -> None:
    """Refuse a model file that is not there.

    Raises:
        InputError: there is none.
    """
    if not file.startswith("zoo:") and not os.path.exists(f"{file}.opt"):
        raise InputError(
            f"{given_as} {file}: there is no trained model ({file}.opt is missing); give the path that was "
            f"--model-file of train_model."
        )


def other_agent(opt: Opt, file: str, given_as: str) -> Agent:
    """Load a model beside the one of --model-file, with the flags that were given for all.

    Raises:
        InputError: there is none.
    """
    check_there(file, given_as)
    own = ("model", "model_file", "dict_file", "partner_model_file", "files")
    given = {flag: value for flag, value in opt["override"].items() if flag not in own} | {"interactive_mode": True}
    agent = our_agent(file)
    given |= {"model": agent} if agent else {}
    second = Opt(given | {"model_file": file, "override": given})
    add_datapath_and_model_args(second)
    return create_agent(second, requireModelExists=True)
