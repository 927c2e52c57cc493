"""`polyagents human_eval self_chat`: conversations of one model or two."""

import argparse
import contextlib
import json
import sys
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import positive_int, seed_number
from polyagents.errors import InputError
from polyagents.human_eval.conversations import context_lines, make_conversation
from polyagents.human_eval.formats.parlai_format import check_out, write_conversations
from polyagents.human_eval.steps.load_partners import agent_of, check_model_file
from polyagents.human_eval.steps.model_flags import ModelStepParser, add_shared_flags, check_parlai, flags_for_parlai


def parser() -> argparse.ArgumentParser:
    """Declare the flags."""
    parser = ModelStepParser(
        "polyagents human_eval self_chat",
        "Let a model talk with itself or another, with the openings of a task. Any other flag of ParlAI and its "
        "agents applies to both models.",
    )
    parser.add_argument("--model-file", help="(-mf) a trained model")
    parser.add_argument("--model", help="(-m) one of ParlAI's agents, if there is no model file")
    parser.add_argument("--partner-model-file", help="its partner; by default itself")
    add_shared_flags(parser)
    parser.add_argument("--conversations", type=positive_int, default=100, help="how many")
    parser.add_argument(
        "--turns", type=positive_int, default=6, help="of each speaker; the task's opening is the first speaker's first"
    )
    parser.add_argument("--out", help="the file to write, in ParlAI's conversations format: .jsonl")
    parser.add_argument("--seed", type=seed_number, default=0, help="draws the openings")
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Read the openings, load the models, let them talk, write; then print how much there is."""
    file, partner = opt["model_file"], opt["partner_model_file"]
    if not (file or opt["model"]) or not opt["task"] or not opt["out"]:
        raise InputError("human_eval self_chat needs --model-file, --task and --out.")
    for given_as, path in (("--model-file", file), ("--partner-model-file", partner)):
        if path:
            check_model_file(path, given_as)
    check_out(opt["out"], (file, partner, opt["fixed_candidates_path"]))
    check_parlai("human_eval self_chat")
    from polyagents.parlai_agents.chat_partner import command_options, load_agent, load_other_agent, seed_all
    from polyagents.parlai_agents.self_chat import self_chat
    from polyagents.parlai_patches.openings import read_openings

    model = opt["model"] or agent_of(opt, file)
    parlai_opt = command_options(flags_for_parlai(opt, model=model))
    openings = read_openings(parlai_opt, opt["conversations"], opt["seed"])
    name = file or opt["model"]
    names = [name, partner or name]
    seed_all(opt["seed"])
    spoken = []
    with contextlib.redirect_stdout(sys.stderr):  # standard output is for results
        agent = load_agent(parlai_opt)
        other = load_other_agent(parlai_opt, partner, agent_of(opt, partner)) if partner else agent.clone()
        for number, opening in enumerate(openings):
            # Of two models each speaks first in every second conversation.
            order = slice(None, None, -1 if number % 2 and names[0] != names[1] else None)
            turns = self_chat(parlai_opt, [agent, other][order], opening, opt["turns"])
            speakers, background = dict(zip("01", names[order], strict=True)), context_lines(opening.personas)
            spoken.append(make_conversation(turns, speakers, background, f"self_chat {opt['task']}"))
    described = {"model_file": file, "partner_model_file": partner, "model": parlai_opt.get("model")}
    described |= {key: opt[key] for key in ("task", "datatype", "seed", "turns")}
    count = write_conversations(opt["out"], spoken, described)
    print(json.dumps({"conversations": count, "models": sorted(set(names)), "out": opt["out"]}))
