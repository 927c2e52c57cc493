"""`polyagents build_vocabulary`: the BPE vocabulary of a task or of text files, as a Hugging Face tokenizer."""

import argparse
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polyagents.arguments import positive_int
from polyagents.commands.task_parser import TaskCommandParser
from polyagents.console import say
from polyagents.errors import InputError
from polyagents.files import lines
from polyagents.files.own_folder import refuse_foreign

PAPER = 54_940  # entries (v1 4.5)


def parser() -> argparse.ArgumentParser:
    """Declare the flags: files or a task, a size, a folder."""
    parser = TaskCommandParser(
        "polyagents build_vocabulary",
        "Learn a lower-cased BPE vocabulary from a task or from text files, for --backbone scratch:mini --vocabulary "
        "FOLDER.",
        task_required=False,
    )
    parser.add_argument("files", nargs="*", help="UTF-8 text files; or give --task")
    parser.add_argument(
        "--vocabulary-size",
        type=positive_int,
        default=PAPER,
        help="entries, special tokens included; by default the paper's. A small text has fewer",
    )
    parser.add_argument("--out", required=True, help="folder of the tokenizer; created if it is missing")
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Read, learn, write; then print the result."""
    files, size, folder = opt["files"], opt["vocabulary_size"], opt["out"]
    if bool(files) == bool(opt["task"]):
        raise InputError("build_vocabulary needs --out, and text files or --task (one of the two).")
    # Heavy imports: errors in flags are reported before.
    from polyagents.text.vocabulary import LARGEST, SMALLEST, SPECIAL, learn_bpe, save_vocabulary

    if size < SMALLEST:
        raise InputError(
            f"--vocabulary-size {size} is too small: {SMALLEST} entries are the 256 bytes and {' '.join(SPECIAL)}."
        )
    if size > LARGEST:
        raise InputError(f"--vocabulary-size {size} is too large: a vocabulary has at most {LARGEST:,} entries.")
    if os.path.exists(os.path.join(folder, "tokenizer.json")):  # a backbone may be trained with it: it is not replaced
        raise InputError(f"{folder} holds a tokenizer already; give another --out.")
    refuse_foreign(folder, "build_vocabulary", "--out")
    tokenizer = learn_bpe(lines_of_files(files) if files else texts_of_task(opt), size)
    found = tokenizer.get_vocab_size()
    if found < size:
        say(f"The vocabulary has {found:,} entries instead of {size:,}: no other pair is in the text twice.")
    save_vocabulary(tokenizer, folder)
    say(f"{folder}: {found:,} entries. Train: --backbone scratch:mini --vocabulary {folder}")
    print(json.dumps({"entries": found}))


def lines_of_files(files: Sequence[str]) -> Iterator[str]:
    """Yield the lines of text files, one file after the other; an InputError says if one is not text."""
    for path in files:
        try:
            with lines.opened(path) as file:
                yield from lines.text_lines(file, path, keep_ends=True)
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}); give text files.") from error


def texts_of_task(opt: Mapping[str, Any]) -> Iterator[str]:
    """Yield texts and labels of a task's training set."""
    from parlai.core.opt import Opt  # files need no ParlAI

    from polyagents.parlai_patches.task_messages import task_messages

    for act in task_messages(Opt({**opt, "datatype": "train:evalmode"})):
        yield act.get("text") or ""
        yield from act.get("labels") or act.get("eval_labels") or ()
