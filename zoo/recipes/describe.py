"""Recipes as text: a list, one in full, and the table of docs/recipes.md (printed by `python -m` this module)."""

from collections.abc import Iterable

from polyagents.console import in_columns, markdown

from .paper import Value
from .recipe_flags import GPUS, PAPERS_MACHINE, RECIPES, SMOKE, Recipe

CANDIDATES = {"convai2": 20, "dstc7": 100, "ubuntu": 10, "wikipedia": 10_001}
COLUMNS = ("R@1 valid", "R@1 test", "MRR test")


def cells(recipe: Recipe) -> list[str]:
    """Return the cells of a recipe's row: name, expected numbers and sources. Disagreeing tables are both quoted."""
    wanted = {column: tuple(column.split()) for column in COLUMNS}
    found = [together(value for value in recipe.expected if (value.metric, value.split) == place)
             for place in wanted.values()]  # fmt: skip
    others = [value for value in recipe.expected if (value.metric, value.split) not in wanted.values()]
    rest = ", ".join(f"{value.metric} {value.split} {value}" for value in others)
    hours = f"{recipe.hours:g}" if recipe.hours else ""
    return [recipe.name, *found, rest, sources(recipe.expected), hours]


HEAD = ["recipe", *COLUMNS, "other", "source", "hours on 8 V100"]


def together(values: Iterable[Value]) -> str:
    """Join the distinct values of one number."""
    return "; ".join(dict.fromkeys(map(str, values)))


def sources(values: Iterable[Value]) -> str:
    """Name the tables of some values, such as "4, 10"."""
    return ", ".join(dict.fromkeys(value.source.removeprefix("Table ") for value in values))


def text_table() -> str:
    """Return all recipes, in columns."""
    rows = [HEAD, *map(cells, RECIPES.values())]
    note = f"Percent; the paper's tables by number. One in full: polyagents recipe show {next(iter(RECIPES))}."
    return "\n".join([*in_columns(rows), "", note])


def markdown_table() -> str:
    """Return all recipes as the table of docs/recipes.md."""
    rows = [dict(zip(HEAD, cells(recipe), strict=True)) for recipe in RECIPES.values()]
    return markdown([row | {"recipe": f"`{row['recipe']}`"} for row in rows])


def in_full(recipe: Recipe) -> str:
    """Describe a recipe completely."""
    size = CANDIDATES[recipe.task]
    flags = recipe.flags
    hours = f", {recipe.hours:g} hours" if recipe.hours else ""
    chunks = " or ".join(f"--chunk-tokens {tokens} with {memory} GB" for memory, tokens in GPUS.items())
    lines = [
        recipe.name,
        "expected, in percent:",
        *(
            f"  {v.split:5} {f'{v.metric}/{size}' if '@' in v.metric else v.metric:11} {v!s:11} {v.source}"
            for v in recipe.expected
        ),
        f"hardware of the paper: {PAPERS_MACHINE}{hours}",
        f"on one GPU: {chunks}; the batch of {flags['batchsize']} goes through in chunks, with the same result",
        "flags:",
        *(f"  --{name.replace('_', '-')} {value}" for name, value in flags.items()),
        "commands:",
        *(f"  {command}" for command in commands(recipe)),
    ]
    return "\n".join(lines)


def commands(recipe: Recipe) -> list[str]:
    """Return the commands that a user types next."""
    split = "valid" if recipe.task == "convai2" else "test"
    run = f"polyagents recipe run {recipe.name} -mf M"
    return [
        f"{run}{SMOKE.replace('/', ' --')}",
        run,
        f"polyagents eval_model -mf M -t {recipe.flags['task']} -dt {split}",
    ]


if __name__ == "__main__":
    print(markdown_table())
