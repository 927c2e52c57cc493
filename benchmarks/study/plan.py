"""A study's file: what it may contain, what is refused, and the rows that it describes."""

import dataclasses
import functools
import io
import itertools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from polyagents.errors import InputError
from polyagents.files.hashing import fingerprint
from polyagents.files.json_files import fits
from polyagents.files.lines import opened

PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
REFERENCE = re.compile(r"(?<!\$)\{([^{}]+)\}")

UNSTORABLE = re.compile("[\0\ud800-\udfff]")
FLAG = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
LARGEST = 2**63  # beyond every number of a study
LARGEST_SEED = 2**32 - 1 - 1_000 * 500  # NumPy's, without what rows that start from others add (schedule.py)
MOST_ROWS = 500
LONGEST_NAME = 100  # of a row; it is a part of the names of its files
SHOWN = 500  # characters of an error

RERANK = "rerank"  # the `model` of a row that trains nothing
PIPELINE_KEYS = {"model": str, "first": str, "then": str, "top": int}
ROW_KEYS = ("examples", "seconds")  # keys of a row besides its flags

# Flags that decide when a run ends, where its model is and what it reads: the study sets them.
OWN_FLAGS = (
    *("evaltask", "model-file", "seed", "datatype", "eval-batchsize", "dynamic-batching"),
    *("num-epochs", "max-train-steps", "max-train-time", "init-opt"),
)
ENDING_SCHEDULES = ("linear", "cosine")  # the last mark of a row is where they reach zero
DEFAULT_FLAGS = {"lr-scheduler": "none", "validation-every-n-epochs": -1, "save-every-n-secs": -1}

EXAMPLES, SECONDS = "examples", "seconds"  # what a mark counts
FINISHED = "finished"  # the mark of a pipeline, which has no training of its own

Flags = dict[str, Any]


@dataclass(frozen=True)
class Mark:
    """When a row is measured: after a number of training examples, or of training seconds."""

    kind: str
    at: float

    def reached(self, examples: int, seconds: float) -> bool:
        """Return whether a run has reached it.

        Args:
            seconds: its seconds.
        """
        return (examples if self.kind == EXAMPLES else seconds) >= self.at


@dataclass(frozen=True)
class Evaluation:
    """How every row is evaluated.

    Attributes:
        num_examples: the first ones of the split, whole dialogues in order.
        batchsize: of an evaluation; part of the measure only if the batch gives the candidates.
        split: valid, or test to report what was chosen before.
    """

    num_examples: int
    batchsize: int
    split: str = "valid"


@dataclass(frozen=True)
class Row:
    """One line of the table, trained once with each seed; or a pipeline of two others, which trains nothing.

    Attributes:
        name: its name in the file.
        flags: flags of train_model, with the study's, without dashes; for a pipeline, its keys.
        examples: training examples after which it is measured, increasing.
        seconds: training seconds after which it is measured as well; None for no such mark.
        key: distinguishes it from every row with other flags or another evaluation.
    """

    name: str
    flags: Flags
    examples: tuple[int, ...]
    seconds: float | None
    key: str = ""

    @property
    def builds_on(self) -> tuple[str, ...]:
        """The distinct names of the rows whose models it uses."""
        found = [name for value in self.flags.values() for name in REFERENCE.findall(str(value))]
        return tuple(dict.fromkeys(found))

    @property
    def starts_from(self) -> str | None:
        """The row whose weights it starts from; None if there is none."""
        return next(iter(REFERENCE.findall(str(self.flags.get("init-model", "")))), None)

    @property
    def marks(self) -> tuple[Mark, ...]:
        """When it is measured; the last of the examples and the seconds end it."""
        if self.is_pipeline:
            return (Mark(FINISHED, 0),)
        last = () if self.seconds is None else (Mark(SECONDS, self.seconds),)
        return (*(Mark(EXAMPLES, at) for at in self.examples), *last)

    @property
    def end(self) -> str:
        """The last marks, which say how far its model was trained."""
        return "-".join(f"{mark.at}-{mark.kind}" for mark in self.marks[max(len(self.examples) - 1, 0) :])

    @property
    def is_pipeline(self) -> bool:
        """Whether it re-ranks the best of one row by another."""
        return bool(self.flags.get("model") == RERANK)

    @property
    def first(self) -> str:
        """The row that ranks first, for a pipeline."""
        return str(self.flags["first"])[1:-1]

    @property
    def then(self) -> str:
        """The row that re-ranks, for a pipeline."""
        return str(self.flags["then"])[1:-1]


@dataclass(frozen=True)
class Study:
    """A study's file.

    Attributes:
        task: the task of rows without one of their own; all are evaluated on one split of it.
        seeds: each of them gives every row one run.
        examples: the default marks of a row.
        seconds: the default mark of a row in seconds; None for none.
        evaluation: the same for all rows.
        replies: candidates of the timed replies; None if no reply is timed.
        pool: candidates of a second, larger ranking of the final models; None if there is none.
        difference: of R@1, that the study looks for; None for none.
        rows: in the order of the file, except that rows come before those that build on them.
    """

    task: str
    seeds: tuple[int, ...]
    examples: tuple[int, ...]
    seconds: float | None
    evaluation: Evaluation
    replies: int | None
    pool: int | None
    pool_examples: int
    difference: float | None
    rows: tuple[Row, ...]

    def row(self, name: str) -> Row:
        """Return the row with a name."""
        return next(row for row in self.rows if row.name == name)

    def trainings_before(self, row: Row) -> int:
        """Return how many rows have trained the weights that a row starts from."""
        return 0 if row.starts_from is None else 1 + self.trainings_before(self.row(row.starts_from))

    def all_below(self, row: Row) -> list[Row]:
        """Return the distinct rows that a row builds on, directly or through others."""
        wanted, found = set(row.builds_on), list[Row]()
        for one in reversed(self.rows):
            if one.name in wanted:
                found.append(one)
                wanted.update(one.builds_on)
        return found


def read(path: str) -> Study:
    """Read and check a study's file.

    Raises:
        InputError: it cannot be read, has an unknown key or value, or rows that build on none or on themselves.
    """
    try:
        with opened(path) as raw:
            found = yaml.load(io.TextIOWrapper(raw, "utf-8"), PlainValues)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({getattr(error, 'strerror', 'it is not UTF-8')}).") from error
    # PyYAML's constructors end in any of these where a tag does not fit its value, as in !!int x.
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not YAML: {' '.join(str(error).split())[:SHOWN]}.") from error
    try:
        return study_of(found)
    except ValueError as error:
        raise InputError(f"{path}: {str(error)[:SHOWN]}") from error


class PlainValues(yaml.SafeLoader):
    """A YAML loader of plain values that refuses repeated keys: the second row would replace the first."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node like SafeLoader, and refuse aliases: a few lines of them stand for billions of values.

        Args:
            parent: as for SafeLoader.
            index: as for SafeLoader.
        """
        if self.check_event(yaml.AliasEvent):
            raise yaml.composer.ComposerError(None, None, "an alias; write it out", self.peek_event().start_mark)
        return super().compose_node(parent, index)

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        """Construct a value like SafeLoader, and refuse what no flag and no file of JSON can hold.

        Args:
            deep: as for SafeLoader.
        """
        value = super().construct_object(node, deep)
        if (isinstance(value, str) and UNSTORABLE.search(value)) or (
            isinstance(value, int | float) and not abs(value) < LARGEST
        ):
            raise yaml.constructor.ConstructorError(
                None, None, f"{value!r:.40} is too large, not a number, or not a text", node.start_mark
            )
        return value

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        """Construct a mapping like SafeLoader, and check that all keys are different.

        Args:
            deep: as for SafeLoader.
        """
        there = set[Any]()
        for key in (self.construct_object(key, deep=True) for key, _ in node.value):
            if key in there:
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is there twice", node.start_mark)
            there.add(key)
        return dict(super().construct_mapping(node, deep))


# ---- what it may say -------------------------------------------------------------------------------------------------

KEYS: dict[str, tuple[Any, str, Any]] = {  # its type, what it is in words, what it is when missing
    "task": (str, "a name of --task", ...),
    "flags": (dict[str, Any], "flags of train_model with values", {}),
    "seeds": (list[int], "a list of whole numbers", ...),
    "examples": (list[int], "a list of numbers of training examples, increasing", []),
    "seconds": (float | None, "a number of training seconds above 0, or null", None),
    "evaluate": (
        dict[str, int | str],
        "num-examples and batchsize, whole numbers of 1 or more, and, if you like, split: test",
        ...,
    ),
    "replies": (int | None, "a number of candidates above 0, or null", None),
    "pool": (int | None, "a number of candidates above 1, or null", None),
    "pool-examples": (int, "a number of contexts of 1 or more", 100),
    "difference": (float | None, "a difference of R@1, above 0 and below 1, or null", None),
    "rows": (dict[str, dict[str, Any]], "names with flags", ...),
}


def study_of(found: Any) -> Study:
    """Make a study of parsed YAML.

    Raises:
        ValueError: something in it cannot work.
    """
    if not isinstance(found, Mapping):
        raise ValueError(f"a study has the keys {', '.join(KEYS)}.")
    refuse_unknown(found, KEYS, "a study")
    value = {key: checked(key, found) for key in KEYS}
    refuse_unknown(value["evaluate"], ("num-examples", "batchsize", "split"), "evaluate")
    evaluate = {"split": "valid"} | value["evaluate"]
    count, size, split = (evaluate.get(name) for name in ("num-examples", "batchsize", "split"))
    if not all(fits(number, int) and number >= 1 for number in (count, size)) or split not in ("valid", "test"):
        raise ValueError(f"evaluate is {value['evaluate']}; give {KEYS['evaluate'][1]}.")
    evaluation = Evaluation(count, size, split)
    if value["pool"] is not None and value["pool"] < value["pool-examples"]:
        raise ValueError(
            f"pool is {value['pool']} and pool-examples {value['pool-examples']}; the pool has the labels of these "
            f"examples, so give a pool of as many or more."
        )
    if "," in value["task"] or not value["task"].strip():
        raise ValueError(f"task is {value['task']!r}; give one, on which all rows are evaluated.")
    flags = DEFAULT_FLAGS | flags_of(value["flags"], "flags")
    examples, seconds = marks_of(value["examples"], value["seconds"], "the study")
    seeds = value["seeds"]
    if not value["rows"] or not seeds or len(set(seeds)) < len(seeds) or min(seeds) < 0 or max(seeds) > LARGEST_SEED:
        raise ValueError(f"rows and seeds need one entry or more; seeds are 0 to {LARGEST_SEED:,}, each of them once.")
    names = [str(name) for name in value["rows"]]
    if len(names) > MOST_ROWS or len(set(names)) < len(names):
        raise ValueError(f"rows has {len(names):,} names; give up to {MOST_ROWS}, all different as texts.")
    rows = [
        row_of(name, own, flags, examples, seconds) for name, own in zip(names, value["rows"].values(), strict=True)
    ]
    given = [value["task"], value["evaluate"], value["replies"], value["pool"], value["pool-examples"]]
    ordered = with_keys(in_order(rows), given)
    named = {name: value[name] for name in ("task", "replies", "pool", "difference")}
    named |= {"pool_examples": value["pool-examples"]}
    return Study(**named, seeds=tuple(seeds), examples=examples, seconds=seconds, evaluation=evaluation,
                 rows=tuple(ordered))  # fmt: skip


RANGES: dict[str, Callable[[float], bool]] = {  # which numbers a key may have, if not all
    "replies": lambda number: number >= 1,
    "pool": lambda number: number >= 2,
    "pool-examples": lambda number: number >= 1,
    "difference": lambda number: 0 < number < 1,
}


def checked(key: str, found: Mapping[str, Any]) -> Any:
    """Return the value of a key of the study, of the right type."""
    kind, words, missing = KEYS[key]
    if key not in found and missing is ...:
        raise ValueError(f"{key} is missing; give {words}.")
    value = found.get(key, missing)
    if not fits(value, kind) or (key in RANGES and value is not None and not RANGES[key](value)):
        raise ValueError(f"{key} is {value!r}; give {words}.")
    return value


def refuse_unknown(given: Mapping[Any, Any], known: Any, what: str) -> None:
    """Refuse unknown keys.

    Args:
        what: where they are, for the error.
    """
    for key in given:
        if key not in known:
            raise ValueError(f"{key!r} is not a key of {what}, which has {', '.join(known)}.")


def marks_of(examples: Any, seconds: Any, what: str) -> tuple[tuple[int, ...], float | None]:
    """Return the marks of a row.

    Args:
        what: whose they are, for the error.

    Raises:
        ValueError: never, or in no order.
    """
    counts_up = fits(examples, list[int]) and all(a < b for a, b in itertools.pairwise([0, *examples]))
    if not counts_up or not fits(seconds, float | None) or (seconds is not None and seconds <= 0):
        raise ValueError(
            f"{what} has examples {examples!r} and seconds {seconds!r}; give {KEYS['examples'][1]}, and "
            f"{KEYS['seconds'][1]}."
        )
    if not examples and seconds is None:
        raise ValueError(f"{what} is never measured; give examples, seconds, or both.")
    return tuple(examples), seconds


def flags_of(given: Any, what: str) -> Flags:
    """Return flags under the names of train_model, with hyphens.

    Args:
        what: whose they are, for the error.

    Raises:
        ValueError: a value is none that a command line could hold, or a flag is the study's own.
    """
    flags = {str(name).replace("_", "-"): value for name, value in given.items()}
    if len(flags) < len(given) or not all(map(FLAG.fullmatch, flags)):
        raise ValueError(
            f"{what}: give each flag once, without dashes before it; there are {', '.join(map(str, given))}."
        )
    for name, value in flags.items():
        if not fits(value, str | int | float | bool | None):
            raise ValueError(
                f"{what}: {name} is {value!r}; give a text, a number, true, false, or null to remove it; a reference "
                f'to another row needs quotes: "{{name}}".'
            )
        if name in OWN_FLAGS:
            raise ValueError(f"{what}: {name} is not for flags; the study itself says it.")
    return flags


def row_of(name: str, own: Mapping[str, Any], flags: Flags, examples: Sequence[int], seconds: float | None) -> Row:
    """Make one row, whose own flags override the study's; null removes a flag of the study.

    Args:
        seconds: the study's mark of seconds.

    Raises:
        ValueError: it cannot work.
    """
    what = f"row {name!r:.120}"
    # Matplotlib reads a name between dollars as a formula, and leaves one that begins with an underscore out.
    if not name.isprintable() or not 0 < len(name) <= LONGEST_NAME or set(name) & set("{}|<>$") or name[0] == "_":
        raise ValueError(
            f"{what} needs another name: up to {LONGEST_NAME} printable characters, without {{}}|<>$ and no underscore "
            f"first."
        )
    if own.get("model", flags.get("model")) == RERANK:
        refuse_unknown(own, PIPELINE_KEYS, f"{what}, which re-ranks")
        wrong = [key for key, kind in PIPELINE_KEYS.items() if not fits(own.get(key), kind)]
        if wrong or own["top"] < 1 or any(not REFERENCE.fullmatch(own[key]) for key in ("first", "then")):
            raise ValueError(f'{what} re-ranks; give first: "{{row}}", then: "{{row}}", and top: 1 or more.')
        return Row(name, dict(own), (), None)
    marks = {key: own.get(key, shared) for key, shared in (("examples", list(examples)), ("seconds", seconds))}
    row_examples, row_seconds = marks_of(marks["examples"], marks["seconds"], what)
    merged = flags | flags_of({key: value for key, value in own.items() if key not in ROW_KEYS}, what)
    if not merged.get("model"):
        raise ValueError(f"{what} has no model; give one, such as model: bi.")
    given = {key: value for key, value in merged.items() if value is not None}
    ending = end_of_schedule(given, row_examples, row_seconds, what)
    return Row(name, given | ending, row_examples, row_seconds)


def end_of_schedule(flags: Flags, examples: Sequence[int], seconds: float | None, what: str) -> Flags:
    """Return the flag for the updates until the last mark, where the learning rate falls to zero at a known end.

    Raises:
        ValueError: a mark of seconds leaves the end unknown.
    """
    if flags.get("lr-scheduler") not in ENDING_SCHEDULES:
        return {}
    if not examples or seconds is not None:
        raise ValueError(
            f"{what} has lr-scheduler {flags['lr-scheduler']}, which ends at a number of examples; give examples, and "
            f"seconds: null."
        )
    if "batchsize" not in flags:
        raise ValueError(f"{what} has lr-scheduler {flags['lr-scheduler']}, whose end depends on batchsize; give it.")
    sizes = [flags.get(name, 1) for name in ("batchsize", "update-freq")]
    if not all(fits(size, int) and size > 0 for size in sizes):  # train_model reports the error
        return {}
    # One more, since ParlAI ends a run in the update that reduces the rate to zero, before it is measured.
    return {"max-train-steps": math.ceil(examples[-1] / math.prod(sizes)) + 1}


# ---- rows that build on others ---------------------------------------------------------------------------------------


def in_order(rows: Sequence[Row]) -> list[Row]:
    """Return the rows, each after those that it builds on.

    Raises:
        ValueError: it builds on a missing row, on a pipeline, or on itself through others.
    """
    by_name, ordered = {row.name: row for row in rows}, dict[str, Row]()

    def place(row: Row, above: tuple[str, ...]) -> None:
        if row.name in ordered:
            return
        if row.name in above:
            raise ValueError(f"rows build on each other in a circle: {' -> '.join([*above, row.name])}.")
        for name in row.builds_on:
            if name not in by_name or by_name[name].is_pipeline:
                raise ValueError(
                    f"row {row.name!r} builds on {name!r}, which is not a row that is trained; there are "
                    f"{', '.join(other.name for other in rows if not other.is_pipeline)}."
                )
            place(by_name[name], (*above, row.name))
        ordered[row.name] = row

    for row in rows:
        place(row, ())
    return list(ordered.values())


def with_keys(rows: Sequence[Row], shared: Any) -> list[Row]:
    """Add the keys of rows: a hash of everything that decides the figures, with the keys and ends of their parent rows.

    Placeholders count as they are written in the file, so that results are found again on another machine.

    Args:
        rows: the rows, in order.
        shared: the common settings that decide the figures.
    """
    keys, models = dict[str, str](), dict[str, str]()
    for row in rows:
        named = functools.partial(REFERENCE.sub, lambda found: f"{{{models[found.group(1)]}}}")
        flags = {key: named(value) if isinstance(value, str) else value for key, value in row.flags.items()}
        if row.starts_from is not None:  # results of November 2026 and before had the first row's order of examples
            flags["order"] = "another"
        keys[row.name] = fingerprint([json.dumps([shared, flags], sort_keys=True)])[:10]
        models[row.name] = f"{keys[row.name]}, {row.end}"
    return [dataclasses.replace(row, key=keys[row.name]) for row in rows]


# ---- what a machine puts in ------------------------------------------------------------------------------------------


def values_of(given: Sequence[str]) -> dict[str, str]:
    """Parse ["NAME=VALUE", ...].

    Raises:
        InputError: one has no equals sign, or is the seed.
    """
    for setting in given:
        if "=" not in setting:
            raise InputError(f"--set {setting}: give NAME=VALUE, which stands for ${{NAME}} in the study.")
        if setting.startswith("SEED="):
            raise InputError(f"--set {setting}: ${{SEED}} is the seed of the run; give seeds in the study.")
    return dict(setting.split("=", 1) for setting in given)


def agent_of(model: str) -> str:
    """Return the agent of a short name (`poly` -> `polyagents:PolyEncoder`); any other name stays."""
    from polyagents.models.architecture import ARCHITECTURES  # imports torch, which --report does not need

    full = {kind.short_name: f"polyagents:{name}" for name, kind in ARCHITECTURES.items()}
    return full.get(model, model)


def command_line(row: Row, study: Study, values: Mapping[str, str], files: Mapping[str, str]) -> list[str]:
    """Return the flags of train_model for a trained row, without the model's file and the seed.

    Args:
        files: the model file of each row that it builds on.

    Raises:
        InputError: a placeholder has no value.
    """
    words = ["--eval-batchsize", str(study.evaluation.batchsize)]
    for name, value in ({"evaltask": study.task, "task": study.task} | row.flags).items():
        text = agent_of(str(value)) if name == "model" else str(value)
        for missing in PLACEHOLDER.findall(text):
            if missing not in values:
                raise InputError(f"Row {row.name!r} has {name}: {text}; give --set {missing}=VALUE.")
        text = PLACEHOLDER.sub(lambda found: values[found.group(1)], text)
        words += [f"--{name}", REFERENCE.sub(lambda found: files[found.group(1)], text)]
    return words
