"""Silencing ParlAI's log, which reports each step of loading; a library should print nothing."""

import contextlib
from collections.abc import Iterator

from parlai.utils import logging as parlai_logging


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence ParlAI's log."""
    before = parlai_logging.logger.disabled
    parlai_logging.logger.disabled = True
    try:
        yield
    finally:
        parlai_logging.logger.disabled = before
