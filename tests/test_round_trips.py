"""Every pair of a writer and a reader of texts in the tree: what is read is what was written.

Engines have theirs in tests/index/engines, databases of human evaluation in tests/human_eval, tokenizers in tests/text.
"""

import csv
import io
import json

import datasets
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from drawing import budget
from hypothesis import given
from hypothesis import strategies as st
from parlai.core.teachers import ParlAIDialogTeacher

from polyagents import InputError
from polyagents.commands.mine_negatives import check_texts, mined_line
from polyagents.files.context_lines import read_contexts
from polyagents.files.csv_rows import rows_of
from polyagents.human_eval.conversations import clean, make_conversation
from polyagents.human_eval.formats.conversation_files import read_file
from polyagents.human_eval.formats.parlai_format import write_conversations
from polyagents.human_eval.statistics.csv_files import as_csv
from polyagents.index.builder import CandidateEncoder
from polyagents.index.candidate_records import read_candidates
from polyagents.index.store import CandidateStore
from polyagents.index.texts import ListedTexts
from polyagents.mining import LabelledContext, Mined
from polyagents.tasks.hf.splits import open_split as open_hf
from polyagents.tasks.pairs import pair
from polyagents.tasks.streaming.order import Shards, Spot
from polyagents.tasks.table.splits import open_split as open_table
from polyagents.tasks.wiki_search import agents as wiki
from polyagents.tasks.wiki_search import example as wiki_example

PIECES = ["\\n", "\\t", "\\", "__PIPE__", "|", "\n", "\r\n", "\r", "\t", " ", "\0", "\x0b", "\x0c", "\x1c", "\x85"]
PIECES += [
    "\u2028",
    "\ufeff",
    "\u200b",
    '"',
    "'",
    ",",
    ";",
    "=1+1",
    "{",
    "}",
    '{"context": "a"}',
    "[]",
    "e\u0301",
    "\U0001f600",
]
PIECES += ["text:", "labels:", "episode_done:True", "null", "NaN", "1e5", "a", "b"]
TEXTS = st.lists(st.lists(st.sampled_from(PIECES), max_size=5).map("".join) | st.text(), min_size=1, max_size=5)


def encode(texts):
    return torch.tensor([[len(text.encode()) + i + 0.5 for i in range(4)] for text in texts])


def lines(texts):
    """Those that are lines: without white space or byte order marks around them, not empty, and each once."""
    found = [" ".join(text.replace("\ufeff", "").split("\n")).strip() for text in texts]
    return list(dict.fromkeys(filter(None, found)))


def candidates_file(texts, folder):
    (folder / "candidates.txt").write_text("\n".join(texts), encoding="utf-8", newline="\n")
    return read_candidates(str(folder / "candidates.txt"))


def store(texts, folder):
    (folder / "one.txt").write_text("the first one")
    store = CandidateStore.build(str(folder / "one.txt"), str(folder / "index"), CandidateEncoder("m", encode, "fp32"))
    store = store.append(ListedTexts(texts), encode)
    found = [place for text in texts if (place := store.find(text)) is not None]
    assert store.texts_of(found) == texts
    return list(store.texts())[1:]


def rows(texts):
    return [{"context": text, "label": f"{text}.", "candidates": [text, "x", f"{text}."]} for text in texts]


def table(name):
    def written(texts, folder):
        path, examples = folder / "table" / name, rows(texts)
        path.parent.mkdir()
        if path.suffix == ".parquet":
            datasets.Dataset.from_list(examples).to_parquet(path)
        elif path.suffix == ".jsonl":
            path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in examples), "utf-8", newline="\n")
        else:
            with open(path, "w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",")
                writer.writerow(examples[0])
                writer.writerows([*list(row.values())[:2], json.dumps(row["candidates"])] for row in examples)
        found = list(open_table(str(path.parent), "train"))
        for text, one in zip(texts, found, strict=True):
            assert (one["labels"], one["candidates"]) == ((f"{text}.",), (text, "x", f"{text}."))
        return [one["context"] for one in found]

    return written


def spreadsheet(texts):
    r"""A context's line ends are \n; a table refuses empty texts and NUL."""
    return [text.replace("\r\n", "\n").replace("\r", "\n") for text in texts]


def hf(kind):
    def written(texts, folder):
        path = folder / f"train.{kind}"
        columns = {
            "query": texts,
            "positive": [[text, f"{text}."] for text in texts],
            "negative": [f"{t}!" for t in texts],
        }
        if kind == "saved":
            datasets.Dataset.from_dict(columns).save_to_disk(path)
        else:
            kinds = {"query": pa.large_string(), "positive": pa.list_(pa.string()), "negative": pa.string()}
            pq.write_table(pa.table({name: pa.array(columns[name], kinds[name]) for name in columns}), path)
        found = list(open_hf(str(path), "train"))
        for text, one in zip(texts, found, strict=True):
            assert (one["labels"], one["negatives"]) == ([text, f"{text}."], [f"{text}!"])
        return [one["text"] for one in found]

    return written


def mined(name):
    def written(texts, folder):
        path = folder / name
        found = [Mined(LabelledContext(text, f"{text}."), [f"{text}!", "x"], 0.0, 0, 0) for text in texts]
        path.write_text("".join(mined_line(one, name.endswith("jsonl")) for one in found), "utf-8", newline="\n")
        if name.endswith("jsonl"):
            return [one["text"] for one in open_hf(str(path), "train")]
        opt = {"parlaidialogteacher_datafile": str(path), "task": "x", "datatype": "train:evalmode", "batchsize": 1}
        teacher = ParlAIDialogTeacher(opt)
        acts = [teacher.act() for _ in texts]
        for text, act in zip(texts, acts, strict=True):
            assert list(act["eval_labels"]) == [f"{text}."]
            assert list(act["label_candidates"]) == [f"{text}.", f"{text}!", "x"]
        return [act["text"] for act in acts]

    return written


def in_parlais_format(texts):
    """Those that ParlAI's text format can hold; the command refuses all others."""
    kept = []
    for text in texts:
        try:
            check_texts([text, f"{text}.", f"{text}!"])
        except InputError:
            continue
        kept.append(text)
    return kept


def contexts(texts, folder):
    given = "".join(json.dumps({"context": [text, "b"]}, ensure_ascii=False) + "\n" for text in texts)
    (folder / "contexts.jsonl").write_text(given, encoding="utf-8")
    return [context.removesuffix("\nb") for context in read_contexts(str(folder / "contexts.jsonl"))]


def conversations(texts, folder):
    models = {"a": "human", "b": "m"}
    given = [make_conversation([("a", text), ("b", "x")], models, [text]) for text in texts]
    write_conversations(str(folder / "log.jsonl"), given)
    found = read_file(str(folder / "log.jsonl"))
    assert not found.malformed
    assert [one.context for one in found.conversations] == [one.context for one in given]
    return [one.turns[0].text for one in found.conversations]


def exported_csv(texts, folder):
    raw = as_csv(["text", "number"], [[text, 1] for text in texts])
    (header, *found) = rows_of(io.BytesIO(raw), "F")
    assert header == ["text", "number"]
    if not any("\r" in text or "\0" in text for text in texts):  # which pandas' reader changes
        frame = pd.read_csv(io.BytesIO(raw), dtype=str, keep_default_na=False)
        assert [text.removeprefix("'") for text in frame["text"]] == [row[0].removeprefix("'") for row in found]
    return [row[0].removeprefix("'") for row in found]


def shard(make):
    def written(texts, folder):
        path = folder / "shard.jsonl"
        path.write_bytes(b"".join(make(number, text) for number, text in enumerate(texts)))
        shards = Shards([(str(path), len(texts))])
        return [shards.example(Spot(0, place))["text"] for place in range(len(texts))]

    return written


def pair_line(number, text):
    return pair.example_of(pair.line_of(pair.Pair("t", str(number), text, "x")))


def wiki_line(number, text):
    return wiki_example.line_of(wiki_example.WikiExample(str(number), "t", text, "x"), 0).split(b"\t", 1)[1]


def pool(texts, folder):
    (folder / wiki.POOL).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8", newline="\n")
    return wiki.first_of_pool(str(folder), len(texts), was_asked=True)


def filled(texts):
    """Those that a table takes."""
    return [text for text in texts if text.strip() and "\0" not in text]


EVERY, NO_BLANKS = list, lambda texts: [text for text in texts if text.strip()]
PAIRS = {  # the texts that are given; what comes back of them, instead of themselves
    "candidates file": (lines, candidates_file, EVERY),
    "store": (lambda texts: list(dict.fromkeys(texts)), store, EVERY),
    "table.csv": (filled, table("train.csv"), spreadsheet),
    "table.tsv": (filled, table("train.tsv"), spreadsheet),
    "table.jsonl": (filled, table("train.jsonl"), spreadsheet),
    "table.parquet": (filled, table("train.parquet"), spreadsheet),
    "hf saved": (NO_BLANKS, hf("saved"), EVERY),
    "hf parquet": (NO_BLANKS, hf("parquet"), EVERY),
    "mined, ParlAI's format": (in_parlais_format, mined("mined.txt"), EVERY),
    "mined, JSON": (NO_BLANKS, mined("mined.jsonl"), EVERY),
    "rank's input": (EVERY, contexts, EVERY),
    "conversations": (EVERY, conversations, lambda texts: list(map(clean, texts))),
    "exported CSV": (EVERY, exported_csv, EVERY),
    "pairs": (EVERY, shard(pair_line), EVERY),
    "wiki search": (EVERY, shard(wiki_line), EVERY),
    "wiki search's pool": (lines, pool, EVERY),
}


@pytest.mark.parametrize("name", PAIRS)
def test_texts_come_back(name, tmp_path_factory):
    usable, through, expected = PAIRS[name]

    @budget(3 if name == "store" else 10)
    @given(TEXTS)
    def check(drawn):
        if texts := usable(drawn):
            assert through(texts, tmp_path_factory.mktemp("trip")) == expected(texts)

    check()
