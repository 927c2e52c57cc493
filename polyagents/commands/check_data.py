"""`polyagents check_data`: the contents of a table of examples, and problems that would spoil training."""

import argparse
import math
import os
import shlex
import textwrap
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser, token_limit
from polyagents.console import Bar, in_columns, number_of
from polyagents.errors import InputError

WORDS = "words"
WORDS_PER_TOKEN = 0.75  # of English in BERT's vocabulary, about; a file of one's own is measured with --backbone


def parser() -> argparse.ArgumentParser:
    """Describe the flags: a table, and how a model would cut its texts."""
    parser = CommandParser(
        "polyagents check_data",
        "Show the contents of a table of examples (columns context, label and, optionally, candidates), and warn of "
        "problems that would spoil training. Train on the same file or folder with "
        "-t polyagents.tasks.table --table-path.",
    )
    parser.add_argument("table", help="a .csv, .tsv, .jsonl or .parquet file, or a folder with train, valid and test")
    parser.add_argument(
        "--backbone", help="measure lengths in tokens of this folder or hub name; by default words are counted"
    )
    parser.add_argument("--text-truncate", type=token_limit, default=360, help="context tokens that a model reads")
    parser.add_argument("--label-truncate", type=token_limit, default=72, help="label tokens that a model reads")
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Read all splits, print their counts and the warnings; an InputError says why the table cannot be trained on."""
    from polyagents.tasks.table.checking import Split, rows_of, warnings_of
    from polyagents.tasks.table.splits import KINDS, is_divided, open_split, splits_of
    from polyagents.training_loop.budget import LARGEST_BATCH, fitting_batch, fitting_epochs

    path = opt["table"]
    if not os.path.exists(path):
        raise InputError(f"There is no file or folder {path}; give {KINDS}.")
    limits, unit = (opt["text_truncate"], opt["label_truncate"]), "tokens"
    if opt["backbone"] is None:
        limits, unit = (int(limits[0] * WORDS_PER_TOKEN), int(limits[1] * WORDS_PER_TOKEN)), WORDS
    else:
        from polyagents.models.model_options import SCRATCH
        from polyagents.text.pretrained import load_tokenizer

        if opt["backbone"].startswith(SCRATCH):
            raise InputError(f"--backbone {opt['backbone']} learns its vocabulary in training; omit it to count words.")
        tokenizer = load_tokenizer(opt["backbone"])

    def length(text: str) -> int:
        return len(text.split()) if opt["backbone"] is None else len(tokenizer.encode([text])[0])

    splits = {}
    for name in splits_of(path):
        table = open_split(path, name)
        splits[name] = Split.of(Bar(table, total=sum(table.sizes), desc=name, unit=" examples", leave=False), length)
    if "train" not in splits:
        raise InputError(f"{path} has no training examples; name one of its files train.")
    if not splits["train"].labels:
        raise InputError(f"{path} has no label in train, so that there is nothing to learn; fill the column label.")
    divided = "; one file: a tenth of the contexts each is valid and test, by a checksum" if is_divided(path) else ""
    print(f"{path}: {number_of(sum(one.examples for one in splits.values()), 'example')}{divided}\n")
    print("\n".join(in_columns(list(rows_of(splits)), numbers=True)))
    hint = " (--backbone counts tokens)" if unit == WORDS else ""
    print(f"\nLengths are in {unit}{hint}: median / 95 % / longest.")
    warnings = list(warnings_of(splits, limits, unit))
    for warning in warnings:
        print("\n" + textwrap.fill(f"Warning: {warning}", 80))
    if not warnings:
        print("\nNothing to warn of.")
    examples = splits["train"].examples
    batch = fitting_batch(LARGEST_BATCH, examples)
    epochs = fitting_epochs(examples, batch)
    print(
        f"\nBy default, train_model makes batches of {batch} and {epochs:.0f} passes: "
        f"{number_of(int(math.ceil(examples / batch) * epochs), 'update')}."
    )
    command = ["polyagents", "train_model", "-m", "poly", "-t", "polyagents.tasks.table", "--table-path", path]
    print(f"Train: {shlex.join([*command, '-mf', 'runs/mine', '--backbone', opt['backbone'] or 'zoo:minilm'])}")
