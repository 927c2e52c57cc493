"""The pairs of a thread of comments: each comment, with everything that was said on the way to it."""

from collections.abc import Iterable, Iterator

from .comments import SUBMISSION, Comment
from .pair import Pair, pair_of

DEEPEST = 7  # Roller et al. 2020, 6.1; they do not say whether what answers the post has depth 0 or 1: here it is 1


def pairs_of(comments: Iterable[Comment]) -> Iterator[Pair | str]:
    """Yield for each comment of whole threads its pair, or why it has none (the name of its count).

    A comment whose parent is missing has none either: the parent was skipped, with everything that answers it, or the
    dump begins in the middle of the thread.
    """
    known = {comment.id: comment for comment in comments}
    for comment in known.values():
        way = list(way_to(comment, known))  # from the comment up
        root = way[-1].parent
        if len(way) > DEEPEST:
            yield "too_deep"
        elif not root.startswith(SUBMISSION):
            yield "without_parent"
        elif len(way) == 1:
            yield "answers_to_posts"  # whose texts are in other dumps
        else:
            yield pair_of(root, comment.id, [one.body for one in reversed(way[1:])], comment.body)


def way_to(comment: Comment, known: dict[str, Comment]) -> Iterator[Comment]:
    """Yield the comment, its parent, and so on, as far as they exist, up to the depth that is used."""
    found: Comment | None = comment
    for _ in range(DEEPEST + 1):
        if found is None:
            return
        yield found
        found = known.get(found.parent)
