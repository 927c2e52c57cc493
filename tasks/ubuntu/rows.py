"""The files of the Ubuntu Dialogue Corpus V2: CSV tables whose texts end each utterance and turn with a mark.

Context,Utterance,Label
my sound is gone __eou__ anybody ? __eou__ __eot__ is it muted ? __eou__ __eot__ ,it was __eou__ thanks __eou__,1

In valid and test a right reply and nine wrong ones replace utterance and label.
"""

import re
from collections.abc import Iterator

from polyagents.errors import InputError
from polyagents.files.csv_rows import check_names, rows_of
from polyagents.files.lines import opened

CONTEXT, UTTERANCE, LABEL = TRAIN = ("Context", "Utterance", "Label")
RIGHT, *WRONG = ("Ground Truth Utterance", *(f"Distractor_{number}" for number in range(9)))
EVALUATION = (CONTEXT, RIGHT, *WRONG)
END_OF_UTTERANCE = "__eou__"
BOUNDARY = re.compile(r"__eou__|__eot__")


def utterances(text: str) -> list[str]:
    """Return the utterances between the marks."""
    return [part for part in map(str.strip, BOUNDARY.split(text)) if part]


def context_of(text: str) -> str:
    """Return a context, one line per utterance: the agents separate these by a token (paper v1 4.5)."""
    return "\n".join(utterances(text))


def reply_of(text: str) -> str:
    """Return a reply in one line, in which the mark stays between utterances.

    A line end would be fine in an example, but a candidates file has one candidate per line, and so does an index.
    """
    return f" {END_OF_UTTERANCE} ".join(utterances(text))


def read_rows(path: str, columns: tuple[str, ...]) -> Iterator[list[str]]:
    """Yield these columns of a file, row by row.

    Raises:
        InputError: the file is missing, or no such table.
    """
    try:
        with opened(path) as file:
            rows = rows_of(file, path)
            header = next(rows, [])
            check_names(header, path)
            missing = [name for name in columns if name not in header]
            if missing:
                raise InputError(f"{path} has the columns {', '.join(header) or '(none)'}; {missing[0]} is missing.")
            places = [header.index(name) for name in columns]
            for number, row in enumerate(rows, 1):
                if len(row) != len(header):
                    raise InputError(
                        f"{path}, row {number}: {len(row)} columns, where the header has {len(header)}; "
                        f"the file is damaged or cut short: delete its folder and run again."
                    )
                yield [row[place] for place in places]
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); delete its folder and run again.") from error
