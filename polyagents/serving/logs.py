"""Logs of a server: one line of text or JSON for each record, with the id of its request."""

import contextlib
import json
import logging
import re
import secrets
import sys
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import datetime, timezone
from typing import Any, TextIO

from starlette.datastructures import Headers
from starlette.types import Scope

LOG = logging.getLogger("polyagents.serve")
REQUEST_ID = "X-Request-Id"
GIVEN_ID = re.compile(r"[\w.:/+=-]{1,128}", re.ASCII)  # other ids are replaced: they reach logs and headers
PLAIN = re.compile(r"[\w.:/+@-]+", re.ASCII)  # a value that text needs no quotes for
IN_REQUEST: ContextVar[str] = ContextVar("request_id", default="")


def begin_request(scope: Scope) -> str:
    """Return the id of a request: its own if that is plain, else a new one. This task's records have it from now on."""
    given = Headers(scope=scope).get(REQUEST_ID, "")
    chosen = given if GIVEN_ID.fullmatch(given) else secrets.token_hex(16)
    IN_REQUEST.set(chosen)
    return chosen


class Lines(logging.Formatter):
    """A record as one line: time (UTC), level, message, and the fields of `extra={"fields": {...}}`."""

    def __init__(self, is_json: bool):
        super().__init__()
        self.is_json = is_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a traceback follows it in text, and is a field in JSON."""
        when = datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds")
        fields: dict[str, Any] = {**getattr(record, "fields", {})}
        if request_id := IN_REQUEST.get():
            fields["request_id"] = request_id
        level, message = record.levelname.lower(), record.getMessage()
        traceback = self.formatException(record.exc_info) if record.exc_info and record.exc_info[0] else None
        if self.is_json:
            if traceback is not None:
                fields["traceback"] = traceback
            return json.dumps({"time": when, "level": level, "message": message, **fields})
        shown = [
            f"{name}={value if PLAIN.fullmatch(str(value)) else json.dumps(value)}" for name, value in fields.items()
        ]
        line = " ".join([when, level, message, *shown])
        return line if traceback is None else f"{line}\n{traceback}"


class OnlyJson:
    """Stands for standard error: whatever anybody writes there becomes records, so that every line is JSON."""

    def __init__(self, stream: TextIO):
        self.stream, self.lines, self.begun = stream, Lines(is_json=True), ""

    def __getattr__(self, name: str) -> Any:
        """Return what the stream has."""
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write a record for each line that is complete, whatever the level of the logs."""
        *lines, self.begun = (self.begun + text).split("\n")
        for line in lines:
            if line.strip():
                record = logging.makeLogRecord({"levelname": "INFO", "msg": line.rstrip()})
                self.stream.write(f"{self.lines.format(record)}\n")
        return len(text)


@contextlib.contextmanager
def logging_to_stderr(log_format: str, level: str) -> Iterator[None]:
    """Write the records of the server and of uvicorn to standard error until the end of the `with`.

    With the format json, standard error stays so afterwards, for the sentence with which a command fails.
    """
    stream = sys.stderr
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Lines(log_format == "json"))
    loggers = [LOG, logging.getLogger("uvicorn")]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    if log_format == "json":
        sys.stderr = OnlyJson(stream)
    try:
        for logger in loggers:
            logger.handlers, logger.propagate = [handler], False
        LOG.setLevel(level.upper())
        yield
    finally:
        for logger, (handlers, propagate, known) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(known)
