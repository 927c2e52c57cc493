"""Models that people chat with, loaded by their files: ours without ParlAI, all others as ParlAI's agents."""

import contextlib
import os
import sys
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import model_overrides
from polyagents.errors import InputError
from polyagents.human_eval.chat_replies import ChatPartner, RankerPartner
from polyagents.human_eval.steps.model_flags import check_parlai, flags_for_parlai
from polyagents.parlai_files import parlai_options
from polyagents.ranking.task_candidates import task_candidates_path
from polyagents.zoo.models import our_agent

# With these saved options, a RankerPartner replies like ParlAI's agent; with others the agent itself replies.
AS_PARLAI = {
    "interactive_candidates": "fixed",
    "inference": "max",
    "repeat_blocking_heuristic": True,
    "use_reply": "label",
    "delimiter": "\n",
    "person_tokens": False,
    "split_lines": False,
    "history_reversed": False,
}


def check_model_file(file: str, given_as: str) -> None:
    """Refuse a missing model file."""
    if not file.startswith("zoo:") and not os.path.exists(f"{file}.opt"):
        raise InputError(
            f"{given_as} {file}: there is no trained model ({file}.opt is missing); give the --model-file of "
            f"train_model."
        )


def load_partners(opt: Mapping[str, Any]) -> dict[str, ChatPartner]:
    """Load the models of a step by the files that were given; one that was given twice is loaded once."""
    with contextlib.redirect_stdout(sys.stderr):  # standard output is for results
        return {file: load_partner(opt, file) for file in opt["files"]}


def load_partner(opt: Mapping[str, Any], file: str) -> ChatPartner:
    """Load one model: as a ranker if that is enough, else as ParlAI's agent."""
    from polyagents.zoo.resolve import zoo_file  # loads requests

    path = zoo_file(file)
    saved = parlai_options.read(path)
    agent = str(saved.get("model"))
    is_ours = agent.startswith("polyagents:") or parlai_options.architecture_of_agent(agent) is not None
    is_ranker = is_ours and all(saved.get(name, same) == same for name, same in AS_PARLAI.items())
    if is_ranker and not opt["model_flags"]:
        return load_ranker(opt, file, path, saved)
    check_parlai(f"{file} with {' '.join(opt['model_flags'])}" if is_ranker else file)
    from polyagents.parlai_agents.chat_partner import ParlaiPartner, command_options, load_agent

    return ParlaiPartner(load_agent(command_options(flags_for_parlai(opt, model_file=file, model=agent_of(opt, file)))))


def load_ranker(opt: Mapping[str, Any], file: str, path: str, saved: Mapping[str, Any]) -> RankerPartner:
    """Load a model of ours, at a path here, and its candidates; their vectors are kept next to it if possible."""
    from polyagents.index.store import candidates_of_file  # these load torch
    from polyagents.ranker import Ranker

    replies = partner_candidates(opt, file, path, saved)
    ranker = Ranker.load(file, **model_overrides(opt))
    candidates = candidates_of_file(replies, ranker.model, path)
    return RankerPartner(ranker, candidates, int(saved.get("history_size", -1)))


def partner_candidates(opt: Mapping[str, Any], file: str, path: str, saved: Mapping[str, Any]) -> str:
    """Find the candidates of a model of ours: the file that is named, or else the labels of the task.

    An InputError says if neither is named, or the labels are not collected yet and ParlAI is not installed.
    """
    given = opt["fixed_candidates_path"] or saved.get("fixed_candidates_path")
    task = opt["task"] or saved.get("task")
    if not given and not task:
        raise InputError(
            f"{file} does not say which task it was trained on, so there are no replies; give some with "
            f"--fixed-candidates-path."
        )
    replies = str(given or task_candidates_path(path, str(task)))
    if os.path.exists(replies):
        return replies
    check_parlai(f"{replies} does not exist: finding or writing it")
    from polyagents.parlai_agents import chat_partner

    return chat_partner.written_candidates(
        chat_partner.command_options(flags_for_parlai(opt, model_file=file, model=agent_of(opt, file)))
    )


def agent_of(opt: Mapping[str, Any], file: str) -> str | None:
    """Return our agent for a model of one of ParlAI's agents; None for other models, and if a flag names one."""
    return None if "--model" in opt["model_flags"] else our_agent(file)
