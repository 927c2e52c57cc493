"""`polyagents human_eval chat`: people talk with models, and rate them."""

import argparse
import functools
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import positive_int, refuse_given, seed_number
from polyagents.console import number_of
from polyagents.errors import InputError
from polyagents.files.lines import opened, text_lines
from polyagents.human_eval.chat_replies import ChatModels
from polyagents.human_eval.conversations import clean
from polyagents.human_eval.steps.database_flag import add_database_flag, existing_store, open_store
from polyagents.human_eval.steps.load_partners import check_model_file, load_partners
from polyagents.human_eval.steps.model_flags import ModelStepParser, add_shared_flags, check_parlai, flags_for_parlai
from polyagents.human_eval.steps.page_server import add_server_flags, serve_pages, study_of
from polyagents.human_eval.storage.views import MOST, RATE, ChatPlan, Personas
from polyagents.serving.http_server import listening

MOST_PROBLEMS, LONGEST_PROBLEM = 20, 100  # labels; characters of one
CONVERSATIONS = 2  # of each person


def parser() -> argparse.ArgumentParser:
    """Declare the flags."""
    parser = ModelStepParser(
        "polyagents human_eval chat",
        "People talk with models in their browsers, blind and assigned in balance, and rate them. Model files come "
        "first: human_eval chat M N ... Prints the organiser's link and one for each invited person. Any other flag "
        "of ParlAI and its agents applies to all models.",
    )
    parser.add_argument("files", nargs="*", help="model files; model flags apply to all of them")
    add_database_flag(parser)
    add_server_flags(parser)
    add_shared_flags(parser)
    parser.add_argument(
        "--turns", type=positive_int, default=6, help=f"messages of the person, at least; the most are {MOST}"
    )
    parser.add_argument(
        "--conversations", type=positive_int, help=f"of each person, by default {CONVERSATIONS}; a study's each says it"
    )
    parser.add_argument(
        "--rate",
        choices=RATE,
        default="both",
        help="what people rate: replies (good or bad, as they like), the whole (1 to 5, needed), or both",
    )
    parser.add_argument(
        "--problems", help="a file of what may be ticked below a reply, one label a line, such as: contradicts itself"
    )
    parser.add_argument(
        "--seed", type=seed_number, default=0, help="draws personas, the first model, and the models' random choices"
    )
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Read the personas, load the models, serve."""
    if not opt["files"]:
        raise InputError("human_eval chat needs model files, before all flags: human_eval chat M N -t TASK.")
    for file in opt["files"]:
        check_model_file(file, "human_eval chat")
    if opt["turns"] > MOST:
        raise InputError(f"--turns {opt['turns']} is too many; give up to {MOST}.")
    problems = read_problems(opt["problems"], opt["rate"]) if opt["problems"] else ()
    study = study_of(opt)
    if study:
        refuse_given(opt, ["conversations"], f"is for people who are invited; set each in {opt['study']} instead.")
    # People of a study need no invitation, so its chats may be the first that is stored.
    store = open_store(opt["database"], study) if study else existing_store(opt["database"], "invite NAME ...")
    invited = store.invited()
    if not invited and not study:
        raise InputError(f"Nobody is invited in {store.name}; run polyagents human_eval invite NAME first.")
    with listening(opt["host"], opt["port"]) as opened:  # errors in it are reported before models are loaded
        from polyagents.human_eval.storage.chat_store import ChatStore  # loads SQLAlchemy
        from polyagents.human_eval.web.chat_app import create_app  # loads the web libraries

        personas = read_personas(opt) if opt["task"] else [("", "")]
        partners = load_partners(opt)
        chosen = {name: opt[name] for name in ("turns", "rate", "seed")}
        chosen["conversations"] = study.each if study else opt["conversations"] or CONVERSATIONS
        chats = ChatStore(store, ChatPlan(list(partners), personas, problems=problems, **chosen))
        what = (
            f"{number_of(study.places if study else len(invited), 'person', 'people')}, "
            f"{number_of(chosen['conversations'], 'chat')} of each, {number_of(len(partners), 'model')}, "
            f"in {store.name}"
        )
        make_app = functools.partial(create_app, chats, ChatModels(partners, opt["seed"]))
        serve_pages(opened, opt, store, make_app, what)


def read_problems(path: str, rate: str) -> list[str]:
    """Read the labels that may be ticked below a reply; an InputError says if there are none, or too many."""
    if rate == "whole":
        raise InputError("--problems are ticked below replies, which --rate whole does not ask for; give --rate both.")
    try:
        with opened(path) as file:
            labels = list(dict.fromkeys(clean(line.strip()) for line in text_lines(file, path) if line.strip()))
    except OSError as error:
        raise InputError(f"--problems {path} cannot be read ({error.strerror}).") from error
    if not 0 < len(labels) <= MOST_PROBLEMS or max(map(len, labels)) > LONGEST_PROBLEM:
        raise InputError(
            f"--problems {path} has {number_of(len(labels), 'label')}; give 1 to {MOST_PROBLEMS}, of up to "
            f"{LONGEST_PROBLEM} characters, one a line."
        )
    return labels


def read_personas(opt: Mapping[str, Any]) -> list[Personas]:
    """Read the personas of a task's dialogues, in an order that the seed draws."""
    check_parlai("--task")
    from polyagents.parlai_agents.chat_partner import command_options
    from polyagents.parlai_patches.openings import all_openings

    task = command_options(flags_for_parlai(opt, model_file=opt["files"][0]))
    return [opening.personas for opening in all_openings(task, opt["seed"])]
