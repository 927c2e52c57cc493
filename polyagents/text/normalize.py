"""The normal form of a reply, by which replies are compared: it ignores case, punctuation and articles.

ParlAI's teachers have one, too (parlai.core.metrics.normalize_answer). It makes some different answers equal: C and
C++, 1 and -1, the choices A and B, smileys. Ours keeps these apart.
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
