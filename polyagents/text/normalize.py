"""A normal form of replies, in which case, punctuation and articles are ignored.

ParlAI's teachers compare replies by one, parlai.core.metrics.normalize_answer. Ours is stricter where that one makes
different answers equal: C and C++, 1 and -1, the choices A and B, smileys.
"""

import functools
import re

ARTICLES = re.compile(r"\b(a|an|the)\b(?=\s+\w)")  # not the choice A, nor plan A
PUNCTUATION = re.compile(r"""[!"&()*,./:;?\[\]\\`{|}~_']|-(?!\d)|(?<=\w)-""")  # not + # < = > @ $ % ^, nor a minus sign


def normalize(text: str) -> str:
    """Return the form in which texts are compared; of a text that is nothing but punctuation, the text itself."""
    lower = text.lower()
    return " ".join(ARTICLES.sub(" ", PUNCTUATION.sub(" ", lower)).split()) or " ".join(lower.split())


normalized = functools.lru_cache(maxsize=200_000)(normalize)
