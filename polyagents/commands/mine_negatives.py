"""`polyagents mine_negatives`: a training set with hard negatives, the candidates that a trained model confuses."""

import argparse
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from polyagents.arguments import Real, positive_int
from polyagents.commands.task_parser import TaskCommandParser
from polyagents.console import command, number_of, say
from polyagents.errors import InputError
from polyagents.files.atomic import atomic_write
from polyagents.files.hashing import utf8
from polyagents.files.json_files import json_number
from polyagents.files.own_folder import check_out_file, files_read

if TYPE_CHECKING:
    from polyagents.mining import Counts, Mined


def parser() -> argparse.ArgumentParser:
    """Declare the flags: a model, a task with its own flags, a file to write."""
    parser = TaskCommandParser(
        "polyagents mine_negatives",
        "Write the training examples of a task, each with the candidates that a trained model ranks just below the "
        "label, to train on with --candidates inline.",
        task_required=True,
    )
    # Under another name than model_file, which would bring all flags of the model.
    parser.add_argument("-mf", "--model-file", dest="miner", required=True, help="a trained bi- or poly-encoder")
    parser.add_argument(
        "--outfile",
        required=True,
        help="the file to write, in ParlAI's text format, or as JSON lines if it ends in .jsonl; the candidates' "
        "vectors go to OUTFILE.index",
    )
    parser.add_argument("--negatives", type=positive_int, default=15, help="how many negatives each example gets")
    parser.add_argument(
        "--margin",
        type=Real("a part of a score: a number from 0 to 1 (excluded)", 0, 1),
        default=0.05,
        help="how far a negative must score below the label, as a part of the label's score: a text that scores "
        "higher may be another good answer",
    )
    parser.add_argument(
        "--candidates-file",
        help="candidates to take negatives from, lines or with ids, as for rank; by default the labels of the task",
    )
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Read, search, write; then report the result."""
    if not opt["datatype"].startswith("train"):
        raise InputError(f"--datatype {opt['datatype']}: mine_negatives reads training examples only; remove it.")
    read = (opt["miner"], opt["candidates_file"], *files_read(opt))
    check_out_file("--outfile", opt["outfile"], (".jsonl", ".txt"), read)

    from polyagents.index.builder import BLOCK  # these import torch: errors in flags are reported before
    from polyagents.index.candidate_records import has_ids, read_candidates
    from polyagents.index.texts import FileTexts, ListedTexts, Texts
    from polyagents.mining import Counts, labelled_contexts, mine, pool_in, searchable
    from polyagents.ranker import Ranker

    model = searchable(Ranker.load(opt["miner"]).model)
    file = opt["candidates_file"]
    given = None
    if file:  # errors in it are reported before the task is read
        given = ListedTexts(read_candidates(file)) if has_ids(file) else FileTexts(file)
    pairs, skipped = labelled_contexts(read_whole_turns(opt))
    if not pairs:
        raise InputError(f"--task {opt['task']} has no training example with text and label; give another task.")
    texts: Texts = given or ListedTexts([pair.label for pair in pairs])
    as_json = is_json_lines(opt["outfile"])
    if not as_json:
        check_texts(text for pair in pairs for text in pair)
        check_texts(text for start in range(0, len(texts), BLOCK) for text in texts.part(start, start + BLOCK))
    pool = pool_in(f"{opt['outfile']}.index", texts, model)
    counts = Counts()
    with atomic_write(opt["outfile"]) as temporary, open(temporary, "w", encoding="utf-8", newline="\n") as out:
        for mined in mine(pairs, model, pool, opt["negatives"], opt["margin"]):
            out.write(mined_line(mined, as_json))
            counts.add(mined, opt["negatives"])
    report_mined(opt, counts, skipped, len(pool))


def read_whole_turns(opt: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield text, with all turns before it, and labels of every training example, in order.

    The turns are joined as by ParlAI's `--mutators flatten`, which stops at a turn without text or label.
    """
    from parlai.core.opt import Opt  # imports ParlAI: errors in flags are reported before

    from polyagents.parlai_patches.task_messages import task_messages

    turns: list[str] = []
    for act in task_messages(Opt({**opt, "datatype": "train:evalmode"})):
        text, labels = act.get("text") or "", list(act.get("labels") or act.get("eval_labels") or ())
        turns += [text] if text else []
        yield "\n".join(turns) if text else "", labels
        turns += labels[:1]
        if act.get("episode_done"):
            turns = []


def check_texts(texts: Iterable[str]) -> None:
    """Refuse, with an InputError, texts that ParlAI's format changes: there a typed backslash and n are a line end."""
    from parlai.utils.misc import msg_to_str, str_to_msg  # imports ParlAI: errors in flags are reported before

    for text in texts:
        if str_to_msg(msg_to_str({"text": text}))["text"] != text:
            raise InputError(
                f"ParlAI's text format cannot hold {text!r:.80}: it reads a typed \\n, \\t or __PIPE__ as a line end, "
                f"a tab or |. Give an --outfile that ends in .jsonl, which keeps every text."
            )


def mined_line(mined: "Mined", as_json: bool = False) -> str:
    """Format one line of ParlAI's text format, or of JSON as -t polyagents.tasks.hf reads it."""
    from parlai.utils.misc import msg_to_str  # imports ParlAI: errors in flags are reported before

    pair = mined.pair
    if as_json:
        row = {"query": pair.text, "positive": pair.label, "negatives": mined.negatives}
        return utf8(f"{json.dumps(row, ensure_ascii=False)}\n").decode()
    candidates = [pair.label, *mined.negatives]
    message = {"text": pair.text, "labels": [pair.label], "label_candidates": candidates, "episode_done": True}
    line: str = msg_to_str(message)
    return utf8(f"{line}\n").decode()


def is_json_lines(outfile: str) -> bool:
    """Whether what was mined is written as lines of JSON, not as ParlAI's text format."""
    return outfile.lower().endswith(".jsonl")


def report_mined(opt: Mapping[str, Any], counts: "Counts", skipped: int, candidates: int) -> None:
    """Print a JSON line with the counts; print a summary, and what to do next, to standard error."""
    means = {name: getattr(counts, name) / counts.examples for name in ("negatives", "gap", "dropped")}
    line: dict[str, float | None] = {"examples": counts.examples, "skipped": skipped, "candidates": candidates}
    line |= {name: json_number(round(mean, 4)) for name, mean in means.items()}
    line |= {"random": counts.random, "short": counts.short}
    if counts.short:
        say(
            f"Fewer than {opt['negatives']} negatives for {number_of(counts.short, 'example')}: too few "
            f"of {number_of(candidates, 'candidate')} are wrong answers."
        )
    without = f" ({skipped:,} without text or label skipped)" if skipped else ""
    say(
        f"{opt['outfile']}: {number_of(counts.examples, 'example')}{without}, {means['negatives']:.1f} negatives each, "
        f"which score {means['gap']:.4g} below the label on average. The margin dropped {means['dropped']:.1f} "
        f"candidates an example; negatives drawn at random: {counts.random:,}."
    )
    second = "2" if "fromfile" in opt["task"] else ""  # the task's own flags are taken
    task = (f"fromfile:parlaiformat{second}", f"--fromfile-datapath{second}")
    if is_json_lines(opt["outfile"]):
        task = ("polyagents.tasks.hf", "--hf-dataset")
    train = command("train_model", "-t", *task, opt["outfile"], "--candidates", "inline", "-et", opt["task"])
    say(f"Train on it: {train} (and the flags of that task)")
    print(json.dumps(line))
