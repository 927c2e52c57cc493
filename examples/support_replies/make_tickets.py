"""Write tickets.csv, made-up conversations of a shop with its customers, and replies.txt, all replies in it.

    python make_tickets.py

Instead of this script stands, for real, an export of your help desk: one row for each answer that somebody has sent.
"""

import csv
import random

THINGS = ["kettle", "toaster", "lamp", "fan", "radio", "clock", "drill", "mixer", "iron", "camera", "printer", "phone"]

# What customers want -> how they ask, what the shop answers, and what it answers to the question that follows.
TOPICS = {
    "clean": (
        ["how do i clean my {}", "my {} is dirty , what may i wash it with"],
        "unplug the {} , let it cool , and wipe it with a damp cloth .",
        "wait an hour until the {} is dry .",
    ),
    "broken": (
        ["the {} came broken", "my new {} has a crack"],
        "we are sorry ! a new {} leaves today , keep the old one .",
        "the new {} is with you in two days .",
    ),
    "dead": (
        ["my {} does not start", "nothing happens when i switch the {} on"],
        "please check the socket first ; if the {} stays off we will repair it .",
        "a repair of the {} takes ten days .",
    ),
    "late": (
        ["where is the {} i ordered", "the {} has not arrived yet"],
        "it left our house on monday ; here is the link to follow your {} .",
        "the {} needs three more days , by the latest news .",
    ),
    "return": (
        ["i want to send the {} back", "can i return a {}"],
        "yes , within thirty days : print the label and send the {} back .",
        "you have the money five days after the {} is here .",
    ),
    "bill": (
        ["i need a bill for the {}", "there was no invoice in the box of my {}"],
        "we have just mailed you the invoice of the {} as a pdf .",
        "the mail about the {} should be there in a minute .",
    ),
    "guarantee": (
        ["is there a guarantee on the {}", "for how many years can i bring the {} back to be repaired"],
        "two years on every {} ; please keep the receipt .",
        "it begins on the day when the {} is delivered .",
    ),
    "parts": (
        ["do you sell parts for a {}", "a screw of my {} is gone"],
        "you find parts of the {} in our shop , under spares .",
        "we send parts of the {} the same day .",
    ),
}
OPENINGS = ["{} ?", "hello , {} please", "hi ! {} , thanks", "good day .\n{} ?"]
FOLLOW_UPS = ["how long will that take ?", "thank you , and when ?"]


def conversations() -> list[tuple[str, str]]:
    """Return contexts, a turn a line, and the replies that the shop gave; in random order, the same in every run."""
    found = []
    for thing in THINGS:
        for asked, answer, later in TOPICS.values():
            for way in asked:
                for opening in OPENINGS:
                    question = opening.format(way.format(thing))
                    found.append((question, answer.format(thing)))
                    for follow_up in FOLLOW_UPS:
                        found.append((f"{question}\n{answer.format(thing)}\n{follow_up}", later.format(thing)))
    random.Random(0).shuffle(found)
    return found


def main() -> None:
    """Write both files into the current folder."""
    rows = conversations()
    with open("tickets.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("context", "label"), *rows])
    replies = sorted({reply for _, reply in rows})
    with open("replies.txt", "w", encoding="utf-8") as file:
        file.writelines(f"{reply}\n" for reply in replies)
    print(f"tickets.csv: {len(rows):,} answers; replies.txt: {len(replies)} different replies")


if __name__ == "__main__":
    main()
