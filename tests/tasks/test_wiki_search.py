"""`polyagents build_wiki_search` and `-t polyagents.tasks.wiki_search`: equal however they are made, and never half."""

import bz2
import contextlib
import gzip
import hashlib
import json
import math
import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import forks
import pytest
import wiki_dump
from commands import KINDS, TINY, evaluate, own, run, seen_by_two_processes
from parlai.agents.repeat_label.repeat_label import RepeatLabelAgent
from parlai.core.params import ParlaiParser
from parlai.core.teachers import create_task_agent_from_taskname
from parlai.core.worlds import create_task

from polyagents import InputError
from polyagents.tasks import wiki_search
from polyagents.tasks.streaming import source
from polyagents.tasks.streaming.order import Order, some_others
from polyagents.tasks.streaming.source import Place, Source
from polyagents.tasks.wiki_search import parallel_reading as reading
from polyagents.tasks.wiki_search import parts, splitting, time_limit
from polyagents.tasks.wiki_search.example import WikiExample, example_of, examples_of
from polyagents.tasks.wiki_search.page import Page, Site
from polyagents.tasks.wiki_search.pages import open_source, pages_of
from polyagents.tasks.wiki_search.wikitext import paragraphs

TASK = "polyagents.tasks.wiki_search"
PLAIN = 120  # articles of the dump, beside the special ones
SITE = Site("en", frozenset(("file", "image", "category", "datei")))
SAMPLE_DATA = Path(wiki_search.__file__).parent / "sample"
DATA = ("manifest.json", "pool.txt", "test.jsonl", "train-00000.jsonl", "valid.jsonl")


@pytest.fixture
def small(monkeypatch):
    """Parts, batches and pieces so small that a small dump has many of them."""
    monkeypatch.setattr(source, "CHUNK", 700)
    monkeypatch.setattr(reading, "PART_BYTES", 6_000)
    monkeypatch.setattr(reading, "BATCH_PAGES", 4)


@pytest.fixture
def dump(tmp_path):
    """A dump in many streams, as Wikimedia's are."""
    path = tmp_path / "pages-articles.xml.bz2"
    path.write_bytes(wiki_dump.multistream(PLAIN))
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Finished data of a small dump."""
    folder = tmp_path_factory.mktemp("wiki")
    (folder / "dump.xml").write_bytes(wiki_dump.dump(PLAIN))
    own("build_wiki_search", "--source", folder / "dump.xml", "--outdir", folder / "data", "--workers", 1)
    return folder / "data"


def build(given, folder, *arguments, workers=1):
    """Run the command; all that is in its folder, but for where the source is."""
    own("build_wiki_search", "--source", given, "--outdir", folder, "--workers", workers, *arguments)
    return contents(folder)


def contents(folder):
    """Name and content of each file of data."""
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name != ".lock"}
    made = json.loads(found["manifest.json"])
    del made["source"]["path"]
    return found | {"manifest.json": made}


def but_source(found):
    """The data alone: sources that hold the same articles have other bytes."""
    return {name: content for name, content in found.items() if name != "manifest.json"}


def examples(folder, name):
    """The examples of a split."""
    files = sorted(folder.glob(f"{name}*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


# ---- what becomes of a page ------------------------------------------------------------------------------------------


def test_what_readers_see_of_wikitext():
    found, listed = paragraphs(wiki_dump.MARKUP, SITE.hidden)
    assert found == [" ".join(wiki_dump.TEXT[:2]), *wiki_dump.TEXT[2:]] and not listed


@pytest.mark.parametrize("text", ["{{disambiguation}}", "{{Hndis|x}}", "{{School disambiguation}}", "__DISAMBIG__"])
def test_disambiguation_pages_are_known_by_their_templates(text):
    assert paragraphs(f"Some words.\n{text}", SITE.hidden)[1]
    assert not paragraphs("Words{{disambiguation needed}} and {{other uses}}.", SITE.hidden)[1]


@pytest.mark.parametrize("seed", range(6))
def test_the_query_is_taken_out_of_the_article(seed):
    made = example_of(Page("7", "Althof", wiki_dump.MARKUP, SITE, True), seed)
    rest = [sentence for sentence in wiki_dump.TEXT if sentence != made.text]
    assert made.text in wiki_dump.TEXT and len(rest) == 3
    assert made == WikiExample("7", "Althof", made.text, " ".join(["Althof", *rest]))


def test_every_sentence_is_a_query_of_some_seed():
    page = Page("7", "Althof", wiki_dump.MARKUP, SITE, True)
    assert {example_of(page, seed).text for seed in range(40)} == set(wiki_dump.TEXT)


@pytest.mark.parametrize("is_wikitext", [True, False])
def test_characters_that_are_none(is_wikitext):
    text = (
        "This sentence holds half a character: \ud83d and so on.\nAnother one: &#xD800; &#x110000; &nothing; and so on."
    )
    made = example_of(Page("7", "\udc00", text, SITE, is_wikitext), 0)
    assert f"{made.text} {made.label}".encode()


# ---- the data --------------------------------------------------------------------------------------------------------


def test_what_the_manifest_counts(data):
    made = json.loads((data / "manifest.json").read_text())
    usable = PLAIN + wiki_dump.USABLE
    assert made["pages"] == wiki_dump.COUNTS | {
        "pages": PLAIN + len(wiki_dump.SPECIAL) + 3,
        "examples": usable,
        "repeated_articles": 0,
    }
    tenth = usable // 10
    assert made["examples"] == {"train": usable - 5 * tenth, "valid": tenth, "test": tenth, "pool": 3 * tenth}
    assert made["options"] | {"mwparserfromhell": 0, "sentencex": 0} == {
        "format": 1,
        "seed": 0,
        "mwparserfromhell": 0,
        "sentencex": 0,
        "valid_examples": 9921,
        "test_examples": 9925,
        "pool_examples": 10000,
    }
    sha256 = hashlib.sha256((data.parent / "dump.xml").read_bytes()).hexdigest()
    assert made["source"]["sha256"] == sha256 and made["source"]["path"] == str(data.parent / "dump.xml")
    for name, count in made["examples"].items():
        assert name == "pool" or len(examples(data, name)) == count
    assert len((data / "pool.txt").read_text().splitlines()) == made["examples"]["pool"]
    assert not (data / "parts").exists()


def test_no_article_is_in_two_splits_or_in_the_pool(data):
    ids = [{example["id"] for example in examples(data, name)} for name in ("train", "valid", "test")]
    titles = {example["title"] for name in ("train", "valid", "test") for example in examples(data, name)}
    made = json.loads((data / "manifest.json").read_text())["examples"]
    assert len(set.union(*ids)) == sum(map(len, ids)) == made["train"] + made["valid"] + made["test"]
    every = {title for title, _ in wiki_dump.articles(PLAIN) + wiki_dump.SPECIAL}
    pool = [line.split(" number")[0] for line in (data / "pool.txt").read_text().splitlines()]
    in_pool = {title for title in every - titles if any(line.startswith(title) for line in pool)}
    assert len(in_pool) == len(pool) == made["pool"]


def test_no_query_is_in_its_label(data):
    for name in ("train", "valid", "test"):
        for example in examples(data, name):
            assert example["text"] not in example["label"] and example["label"].startswith(example["title"])
            assert len(example["text"].encode()) >= 30 and "\n" not in example["label"]


def test_the_seed_decides(dump, tmp_path):
    first, again = build(dump, tmp_path / "1", "--seed", "4"), build(dump, tmp_path / "2", "--seed", "4")
    other = build(dump, tmp_path / "3", "--seed", "5")
    assert first == again
    assert all(first[name] != other[name] for name in DATA)


def test_sizes_that_are_given(dump, tmp_path):
    build(dump, tmp_path / "1", "--eval-pool", "7", "--valid-examples", "3", "--test-examples", "2")
    made = json.loads((tmp_path / "1" / "manifest.json").read_text())["examples"]
    assert made == {"train": PLAIN + wiki_dump.USABLE - 12, "valid": 3, "test": 2, "pool": 7}


def test_sizes_that_are_given_may_be_most_of_the_source(dump, tmp_path):
    every = PLAIN + wiki_dump.USABLE
    build(dump, tmp_path / "1", "--eval-pool", str(every - 4), "--valid-examples", "2", "--test-examples", "1")
    made = json.loads((tmp_path / "1" / "manifest.json").read_text())["examples"]
    assert made == {"train": 1, "valid": 2, "test": 1, "pool": every - 4}


def test_sizes_that_leave_nothing_to_train_on(dump, tmp_path):
    every = PLAIN + wiki_dump.USABLE
    with pytest.raises(InputError, match=f"has {every} articles .* are {every} together; give smaller numbers"):
        build(dump, tmp_path / "1", "--eval-pool", str(every - 3), "--valid-examples", "2", "--test-examples", "1")
    assert not (tmp_path / "1" / "manifest.json").exists()


@pytest.mark.slow
def test_the_same_data_however_a_dump_is_packed_read_and_divided(data, dump, tmp_path, small, monkeypatch):
    expected = but_source(contents(data))
    one = tmp_path / "one.bz2"
    one.write_bytes(bz2.compress(wiki_dump.dump(PLAIN)))
    assert but_source(build(one, tmp_path / "1")) == expected
    assert but_source(build(dump, tmp_path / "2")) == expected
    both = build(dump, tmp_path / "3", workers=2)
    assert both == contents(tmp_path / "2")
    monkeypatch.setattr(splitting, "SHARD", 20)
    shards = build(dump, tmp_path / "4")
    joined = b"".join(content for name, content in sorted(shards.items()) if name.startswith("train"))
    assert joined == expected["train-00000.jsonl"] and len(shards) == 4 + math.ceil(63 / 20)


def test_the_same_data_whatever_the_order_of_files_and_articles(tmp_path, small):
    lines = wiki_dump.extracted(PLAIN)
    (tmp_path / "all.json").write_text("\n".join(lines))
    expected = but_source(build(tmp_path / "all.json", tmp_path / "1"))
    random.Random(3).shuffle(lines)
    for number in range(4):
        folder = tmp_path / "tree" / ("AB" if number % 2 else "AA")
        folder.mkdir(parents=True, exist_ok=True)
        text = "\n".join(lines[number * 30 : number * 30 + 30]).encode() + b"\n"
        name, packed = [("wiki_00", text), ("wiki_01.gz", gzip.compress(text)), ("wiki_02.bz2", bz2.compress(text))][
            number % 3
        ]
        (folder / f"{name}").write_bytes(packed)
    (tmp_path / "tree" / "README.md").write_text("no article")
    assert but_source(build(tmp_path / "tree", tmp_path / "2", workers=2)) == expected


def test_a_dump_and_what_was_extracted_of_it_give_the_same_examples(data, tmp_path):
    (tmp_path / "all.json").write_text("\n".join(wiki_dump.extracted(PLAIN)))
    build(tmp_path / "all.json", tmp_path / "1")
    of_dump, of_lines = (
        {example["id"]: example for name in ("train", "valid", "test") for example in examples(folder, name)}
        for folder in (data, tmp_path / "1")
    )
    both = of_dump.keys() & of_lines.keys()
    assert len(both) > 40 and all(of_dump[id] == of_lines[id] for id in both)


@pytest.mark.parametrize("again", [4, 30])
def test_an_article_that_is_there_twice_is_one(tmp_path, again):
    lines = wiki_dump.extracted(30)
    (tmp_path / "a.json").write_text("\n".join(lines))
    (tmp_path / "b.json").write_text("\n".join(lines + lines[:again]))
    once, twice = build(tmp_path / "a.json", tmp_path / "1"), build(tmp_path / "b.json", tmp_path / "2")
    assert but_source(once) == but_source(twice) and twice["manifest.json"]["pages"]["repeated_articles"] == again


@pytest.mark.parametrize("chunk", [1, 37, 1_000, 1 << 20])
@pytest.mark.parametrize("packed", ["xml", "multistream", "bz2", "json", "gz"])
def test_reading_goes_on_from_the_place_after_any_page(packed, chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(source, "CHUNK", chunk)
    lines = "\n".join(wiki_dump.extracted(9)).encode()
    made = {
        "xml": wiki_dump.dump(9),
        "multistream": wiki_dump.multistream(9, 3),
        "bz2": bz2.compress(wiki_dump.dump(9)),
        "json": lines,
        "gz": gzip.compress(lines[:999]) + gzip.compress(lines[999:]),
    }[packed]
    (tmp_path / "source").write_bytes(made)
    every = list(pages_of(open_source(str(tmp_path / "source")), Place()))
    assert len(every) in (9, 9 + len(wiki_dump.SPECIAL) + 3)
    for number, (_, place) in enumerate(every):
        assert list(pages_of(Source([str(tmp_path / "source")]), place)) == every[number + 1 :]


@pytest.mark.parametrize("unclosed", ["[http://a ", "{{a|b=", "[[File:a|", "<ref>"])
def test_a_page_that_keeps_the_parser_busy_is_left_out_and_counted(unclosed, monkeypatch):
    """The limit is a moment here; of 20,000 of them a page takes 40 seconds, and more."""
    monkeypatch.setattr(time_limit, "SECONDS", 0.02)
    pages = [Page(str(number), "A", text, SITE, True) for number, text in enumerate((unclosed * 20_000, "A b."))]
    before = signal.getsignal(signal.SIGVTALRM)
    for _ in range(2):
        assert examples_of(pages, 0)[1] == {"pages": 2, "too_slow": 1, "short": 1}
    assert signal.getsignal(signal.SIGVTALRM) is before and signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)
    with pytest.raises(time_limit.TooSlow), time_limit.time_limit():
        with contextlib.suppress(time_limit.TooSlow):  # as Python does while an object ends
            while True:
                pass
        while True:
            pass
    with ThreadPoolExecutor(1) as thread:  # which can have no limit
        assert thread.submit(examples_of, pages[1:], 0).result()[1]["short"] == 1


def test_a_signal_that_is_still_on_its_way_ends_nothing():
    """As one that a sleeping thread has yet to receive: here the only thread blocks it for a moment."""
    code = """
import os, signal
from polyagents.tasks.wiki_search.time_limit import time_limit
with time_limit():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGVTALRM})
    os.kill(os.getpid(), signal.SIGVTALRM)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGVTALRM})
print(signal.getsignal(signal.SIGVTALRM) is signal.SIG_DFL)
"""
    done = forks.run(code)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


# ---- builds that are stopped -----------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
from polyagents.tasks.streaming import source
from polyagents.tasks.wiki_search import build_data as build, parallel_reading as reading
from polyagents.__main__ import main
source.CHUNK, reading.PART_BYTES, reading.BATCH_PAGES = 700, 6_000, 4
write, left = reading.write_part, iter(range({parts}))
def write_some(*given):
    return write(*given) if next(left, None) is not None else os.kill(os.getpid(), signal.SIGKILL)
reading.write_part = write_some
split = build.split
def split_and_die(*given):
    split(*given)
    os.kill(os.getpid(), signal.SIGKILL)
build.split = split_and_die
main()
"""


def killed(given, folder, workers, parts):
    """A build that ends by SIGKILL after so many parts, or before the manifest."""
    flags = ["build_wiki_search", "--source", given, "--outdir", folder, "--workers", workers]
    done = forks.run(KILLED.format(parts=parts), *flags)
    assert done.returncode == -signal.SIGKILL, done.stderr


@pytest.mark.parametrize(("workers", "count"), [(2, 3), pytest.param(1, 99, marks=pytest.mark.release)])
def test_a_killed_build_goes_on_where_it_was(workers, count, data, dump, tmp_path, small, monkeypatch, capsys):
    killed(dump, tmp_path / "1", workers, count)
    finished = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "1" / "parts").iterdir()}
    assert len(finished) == min(count, 7) and not (tmp_path / "1" / "manifest.json").exists()
    seen, made = [], reading.examples_of
    monkeypatch.setattr(reading, "examples_of", lambda pages, seed: seen.append(len(pages)) or made(pages, seed))
    kept = []
    monkeypatch.setattr(
        "polyagents.tasks.wiki_search.build_data.split",
        lambda *given: (
            kept.extend((os.path.basename(part.path), os.stat(part.path).st_mtime_ns) for part in given[0])
            or splitting.split(*given)
        ),
    )
    assert build(dump, tmp_path / "1") == build(dump, tmp_path / "2")
    assert set(finished.items()) <= set(kept)
    again = sum(seen) - len(wiki_dump.pages(PLAIN))  # of the build that was not killed
    assert (again == 0) if count == 99 else (0 < again < len(wiki_dump.pages(PLAIN)) - 20)
    assert "from an earlier build, which is resumed" in capsys.readouterr().err


def test_parts_of_another_seed_or_source_are_not_used(dump, tmp_path, small):
    whole = dump.read_bytes()
    other = wiki_dump.multistream(PLAIN, 9)  # the same articles, packed otherwise
    for name, now, seed in (("1", whole, "1"), ("2", other, "0")):
        dump.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(InputError, match="is kept in"):
            build(dump, tmp_path / name)
        assert kept_in(tmp_path / name) > 40
        dump.write_bytes(now)
        expected = build(dump, tmp_path / f"{name} anew", "--seed", seed)
        assert build(dump, tmp_path / name, "--seed", seed) == expected


def test_finished_data_are_left_as_they_are(dump, tmp_path, refused):
    expected = build(dump, tmp_path / "1")
    before = (tmp_path / "1" / "valid.jsonl").stat()
    assert build(dump, tmp_path / "1") == expected and (tmp_path / "1" / "valid.jsonl").stat() == before
    assert "other options or libraries" in refused("--source", dump, "--outdir", tmp_path / "1", "--seed", "3")
    dump.write_bytes(wiki_dump.multistream(PLAIN + 4))
    assert "another source" in refused("--source", dump, "--outdir", tmp_path / "1")
    assert contents(tmp_path / "1") == expected


# ---- what is wrong ---------------------------------------------------------------------------------------------------


@pytest.fixture
def refused(ends_with_2):
    """The sentence that `polyagents build_wiki_search` says last as it ends with code 2."""
    return lambda *arguments: ends_with_2("build_wiki_search", *arguments)[-1]


def kept_in(folder):
    """Examples that the parts hold."""
    return parts.all_counts(parts.there(str(folder / "parts")))["examples"]


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("wrong", ["truncated", "damaged"])
def test_a_dump_that_cannot_be_read_to_its_end(wrong, workers, dump, tmp_path, small, refused):
    whole = dump.read_bytes()
    middle = len(whole) * 2 // 3
    bad = whole[:middle] if wrong == "truncated" else whole[:middle] + b"\0" * 40 + whole[middle + 40 :]
    dump.write_bytes(bad)
    said = refused("--source", dump, "--outdir", tmp_path / "1", "--workers", workers)
    found = kept_in(tmp_path / "1")
    assert 40 < found < PLAIN and not (tmp_path / "1" / "manifest.json").exists()
    assert f"what was read before it, {found} articles, is kept in {tmp_path / '1'}" in said
    if wrong == "truncated":
        assert f"{dump} ends in the middle, at byte {middle:,}" in said
    else:
        byte = int(said.split("before byte ")[1].split(" of ")[0].replace(",", ""))
        assert f"{dump} is damaged" in said and middle <= byte <= middle + 4_000
    dump.write_bytes(whole)
    first = parts.there(str(tmp_path / "1" / "parts"))[-1]
    assert parts.fits(first.header, Source([str(dump)]), first.header.options, parts.Bar(disable=True))
    assert build(dump, tmp_path / "1") == build(dump, tmp_path / "2")


@pytest.mark.parametrize("kind", ["xml", "json", "gz"])
def test_other_sources_that_end_in_the_middle(kind, tmp_path, small, refused):
    lines = "\n".join(wiki_dump.extracted(60)).encode()
    whole = {"xml": wiki_dump.dump(60), "json": lines, "gz": gzip.compress(lines)}[kind]
    given = tmp_path / "source"
    given.write_bytes(whole[: len(whole) * 2 // 3])
    said = refused("--source", given, "--outdir", tmp_path / "1", "--workers", "1")
    line = lines[: len(lines) * 2 // 3].rfind(b"\n") + 1
    expected = {
        "xml": f"ends in the middle, at byte {len(whole) * 2 // 3:,};",
        "json": f"is damaged at byte {line:,} of {len(lines) * 2 // 3:,} (a line that is not JSON);",
        "gz": f"ends in the middle, at byte {len(whole) * 2 // 3:,};",
    }[kind]
    assert f"{given} {expected} what was read before it" in said and kept_in(tmp_path / "1") > 20
    given.write_bytes(whole)
    assert but_source(build(given, tmp_path / "1")) == but_source(build(given, tmp_path / "2"))


def test_xml_that_is_wrong_has_its_byte(tmp_path, refused):
    whole = wiki_dump.dump(20)
    at = whole.index(b"<page>", len(whole) // 2)
    (tmp_path / "d.xml").write_bytes(whole[:at] + b"<wrong & " + whole[at:])
    said = refused("--source", tmp_path / "d.xml", "--outdir", tmp_path / "1", "--workers", "1")
    assert f"d.xml is damaged at byte {at + 7:,} of " in said


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (None, "cannot be read (No such file or directory)"),
        (b"", "is neither a MediaWiki dump (pages-articles.xml.bz2) nor WikiExtractor's JSON lines"),
        (b"\x89PNG", "is neither a MediaWiki dump"),
        (b"<html></html>", "is not a MediaWiki dump: its first element is <html>"),
        (b'<doc id="1">', "run WikiExtractor with --json"),
        (b'{"title": "x"}\n', "a line has no title or no text"),
        (b'{"title": "x", "text": "x\\nShort."}\n', "has 0 articles that can be used, of 1 page; 10 are needed"),
    ],
)
def test_bad_sources_get_one_sentence(given, sentence, tmp_path, refused):
    if given is not None:
        (tmp_path / "source").write_bytes(given)
    assert sentence in refused("--source", tmp_path / "source", "--outdir", tmp_path / "1", "--workers", "1")


def test_bad_flags_get_one_sentence(tmp_path, refused, dump):
    assert "arguments are required: --outdir" in refused("--source", dump)
    assert "holds no file wiki_00" in refused("--source", tmp_path, "--outdir", tmp_path / "1")
    assert "'0' is not a whole number of 1 or more" in refused("--workers", "0")
    assert "folder of your own with --outdir" in refused("--source", dump, "--outdir", dump / "below")


# ---- the teachers ----------------------------------------------------------------------------------------------------


def teacher(data, *flags, name=""):
    """A teacher of the data."""
    given = ("-t", f"{TASK}{name}", "--wiki-search-path", data, "--loglevel", "error", *flags)
    (made,) = create_task_agent_from_taskname(ParlaiParser(True, False).parse_args([*map(str, given)]))
    return made


def acts(made, count):
    """The next messages."""
    return [made.act() for _ in range(count)]


@pytest.fixture
def sharded(tmp_path, monkeypatch):
    """Data whose training set has three shards."""
    monkeypatch.setattr(splitting, "SHARD", 25)
    (tmp_path / "dump.xml").write_bytes(wiki_dump.dump(PLAIN))
    build(tmp_path / "dump.xml", tmp_path / "data")
    return tmp_path / "data"


@pytest.mark.parametrize("name", ["", ":CrossTeacher"])
def test_training_streams_in_the_same_order_every_time(name, sharded):
    expected = acts(teacher(sharded, name=name), 150)
    assert acts(teacher(sharded, name=name), 150) == expected
    assert acts(teacher(sharded, "-dt", "train:stream", name=name), 150) == expected
    assert acts(teacher(sharded, "--teacher-seed", "3", name=name), 150) != expected
    train = examples(sharded, "train")
    epochs = [[act["text"] for act in expected[i * len(train) : (i + 1) * len(train)]] for i in range(2)]
    every = sorted(example["text"] for example in train)
    assert epochs[0] != epochs[1] and all(sorted(epoch) == every for epoch in epochs)
    assert epochs[0] != [example["text"] for example in train]


def test_a_batch_streams_as_one_teacher(sharded):
    opt = ParlaiParser(True, False).parse_args(
        ["-t", TASK, "--wiki-search-path", str(sharded), "-bs", "7", "--loglevel", "error"]
    )
    world, found = create_task(opt, RepeatLabelAgent(opt)), []
    for _ in range(20):
        world.parley()
        found += [one.acts[0]["text"] for one in world.worlds]
    assert found == [act["text"] for act in acts(teacher(sharded), 140)]


@pytest.mark.parametrize("datatype", ["valid", "test", "train:evalmode", "train:ordered"])
def test_evaluation_is_every_example_in_order(datatype, sharded):
    made = teacher(sharded, "-dt", datatype)
    expected = examples(sharded, datatype.split(":")[0])
    assert made.num_examples() == len(expected)
    found = acts(made, len(expected))
    assert made.epoch_done()
    labels = "labels" if datatype == "train:ordered" else "eval_labels"
    assert [(act["text"], act[labels]) for act in found] == [(e["text"], [e["label"]]) for e in expected]
    assert not any("label_candidates" in act for act in found)


def test_candidates_of_the_cross_encoder(sharded):
    labels = {example["text"]: example["label"] for example in examples(sharded, "train")}
    for act in acts(teacher(sharded, name=":CrossTeacher"), 100):
        first, *others = act["label_candidates"]
        assert [first] == act["labels"] == [labels[act["text"]]]
        assert len(set(others)) == 15 and first not in others and set(others) < set(labels.values())
    pool = (sharded / "pool.txt").read_text().splitlines()
    for act in acts(teacher(sharded, "-dt", "valid", name=":CrossTeacher"), 12):
        assert act["label_candidates"] == [*act["eval_labels"], *pool]  # it is smaller than 99
    few = teacher(sharded, "-dt", "test", "--wiki-eval-candidates", "5", name=":CrossTeacher").act()
    assert few["label_candidates"] == [*few["eval_labels"], *pool[:5]]


def test_smaller_pools_and_pools_that_are_too_small(sharded, capsys):
    pool = (sharded / "pool.txt").read_text().splitlines()
    act = teacher(sharded, "-dt", "valid", "--wiki-eval-candidates", "9").act()
    assert act["label_candidates"] == [*act["eval_labels"], *pool[:9]]
    assert "label_candidates" not in teacher(sharded, "--wiki-eval-candidates", "9").act()
    with pytest.raises(InputError, match="has 36 articles; give fewer"):
        teacher(sharded, "-dt", "valid", "--wiki-eval-candidates", "37")
    with pytest.raises(SystemExit):
        teacher(sharded, "-dt", "valid", "--wiki-eval-candidates", "-1")
    assert "'-1' is not a whole number of 0 or more" in capsys.readouterr().err


def test_processes_share_the_examples_out(sharded, monkeypatch):
    expected = [act["text"] for act in acts(teacher(sharded), 90)]
    valid = [example["text"] for example in examples(sharded, "valid")]
    found, evaluated = [], []
    for rank in range(3):
        monkeypatch.setattr("polyagents.tasks.streaming.teacher.num_workers", lambda: 3)
        monkeypatch.setattr("polyagents.tasks.streaming.teacher.get_rank", lambda rank=rank: rank)
        found.append([act["text"] for act in acts(teacher(sharded), 30)])
        part = teacher(sharded, "-dt", "valid")
        evaluated += [act["text"] for act in acts(part, part.num_examples())]
    assert [text for three in zip(*found, strict=True) for text in three] == expected
    assert sorted(evaluated) == sorted(valid)


def test_no_data_and_data_that_are_damaged(data, tmp_path):
    with pytest.raises(InputError, match=r"There are no data for Wikipedia search in .*build_wiki_search --source"):
        teacher(tmp_path / "nothing")
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in DATA:
        (copy / name).write_bytes((data / name).read_bytes())
    (copy / "valid.jsonl").write_bytes((data / "valid.jsonl").read_bytes()[:300])
    with pytest.raises(InputError, match=r"valid.jsonl has 1 example instead of 12; delete .* and build again"):
        teacher(copy, "-dt", "valid").act()
    (copy / "valid.jsonl").unlink()
    with pytest.raises(InputError, match=r"valid.jsonl is missing; delete .* and build again"):
        teacher(copy, "-dt", "train")
    (copy / "manifest.json").write_text("{")
    with pytest.raises(InputError, match=r"manifest\.json is damaged"):
        teacher(copy)


def test_data_of_another_task_are_refused_not_to_be_deleted(data, tmp_path):
    (tmp_path / "talk.txt").write_text("one\ntwo\n")
    own("build_pairs", "--source", tmp_path / "talk.txt", "--outdir", tmp_path / "pairs")
    with pytest.raises(InputError, match=r"pairs holds data of another task .*; give another folder"):
        teacher(tmp_path / "pairs")
    with pytest.raises(InputError, match=r"data holds data of another task .*; give another folder"):
        own("build_pairs", "--source", tmp_path / "talk.txt", "--outdir", data)


@pytest.mark.parametrize("sizes", [[1], [3, 3, 2], [5, 1, 4]])
def test_an_order_has_every_example_once_an_epoch(sizes):
    order = Order(sizes, 1)
    every = sorted((shard, row) for shard, size in enumerate(sizes) for row in range(size))
    for epoch in range(3):
        assert sorted(order.spot(epoch * sum(sizes) + place) for place in range(sum(sizes))) == every
    assert [order.as_written(place) for place in range(sum(sizes))] == every
    assert some_others(3, 15, 1, "x") == [0, 2] and some_others(1, 15, 0, "x") == []


# ---- our agents ------------------------------------------------------------------------------------------------------


def train(kind, model_file, data, *arguments, name=""):
    """Two steps of a tiny model."""
    short = ("--validation-max-exs", "8", "--short-final-eval", "true")
    given = ("-m", KINDS[kind], "-mf", model_file, "-t", f"{TASK}{name}", "--wiki-search-path", data, *TINY, *short)
    return run("train_model", *given, *arguments)


@pytest.mark.slow
def test_training_and_evaluating_against_the_pool(data, tmp_path, monkeypatch):
    pool = ("--eval-candidates", "fixed", "--fixed-candidates-path", data / "pool.txt")
    train("bi", tmp_path / "M", data, *pool, "--max-train-steps", 2)
    from polyagents.models.two_towers import TwoTowers

    calls, make = [], TwoTowers.encode_candidates
    monkeypatch.setattr(
        TwoTowers, "encode_candidates", lambda self, tokens: calls.append(len(tokens.ids)) or make(self, tokens)
    )
    report = evaluate(tmp_path / "M", "-t", TASK, "--wiki-search-path", data, "-dt", "test", *pool)
    size = len((data / "pool.txt").read_text().splitlines())
    assert report["exs"] == 12 and 1 <= report["rank"] <= size + 1 and 0 < report["mrr"] <= 1
    inline = evaluate(
        tmp_path / "M", "-t", TASK, "--wiki-search-path", data, "-dt", "test", "--eval-candidates", "inline",
        "--wiki-eval-candidates", size,
    )  # fmt: skip
    assert {name: inline[name] for name in ("rank", "mrr", "hits@1")} == pytest.approx(
        {name: report[name] for name in ("rank", "mrr", "hits@1")},
        abs=0.2,  # two steps leave scores so close that rounding decides between some
    )
    assert 2 * size <= sum(calls) < 3 * size, (calls, size)  # each evaluation encodes its candidates once


@pytest.mark.slow
def test_the_sample_and_a_pool_below_the_datapath(data, tmp_path):
    """What a recipe does, whose flags cannot know where the data are."""
    (tmp_path / "wiki_search").mkdir()
    pool = (data / "pool.txt").read_text()
    (tmp_path / "wiki_search" / "pool.txt").write_text(pool)
    flags = ("-dp", tmp_path, "--eval-candidates", "fixed", "--fixed-candidates-path", "wiki_search/pool.txt")
    run(
        "train_model",
        "-m",
        KINDS["bi"],
        "-mf",
        tmp_path / "M",
        *TINY,
        "--reduction-type",
        "first",  # hardly learns, so that ranks beyond the own pool are seen
        "-t",
        f"{TASK}:sample",
        *flags,
        "--max-train-steps",
        1,
    )
    report = evaluate(tmp_path / "M", "-t", f"{TASK}:sample", *flags, "-dt", "test")
    assert report["exs"] == 4 and 13 < report["rank"] <= len(pool.splitlines()) + 1  # the sample's own pool has 12


@pytest.mark.slow
def test_training_a_cross_encoder_on_its_own_candidates(data, tmp_path):
    train("cross", tmp_path / "M", data, "--max-train-steps", 1, "--wiki-eval-candidates", 4, name=":CrossTeacher")
    report = evaluate(
        tmp_path / "M", "-t", f"{TASK}:CrossTeacher", "--wiki-search-path", data, "-dt", "valid",
        "--wiki-eval-candidates", 4,
    )  # fmt: skip
    assert report["exs"] == 12 and 1 <= report["rank"] <= 5


@pytest.mark.release  # which part is whose is asked in one process, too
def test_two_processes_share_an_epoch(tmp_path):
    """Real ones: each example is one's or the other's."""
    seen = seen_by_two_processes(tmp_path, "polyagents.tasks.wiki_search.agents:Sample", 'message["text"]')
    every = [example["text"] for example in examples(SAMPLE_DATA, "train")]
    assert sorted(seen[0] + seen[1]) == sorted(every) and abs(len(seen[0]) - len(seen[1])) <= 2


@pytest.mark.slow
def test_a_resumed_training_goes_on_in_the_stream(data, tmp_path, monkeypatch):
    seen = []
    from polyagents.tasks.wiki_search.agents import WikiSearchTeacher

    get = WikiSearchTeacher.get

    def watched(self, *given):
        message = get(self, *given)
        if self.datatype == "train":
            seen.append(message["text"])
        return message

    monkeypatch.setattr(WikiSearchTeacher, "get", watched)
    train("bi", tmp_path / "M", data, "--max-train-steps", 5)
    expected, seen[:] = seen[:], []
    train("bi", tmp_path / "N", data, "--max-train-steps", 2)
    first, seen[:] = seen[:], []
    train("bi", tmp_path / "N", data, "--max-train-steps", 5)
    assert first + seen == expected and len(first) == 16
