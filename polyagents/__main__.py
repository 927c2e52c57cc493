"""The `polyagents` command: all of ParlAI's commands with our agents' short names, and our own commands."""

import itertools
import os
import sys

from parlai.core.script import SCRIPT_REGISTRY, setup_script_registry, superscript_main
from torch import distributed

from polyagents.commands import (  # noqa: F401  registers them
    bench_inference,
    bench_training,
    build_index,
    build_pairs,
    build_vocabulary,
    build_wiki_search,
    convert_weights,
    demo,
    human_eval,
    mine_negatives,
    rank,
    recipe,
    serve,
    zoo,
)
from polyagents.errors import InputError
from polyagents.parlai_agents import launching
from polyagents.parlai_agents.compat import users_fault
from polyagents.zoo.models import GROUP, find, our_agent

OWN_COMMANDS = (
    "bench_inference",
    "bench_training",
    "build_index",
    "build_pairs",
    "build_vocabulary",
    "build_wiki_search",
    "convert_weights",
    "demo",
    "human_eval",
    "mine_negatives",
    "rank",
    "recipe",
    "serve",
    "zoo",
)
TRAIN_COMMANDS = ("train_model", "tm", "train")
SHORT_NAMES = {"bi": "polyagents:BiEncoder", "poly": "polyagents:PolyEncoder", "cross": "polyagents:CrossEncoder"}


def with_full_names(arguments: list[str]) -> list[str]:
    """`-m poly` -> `-m polyagents:PolyEncoder`, so that M.opt loads in plain `parlai` too."""
    result = []
    for argument in arguments:  # --model=poly in two parts
        result += argument.split("=", 1) if argument.startswith(("--model=", "--model-file=")) else [argument]
    for i, (flag, value) in enumerate(itertools.pairwise(list(result))):
        if flag in ("-m", "--model"):
            result[i + 1] = SHORT_NAMES.get(value, value)
    return result


def with_our_agent(arguments: list[str]) -> list[str]:
    """Load a model of ParlAI's own agents with ours, where `--model` does not say which."""
    given = given_flags(arguments)
    file = given.get("-mf") or given.get("--model-file")
    if file is None or any(flag in given for flag in ("-m", "--model", "-o", "--init-opt")):
        return arguments
    agent = our_agent(file)
    return [*arguments, "-m", agent] if agent and takes_a_model(arguments[0]) else arguments


def takes_a_model(command: str) -> bool:
    """Whether a command of ParlAI's has the flag `--model`; `vacuum` has not."""
    setup_script_registry()
    named = (script for name, script in SCRIPT_REGISTRY.items() if command in (name, *script.aliases))
    flags = (action.option_strings for script in named for action in script.klass.setup_args()._actions)
    return any("--model" in names for names in flags)


def given_flags(arguments: list[str]) -> dict[str, str]:
    """Flags and what follows each of them."""
    return {flag: value for flag, value in itertools.pairwise(arguments) if flag.startswith("-")}


def check_model_file(arguments: list[str]) -> None:
    """Say that a model file is missing before ParlAI complains about flags that only the model would have known."""
    given = given_flags(arguments)
    file = given.get("-mf") or given.get("--model-file")
    names_a_model = any(flag in given for flag in ("-m", "--model", "-o", "--init-opt"))
    if file and not names_a_model and not file.startswith("zoo:") and not os.path.exists(f"{file}.opt"):
        raise InputError(
            f"There is no trained model at {file} ({file}.opt is missing). Give the path that was --model-file of "
            f"train_model, or start a new model with --model poly|bi|cross."
        )


def main() -> None:
    """Entry point of the `polyagents` command."""
    sys.argv = ["polyagents", *with_full_names(sys.argv[1:])]  # ParlAI looks there for what the user gave
    try:
        arguments = recipe.as_training(sys.argv[1:])
        sys.argv = ["polyagents", *arguments]
        check_model_file(arguments)
        for argument in arguments:
            if argument.startswith(f"zoo:{GROUP}/") and argument.endswith("/model"):
                find(argument)  # a wrong name is said before gigabytes are downloaded
        if arguments and arguments[0] in OWN_COMMANDS:  # these need none of ParlAI's 40 scripts: half the start-up time
            own = {"human_eval": human_eval, "serve": serve}.get(arguments[0])
            if own is not None:
                own.run(vars(own.parser().parse_args(arguments[1:])))
            else:
                SCRIPT_REGISTRY[arguments[0]].klass._run_args(arguments[1:])
        else:
            launching.apply()
            arguments = with_our_agent(arguments)
            sys.argv = ["polyagents", *arguments]
            if arguments and arguments[0] in TRAIN_COMMANDS and distributed.is_torchelastic_launched():
                launching.train_under_torchrun(arguments[1:])
            else:
                superscript_main(arguments)
    except Exception as error:
        sentence = users_fault(error)
        if sentence is None:
            raise
        sys.stderr.write(f"polyagents: {sentence}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
