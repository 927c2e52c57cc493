"""Without ParlAI's log: it tells each step of loading, and a library says nothing."""

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
