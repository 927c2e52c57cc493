"""An archive on a server becomes a folder of models, whole or not at all; and `polyagents zoo`."""

import errno
import gzip
import hashlib
import io
import json
import lzma
import os
import random
import socket
import sys
import tarfile
import threading

import pytest
from archive_server import Handler, tgz
from commands import own
from parlai.core.build_data import built, get_model_dir, mark_done, modelzoo_path
from parlai.core.params import ParlaiParser

from polyagents.commands import zoo as command
from polyagents.errors import InputError
from polyagents.zoo import archive as archives
from polyagents.zoo import download as downloads
from polyagents.zoo import resolve
from polyagents.zoo.archive import fetch
from polyagents.zoo.datapath import datapath, default_datapath, is_built, mark_built, models_folder
from polyagents.zoo.models import ARCHIVE, MODELS, Archive, find
from polyagents.zoo.pretrained_transformers.build import download
from polyagents.zoo.resolve import zoo_file

GROUP = "pretrained_transformers"
FILES = {
    "model_poly/model": random.Random(1).randbytes(200_000),
    "model_poly/model.dict": b"hello\t1\n",
    "model_bi/model": b"weights",
    "model_bi/model.opt": b'{"model": "kept"}',
    "convai_trainset_cands.txt": b"hi\n",
}
AFTER = {".built", "model_poly/model.opt", *FILES}  # what is in the folder in the end
KEPT = {f".{GROUP}.lock"}  # a lock file that is removed is no lock


CONTENT = tgz(FILES)


@pytest.fixture
def server(server):
    server.content = CONTENT
    return server


@pytest.fixture
def models(tmp_path):
    """The folder of the models, which does not exist yet."""
    return tmp_path / "data" / "models"


@pytest.fixture
def get(server, models):
    """Fetch the server's archive; the folder."""

    def run(url=None, sha256=None, version="v3.0"):
        return fetch(Archive(url or server.url, GROUP, version, sha256), str(models.parent))

    return run


def names(folder):
    """Names of all files below a folder, and of folders without any."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() or not any(path.iterdir())}


def is_complete(models):
    """Whether all is there as it was packed, and nothing else."""
    folder = models / GROUP
    assert names(folder) == AFTER and all((folder / name).read_bytes() == FILES[name] for name in FILES)
    return names(models) == {f"{GROUP}/{name}" for name in AFTER} | KEPT | {archives.SUMS}


# ---- download --------------------------------------------------------------------------------------------------------


def test_a_whole_download(get, server, models):
    assert get() == str(models / GROUP) and built(str(models / GROUP), "v3.0") and is_complete(models)
    get()
    assert server.asked == [None]


def test_an_interrupted_download_goes_on(get, server, models):
    server.cuts = [150_000] + [0] * downloads.RETRIES
    with pytest.raises(InputError, match="the download is then resumed"):
        get()
    part = models / "models.tgz.part"
    there = part.stat().st_size
    assert 0 < there <= 150_000 and CONTENT.startswith(part.read_bytes())
    assert names(models) == {part.name, f"{part.name}.json", *KEPT}
    server.asked.clear()
    get()
    assert server.asked == [f"bytes={there}-"] and is_complete(models)


def test_a_connection_that_breaks_is_tried_again_as_long_as_something_comes(get, server, models):
    server.cuts = [70_000, 0, 70_000, 0, 0, 40_000 + len(CONTENT)]
    get()
    starts = [int(asked.removeprefix("bytes=").removesuffix("-")) for asked in server.asked[1:]]
    assert starts[0] > 0 and starts == sorted(starts) and len(starts) == 5 and is_complete(models)


@pytest.mark.parametrize(
    ("status", "location", "etag", "content"),
    [
        *((status, None, '"first"', CONTENT) for status in (
            204, 206, 300, 304, 400, 401, 403, 404, 410, 416, 418, 451, 500, 503, 599)),
        *((302, where, '"first"', CONTENT) for where in (
            "", "/models.tgz", "file:///etc/passwd", "ftp://127.0.0.1/x", "http://example.invalid/x",
            "//example.invalid/x", "http://127.0.0.1:1/x", "http://[::1", "http://127.0.0.1:99999/x",
            "data:,x", "http://127.0.0.1@example.invalid/")),
        *((200, None, '"first"', content) for content in (
            b"", b"<html>Please log in</html>", b"PK\x03\x04", b"\x1f\x8b", CONTENT[:100], CONTENT[:-9],
            gzip.compress(b"<html>", mtime=0), gzip.compress(b"\0" * 1_024, mtime=0),
            lzma.compress(b"x"), b"\0" * 70_000)),
        *((200, None, etag, b"x") for etag in ("", "W/x", "x" * 9_000, "\xff", "../../x")),
    ],
)  # fmt: skip
def test_what_a_server_can_say_is_one_sentence(status, location, etag, content, get, server, models, monkeypatch):
    monkeypatch.setattr(downloads, "WAIT", 0.0)
    server.status, server.location, server.etag, server.content = status, location, etag, content
    with pytest.raises(InputError) as raised:
        get()
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 600
    assert not (models / GROUP).exists() and not any("passwd" in name for name in names(models))


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"\xff" * 99, b"hello\r\n\r\n", b"HTTP/1.1 9999 x\r\n\r\n", b"HTTP/1.1 -1 x\r\n\r\n",
        b"HTTP/1.1 404 \x1b[31m\x07\r\n\r\n", b"HTTP/1.1 404 " + b"x" * 60_000 + b"\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 300,
        *(b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n\r\nabc" for lines in (
            b"X: " + b"a" * 100_000, b"X: a\r\n" * 300, b"ETag: \xff", b"ETag: a\x0bb",
            *(b"Content-Length: " + said for said in (b"-5", b"x", b"+3", b"\xb2", b"9" * 30, b"9" * 5_000, b"3, 4")),
            *(b"Transfer-Encoding: chunked\r\n\r\n" + size for size in (b"zz", b"-5", b"f" * 16, b"")))),
        *(b"HTTP/1.1 302 x\r\nContent-Length: 0\r\nLocation: " + where + b"\r\n\r\n" for where in (
            b"\xff\xfe", b"\xe2\x80\xae", b"/" + b"a" * 60_000, b"http://example.invalid\\@127.0.0.1/",
            b"http://127.0.0.1:1/", b"http://\x00/")),
    ],
)  # fmt: skip
def test_what_a_server_can_send_in_place_of_http_is_one_sentence(raw, get, server, models, monkeypatch):
    monkeypatch.setattr(downloads, "WAIT", 0.0)
    server.raw = raw
    with pytest.raises(InputError) as raised:
        get()
    assert str(raised.value).isprintable() and len(str(raised.value)) < 600
    assert not (models / GROUP).exists()


@pytest.mark.parametrize("said", [b"", b"Content-Length: 999999999\r\n"])
def test_a_body_that_does_not_end_is_given_up_and_removed(said, get, server, models, monkeypatch):
    monkeypatch.setattr(downloads, "LARGEST", 100_000)
    server.raw = b"HTTP/1.1 200 OK\r\n" + said + b"\r\n" + b"x" * 300_000
    with pytest.raises(InputError, match="sends more than 100,000 bytes"):
        get()
    assert not any("part" in name for name in names(models))


def test_all_that_came_is_not_asked_for_again(get, server, models):
    """What a process leaves that is killed just before the archive gets its name."""
    server.cuts = [0] * 9
    with pytest.raises(InputError):
        get()
    (models / "models.tgz.part").write_bytes(CONTENT)
    server.asked.clear()
    get()
    assert server.asked == [] and is_complete(models)


@pytest.fixture
def half(get, server):
    """A download that was interrupted; the next requests are seen from there."""
    server.cuts = [150_000] + [0] * downloads.RETRIES
    with pytest.raises(InputError):
        get()
    server.asked.clear()


def test_a_file_that_has_changed_starts_anew(half, get, server, models):
    server.content, server.etag = tgz(FILES | {"more": b"1"}), '"second"'
    get()
    assert len(server.asked) == 1 and (models / GROUP / "more").read_bytes() == b"1"


def test_a_changed_file_on_a_server_that_overlooks_if_range(half, get, server, models, monkeypatch):
    monkeypatch.setattr(Handler, "resumes", lambda self, wanted: bool(wanted))
    server.content, server.etag = tgz(FILES | {"more": b"1"}), '"second"'
    get()
    assert server.asked[1] is None and (models / GROUP / "more").read_bytes() == b"1"


def test_a_server_that_ignores_ranges(half, get, server, models):
    server.ranges = False
    get()
    assert len(server.asked) == 1 and is_complete(models)


@pytest.mark.parametrize("etag", [None, 'W/"weak"'])
def test_without_a_word_for_the_content_nothing_is_resumed(etag, get, server, models):
    server.etag, server.cuts = etag, [150_000]
    get()
    assert server.asked == [None, None] and is_complete(models)


def test_a_shorter_file_than_the_part(half, get, server, models):
    with open(models / "models.tgz.part", "ab") as part:
        part.write(bytes(len(CONTENT)))
    get()
    assert len(server.asked) == 2 and server.asked[1] is None and is_complete(models)


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (503, 4)])
def test_what_the_server_refuses(status, requests, get, server, models):
    server.status = status
    with pytest.raises(InputError) as error:
        get()
    assert f"{server.url} cannot be downloaded (the server says {status}" in str(error.value)
    assert str(models / "models.tgz") in str(error.value) and len(server.asked) == requests
    assert names(models) == KEPT


@pytest.mark.parametrize("url", ["http://parl.ai/models.tgz", "ftp://parl.ai/models.tgz", "file:///etc/passwd"])
def test_an_address_that_anybody_could_answer_for_is_not_asked(url, tmp_path):
    with pytest.raises(InputError, match=f"^{url}, where anybody on the way could change.*only https"):
        downloads.download(url, str(tmp_path / "models.tgz"))
    assert not os.listdir(tmp_path)


def test_nor_is_one_that_a_server_sends_us_to(get, server, models):
    server.status, server.location = 302, "http://zoo.example/models.tgz"
    with pytest.raises(InputError, match=r"sends us to 'http://zoo\.example/models\.tgz', where anybody"):
        get()
    assert len(server.asked) == 1 and not (models / "pretrained").exists()


def test_the_archive_is_asked_for_by_https():
    assert ARCHIVE.url.startswith("https://")


def test_no_server(get, models):
    with socket.socket() as silent:  # a port that nobody listens at, and nobody else gets
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/models.tgz"
        with pytest.raises(InputError) as error:
            get(url)
    sentence = str(error.value)
    assert sentence.startswith(f"{url} cannot be downloaded (no connection)") and "\n" not in sentence
    assert f"put it at {models / 'models.tgz'}" in sentence and names(models) == KEPT


def test_two_at_once_download_once(get, server, models, monkeypatch):
    server.gate.clear()  # the first gets nothing before the second waits for it
    monkeypatch.setattr("polyagents.files.locks.say", lambda sentence: "waiting" in sentence and server.gate.set())
    folders = []
    both = [threading.Thread(target=lambda: folders.append(get())) for _ in range(2)]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert folders == [str(models / GROUP)] * 2 and server.asked == [None] and is_complete(models)


def test_a_disk_that_cannot_be_written_to(get, models):
    models.parent.write_text("a file where the folder should be")
    with pytest.raises(InputError, match=r"cannot be read or written .*--datapath"):
        get()


def test_a_disk_that_is_full_when_it_is_unpacked(get, server, models, monkeypatch):
    def extractall(self, folder, **_):
        (models / f"{GROUP}.unpacking" / "half").write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(tarfile.TarFile, "extractall", extractall)
        with pytest.raises(InputError, match=r"No space left on device.*make room"):
            get()
    assert names(models) == {"models.tgz", *KEPT}  # whole, so it is not downloaded again
    get()
    assert server.asked == [None] and is_complete(models)


# ---- what is there already -------------------------------------------------------------------------------------------


def test_what_parlai_has_fetched_is_used(server, models):
    folder = models / GROUP
    (folder / "model_bi").mkdir(parents=True)
    (folder / "model_bi" / "model").write_bytes(b"weights")
    mark_done(str(folder), ARCHIVE.version)
    download(str(models.parent))
    assert names(models) == {f"{GROUP}/{name}" for name in (".built", "model_bi/model", "model_bi/model.opt")}
    saved = json.loads((folder / "model_bi" / "model.opt").read_text())
    assert saved == {"model": "transformer/biencoder", **find("model_bi").options}


def test_an_archive_that_the_user_put_there(get, server, models):
    models.mkdir(parents=True)
    (models / "models.tgz").write_bytes(CONTENT)
    get()
    assert server.asked == [] and is_complete(models)


def test_missing_options_are_written_and_others_kept(get, models):
    get()
    saved = json.loads((models / GROUP / "model_poly" / "model.opt").read_text())
    assert saved["model"] == "transformer/polyencoder" and saved["poly_n_codes"] == 64 and saved["n_layers"] == 12
    (models / GROUP / "model_poly" / "model.opt").unlink()
    get()
    assert is_complete(models)


def test_an_older_version_goes_when_the_new_one_is_there(get, server, models):
    (models / GROUP).mkdir(parents=True)
    (models / GROUP / "old").write_text("old")
    mark_done(str(models / GROUP), "v2.0")
    server.content = CONTENT[:1_000]
    with pytest.raises(InputError):
        get()
    assert names(models / GROUP) == {".built", "old"}
    server.content = CONTENT
    get()
    assert is_complete(models)


def test_a_folder_that_nobody_marked_is_set_aside(get, models, capsys):
    (models / GROUP).mkdir(parents=True)
    (models / GROUP / "mine").write_text("mine")
    get()
    (aside,) = models.glob(f"{GROUP}.old-*")
    assert names(models / GROUP) == AFTER and (aside / "mine").read_text() == "mine"
    assert f"it is now {aside}" in capsys.readouterr().err


# ---- refused archives ------------------------------------------------------------------------------------------------


def test_a_wrong_checksum(get, models):
    with pytest.raises(InputError, match=r"models\.tgz has SHA-256 \w{12}\.\.\. where .*models\.py says 00000000"):
        get(sha256="0" * 64)
    assert names(models) == KEPT


def test_a_checksum_is_recorded_and_compared(get, server, models):
    get()
    (recorded,) = json.loads((models / archives.SUMS).read_text()).values()
    (models / GROUP / ".built").unlink()
    server.content = tgz(FILES | {"more": b"1"})
    before = names(models)
    with pytest.raises(InputError, match=f"{archives.SUMS} says {recorded[:12]}"):
        get()
    assert names(models) == before
    get(version="v4.0")  # another archive may come from the same place
    assert json.loads((models / archives.SUMS).read_text())[f"{server.url} v3.0"] == recorded


def test_a_known_checksum_is_not_recorded(get, models):
    digest = hashlib.sha256(CONTENT).hexdigest()
    get(sha256=digest)
    assert names(models / GROUP) == AFTER and not (models / archives.SUMS).exists()


def test_a_damaged_record_of_checksums(get, server, models):
    models.mkdir(parents=True)
    for content in ("{", "[]"):
        (models / archives.SUMS).write_text(content)
        with pytest.raises(InputError, match=r"is damaged.*remove it"):
            get()
    assert server.asked == []


def link(name, kind, target):
    """A member that is a link."""
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def pax(name, **fields):
    """A member with fields of a header of its own."""
    member = tarfile.TarInfo(name)
    member.pax_headers = fields
    return member


def headers(kind, size, times=1):
    """An archive that begins with headers of headers, each of so many bytes."""
    out = io.BytesIO()
    member = tarfile.TarInfo("header")
    member.type, member.size = kind, size
    for _ in range(times):
        out.write(member.tobuf(tarfile.USTAR_FORMAT) + b"10 a=bcde\n".ljust(-(-size // 512) * 512, b"\0"))
    return gzip.compress(out.getvalue() + gzip.decompress(CONTENT), mtime=0)


def device():
    """A member that is a device."""
    member = tarfile.TarInfo("null")
    member.type = tarfile.CHRTYPE
    return member


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (CONTENT[: len(CONTENT) // 2], "is not an archive, cut short or damaged"),
        (CONTENT[:-8] + bytes(8), "is not an archive, cut short or damaged"),  # gzip's checksum
        (CONTENT[:1000] + bytes(1000) + CONTENT[2000:], "is not an archive, cut short or damaged"),
        (lzma.compress(gzip.decompress(CONTENT))[:-3000] + bytes(3000), "is not an archive, cut short or damaged"),
        (b"<html>We moved.</html>", "is not an archive, cut short or damaged"),
        (b"", "is not an archive, cut short or damaged"),
        (tgz({}), "holds no files"),
        (tgz(FILES | {"../evil": b""}), "'../evil', which leads out of its folder"),
        (tgz(FILES | {"a/../../evil": b""}), "'a/../../evil', which leads out of its folder"),
        (tgz(FILES | {"a\\..\\..\\evil": b""}), "which leads out of its folder"),
        (tgz(FILES | {"/tmp/evil": b""}), "'/tmp/evil', which is a path from the root"),
        (tgz(FILES | {"C:\\evil": b""}), "which is a path from the root"),
        (tgz(FILES, link("evil", tarfile.SYMTYPE, "/etc")), "'evil', which is a link"),
        (tgz(FILES, link("evil", tarfile.LNKTYPE, "model_bi/model")), "'evil', which is a link"),
        (tgz(FILES, device()), "'null', which is neither file nor folder"),
        (tgz(FILES | {"/".join("a" * 1_500): b""}), "which has an invalid name"),
        (tgz(FILES | {"a" * 300: b""}), "which has an invalid name"),
        (tgz(FILES, pax("a", path="b\0c")), "invalid name"),
        (tgz(FILES, pax("a", mtime="nan")), "has an invalid modification time"),
        (tgz(FILES, pax("a", mtime="-1e300")), "has an invalid modification time"),
        (tgz(FILES, pax("a", **{"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "b"})), ""),
        (tgz(FILES, pax("a", **{"GNU.sparse.map": "0,1,9" * 9})), ""),
        (tgz(FILES | {"model_bi": b""}), "'model_bi', which is there twice"),
        (tgz(FILES | {"model_bi/model/more": b""}), "which is below a file"),
        (headers(tarfile.XHDTYPE, 1_000_001), "is not an archive, cut short or damaged"),
        (headers(tarfile.GNUTYPE_LONGNAME, 1_000_001), "is not an archive, cut short or damaged"),
        (headers(tarfile.XHDTYPE, 10, times=20_000), "is not an archive, cut short or damaged"),
    ],
    ids=lambda value: value if isinstance(value, str) else "archive",  # its bytes are no name
)
def test_an_archive_that_is_not_unpacked(content, message, get, server, models, tmp_path):
    server.content = content
    with pytest.raises(InputError) as error:
        get()
    assert message in str(error.value) and "\n" not in str(error.value)
    assert names(tmp_path) == {f"data/models/{name}" for name in KEPT}
    server.content, server.etag = CONTENT, '"second"'
    get()
    assert is_complete(models)


FOLDER = tarfile.TarInfo("a")
FOLDER.type = tarfile.DIRTYPE


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (FOLDER.tobuf() * 9_999, None),
        (FOLDER.tobuf() * 10_000, "is one member too many"),
        (tarfile.TarInfo("/".join(["a" * 99] * 10)[:1_000] + "a").tobuf(tarfile.GNU_FORMAT), None),  # 1,000 bytes
        (tarfile.TarInfo("/".join(["a" * 99] * 10)[:1_000] + "aa").tobuf(tarfile.GNU_FORMAT), "has an invalid name"),
        (tarfile.TarInfo("a/" * 30 + "a").tobuf(), None),
        (tarfile.TarInfo("a/" * 31 + "a").tobuf(), "has an invalid name"),
        (tarfile.TarInfo("a" * 255).tobuf(tarfile.GNU_FORMAT), None),
        (tarfile.TarInfo("a" * 256).tobuf(tarfile.GNU_FORMAT), "has an invalid name"),
        (pax("b", a="b", comment="c" * 999_978).tobuf(tarfile.PAX_FORMAT), None),  # a header of 1,000,000 bytes
        (pax("b", a="b", comment="c" * 999_979).tobuf(tarfile.PAX_FORMAT), "cut short or damaged"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_the_largest_archive_that_is_unpacked(members, message, tmp_path):
    """The last member is a file, so that there is one."""
    with open(tmp_path / "models.tar", "wb") as file:
        file.write(members + tarfile.TarInfo("file").tobuf() + bytes(1_024))
    if message is None:
        return archives.check_archive(str(tmp_path / "models.tar"))
    with pytest.raises(InputError, match=message):
        archives.check_archive(str(tmp_path / "models.tar"))


# ---- ParlAI's data folder, without ParlAI ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "variable"), [(None, None), ("mine", None), (None, "set"), ("mine", "set"), (None, "")]
)
def test_the_data_lie_where_parlai_has_them(given, variable, monkeypatch):
    found = []
    for look in (datapath, lambda given: ParlaiParser(False)._infer_datapath({"datapath": given})["datapath"]):
        if variable is None:
            monkeypatch.delenv("PARLAI_DATAPATH", raising=False)
        else:
            monkeypatch.setenv("PARLAI_DATAPATH", variable)
        found.append((look(given), os.environ["PARLAI_DATAPATH"]))
    assert found[0] == found[1]


def test_without_parlai_the_data_lie_in_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "parlai", None)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_datapath() == str(tmp_path / ".parlai" / "data")


def test_what_is_marked_as_built_is_so_for_parlai_and_the_other_way(tmp_path):
    assert not is_built(str(tmp_path)) and not is_built(str(tmp_path / "nothing"), "v1")
    for mark in (mark_built, mark_done):
        mark(str(tmp_path), "v3.0")
        for ask in (is_built, built):
            assert ask(str(tmp_path)) and ask(str(tmp_path), "v3.0") and not ask(str(tmp_path), "v2.0")
    assert models_folder(str(tmp_path)) == get_model_dir(str(tmp_path))


def test_a_name_of_the_zoo_is_the_path_that_parlai_gives(server, models, monkeypatch):
    monkeypatch.setattr(resolve, "ARCHIVE", Archive(server.url, GROUP, "v3.0"))
    name = f"zoo:{GROUP}/model_poly/model"
    file = zoo_file(name, str(models.parent))
    assert is_complete(models) and file == modelzoo_path(str(models.parent), name)
    reddit = zoo_file("zoo:reddit", str(models.parent))
    assert reddit == str(models / GROUP / "poly_model_huge_reddit" / "model") and server.asked == [None]
    with pytest.raises(InputError, match="zoo holds no 'zoo:blender/model'"):
        zoo_file("zoo:blender/model", str(models.parent))


# ---- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def zoo(models, server, monkeypatch, capsys):
    """`polyagents zoo ...`, with the server's archive instead of ParlAI's: what it prints."""
    monkeypatch.setenv("PARLAI_DATAPATH", "")  # ParlAI keeps --datapath there
    monkeypatch.setattr(command, "ARCHIVE", Archive(server.url, GROUP, "v3.0"))

    def run(*arguments):
        capsys.readouterr()
        own("zoo", *arguments, "--datapath", models.parent)
        return capsys.readouterr().out

    return run


def test_list(zoo, server, models):
    lines = zoo("list").splitlines()
    for model, line in zip(MODELS, lines[1:], strict=False):
        assert line.startswith(model.short_name) and f" {model.kind}-encoder " in line and line.endswith(model.metric)
    assert len(MODELS) == 8 and max(map(len, lines)) <= 110
    assert server.asked == [] and not models.exists()


def test_show(zoo, models):
    shown = zoo("show", "poly_model_huge_reddit")
    file = models / GROUP / "poly_model_huge_reddit" / "model"
    assert f"{file} (not downloaded" in shown and "poly_n_codes 64" in shown and ".8942" in shown
    assert f"--init-model zoo:{GROUP}/poly_model_huge_reddit/model" in shown and "--backbone zoo:reddit" in shown
    assert "model_list.py" in shown and not models.exists()
    shown = zoo("show", f"zoo:{GROUP}/model_bi/model")
    assert f"-mf zoo:{GROUP}/model_bi/model" in shown and ".9197" in shown and "poly_n_codes" not in shown


def test_download(zoo, server, models):
    file = models / GROUP / "model_poly" / "model"
    assert str(file) in zoo("download", "model_poly") and is_complete(models)
    assert f"{file} (downloaded)" in zoo("show", "model_poly") and server.asked == [None]
    assert "missing from the archive" in zoo("show", "cross_model_huge_wikito")


@pytest.mark.parametrize("arguments", [(), ("show",), ("download",), ("list", "model_bi"), ("fetch", "model_bi")])
def test_wrong_use(arguments, zoo):
    with pytest.raises(InputError, match="Give one of: polyagents zoo list"):
        zoo(*arguments)


@pytest.mark.parametrize("what", ["show", "download"])
def test_an_unknown_name(what, zoo, server):
    with pytest.raises(InputError, match=r"no 'poly_huge_reddit' \(did you mean poly_model_huge_reddit.*zoo list"):
        zoo(what, "poly_huge_reddit")
    with pytest.raises(InputError, match="no 'blenderbot'; polyagents zoo list"):
        zoo(what, "blenderbot")
    assert server.asked == []


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.short_name)
def test_a_model_is_found_by_all_its_names(model):
    for name in (model.short_name, model.name, f"zoo:{model.name}", f"{GROUP}/{model.short_name}"):
        assert find(name) is model
