"""The comments of a Reddit dump: what is read of them, why one may be skipped, and the pairs of a thread.

{"id": "c0fbx", "parent_id": "t1_c0faz", "link_id": "t3_91x2k", "author": "someone", "body": "It is &gt; 9.", ...}

The paper takes its examples from Reddit "(Mazaré et al., 2018)" (4.1) and names no filter; the text of Mazaré et al.
was not available. The rules here are those that later authors of the same group state (Roller et al. 2020, arXiv
2004.13637, 6.1, "following Humeau et al."). A comment is skipped, with everything that answers it, if it is a known
bot's, removed or deleted, longer than 2,048 characters without a space, shorter than 5 characters, has a URL in it,
begins with a character that is not ASCII, or is deeper than 7 in the thread. Three of their rules
differ: no list of the "known bots" was published (`BOT` replaces it), nor of the "known non-English subreddits"; and
"longer than 128 BPE tokens" needs a vocabulary, which comes later: agents truncate what is too long. No publication
states a smallest `score`, and it is ignored.
"""

import html
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from .pair import Pair

SHORTEST, LONGEST_WORD = 5, 2048  # characters
DEEPEST = 7  # they do not say whether what answers the post has depth 0 or 1: here it is 1
REMOVED = (
    "[deleted]",
    "[removed]",
    "[ Removed by Reddit ]",
    "[ Removed by reddit in response to a copyright notice. ]",
)
URL = re.compile(r"https?://|www\.", re.IGNORECASE)
# Chosen here: Reddit's own bot, and names that say so (RemindMeBot, haiku_bot). `talbot` and `abbot` are people.
BOT = re.compile(r"AutoModerator|.*(Bot|BOT|[-_]bot)")
SUBMISSION = "t3_"  # what is answered is the post itself, which is not a comment


class Comment(NamedTuple):
    """A comment that may be in a pair.

    Attributes:
        group: equal for comments of a thread; a group may hold several threads.
        id: the id of the comment, without prefix.
        parent: id of the comment that it answers, or the id of the submission with its prefix t3_.
        body: its text in one line.
    """

    group: str
    id: str
    parent: str
    body: str


def comment_of(fields: dict[str, Any]) -> Comment | str:
    """Read the comment in a line of a dump, or return why it is skipped (the name of its count)."""
    id, parent, body, author = (fields.get(name) for name in ("id", "parent_id", "body", "author"))
    if not (isinstance(id, str) and isinstance(parent, str) and isinstance(body, str)):
        return "malformed_lines"
    text = one_line(html.unescape(body))
    if reason := flaw_of(text, str(author)):
        return reason
    # Every dump has link_id. If it was removed, the comments of a subreddit are combined in memory instead.
    group = fields.get("link_id") or f"r/{fields.get('subreddit')}"
    return Comment(str(group), id.removeprefix("t1_"), parent.removeprefix("t1_"), text)


def flaw_of(text: str, author: str) -> str | None:
    """Return why a comment is skipped, or None."""
    if text in REMOVED:
        return "deleted"
    if BOT.fullmatch(author):
        return "bots"
    if len(text) < SHORTEST:
        return "short"
    if len(text) > LONGEST_WORD and " " not in text:
        return "long_without_spaces"
    if URL.search(text):
        return "urls"
    return None if text[0].isascii() else "non_ascii_start"


def one_line(text: str) -> str:
    """Replace all white space by single spaces: line ends separate utterances."""
    return " ".join(text.split())


def pairs_of(comments: Iterable[Comment]) -> Iterator[Pair | str]:
    """Yield for each comment of whole threads its pair, or why it has none (the name of its count).

    A comment whose parent is missing has none either: the parent was skipped, with everything that answers it, or the
    dump begins in the middle of the thread.
    """
    known = {comment.id: comment for comment in comments}
    for comment in known.values():
        way = [comment]  # and its parent, and so on
        while len(way) <= DEEPEST and (parent := known.get(way[-1].parent)):
            way.append(parent)
        root = way[-1].parent
        if len(way) > DEEPEST:
            yield "too_deep"
        elif not root.startswith(SUBMISSION):
            yield "without_parent"
        elif len(way) == 1:
            yield "answers_to_posts"  # whose texts are in other dumps
        else:
            yield Pair(root, comment.id, "\n".join(one.body for one in reversed(way[1:])), comment.body)
