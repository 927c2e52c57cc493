"""The `polyagents` command: all of ParlAI's commands with our agents' short names, and our own commands."""

import itertools
import sys

from parlai.core.script import SCRIPT_REGISTRY, superscript_main

from polyagents.commands import demo, rank  # noqa: F401  registers them

OWN_COMMANDS = tuple(SCRIPT_REGISTRY)
SHORT_NAMES = {"bi": "polyagents:BiEncoder", "poly": "polyagents:PolyEncoder", "cross": "polyagents:CrossEncoder"}


def with_full_names(arguments: list[str]) -> list[str]:
    """`-m poly` -> `-m polyagents:PolyEncoder`, so that M.opt loads in plain `parlai` too."""
    result = list(arguments)
    for i, (flag, value) in enumerate(itertools.pairwise(arguments)):
        if flag in ("-m", "--model"):
            result[i + 1] = SHORT_NAMES.get(value, value)
    return result


def main() -> None:
    """Entry point of the `polyagents` command."""
    arguments = with_full_names(sys.argv[1:])
    sys.argv[1:] = arguments  # ParlAI looks there for what the user gave
    if arguments and arguments[0] in OWN_COMMANDS:  # ours need none of ParlAI's 40 scripts: half the start-up time
        SCRIPT_REGISTRY[arguments[0]].klass._run_args(arguments[1:])
    else:
        superscript_main(arguments)


if __name__ == "__main__":
    main()
