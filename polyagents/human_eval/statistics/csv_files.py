"""The CSV files of a report, which pandas reads back exactly and a spreadsheet does not run."""

import csv
import io
from collections.abc import Iterable, Sequence

from polyagents.evaluation.intervals import Estimate
from polyagents.human_eval.records import ChatMessage, RatedChat
from polyagents.human_eval.statistics.filtering import FAILED, FilteredJudgement
from polyagents.human_eval.statistics.ratings import ModelRating
from polyagents.human_eval.statistics.report_sections import AnnotatorSummary, Section

# A cell that starts with one of these is a formula to Excel or LibreOffice: the list of OWASP's page on CSV injection,
# with the full-width signs that Japanese and Chinese versions take for the same. And the mark itself, see as_cell().
STARTS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠", "'")

JUDGEMENT = ["annotator", "pair", "model_1", "model_2", "winner", "question", "reason", "seconds", "passed", "left_out"]
JUDGEMENT += ["started", "ended", "too_fast"]
VERDICTS = {None: None, True: "good", False: "bad"}  # what was said of a reply

Cell = str | int | float | None


def as_cell(value: Cell) -> Cell:
    """Put a `'` in front of a text that a spreadsheet would run, and of one that starts with a `'` already.

    So taking one leading `'` away gives every text back exactly:

        table = pandas.read_csv(path, dtype=str, keep_default_na=False)
        table = table.apply(lambda column: column.str.removeprefix("'"))

    Numbers are left as they are, negative ones too: they are ours, and no formulas.
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(STARTS_A_FORMULA) else value


def as_csv(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> bytes:
    """Write a table in UTF-8: texts in quotes, numbers in full precision, unknown values empty."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([as_cell(value) for value in row] for row in rows)
    return text.getvalue().encode("utf-8", errors="replace")  # half a character pair, as bad JSON may hold, is not text


def estimated(name: str) -> tuple[str, str, str]:
    """Name the columns of an estimate."""
    return name, f"{name}_low", f"{name}_high"


def ends(estimate: Estimate | None) -> list[Cell]:
    """Return the cells of an estimate; unknown ones are empty."""
    return [None] * 3 if estimate is None else [None if part != part else part for part in estimate]


def judgement_tables(
    filtered: Sequence[FilteredJudgement], found: Sequence[Section], people: Sequence[AnnotatorSummary]
) -> dict[str, bytes]:
    """Return the judgements and the results as CSV files by name."""
    return {
        "judgements.csv": as_csv(JUDGEMENT, map(judgement_row, filtered)),
        # Each comparison has two rows, one for either model, so that a pivot is the matrix.
        "win_rates.csv": as_csv(
            ["question", "model", "opponent", "wins", "judgements", "win_rate", "low", "high", "p_value"],
            [
                [section.question, *way.models, way.wins[0], way.judgements, *way.rate, way.p_value]
                for section in found
                for matchup in section.matchups
                for way in (matchup, matchup.reverse())
            ],
        ),
        "ranking.csv": as_csv(
            ("question", "place", "model", "judgements", *estimated("strength"), *estimated("expected_win_rate")),
            [
                [section.question, place, ranked.model, ranked.judgements, *ranked.strength, *ranked.win_rate]
                for section in found
                for place, ranked in enumerate(section.ranking.models, 1)
            ],
        ),
        "agreement.csv": as_csv(
            ("question", "pairs", *estimated("share"), *estimated("alpha")), map(agreement_row, found)
        ),
        "annotators.csv": as_csv(
            ["annotator", "passed", "judgements", "counted", "median_seconds", "compared", "agreement", "too_fast"],
            [
                [p.name, yes(p.passed), p.judgements, p.counted, p.seconds, p.compared, p.agreement, p.too_fast]
                for p in people
            ],
        ),
    }


def judgement_row(one: FilteredJudgement) -> list[Cell]:
    """Return a row of judgements.csv."""
    j = one.judgement
    said = [j.annotator, j.pair, *j.models, j.winner, j.question, j.reason, j.seconds, yes(j.passed), one.left_out]
    return [*said, j.started, j.ended, yes(j.too_fast)]


def agreement_row(section: Section) -> list[Cell]:
    """Return a row of agreement.csv."""
    of = section.agreement
    found: list[Cell] = [of.pairs, *ends(of.share), *ends(of.alpha)] if of else [0, *ends(None), *ends(None)]
    return [section.question, *found]


def yes(value: bool) -> str:
    """Write yes or no."""
    return "yes" if value else "no"


def rating_tables(chats: Sequence[RatedChat], rated: Sequence[ModelRating]) -> dict[str, bytes]:
    """Return the ratings of models, chats, and replies with the messages before them, as CSV files by name."""
    ticked: list[list[Cell]] = [
        [m.model, problem, count, m.replies] for m in rated for problem, count in m.problems.items()
    ]
    return ({"problems.csv": as_csv(["model", "problem", "replies", "of"], ticked)} if ticked else {}) | {
        "ratings.csv": as_csv(
            ("model", "chats", "people", *estimated("mean_rating"), "rated_replies", *estimated("good_replies")),
            [[m.model, m.chats, m.people, *ends(m.mean), m.rated, *ends(m.good)] for m in rated],
        ),
        "chats.csv": as_csv(
            ["chat", "annotator", "model", "rating", "replies", "good", "bad", "conversation", "left_out"],
            map(chat_row, chats),
        ),
        "replies.csv": as_csv(
            ["chat", "annotator", "model", "message", "reply", "rating", "left_out", "problems"],
            [reply_row(c, *two) for c in chats for two in zip(c.messages[::2], c.messages[1::2], strict=False)],
        ),
    }


def chat_row(chat: RatedChat) -> list[Cell]:
    """Return a row of chats.csv."""
    said = [message.good for message in chat.messages]
    counts = (len(said) // 2, said.count(True), said.count(False))
    return [chat.number, chat.annotator, chat.model, chat.rating, *counts, chat.conversation, left_out(chat)]


def reply_row(chat: RatedChat, asked: ChatMessage, reply: ChatMessage) -> list[Cell]:
    """Return a row of replies.csv."""
    said: list[Cell] = [chat.number, chat.annotator, chat.model, asked.text, reply.text, VERDICTS[reply.good]]
    return [*said, left_out(chat), "; ".join(reply.problems)]


def left_out(chat: RatedChat) -> str:
    """Say why a chat does not count; "" if it does."""
    return "" if chat.passed else FAILED
