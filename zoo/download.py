"""Downloading a whole file from its URL; an interrupted download is resumed.

PATH.part         the downloaded part
PATH.part.json    metadata: of which file it is a part
"""

import contextlib
import dataclasses
import http.client
import json
import os
import re
import time
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

import requests
import urllib3

from polyagents.console import Bar
from polyagents.errors import InputError
from polyagents.files.atomic import write_text
from polyagents.files.hashing import file_digest
from polyagents.files.json_files import read_fields

RETRIES = 3  # consecutive failures without a new byte
WAIT = 1.0  # seconds before the first retry, twice as long before every next
TIMEOUT = (10, 60)  # seconds without a connection, seconds without a byte
LOOPBACK = ("127.0.0.1", "localhost", "::1")
CHUNK = 65_536  # bytes; the most that a broken connection loses
LARGEST = 20 * 10**9  # bytes of a file. Chosen here, for a body that does not end


@dataclass(frozen=True)
class PartialDownload:
    """Metadata of a partial download.

    Attributes:
        url: the address of the file.
        validator: the server's identifier of this content, ETag or Last-Modified; None if it gave none.
        length: the size of the whole file in bytes; None if the server did not say.
    """

    url: str
    validator: str | None
    length: int | None


def download(url: str, path: str, sha256: str | None = None) -> None:
    """Download a whole file; the part that an earlier call left is not requested again.

    Args:
        sha256: of the whole file; None to take any.

    Raises:
        InputError: no connection; `path`.part is kept for the next call. Or not the file, or too long.
    """
    check_address(url)
    part = f"{path}.part"
    failures, furthest = 0, size_of(part)
    while not is_whole(part, url):
        try:
            receive(url, part)
            break
        except InputError:
            raise
        except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:  # the last: headers
            failures = 1 if size_of(part) > furthest else failures + 1
            furthest = max(furthest, size_of(part))
            answer = error.response if isinstance(error, requests.HTTPError) else None
            is_wrong = answer is not None and answer.status_code < 500  # the request itself: asking again is pointless
            if failures > RETRIES or is_wrong:
                raise InputError(
                    f"{url} cannot be downloaded ({reason(error)}); run the same command again when it can be "
                    f"reached{' (the download is then resumed)' if furthest else ''}, or get the file some other "
                    f"way and put it at {path}."
                ) from error
            time.sleep(WAIT * 2 ** (failures - 1))
    if sha256 and file_digest(part) != sha256:
        found = f"{size_of(part):,} bytes with another SHA-256"
        forget(part)
        raise InputError(f"{url} is not the published file ({found}); get it some other way and put it at {path}.")
    os.replace(part, path)
    forget(part)


def check_address(url: str, sent_by: str | None = None) -> None:
    """Refuse an address whose content could be changed on the way: https only, http on this machine.

    Args:
        url: the address, or the part of it that differs from `sent_by`.
        sent_by: the address that redirected us; None for our own requests.
    """
    try:
        there = urlsplit(urljoin(sent_by or "", url))
    except ValueError as error:
        raise InputError(f"{sent_by or 'A download'} sends us to {url!a:.200}, which is not an address.") from error
    if there.scheme == "https" or (there.scheme == "http" and there.hostname in LOOPBACK):
        return
    whence = f"{sent_by:.300} sends us to {url!a:.200}" if sent_by else url
    raise InputError(f"{whence}, where anybody on the way could change the content; only https is used.")


def check_redirection(answer: requests.Response, *given: object, **named: object) -> None:
    """Refuse a redirection that `check_address` would refuse; `requests` calls this before it follows."""
    if answer.is_redirect:
        check_address(answer.headers["Location"], answer.url)


HOOKS = {"response": check_redirection}


def receive(url: str, part: str) -> None:
    """Do one request, for the whole file or the missing part of it.

    Raises:
        requests.RequestException, urllib3.exceptions.HTTPError, ValueError: it was not answered, or not to the end, or
            in words that cannot be read.
        InputError: the answer is of another address, or too long.
    """
    partial = read_partial(part, url)
    start = size_of(part) if partial and partial.validator else 0
    asked = {"Accept-Encoding": "identity"}  # the archive's own bytes, which its length counts
    if start and partial and partial.validator:
        asked |= {"Range": f"bytes={start}-", "If-Range": partial.validator}
    with requests.get(url, headers=asked, stream=True, timeout=TIMEOUT, hooks=HOOKS) as answer:
        if (
            start and answer.status_code in (206, 416) and not is_continuation(answer, start, partial)
        ):  # 416: no such part
            forget(part)
            raise requests.ConnectionError("the file on the server has changed")
        answer.raise_for_status()
        if answer.status_code != 200 and not (start and answer.status_code == 206):
            raise requests.ConnectionError(f"the server says {answer.status_code}, which is not a file")
        if partial is None or not start or answer.status_code != 206:
            start, partial = 0, PartialDownload(url, validator(answer), length(answer.headers.get("Content-Length")))
            forget(part)  # removed first: an old part must never have a new description
            write_json(sidecar(part), dataclasses.asdict(partial))
        save(answer, part, start, partial.length)
    if partial.length not in (None, size_of(part)):
        raise requests.ConnectionError(f"{size_of(part)} bytes of {partial.length} came")


def save(answer: requests.Response, part: str, start: int, total: int | None) -> None:
    """Append a response to a file, with a progress bar in bytes.

    Args:
        total: the size of the whole file; None if it is unknown.
    """
    label = f"Downloading {os.path.basename(part).removesuffix('.part')}"
    with open(part, "ab") as out, Bar(desc=label, total=total, initial=start, unit="B", unit_scale=True) as bar:
        # Not iter_content, which unpacks a .tgz if the server declares it as a compressed transfer.
        for chunk in answer.raw.stream(CHUNK, decode_content=False):
            if out.write(chunk) and out.tell() > LARGEST:
                forget(part)
                raise InputError(f"{answer.url} sends more than {LARGEST:,} bytes, which is not an archive of models.")
            bar.update(len(chunk))


def is_continuation(answer: requests.Response, start: int, partial: PartialDownload | None) -> bool:
    """Return whether a partial response is the rest of a partial download. Some servers ignore If-Range."""
    place, _, total = answer.headers.get("Content-Range", "").partition("/")
    if partial is None or answer.status_code != 206 or not place.startswith(f"bytes {start}-"):
        return False
    return validator(answer) == partial.validator and length(total) == partial.length


def validator(answer: requests.Response) -> str | None:
    """Return the value for If-Range; a weak ETag is not enough, as it matches content that is only equivalent."""
    etag = answer.headers.get("ETag")
    return etag if etag and not etag.startswith("W/") else answer.headers.get("Last-Modified")


def length(text: str | None) -> int | None:
    """Parse a number of bytes in a header; None if it is not one."""
    return int(text) if text and re.fullmatch("[0-9]{1,15}", text) else None


def reason(error: Exception) -> str:
    """Describe an error in few words; `requests` dumps objects, except where `receive` raises them."""
    if isinstance(error, requests.HTTPError) and error.response is not None:
        status = error.response.status_code  # with its usual name: the server's own may be of any length and content
        return f"the server says {status} {http.client.responses.get(status, '')}".rstrip()
    if isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError):
        return "no answer in time"
    if isinstance(error, requests.ConnectionError):
        own = error.args[0] if error.args else None
        return own if isinstance(own, str) else "no connection"
    return "the connection broke"


def is_whole(part: str, url: str) -> bool:
    """Return whether a killed process has already downloaded everything."""
    partial = read_partial(part, url)
    return partial is not None and partial.length is not None and partial.length == size_of(part)


def sidecar(part: str) -> str:
    """Return the path of the metadata of a partial download."""
    return f"{part}.json"


def forget(part: str) -> None:
    """Remove a partial download and its metadata."""
    for path in (part, sidecar(part)):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def read_partial(part: str, url: str) -> PartialDownload | None:
    """Return the metadata of a partial download; None if it is missing or belongs to another URL."""
    try:
        partial = read_fields(sidecar(part), PartialDownload)
    except (OSError, ValueError):
        return None
    return partial if partial.url == url else None


def size_of(path: str) -> int:
    """Return the size of a file in bytes; 0 if there is none."""
    return os.path.getsize(path) if os.path.exists(path) else 0


def write_json(path: str, content: object) -> None:
    """Write a small file atomically."""
    write_text(path, json.dumps(content, indent=2) + "\n")
