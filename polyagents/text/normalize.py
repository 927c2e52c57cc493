"""A normal form of replies, in which case, punctuation and articles are ignored, as ParlAI's teachers do."""

import functools
import re

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = re.compile(r'[!"#$%&()*+,-./:;<=>?@\[\]\\^`{|}~_\']')


def normalize(text: str) -> str:
    """Return the form in which ParlAI compares texts, as its parlai.core.metrics.normalize_answer does."""
    return " ".join(ARTICLES.sub(" ", PUNCTUATION.sub(" ", text.lower())).split())


normalized = functools.lru_cache(maxsize=200_000)(normalize)
