"""What people said of the models that they talked with, as CSV files."""

from collections.abc import Sequence

from polyagents.human_eval.records import RatedChat
from polyagents.human_eval.statistics.csv_files import Cell, as_csv, ends, with_ends
from polyagents.human_eval.statistics.filtering import FAILED
from polyagents.human_eval.statistics.ratings import ModelRating


def rating_tables(chats: Sequence[RatedChat], rated: Sequence[ModelRating]) -> dict[str, bytes]:
    """Return the CSV files by name: models, chats, and replies with the messages before them."""
    return {
        "ratings.csv": as_csv(
            ("model", "chats", "people", *with_ends("mean_rating"), "rated_replies", *with_ends("good_replies")),
            [[m.model, m.chats, m.people, *ends(m.mean), m.rated, *ends(m.good)] for m in rated],
        ),
        "chats.csv": as_csv(
            ("chat", "annotator", "model", "rating", "replies", "good", "bad", "conversation", "left_out"),
            [chat_row(chat) for chat in chats],
        ),
        "replies.csv": as_csv(
            ("chat", "annotator", "model", "message", "reply", "rating", "left_out"),
            [row for chat in chats for row in reply_rows(chat)],
        ),
    }


def chat_row(chat: RatedChat) -> list[Cell]:
    """Return a row of chats.csv."""
    said = [message.good for message in chat.messages]
    counts = (len(said) // 2, said.count(True), said.count(False))
    return [chat.number, chat.annotator, chat.model, chat.rating, *counts, chat.conversation, left_out(chat)]


def reply_rows(chat: RatedChat) -> list[list[Cell]]:
    """Return the rows of replies.csv of one chat."""
    return [
        [chat.number, chat.annotator, chat.model, asked.text, reply.text, verdict(reply.good), left_out(chat)]
        for asked, reply in zip(chat.messages[::2], chat.messages[1::2], strict=False)
    ]


def verdict(good: bool | None) -> str | None:
    """Return what was said of a reply."""
    return None if good is None else ("good" if good else "bad")


def left_out(chat: RatedChat) -> str:
    """Say why a chat does not count; "" where it does."""
    return "" if chat.passed else FAILED
