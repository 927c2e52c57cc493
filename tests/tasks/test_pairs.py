"""`polyagents build_pairs` and `-t polyagents.tasks.pairs`: what becomes of files, each pair once, and never half."""

import bz2
import gzip
import json
import os
import random
import signal
from pathlib import Path

import forks
import pytest
from commands import KINDS, TINY, own, run, seen_by_two_processes
from parlai.core.params import ParlaiParser
from parlai.core.teachers import create_task_agent_from_taskname

from polyagents import InputError
from polyagents.errors import NoTestSplit
from polyagents.tasks.pairs import build_pairs as building
from polyagents.tasks.pairs import portions
from polyagents.tasks.pairs.held_out import HeldOut
from polyagents.tasks.streaming import runs, source
from polyagents.tasks.streaming.zstandard import zstd

TASK = "polyagents.tasks.pairs"
LONG_WINDOW = {zstd.CompressionParameter.window_log: 30, zstd.CompressionParameter.enable_long_distance_matching: 1}


@pytest.fixture
def small(monkeypatch):
    """Runs, portions, shards and pieces so small that a small dump has many of them."""
    monkeypatch.setattr(source, "CHUNK", 700)
    monkeypatch.setattr(runs, "RUN_BYTES", 3_000)
    monkeypatch.setattr(runs, "OPEN", 3)
    monkeypatch.setattr(portions, "PORTION_BYTES", 1_000)
    monkeypatch.setattr(building, "SHARD", 50)


def build(given, folder, *arguments):
    """Run the command; the manifest."""
    own("build_pairs", "--source", given, "--outdir", folder, *arguments)
    return json.loads((folder / "manifest.json").read_text())


def contents(folder):
    """Name and content of each file of data."""
    return {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}


def pairs(folder, *splits):
    """(text, label) of each example."""
    files = [path for split in splits or ("train", "valid", "test") for path in sorted(folder.glob(f"{split}*.jsonl"))]
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    return [(example["text"], example["label"]) for example in found]


def comment(id, parent, body="some words of it", thread="t3_a", **others):
    """A line of a dump."""
    fields = {"id": id, "parent_id": parent, "link_id": thread, "author": "someone", "body": body, "score": 1}
    return json.dumps(fields | {"subreddit": "all", **others})


def dump(threads=20, size=12, **others):
    """Lines of a dump, in the order of time: threads whose comments answer a random earlier one."""
    rng, lines = random.Random(3), []
    ids = {f"t3_{thread}": [] for thread in range(threads)}
    for number in range(threads * size):
        thread = rng.choice(list(ids))
        parent = "t1_" + rng.choice(ids[thread]) if ids[thread] and rng.random() < 0.7 else thread
        ids[thread].append(f"c{number}")
        lines.append(comment(f"c{number}", parent, f"words {number} of {thread}", thread, **others))
    return lines


def expected_pairs(lines):
    """Slowly and obviously: every comment that has a parent, with all above it."""
    known = {fields["id"]: fields for fields in map(json.loads, lines)}
    found = []
    for fields in known.values():
        turns, above = [], known.get(fields["parent_id"].removeprefix("t1_"))
        while above is not None:
            turns.insert(0, above["body"])
            above = known.get(above["parent_id"].removeprefix("t1_"))
        if 0 < len(turns) < 7:
            found.append(("\n".join(turns), fields["body"]))
    return sorted(found)


# ---- what becomes of a file ------------------------------------------------------------------------------------------


def made_of(lines, tmp_path, name="source.jsonl", *arguments):
    """Pairs of a file of lines, and the counts."""
    (tmp_path / name).write_text("\n".join(lines) + "\n")
    counts = build(tmp_path / name, tmp_path / "data", *arguments)["counts"]
    return sorted(pairs(tmp_path / "data")), counts


def test_json_lines_of_pairs(tmp_path):
    lines = [
        json.dumps({"context": ["hi", " how  are\nyou ?"], "label": "fine,\nthanks"}),
        json.dumps({"context": "one\ntwo\n\n", "label": "three"}),
        json.dumps({"context": [], "label": "of nothing"}),
        json.dumps({"context": "hi", "label": 3}),
        "",
        '{"context": "cut of',
    ]
    found, counts = made_of(lines, tmp_path)
    assert found == [("hi\nhow are you ?", "fine, thanks"), ("one\ntwo", "three")]
    assert counts == {"pairs": 2, "empty": 1, "malformed_lines": 2}


def test_plain_text_is_sentences_and_documents(tmp_path):
    lines = ["One.", "Two.", "Three.", "", "", "Uno.", "Dos. ", "", "Alone."]
    found, _ = made_of(lines, tmp_path, "book.txt")
    assert found == [("One.", "Two."), ("Two.", "Three."), ("Uno.", "Dos.")]


def test_contexts_of_several_lines(tmp_path):
    found, _ = made_of(["1", "2", "3", "4", "", "5", "6"], tmp_path, "talk.txt", "--context-lines", 2)
    assert found == [("1", "2"), ("1\n2", "3"), ("2\n3", "4"), ("5", "6")]


@pytest.mark.parametrize("first", ["", "id:hello\t"])  # convert_to_parlai --ignore-fields '' writes it
def test_parlais_text_format(first, tmp_path):
    lines = [
        f"{first}text:hi\tlabels:hello|hey",
        f"{first}text:how are you?\\nwell?\tlabels:fine\tepisode_done:True",
        f"{first}text:bye\tlabels:see you\tepisode_done:True",
        "no field",
    ]
    found, counts = made_of(lines, tmp_path, "task.txt")
    assert found == [("bye", "see you"), ("hi", "hello"), ("hi\nhello\nhow are you?\nwell?", "fine")]
    assert counts == {"pairs": 3, "malformed_lines": 1}


@pytest.mark.parametrize(
    ("body", "author", "reason"),
    [
        ("[deleted]", "[deleted]", "deleted"),
        ("[removed]", "someone", "deleted"),
        ("I am here to help", "AutoModerator", "bots"),
        ("I am here to help", "haiku_bot", "bots"),
        ("I am here to help", "RemindMeBot", "bots"),
        ("I am here to help", "abbot", None),
        ("yes", "someone", "short"),
        (" four\n", "someone", "short"),
        ("a" * 2049, "someone", "long_without_spaces"),
        ("a" * 2048, "someone", None),
        ("a" * 2048 + " b", "someone", None),
        ("look: https://example.com/", "someone", "urls"),
        ("look at WWW.example.com", "someone", "urls"),
        ("“quoted” it is", "someone", "non_ascii_start"),
        ("it is “quoted”", "someone", None),
    ],
)
def test_filters_take_a_comment_and_all_that_answers_it(body, author, reason, tmp_path):
    lines = [
        comment("a", "t3_a"),
        comment("b", "t1_a", body, author=author),
        comment("c", "t1_b", "an answer"),
        comment("d", "t1_a", "another answer"),
    ]
    found, counts = made_of(lines, tmp_path)
    if reason is None:
        assert len(found) == 3 and counts == {"comments": 4, "pairs": 3, "answers_to_posts": 1}
    else:
        assert found == [("some words of it", "another answer")]
        assert counts == {"comments": 3, "pairs": 1, "answers_to_posts": 1, "without_parent": 1, reason: 1}


def test_depth_entities_repetitions_and_lines_that_are_none(tmp_path):
    chain = [comment(f"{n}", f"t1_{n - 1}" if n else "t3_a", f"comment\n&gt; {n}") for n in range(9)]
    wrong = ["{", "[1]", '{"id": "x"}', comment("z", None), comment(7, "t3_a")]
    found, counts = made_of([*chain, chain[3], *wrong], tmp_path)
    assert len(found) == 6 and max(found)[0].count("\n") == 5
    assert ("comment > 0", "comment > 1") in found
    assert counts == {"comments": 10, "pairs": 6, "answers_to_posts": 1, "too_deep": 2, "malformed_lines": 5}


def test_a_thread_that_answers_itself_ends(tmp_path):
    lines = [comment("a", "t1_b"), comment("b", "t1_a"), comment("c", "t1_d"), comment("d", "t3_a")]
    found, counts = made_of(lines, tmp_path)
    assert len(found) == 1 and counts["too_deep"] == 2


@pytest.mark.parametrize("packed", ["jsonl", "zst", "frames", "gz", "bz2"])
def test_dumps_however_they_are_packed_and_divided(packed, small, tmp_path):
    lines = dump()
    text, half = "\n".join(lines).encode() + b"\n", "\n".join(lines[:99]).encode() + b"\n"
    name, content = {
        "jsonl": ("RC_2016-01", text),
        "zst": ("RC_2016-01.zst", zstd.compress(text, options=LONG_WINDOW)),
        "frames": ("RC_2016-01.zst", zstd.compress(half) + zstd.compress(text.removeprefix(half))),
        "gz": ("a.ndjson.gz", gzip.compress(text)),
        "bz2": ("RC_2016-01.bz2", bz2.compress(text)),
    }[packed]
    (tmp_path / name).write_bytes(content)
    counts = build(tmp_path / name, tmp_path / "data")["counts"]
    assert sorted(pairs(tmp_path / "data")) == expected_pairs(lines)
    assert counts["comments"] == 240 == sum(counts.values()) - counts["comments"]
    assert not (tmp_path / "data" / building.PARTS).exists()


def test_threads_that_go_on_in_the_next_file(small, tmp_path):
    lines = dump()
    (tmp_path / "months").mkdir()
    (tmp_path / "months" / "README.md").write_text("no data")
    for month in range(3):
        (tmp_path / "months" / f"RC_2016-0{month}.zst").write_bytes(
            zstd.compress("\n".join(lines[month::3]).encode() + b"\n")
        )
    build(tmp_path / "months", tmp_path / "data")
    assert sorted(pairs(tmp_path / "data")) == expected_pairs(lines)


def test_a_folder_is_read_whatever_the_case_of_its_names(tmp_path):
    (tmp_path / "talk").mkdir()
    (tmp_path / "talk" / "A.TXT").write_text("one\ntwo\n")
    (tmp_path / "talk" / "b.Jsonl").write_text('{"context": "hi", "label": "ho"}\n')
    (tmp_path / "talk" / "C.TXT.GZ").write_bytes(gzip.compress(b"three\nfour\n"))
    assert build(tmp_path / "talk", tmp_path / "data")["counts"] == {"pairs": 3}
    assert sorted(pairs(tmp_path / "data")) == [("hi", "ho"), ("one", "two"), ("three", "four")]


def test_dumps_with_the_named_fields_alone(tmp_path):
    lines = [{name: value for name, value in json.loads(line).items() if name != "link_id"} for line in dump()]
    found, _ = made_of(map(json.dumps, lines), tmp_path)
    assert found == expected_pairs(dump())


# ---- the data --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Finished data of a small dump, in several shards."""
    folder = tmp_path_factory.mktemp("pairs")
    (folder / "RC_2016-01").write_text("\n".join(dump()) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(building, "SHARD", 25)
        build(folder / "RC_2016-01", folder / "data")
    return folder / "data"


def test_no_thread_is_in_two_splits(data):
    made = json.loads((data / "manifest.json").read_text())
    threads = {split: {label.split()[-1] for _, label in pairs(data, split)} for split in ("train", "valid", "test")}
    assert len(set.union(*threads.values())) == sum(map(len, threads.values()))
    counts = {split: len(pairs(data, split)) for split in threads}
    assert counts == made["examples"] and sum(counts.values()) == made["counts"]["pairs"]
    assert all(counts["train"] / 20 < counts[split] < counts["train"] / 2 for split in ("valid", "test"))


def test_sizes_that_are_given(data, tmp_path):
    made = build(data.parent / "RC_2016-01", tmp_path / "1", "--valid-examples", 3)
    assert 3 <= made["examples"]["valid"] < 20 and 3 <= made["examples"]["test"] < 20


def test_the_same_source_gives_the_same_bytes(data, small, tmp_path):
    build(data.parent / "RC_2016-01", tmp_path / "1")
    joined = [b"".join(content for _, content in sorted(contents(folder).items())) for folder in (data, tmp_path / "1")]
    assert joined[0] == joined[1] and len(contents(data)) != len(contents(tmp_path / "1"))


def test_held_out_threads_do_not_depend_on_the_order_of_the_pairs():
    rng = random.Random(0)
    sizes = {f"{rng.getrandbits(64):016x}".encode(): rng.randrange(1, 9) for _ in range(300)}
    stream = [thread for thread, size in sizes.items() for _ in range(size)]
    cuts = set()
    for _ in range(5):
        rng.shuffle(stream)
        threads = HeldOut(60)
        for thread in stream:
            threads.add(thread)
        cuts.add(threads.cut())
        assert len(threads._sizes) <= 60
    (cut,) = cuts
    first = sorted(sizes)
    held = cut.valid | cut.test
    assert held == set(first[: len(held)]) and not cut.valid & cut.test
    assert all(26 <= sum(sizes[thread] for thread in threads) < 39 for threads in (cut.valid, cut.test))


def test_one_document_is_for_training(tmp_path, capsys):
    made = build_text([str(number) for number in range(99)], tmp_path)
    assert made["examples"] == {"train": 98, "valid": 0, "test": 0}
    assert "A blank line in plain text begins a new document" in capsys.readouterr().err
    with pytest.raises(NoTestSplit, match="no pairs in test"):
        teacher(tmp_path / "data", "-dt", "test")
    with pytest.raises(InputError, match="no pairs in valid"):
        teacher(tmp_path / "data", "-dt", "valid")


def build_text(lines, tmp_path):
    """Data of plain text."""
    (tmp_path / "book.txt").write_text("\n".join(lines))
    return build(tmp_path / "book.txt", tmp_path / "data")


# ---- builds that are stopped, and files that are damaged -------------------------------------------------------------

KILLED = """
import os, signal
from polyagents.__main__ import main
from polyagents.tasks.pairs import build_pairs as build, portions
from polyagents.tasks.streaming import runs
runs.RUN_BYTES, portions.PORTION_BYTES, build.SHARD = 3_000, 2_000, 50
steps = iter(range({steps}))
def then_die(do):
    def done(*given):
        found = do(*given)
        return found if next(steps, None) is not None else os.kill(os.getpid(), signal.SIGKILL)
    return done
build.read_portion = then_die(build.read_portion)
build.pair_comments, build.held_out = then_die(build.pair_comments), then_die(build.held_out)
build.write_shards = then_die(build.write_shards)
main()
"""


@pytest.mark.parametrize("steps", [2, pytest.param(5, marks=pytest.mark.release)])
def test_a_killed_build_goes_on(steps, small, tmp_path, monkeypatch):
    (tmp_path / "months").mkdir()
    for month in range(4):
        (tmp_path / "months" / f"RC_2016-0{month}").write_text("\n".join(dump(size=3)[month::4]) + "\n")
    flags = ["build_pairs", "--source", tmp_path / "months", "--outdir", tmp_path / "1"]
    done = forks.run(KILLED.format(steps=steps), *flags)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert not (tmp_path / "1" / "manifest.json").exists()
    read = []
    texts = portions.records
    monkeypatch.setattr(portions, "records", lambda *given: read.append(given[1].name) or texts(*given))
    build(tmp_path / "months", tmp_path / "1")
    assert len(read) == max(3 - steps, 0)
    build(tmp_path / "months", tmp_path / "2")
    assert contents(tmp_path / "1") == contents(tmp_path / "2")
    assert sorted(path.name for path in (tmp_path / "1").iterdir() if path.suffix != ".jsonl") == [
        ".lock",
        "manifest.json",
    ]


def test_data_that_lie_below_their_source_are_no_source(tmp_path):
    """`--datapath` may be where the texts are; what is made there would be read, and made anew, each time."""
    (tmp_path / "talk.txt").write_text("\n".join(f"line {i}" for i in range(40)))
    found = [acts(teacher(tmp_path, "-dp", str(tmp_path), "-dt", "train:ordered"), 20) for _ in range(2)]
    assert found[0] == found[1] and len(os.listdir(tmp_path / "pairs")) == 1


def test_a_stopped_build_with_other_flags_begins_anew(tmp_path, monkeypatch):
    (tmp_path / "talk.txt").write_text("\n".join("abcdef"))

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(building, "held_out", stopped)
        with pytest.raises(KeyboardInterrupt):
            build(tmp_path / "talk.txt", tmp_path / "data")
    build(tmp_path / "talk.txt", tmp_path / "data", "--context-lines", 5)
    assert ("a\nb\nc\nd\ne", "f") in pairs(tmp_path / "data")


@pytest.fixture
def refused(ends_with_2):
    """The sentence that `polyagents build_pairs` says last as it ends with code 2."""
    return lambda *arguments: ends_with_2("build_pairs", *arguments)[-1]


def test_a_dump_that_was_cut_off_is_taken_as_far_as_it_goes(small, tmp_path, capsys):
    lines = dump(100)
    whole = zstd.compress("\n".join(lines[:600]).encode() + b"\n") + zstd.compress("\n".join(lines[600:]).encode())
    (tmp_path / "RC_1.zst").write_bytes(whole[:-900])
    counts = build(tmp_path / "RC_1.zst", tmp_path / "data")["counts"]
    assert counts["files_cut_off"] == 1 and 600 <= counts["comments"] < 1200
    said = capsys.readouterr().err
    assert f"RC_1.zst ends in the middle, at byte {len(whole) - 900:,}: what is before it, to line" in said
    assert sorted(pairs(tmp_path / "data")) == expected_pairs(lines[: counts["comments"]])


def test_a_dump_that_is_damaged_keeps_what_was_read_before(small, tmp_path, refused):
    (tmp_path / "months").mkdir()
    lines = dump()
    files = [tmp_path / "months" / f"RC_2016-0{month}.zst" for month in range(2)]
    whole = [zstd.compress("\n".join(lines[month::2]).encode() + b"\n") for month in range(2)]
    files[0].write_bytes(whole[0])
    files[1].write_bytes(whole[1][:800] + b"\0" * 90 + whole[1][890:])
    said = refused("--source", tmp_path / "months", "--outdir", tmp_path / "1")
    assert f"{files[1]} is damaged before byte" in said
    assert f"the data before it are kept in {tmp_path / '1'}" in said
    assert not (tmp_path / "1" / "manifest.json").exists() and list((tmp_path / "1" / building.PARTS).glob("*.json"))
    files[1].write_bytes(whole[1])
    build(tmp_path / "months", tmp_path / "1")
    assert sorted(pairs(tmp_path / "1")) == expected_pairs(lines)


def test_malformed_lines_are_counted_and_the_first_is_named(tmp_path, capsys):
    lines = [json.dumps({"context": f"hi {n}", "label": "ho"}) for n in range(4)]
    made_of([*lines[:2], "{no", *lines[2:], "{no"], tmp_path)
    assert f"Skipped: 2 lines that could not be read (the first: {tmp_path}/source.jsonl, line 3)" in (
        capsys.readouterr().err
    )


def test_text_that_is_not_utf_8_is_named_once(tmp_path, capsys):
    (tmp_path / "a.txt").write_bytes(b"one \xef\xbf\xbd\ntwo\nthree \xff\nfour \xff\n")
    build(tmp_path / "a.txt", tmp_path / "out")
    said = capsys.readouterr().err
    assert said.count("not in UTF-8") == 1 and "a.txt, line 3: " in said


def test_sources_and_folders_that_cannot_be_used(tmp_path, refused):
    (tmp_path / "empty").mkdir()
    (tmp_path / "no.jsonl").write_text("{\n[]\n")
    (tmp_path / "one.txt").write_text("one\n")
    (tmp_path / "model.txt").write_bytes(b"\0\1\2")
    (tmp_path / "fine.txt").write_text("one\ntwo\n")
    out = tmp_path / "out"
    assert "arguments are required: --outdir" in refused("--source", tmp_path / "fine.txt")
    assert "is neither a file nor a folder" in refused("--source", tmp_path / "nothing", "--outdir", out)
    for name in ("a.CSV", "a.tsv.gz", "a.parquet"):
        (tmp_path / name).write_text("context,label\nhi,hello\n")
        assert "is a table; read it with" in refused("--source", tmp_path / name, "--outdir", out)
    assert "holds no file *.jsonl" in refused("--source", tmp_path / "empty", "--outdir", out)
    assert "no pair that can be used (2 malformed lines)" in refused("--source", tmp_path / "no.jsonl", "--outdir", out)
    assert "no line follows another" in refused("--source", tmp_path / "one.txt", "--outdir", out)
    assert "model.txt is not text" in refused("--source", tmp_path / "model.txt", "--outdir", out)
    (tmp_path / "array.json").write_text('[\n {"context": "hi", "label": "hello"}\n]')
    assert "array.json is a JSON array" in refused("--source", tmp_path / "array.json", "--outdir", out)
    assert "holds other files, such as " in refused("--source", tmp_path / "fine.txt", "--outdir", tmp_path)
    (tmp_path / "other" / building.PARTS).mkdir(parents=True)
    (tmp_path / "other" / "mine.jsonl").write_text("{}")
    assert "such as mine.jsonl" in refused("--source", tmp_path / "fine.txt", "--outdir", tmp_path / "other")
    build(tmp_path / "fine.txt", out)
    before = contents(out)
    assert "from other files" in refused("--source", tmp_path / "fine.txt", "--outdir", out, "--context-lines", 2)
    assert build(tmp_path / "fine.txt", out) and contents(out) == before


# ---- the teacher -----------------------------------------------------------------------------------------------------


def teacher(folder, *arguments, name=""):
    """The teacher of some data."""
    opt = ParlaiParser(True, False).parse_args(
        ["-t", f"{TASK}{name}", "--pairs-path", str(folder), "--loglevel", "error", *arguments]
    )
    return create_task_agent_from_taskname(opt)[0]


def acts(made, count):
    """(text, label) of the next messages."""
    found = [made.act() for _ in range(count)]
    assert all(act["episode_done"] for act in found)
    return [(act["text"], act.get("labels", act.get("eval_labels"))[0]) for act in found]


def test_every_pair_once_an_epoch_in_another_order(data):
    every = pairs(data, "train")
    made = teacher(data)
    assert made.num_examples() == len(every)
    epochs = [acts(made, len(every)) for _ in range(2)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == sorted(every) and epochs[0] != epochs[1] and every not in epochs
    assert acts(teacher(data, "-dt", "valid"), 5) == pairs(data, "valid")[:5]


@pytest.mark.parametrize("workers", [None, 2])
@pytest.mark.parametrize("processes", [1, 3])
def test_processes_and_workers_share_the_pairs_out(processes, workers, data, monkeypatch):
    """A process of a training, and each teacher that reads ahead for it, has its own; together they have all."""
    every = pairs(data, "train")
    found = []
    monkeypatch.setattr("polyagents.tasks.streaming.teacher.num_workers", lambda: processes)
    shares = processes * (workers or 1)
    for rank in range(processes):
        monkeypatch.setattr("polyagents.tasks.streaming.teacher.get_rank", lambda rank=rank: rank)
        for worker in range(workers or 1):
            opt = ParlaiParser(True, False).parse_args(["-t", TASK, "--pairs-path", str(data), "--loglevel", "error"])
            if workers:
                opt |= {"background_index": worker, "num_workers": workers}
            made = create_task_agent_from_taskname(opt)[0]
            place = rank + processes * worker
            found += acts(made, len(range(place, len(every), shares)))
    assert sorted(found) == sorted(every)


def test_files_are_made_into_pairs_below_the_datapath_once(tmp_path, monkeypatch):
    (tmp_path / "talk.txt").write_text("\n\n".join(f"{n} a\n{n} b\n{n} c" for n in range(20)))
    flags = ("-dp", str(tmp_path))
    made = teacher("talk.txt", *flags)
    (folder,) = (tmp_path / "pairs").iterdir()
    assert folder.name.startswith("talk.txt-")
    stamp = (folder / "manifest.json").stat().st_mtime_ns
    found = acts(made, made.num_examples())
    again = teacher(tmp_path / "talk.txt", *flags)
    assert acts(again, len(found)) == found and (folder / "manifest.json").stat().st_mtime_ns == stamp
    valid = teacher(tmp_path / "talk.txt", *flags, "-dt", "valid")
    assert not {text[:2] for text, _ in acts(valid, valid.num_examples())} & {text[:2] for text, _ in found}
    (tmp_path / "talk.txt").write_text("other\nlines\n")
    other = teacher("talk.txt", *flags)
    assert acts(other, 1) == [("other", "lines")] and len(list((tmp_path / "pairs").iterdir())) == 2


def test_paths_that_are_nothing(tmp_path):
    with pytest.raises(InputError, match=r"--pairs-path .*nothing exists neither as given nor below --datapath"):
        teacher(tmp_path / "nothing")
    opt = ParlaiParser(True, False).parse_args(["-t", TASK, "--loglevel", "error"])
    with pytest.raises(InputError, match="needs --pairs-path"):
        create_task_agent_from_taskname(opt)


def test_shards_that_are_damaged(data, tmp_path):
    for path in data.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "valid.jsonl").write_bytes((data / "valid.jsonl").read_bytes()[:90])
    with pytest.raises(InputError, match=r"valid.jsonl has \d examples instead of \d+; delete .* and build again"):
        teacher(tmp_path, "-dt", "valid").act()
    (tmp_path / "valid.jsonl").unlink()
    with pytest.raises(InputError, match=r"valid.jsonl is missing; delete .* and build again"):
        teacher(tmp_path, "-dt", "train")
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(InputError, match=r"manifest\.json is damaged"):
        teacher(tmp_path)


def train(model_file, data, *arguments):
    """Some steps of a tiny model."""
    short = ("--validation-max-exs", "8", "--short-final-eval", "true")
    given = ("-m", KINDS["bi"], "-mf", model_file, "-t", TASK, "--pairs-path", data, *TINY, *short)
    return run("train_model", *given, *arguments)


@pytest.mark.slow
def test_a_resumed_training_goes_on_in_the_stream(data, tmp_path, monkeypatch):
    from polyagents.tasks.pairs.agents import DefaultTeacher

    seen, get = [], DefaultTeacher.get

    def watched(self, *given):
        message = get(self, *given)
        if self.datatype == "train":
            seen.append(message["labels"][0])
        return message

    monkeypatch.setattr(DefaultTeacher, "get", watched)
    train(tmp_path / "M", data, "--max-train-steps", 20)
    expected, seen[:] = seen[:], []
    train(tmp_path / "N", data, "--max-train-steps", 15)  # in the second shard of several
    first, seen[:] = seen[:], []
    train(tmp_path / "N", data, "--max-train-steps", 20)
    assert first + seen == expected and len(first) == 120


@pytest.mark.release  # which part is whose is asked in one process, too
def test_the_sample_under_two_processes(tmp_path):
    """Real ones: each pair is one's or the other's."""
    seen = seen_by_two_processes(tmp_path, "polyagents.tasks.pairs.agents:Sample", 'message["labels"][0]')
    from polyagents.tasks.pairs.agents import SAMPLE

    every = [label for _, label in pairs(Path(SAMPLE), "train")]
    assert sorted(seen[0] + seen[1]) == sorted(every)
