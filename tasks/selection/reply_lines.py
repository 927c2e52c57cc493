"""The files of Ubuntu Corpus V1 and of Douban: one line per reply, separated by tabs.

1<tab>my sound is gone since the upgrade<tab>is it muted<tab>it was thanks
0<tab>my sound is gone since the upgrade<tab>is it muted<tab>sudo apt-get install ruby __number__

1 marks a right reply. In valid and test the candidates of a context are consecutive, in groups of one size.
"""

from collections.abc import Iterator
from typing import NamedTuple

from polyagents.errors import InputError
from polyagents.files.lines import lines_of, opened

LABELS = {b"1": True, b"0": False}


class Reply(NamedTuple):
    """A line of a file.

    Attributes:
        context: what was said before, one line per utterance, without the files' empty utterances.
        is_right: whether it was given as a reply (or judged to be right).
    """

    context: str
    text: str
    is_right: bool


class Question(NamedTuple):
    """A context of valid or test.

    Attributes:
        context: what was said before, one line per utterance.
        candidates: the replies in the order of the file.
        right: the right ones of them; none, some or all.
    """

    context: str
    candidates: list[str]
    right: list[str]


def read_replies(path: str, how: str) -> Iterator[Reply]:
    """Yield the lines of a file.

    Raises:
        InputError: the file is missing or empty, or one of its lines has another format.
    """
    number = 0
    try:
        with opened(path) as file:
            for number, line in enumerate(lines_of(file, path), 1):
                yield reply_of(line, f"{path}, line {number}")
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); {how}.") from error
    if not number:
        raise InputError(f"{path} is empty; {how}.")


def reply_of(line: bytes, where: str) -> Reply:
    """Parse a line."""
    label, *texts = line.rstrip(b"\r\n").split(b"\t")
    if label not in LABELS or len(texts) < 2:
        raise InputError(f"{where}: not a label (1 or 0), a context and a reply, divided by tabs.")
    try:
        *context, reply = (" ".join(text.decode("utf-8").split()) for text in texts)
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not in UTF-8 ({error.reason}).") from error
    return Reply("\n".join(filter(None, context)), reply, LABELS[label])


def read_questions(path: str, size: int, how: str) -> Iterator[Question]:
    """Yield the contexts of valid or test, with their candidates.

    Raises:
        InputError: as `read_replies`; or the lines are not groups of `size` with one context.
    """
    group: list[Reply] = []
    for number, reply in enumerate(read_replies(path, how), 1):
        if group and reply.context != group[0].context:
            raise InputError(
                f"{path}, line {number}: another context than in the line before, where {size} lines in a row have "
                f"one; the file is damaged, or of another release."
            )
        group.append(reply)
        if len(group) == size:
            yield Question(
                group[0].context, [reply.text for reply in group], [reply.text for reply in group if reply.is_right]
            )
            group = []
    if group:
        raise InputError(f"{path} ends within a context: {len(group)} of {size} lines; the file is cut short.")
