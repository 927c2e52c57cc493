"""A candidate store holds what was encoded, by whom, and is used only while that is true."""

import dataclasses
import errno
import json
import operator
import os
import random
import shutil
import signal
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from queries import poly_query

from polyagents.console import duration, file_size
from polyagents.errors import InputError
from polyagents.files import atomic, locks, tensors
from polyagents.files.hashing import fingerprint
from polyagents.files.lines import LONGEST
from polyagents.index import builder, manifest, shard
from polyagents.index.builder import CandidateEncoder, Worker, results
from polyagents.index.candidate_records import read_candidates
from polyagents.index.exact import search
from polyagents.index.store import CandidateStore
from polyagents.index.texts import FileTexts, ListedTexts, first_of_each, key_columns
from polyagents.ranking.ranking_model import bytes_of

WIDTH = 6
CPU = torch.device("cpu")
TEXTS = ["a", "bb", "déjà vu", "two\twords", "e", "six", "seven", "8", "nine", "ten", "eleven"]


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    """Four candidates a shard, two a block: a handful of texts is a large store."""
    monkeypatch.setattr(builder, "SHARD", 4)
    monkeypatch.setattr("polyagents.index.store.SHARD", 4)
    monkeypatch.setattr(builder, "BLOCK", 2)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "replies.txt"
    write(path, TEXTS)
    return str(path)


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "index")


def write(path, texts):
    with open(path, "w", encoding="utf-8") as out:
        out.write("".join(f"{text}\n" for text in texts))


def vector(text):
    return [((sum(text.encode()) * (i + 3)) % 101) / 7 - 5 for i in range(WIDTH)]


def encode(texts):
    return torch.tensor([vector(text) for text in texts])


@dataclasses.dataclass
class Counting:
    """An encoder that remembers what it was given."""

    seen: list = dataclasses.field(default_factory=list)

    def __call__(self, texts):
        self.seen.extend(texts)
        return encode(texts)


def maker(model="model", encode=encode, stored_as="fp32"):
    return CandidateEncoder(model, encode, stored_as)


def content(store):
    """Everything that a search can see."""
    return [(store[i], store.rows([i])[0].tolist()) for i in range(store.slots) if i not in store.deleted]


def shard_files(folder):
    return sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))


# ---- what is stored --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("stored_as", "off"), [("fp32", 0.0), ("bf16", 2**-8), ("int8", 1 / 127)])
def test_a_store_holds_texts_and_vectors(file, folder, stored_as, off):
    built = CandidateStore.build(file, folder, maker(stored_as=stored_as))
    for store in (built, CandidateStore.open(folder, "model")):
        assert len(store) == store.slots == len(TEXTS) and store.width == WIDTH
        assert [store[i] for i in range(len(store))] == list(store.texts()) == TEXTS
        expected, got = encode(TEXTS), store.rows(range(len(TEXTS)))
        assert ((got - expected).abs() <= off * expected.abs().amax(1, keepdim=True)).all()
        assert torch.equal(torch.cat([block.exact(slice(None)) for block in store.blocks()]), got)
        assert torch.equal(store.rows([9, 0, 9]), got[[9, 0, 9]])
        assert [store.find(text) for text in (*TEXTS, "nothing", "caf\udce9")] == [*range(len(TEXTS)), None, None]
    assert len(shard_files(folder)) == 3


def test_blank_and_repeated_lines_are_left_out(tmp_path, folder):
    path = tmp_path / "replies.txt"
    path.write_bytes("\ufeffone\r\n\n  two words \n\none\nthree\x85four".encode())
    counting = Counting()
    store = CandidateStore.build(str(path), folder, maker(encode=counting))
    assert FileTexts(str(path)).repeated == ListedTexts(["one", "two", "one"]).repeated == 1
    assert list(store.texts()) == counting.seen == read_candidates(str(path)) == ["one", "two words", "three\x85four"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"fine\nna\xefve\n", "not UTF-8 in line 2"), (b"", "holds no text"), (b"\n \n", "holds no text")],
)
def test_files_without_candidates(tmp_path, folder, content, message):
    path = tmp_path / "replies.txt"
    path.write_bytes(content)
    for read in (read_candidates, lambda path: CandidateStore.build(path, folder, maker())):
        with pytest.raises(InputError, match=message):
            read(str(path))
        with pytest.raises(InputError, match="cannot be read"):
            read(str(tmp_path / "missing.txt"))
        with pytest.raises(InputError, match="cannot be read"):
            read(str(tmp_path))


# ---- never stale -----------------------------------------------------------------------------------------------------


def test_a_store_is_reused_only_while_it_is_true(file, folder):
    counting = Counting()

    def build(texts, model, stored_as="fp32"):
        counting.seen.clear()
        write(file, texts)
        store = CandidateStore.build(file, folder, maker(model, counting, stored_as))
        assert list(store.texts()) == texts
        return counting.seen

    assert build(TEXTS, "a") == TEXTS
    assert build(TEXTS, "a") == []
    assert build(TEXTS, "b") == TEXTS
    assert build(TEXTS, "b", "int8") == TEXTS
    assert build([*TEXTS[:9], "another"], "b", "int8") == ["nine", "another"]  # the shards before are the same
    assert len(shard_files(folder)) == 3  # nothing is left of the others
    with pytest.raises(InputError, match="encoded by another model"):
        CandidateStore.open(folder, "a")
    with pytest.raises(InputError, match="holds no finished candidate index"):
        CandidateStore.open(f"{folder}/nowhere", "a")
    with pytest.raises(InputError, match="bf16, fp32, int8, not 'fp8'"):
        CandidateStore.build(file, folder, maker(stored_as="fp8"))


def test_a_fingerprint_tells_everything_apart():
    tensors = [torch.zeros(2), torch.zeros(3), torch.zeros(2).bfloat16(), torch.ones(2)]
    parts = [["a", "b"], ["ab", ""], [b"a", "c"], [], *([bytes_of(tensor)] for tensor in tensors)]
    assert len({fingerprint(p) for p in parts}) == len(parts)
    assert fingerprint(["a", bytes_of(torch.ones(2))]) == fingerprint(["a", bytes_of(torch.ones(2))])


@pytest.mark.parametrize("url", ["milvus:c.db/replies", "postgresql://me:secret@host/base/replies"])
def test_the_url_of_an_engine_is_not_made_a_folder(url, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = os.listdir()
    with pytest.raises(InputError, match="is the URL of an engine; give it as --index-url"):
        CandidateStore.build(file, url, maker())
    assert os.listdir() == before


def test_a_file_that_changes_while_it_is_encoded(file):
    texts = FileTexts(file)
    with open(file, "a", encoding="utf-8") as out:
        out.write("more\n")
    with pytest.raises(InputError, match="was changed while it was being encoded"):
        texts.part(0, 2)


@pytest.mark.parametrize("content", ["one\ntwo\n", '{"id": "a", "text": "one"}\n', "id,text\na,one\n"])
def test_the_file_is_closed_after_a_build(content, tmp_path, folder):
    path = tmp_path / {"o": "c.txt", "{": "c.jsonl", "i": "c.csv"}[content[0]]
    path.write_text(content)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        CandidateStore.build(str(path), folder, maker())
    assert not found


def test_a_true_store_is_not_written_again(file, folder):
    CandidateStore.build(file, folder, maker())
    before = {name: os.stat(os.path.join(folder, name)) for name in os.listdir(folder)}
    CandidateStore.build(file, folder, maker())
    after = {name: os.stat(os.path.join(folder, name)) for name in os.listdir(folder)}
    same = operator.attrgetter("st_ino", "st_mtime_ns")
    assert {name: same(stat) for name, stat in before.items()} == {name: same(stat) for name, stat in after.items()}


def test_every_change_is_a_generation_and_copies_share_theirs(file, folder, tmp_path):
    store = CandidateStore.build(file, folder, maker())
    seen = [store.generation]
    for change in (
        lambda store: store.append(ListedTexts(["new"]), encode),
        lambda store: store.append(ListedTexts(["new"]), encode),  # nothing to do
        lambda store: store.delete([0]),
        lambda store: store.delete([1]),
        lambda store: CandidateStore.open(folder, "model"),
    ):
        store = change(store)
        seen.append(store.generation)
    numbers, digests = zip(*(one.split("-") for one in seen), strict=True)
    assert numbers == ("1", "2", "2", "3", "4", "4")
    assert [digests.index(one) for one in digests] == [0, 1, 1, 3, 4, 4]
    shutil.copytree(folder, tmp_path / "copy")
    assert CandidateStore.open(str(tmp_path / "copy"), "model").generation == seen[-1]


def test_a_manifest_without_a_generation_opens_and_the_next_one_counts(file, folder):
    CandidateStore.build(file, folder, maker())
    path = Path(folder) / manifest.MANIFEST
    fields = json.loads(path.read_text())
    del fields["generation"]
    path.write_text(json.dumps(fields))
    store = CandidateStore.open(folder, "model")
    assert store.generation.startswith("0-") and store.delete([0]).generation.startswith("1-")


def hostile_manifests():
    """What a manifest must not say, as changes of one of three shards, four, four and three candidates."""
    yield "another folder", {"shards": lambda held: [["../x.safetensors", 4], *held[1:]]}
    yield "an absolute path", {"shards": lambda held: [["/etc/passwd", 4], *held[1:]]}
    yield "a shard twice", {"shards": lambda held: [held[0], held[0], held[2]]}
    yield "no shards", {"shards": lambda held: []}
    yield "shards without counts", {"shards": lambda held: [name for name, _ in held]}
    yield "counts in words", {"shards": lambda held: [[name, str(count)] for name, count in held]}
    yield "counts below zero", {"shards": lambda held: [[held[0][0], -4], *held[1:]]}
    yield "counts that are true", {"shards": lambda held: [[held[0][0], True], *held[1:]]}
    yield "a shard of three", {"shards": lambda held: [[*held[0], 1], *held[1:]]}
    yield "deleted ones beyond the end", {"deleted": lambda held: [11]}
    yield "deleted ones below zero", {"deleted": lambda held: [-1]}
    yield "deleted twice", {"deleted": lambda held: [2, 2]}
    yield "deleted in words", {"deleted": lambda held: "all"}
    yield "deleted halves", {"deleted": lambda held: [1.5]}
    yield "another type of vectors", {"stored_as": lambda held: "fp8"}
    yield "a type that is a list", {"stored_as": lambda held: ["bf16"]}
    yield "no model", {"model": None}
    yield "a model that is a number", {"model": lambda held: 7}
    yield "a generation in words", {"generation": lambda held: "1"}
    yield "something else", {"more": lambda held: 1}


@pytest.mark.parametrize(("name", "changes"), [*hostile_manifests()])
def test_a_manifest_that_others_made_up_is_none(file, folder, name, changes):
    CandidateStore.build(file, folder, maker())
    path = Path(folder) / manifest.MANIFEST
    fields = json.loads(path.read_text())
    for field, change in changes.items():
        fields[field] = change(fields.get(field)) if change else None
    path.write_text(json.dumps({field: value for field, value in fields.items() if value is not None}))
    with pytest.raises(InputError, match="holds no finished candidate index"):
        CandidateStore.open(folder, "model")


@pytest.mark.parametrize("content", ["", "[]", "7", "[" * 100_000, '{"shards": ' + "[" * 100_000, "\xff", "null"])
def test_a_manifest_that_is_no_json(file, folder, content):
    CandidateStore.build(file, folder, maker())
    (Path(folder) / manifest.MANIFEST).write_text(content, encoding="latin-1")
    with pytest.raises(InputError, match="holds no finished candidate index"):
        CandidateStore.open(folder, "model")


def test_an_index_of_a_later_version_is_neither_unfinished_nor_replaced(file, folder):
    CandidateStore.build(file, folder, maker())
    path = Path(folder) / manifest.MANIFEST
    path.write_text(path.read_text().replace(manifest.FORMAT, "polyagents-candidates-2"))
    before = path.read_bytes()
    for call in (
        lambda: CandidateStore.open(folder, "model"),
        lambda: CandidateStore.build(file, folder, maker()),
    ):
        with pytest.raises(InputError, match=r"in the format polyagents-candidates-2.*use the version that wrote it"):
            call()
    assert path.read_bytes() == before


def test_a_manifest_that_may_not_be_read_is_not_taken_for_none(file, folder):
    CandidateStore.build(file, folder, maker())
    path = Path(folder, manifest.MANIFEST)
    path.unlink()
    path.mkdir()  # the right to read is root's, whoever owns a file
    for use in (lambda: CandidateStore.open(folder, None), lambda: CandidateStore.build(file, folder, maker())):
        with pytest.raises(InputError, match=r"manifest.json cannot be read \(Is a directory\); let this user read"):
            use()


def test_a_manifest_that_says_another_form_than_its_shards(file, folder):
    CandidateStore.build(file, folder, maker())
    path = Path(folder) / manifest.MANIFEST
    fields = json.loads(path.read_text())
    path.write_text(json.dumps(fields | {"stored_as": "int8" if fields["stored_as"] != "int8" else "bf16"}))
    with pytest.raises(InputError, match="holds vectors of another form than"):
        CandidateStore.open(folder, "model")


@pytest.mark.parametrize("content", ["", "[]", "[" * 100_000, '{"a": "b"}', '{"a": [["x"]]}'])
def test_a_damaged_note_of_what_was_verified_costs_time_only(file, folder, content):
    CandidateStore.build(file, folder, maker())
    (Path(folder) / manifest.VERIFIED).write_text(content)
    assert list(CandidateStore.open(folder, "model").texts()) == TEXTS


def test_a_manifest_comes_back_as_it_was(file, folder):
    written = CandidateStore.build(file, folder, maker()).manifest
    assert manifest.Manifest.read(folder) == written
    assert all(isinstance(part, tuple) for part in written.shards)
    path = os.path.join(folder, manifest.MANIFEST)
    for change in ({"format": "candidates-1"}, {"shards": []}, {"shards": [["a"]]}, {"more": 1}):
        with open(path, "w", encoding="utf-8") as out:
            json.dump(dataclasses.asdict(written) | change, out)
        assert manifest.Manifest.read(folder) is None


def test_a_folder_that_cannot_be_written_can_be_read(file, folder, monkeypatch):
    """It is read whole each time, since it cannot be noted that it is as it was."""
    expected = content(CandidateStore.build(file, folder, maker()))
    os.remove(os.path.join(folder, manifest.VERIFIED))

    def refuse(*_):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(atomic.os, "replace", refuse)
    assert content(CandidateStore.open(folder, "model")) == expected


def test_keys_are_whole_numbers():
    """As fractions some would be no numbers, which equal nothing, not even themselves."""
    keys = key_columns(b"\xff" * 32)
    assert keys.dtype == np.int64 and keys.tolist() == [[-1, -1], [-1, -1]]
    assert first_of_each(keys).tolist() == [0]


@pytest.mark.parametrize("harm", ["cut", "flip", "remove", "swap"])
def test_a_damaged_shard_is_refused_by_name_and_made_anew(file, folder, harm):
    expected = content(CandidateStore.build(file, folder, maker()))
    name = shard_files(folder)[1]
    path = os.path.join(folder, name)
    with open(path, "rb") as opened:
        whole = opened.read()
    if harm == "remove":
        os.remove(path)
    else:
        flipped = whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:]
        with open(os.path.join(folder, shard_files(folder)[0]), "rb") as other:
            harmed = {"cut": whole[:-9], "flip": flipped, "swap": other.read()}[harm]
        with open(path, "wb") as opened:
            opened.write(harmed)
    with pytest.raises(InputError, match=name):
        CandidateStore.open(folder, "model")
    counting = Counting()
    assert content(CandidateStore.build(file, folder, maker(encode=counting))) == expected
    assert counting.seen == TEXTS[4:8]


def test_an_unchanged_store_is_not_read_again(file, folder, monkeypatch):
    CandidateStore.build(file, folder, maker())
    monkeypatch.setattr(shard.Shard, "is_whole", lambda one: pytest.fail("read all of it"))
    CandidateStore.open(folder, "model")
    os.remove(os.path.join(folder, manifest.VERIFIED))  # a copy of the folder has other times
    monkeypatch.undo()
    monkeypatch.setattr(shard.Shard, "is_whole", lambda one: True)
    CandidateStore.open(folder, "model")
    assert len(json.loads(open(os.path.join(folder, manifest.VERIFIED)).read())) == 3  # noqa: SIM115


# ---- builds that end early -------------------------------------------------------------------------------------------


def killed_at(moment, file, folder):
    """Build in a process that kills itself at the given of its steps; False when it got through."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.WIFSIGNALED(status)
    left = iter(range(moment, -1, -1))

    def fatal(function):
        def step(*arguments, **options):
            if next(left, 0) == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return step

    tensors.save_file, atomic.os.replace = fatal(tensors.save_file), fatal(os.replace)
    atomic.os.fsync, manifest.os.remove = fatal(os.fsync), fatal(os.remove)
    try:
        CandidateStore.build(file, folder, maker(encode=fatal(encode)))
    finally:
        os._exit(0)


def test_a_build_killed_at_any_moment_ends_as_an_undisturbed_one(file, folder, tmp_path):
    expected = content(CandidateStore.build(file, str(tmp_path / "undisturbed"), maker()))
    draw = random.Random(0)
    for _ in range(10):
        assert killed_at(draw.randrange(4), file, folder)  # goes on from what the one before has left
        assert not os.path.exists(os.path.join(folder, manifest.MANIFEST))
        with pytest.raises(InputError, match="no finished candidate index"):
            CandidateStore.open(folder, "model")
    assert content(CandidateStore.build(file, folder, maker())) == expected
    assert not [name for name in os.listdir(folder) if name.endswith(".tmp")]


@pytest.mark.parametrize("moment", range(20))
def test_a_killed_build_loses_at_most_the_shard_it_was_at(file, folder, moment):
    killed_at(moment, file, folder)
    finished = len(shard_files(folder))
    counting = Counting()
    CandidateStore.build(file, folder, maker(encode=counting))
    assert len(counting.seen) == max(len(TEXTS) - 4 * finished, 0)


def test_a_full_disk_keeps_what_was_finished(file, folder, monkeypatch):
    save, calls = tensors.save_file, []

    def full(*arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")
        save(*arguments, **options)

    monkeypatch.setattr(tensors, "save_file", full)
    with pytest.raises(InputError, match="the disk is full"):
        CandidateStore.build(file, folder, maker())
    counting = Counting()
    assert list(CandidateStore.build(file, folder, maker(encode=counting)).texts()) == TEXTS
    assert counting.seen == TEXTS[8:]


def test_a_store_that_will_not_fit_is_not_begun(file, folder, monkeypatch):
    monkeypatch.setattr(builder, "ESTIMATED", 5)
    monkeypatch.setattr(builder.shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(1000, 900, 100))
    with pytest.raises(InputError, match=r"would take 770 B, and 100 B are free"):
        CandidateStore.build(file, folder, maker())


def test_size_and_time_are_told_before(file, folder, monkeypatch, capsys):
    monkeypatch.setattr(builder, "ESTIMATED", 5)
    CandidateStore.build(file, folder, maker())
    assert "11 candidates to encode: 770 B, about 1 s." in capsys.readouterr().err
    assert [duration(s) for s in (0, 42, 600, 12_000)] == ["1 s", "42 s", "10 min", "3 h 20 min"]
    sizes = (0, 999, 1000, 999_499, 999_500, 13_556_086, 2.5e9, 3e15)
    assert list(map(file_size, sizes)) == ["0 B", "999 B", "1 kB", "999 kB", "1 MB", "13.6 MB", "2.5 GB", "3e+03 TB"]


# ---- several processes -----------------------------------------------------------------------------------------------


def test_workers_build_what_one_would(file, folder, tmp_path):
    barrier, counts = threading.Barrier(2), [Counting(), Counting()]
    undisturbed = CandidateStore.build(file, str(tmp_path / "alone"), maker())

    def work(rank):
        CandidateStore.build(file, folder, maker(encode=counts[rank]), Worker(rank, 2, barrier.wait))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert content(CandidateStore.open(folder, "model")) == content(undisturbed)
    assert counts[0].seen == TEXTS[:4] + TEXTS[8:] and counts[1].seen == TEXTS[4:8]


def test_a_second_builder_waits_and_uses_what_the_first_has_built(file, folder, capsys, monkeypatch):
    commits, commit = [], manifest.Manifest.commit
    monkeypatch.setattr(manifest.Manifest, "commit", lambda one, where: (commits.append(where), commit(one, where)))
    entered, go_on, results = threading.Event(), threading.Event(), []

    def slow(texts):
        entered.set()
        assert go_on.wait(30)
        return encode(texts)

    second = Counting()
    threads = [threading.Thread(target=lambda m=m: results.append(CandidateStore.build(file, folder, m)))
               for m in (maker(encode=slow), maker(encode=second))]  # fmt: skip
    threads[0].start()
    assert entered.wait(30)
    told, say = threading.Event(), locks.say
    locks.say = lambda sentence: (say(sentence), told.set())
    try:
        threads[1].start()
        assert told.wait(30)
    finally:
        locks.say = say
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert [list(store.texts()) for store in results] == [TEXTS, TEXTS]
    assert second.seen == [] and commits == [folder]
    assert "being built by another process; waiting" in capsys.readouterr().err


def test_a_reader_keeps_what_it_opened(file, folder):
    before = CandidateStore.build(file, folder, maker())
    expected = content(before)
    write(file, ["something", "else"])
    CandidateStore.build(file, folder, maker())
    assert content(before) == expected
    assert list(CandidateStore.open(folder, "model").texts()) == ["something", "else"]


@pytest.mark.slow
def test_readers_never_see_a_store_between_two_states(file, folder):
    """Readers open it again and again while a builder goes back and forth between two files."""
    CandidateStore.build(file, folder, maker())
    versions, done, seen = [TEXTS, ["x", *TEXTS]], threading.Event(), []

    def read():
        while not done.is_set():
            try:
                seen.append(list(CandidateStore.open(folder, "model").texts()))
            except Exception as error:
                seen.append(error)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    for turn in range(30):
        write(file, versions[turn % 2])
        CandidateStore.build(file, folder, maker())
    done.set()
    for reader in readers:
        reader.join(30)
    assert seen and [found for found in seen if found not in versions] == []


# ---- append and delete -----------------------------------------------------------------------------------------------


def test_append_encodes_only_what_is_new(file, folder):
    store, counting = CandidateStore.build(file, folder, maker()), Counting()
    longer = store.append(ListedTexts(["ten", "twelve", "13", "twelve", "14", "15", "a"]), counting)
    assert list(longer.texts()) == [*TEXTS, "twelve", "13", "14", "15"]
    assert counting.seen == ["twelve", "13", "14", "15"]
    torch.testing.assert_close(longer.rows(range(15)), encode(list(longer.texts())), rtol=0, atol=0)
    assert content(CandidateStore.open(folder, "model")) == content(longer)
    assert list(store.texts()) == TEXTS  # as it was when opened
    assert len(shard_files(folder)) == 4
    assert content(longer.append(ListedTexts(["a", "15"]), counting)) == content(longer)


@pytest.mark.parametrize("cut", [1, 4, 7, 8, 10])
def test_what_is_built_and_appended_is_what_one_build_makes(file, folder, tmp_path, cut):
    """Down to the files: the last shard is filled before a new one begins, and named by the model and its texts."""
    whole = CandidateStore.build(file, str(tmp_path / "whole"), maker())
    write(file, TEXTS[:cut])
    grown = CandidateStore.build(file, folder, maker())
    for text in TEXTS[cut:]:
        grown = grown.append(ListedTexts([text]), encode)
    assert content(grown) == content(whole)
    assert shard_files(folder) == shard_files(tmp_path / "whole")
    assert grown.identity == whole.identity


def test_each_deleted_candidate_is_gone_and_all_others_stay(file, folder):
    store = CandidateStore.build(file, folder, maker())
    for gone in (5, 0, 10, 8, 4):
        store = store.delete([gone])
        left = [i for i in range(len(TEXTS)) if i not in store.deleted]
        assert [store.find(text) for text in TEXTS] == [i if i in left else None for i in range(len(TEXTS))]
        assert list(store.texts()) == [TEXTS[i] for i in left] and len(store) == len(left)
        places = [block.start + i for block in store.blocks() for i in range(len(block.vectors))
                  if block.alive is None or block.alive[i]]  # fmt: skip
        assert places == left
    for wrong in (11, -1):
        with pytest.raises(InputError, match=f"{wrong} is not an index of .* which has 0 to 10"):
            store.delete([wrong])
    with pytest.raises(InputError, match="would undo that"):
        CandidateStore.build(file, folder, maker())


def test_deleting_and_appending_nothing_leaves_a_store_that_can_be_built_again(file, folder):
    store = CandidateStore.build(file, folder, maker())
    store.delete([]).append(ListedTexts(["a"]), encode)
    assert CandidateStore.build(file, folder, maker()).manifest.source is not None


def test_no_rows_of_a_store(file, folder):
    assert CandidateStore.build(file, folder, maker()).rows([]).shape == (0, WIDTH)


def test_two_texts_of_one_key_bring_back_one_candidate(file, folder):
    store = CandidateStore.build(file, folder, maker()).append(ListedTexts(["a?"]), encode)
    fewer = store.delete([len(store) - 1])
    assert len(fewer.append(ListedTexts(["a\ud800", "a?"]), encode)) == len(store)  # UTF-8 has no such half


def test_delete_and_bring_back(file, folder):
    store, counting = CandidateStore.build(file, folder, maker(stored_as="int8")), Counting()
    asked = poly_query(torch.ones(1, 1, WIDTH), torch.ones(1, 1).bool())
    best = int(search(asked, store, 1).indices[0, 0])
    other = 0 if best else 1
    fewer = store.delete([best, other])
    assert len(fewer) == len(TEXTS) - 2 and fewer.find(TEXTS[best]) is None and fewer.find("ten") == 9
    assert list(fewer.texts()) == [text for i, text in enumerate(TEXTS) if i not in (other, best)]
    assert best not in search(asked, fewer, 99).indices
    again = fewer.append(ListedTexts([TEXTS[best], "new"]), counting)
    assert again.find(TEXTS[best]) == best and counting.seen == ["new"]
    assert search(asked, again, 1).indices[0, 0] == best
    with pytest.raises(InputError, match="99 is not an index of"):
        store.delete([99])
    with pytest.raises(InputError, match="without any candidate"):
        store.delete(range(12))


def test_building_does_not_undo_what_was_added_by_hand(file, folder):
    store = CandidateStore.build(file, folder, maker()).append(ListedTexts(["by hand"]), encode)
    with pytest.raises(InputError, match="would undo that"):
        CandidateStore.build(file, folder, maker())
    assert content(CandidateStore.open(folder, "model")) == content(store)
    with pytest.raises(InputError, match="would undo that"):
        CandidateStore.build(file, folder, maker(model="more training"))
    assert content(CandidateStore.open(folder, "model")) == content(store)


def test_an_index_of_another_build_deletes_nothing(file, folder):
    store = CandidateStore.build(file, folder, maker())
    write(file, ["something else", *TEXTS])
    CandidateStore.build(file, folder, maker())
    with pytest.raises(InputError, match="rebuilt since it was opened"):
        store.delete([3])


def test_a_stream_is_no_candidates_file_nor_is_a_line_without_end(folder, tmp_path):
    read, write_end = os.pipe()
    os.close(write_end)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "line").write_bytes(b"a\n" + b"x" * (LONGEST + 1))
    for path, said in [
        (path, "it is a pipe or a device") for path in (f"/dev/fd/{read}", tmp_path / "pipe", "/dev/zero")
    ] + [(tmp_path / "line", "has a line of more than 16,777,216 bytes")]:
        for use in (read_candidates, lambda path: CandidateStore.build(path, folder, maker())):
            with pytest.raises(InputError, match=said):
                use(str(path))
    os.close(read)


def test_a_folder_that_cannot_be_written(file, tmp_path):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(InputError, match="cannot be written to"):
        CandidateStore.build(file, str(tmp_path / "taken"), maker())


@pytest.mark.parametrize("name", ["manifest.json", "shortlist.json", "verified.json"])
def test_what_a_killed_process_left_half_written_is_removed(file, folder, name):
    CandidateStore.build(file, folder, maker())
    half = Path(folder) / f"{name}.0123abcd.tmp"
    half.write_text("{")
    Path(file).write_text("another one")
    CandidateStore.build(file, folder, maker())
    assert not half.exists()


def test_other_files_of_a_folder_stay(file, folder):
    CandidateStore.build(file, folder, maker())
    notes = Path(folder) / "notes.txt"
    notes.write_text("mine")
    write(file, ["other"])
    CandidateStore.build(file, folder, maker())
    assert notes.read_text() == "mine"


def test_there_is_no_first_of_no_keys():
    assert first_of_each(np.empty((0, 2), np.int64)).tolist() == []


def test_first_of_each_is_that_of_a_dict():
    keys = np.random.default_rng(0).integers(0, 3, (200, 2))
    expected = list({tuple(key): i for i, key in reversed(list(enumerate(keys.tolist())))}.values())[::-1]
    assert first_of_each(keys).tolist() == sorted(expected)


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_blocks_are_encoded_in_order_and_beside_a_gpu_two_at_a_time(gpu, count, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    both = threading.Barrier(2)

    def encode(texts):
        if gpu and int(texts[0]) < count // 2 * 2:  # each waits until another one has begun
            both.wait(timeout=10)
        return torch.tensor([[float(text)] for text in texts])

    blocks = [[str(number), str(number + 100)] for number in range(count)]
    assert [vectors.flatten().tolist() for vectors in results(encode, blocks)] == [
        [number, number + 100] for number in range(count)
    ]


def test_an_error_of_a_block_is_that_of_the_build(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    def encode(texts):
        raise InputError(f"no {texts[0]}")

    with pytest.raises(InputError, match="no a"):
        list(results(encode, [["a"], ["b"], ["c"]]))
