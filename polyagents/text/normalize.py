"""When two replies read the same: as for ParlAI's teachers, case, punctuation and articles are ignored."""

import functools
import re

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = re.compile(r'[!"#$%&()*+,-./:;<=>?@\[\]\\^`{|}~_\']')


def normalize(text: str) -> str:
    """A text as ParlAI compares it (its parlai.core.metrics.normalize_answer; a test holds the two together)."""
    return " ".join(ARTICLES.sub(" ", PUNCTUATION.sub(" ", text.lower())).split())


normalized = functools.lru_cache(maxsize=200_000)(normalize)
