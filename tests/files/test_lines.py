"""The lines of files of others: bounded, in UTF-8, divided at line ends only."""

import bz2
import gzip
import io
import lzma
import os

import pytest

from polyagents.errors import InputError
from polyagents.files.lines import lines_of, opened, text_lines


class Endless(io.RawIOBase):
    """A stream without end and without line ends, which counts what was read of it."""

    read_bytes = 0

    def readable(self):
        return True

    def readinto(self, buffer):
        buffer[:] = bytes(len(buffer))
        self.read_bytes += len(buffer)
        return len(buffer)


def test_only_a_line_end_divides_lines_and_nothing_else_changes():
    texts = ["a b ", " c\x0bd\x0c\x1c\x1d\x1ee", "f\u0085g\u2028h\u2029", "i\rj", "\ufeffk", "\0", "", "\t l"]
    written = "\ufeff" + "\n".join(texts)
    assert list(text_lines(io.BytesIO(written.encode()), "F")) == texts
    assert list(text_lines(io.BytesIO(written.replace("\n", "\r\n").encode()), "F")) == texts
    assert list(lines_of(io.BytesIO(b"\xef\xbb\xbfa\n\nb"), "F")) == [b"a\n", b"\n", b"b"]


def test_the_position_stays_after_the_last_line():
    file = io.BytesIO(b"\xef\xbb\xbfa\n\xef\xbb\xbfb\nc")
    assert next(lines_of(file, "F")) == b"a\n"
    assert file.tell() == 5
    assert list(lines_of(file, "F")) == [b"\xef\xbb\xbfb\n", b"c"]  # a mark in the middle is a character


def test_a_line_without_end_is_refused_before_it_fills_the_memory():
    endless = Endless()
    with pytest.raises(InputError, match=r"F has a line of more than 100,000 bytes"):
        list(lines_of(io.BufferedReader(endless), "F", 100_000))
    assert endless.read_bytes < 200_000
    assert list(lines_of(io.BytesIO(b"x" * 9 + b"\n"), "F", 10)) == [b"x" * 9 + b"\n"]


def test_other_encodings_are_refused():
    for written in ("é".encode("latin-1"), "a".encode("utf-16"), b"\xed\xa0\x80"):
        with pytest.raises(InputError, match="F is not in UTF-8"):
            list(text_lines(io.BytesIO(b"a\n" + written), "F"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(b"a\n", mtime=0), "is compressed"),
        (bz2.compress(b"a\n"), "is compressed"),
        (lzma.compress(b"a\n"), "is compressed"),
        (b"\x28\xb5\x2f\xfd", "is compressed"),
        (b"PK\x03\x04", "is a zip archive, such as an Excel workbook"),
        (b"\xd0\xcf\x11\xe0", "is an old Office document"),
        (b"PAR1", "is a Parquet file; give it a name"),
        (b"a\rb\r", "has carriage returns, and no line feed"),
        ("a\n".encode("utf-16"), "is not in UTF-8, but in UTF-16"),
    ],
)
def test_a_file_that_is_no_text_is_named(content, said):
    with pytest.raises(InputError, match=f"F {said}"):
        list(lines_of(io.BytesIO(content), "F"))
    assert len(list(lines_of(io.BytesIO(b"a\n" + content), "F"))) > 1  # in a text, anything may follow


def test_pipes_and_devices_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(OSError, match="it is a pipe or a device"):
            opened(path)
    with pytest.raises(IsADirectoryError):
        opened(tmp_path)
