"""`polyagents human_eval self_chat`: conversations of one model or two."""

import contextlib
import json
import sys

from parlai.core.agents import create_agent
from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript

from polyagents.arguments import positive_int
from polyagents.errors import InputError
from polyagents.human_eval.parlai_format import write
from polyagents.human_eval.self_chat import chats, read_openings, seed_all
from polyagents.human_eval.steps.models import model_name, other_agent, with_our_agent
from polyagents.ranker import quiet


class SelfChat(ParlaiScript):
    """Let models talk."""

    @classmethod
    def setup_args(cls) -> ParlaiParser:
        """One model or two, a task, a file to write; and all flags of the model."""
        parser = ParlaiParser(
            True, True, "Conversations of a model with itself or another, begun as a task's dialogues are (polyagents)"
        )
        parser.add_argument("--partner-model-file", help="who it talks to; by default itself")
        parser.add_argument("--conversations", type=positive_int, default=100, help="how many")
        parser.add_argument(
            "--turns", type=positive_int, default=6, help="of each speaker; the task's opening is the first one's first"
        )
        parser.add_argument("--out", help="the file to write, in ParlAI's conversations format: .jsonl")
        parser.add_argument("--seed", type=int, default=0, help="draws the openings")
        parser.set_defaults(interactive_mode=True, datatype="valid", batchsize=1)
        return parser

    @classmethod
    def _run_args(cls, args: list[str] | None = None) -> None:
        """A model that one of ParlAI's agents wrote is loaded with ours, as in all commands of `polyagents`."""
        super()._run_args(with_our_agent(list(args or ())))

    def run(self) -> None:
        """Read the openings, load, talk, write; then say what there is."""
        opt, file, partner = self.opt, self.opt.get("model_file"), self.opt.get("partner_model_file")
        if not (file or opt.get("model")) or not opt.get("task") or not opt.get("out"):
            raise InputError("human_eval self_chat needs --model-file, --task and --out.")
        openings = read_openings(opt, opt["conversations"], opt["seed"])
        name = model_name(file, opt["datapath"]) if file else opt["model"]
        names = [name, partner or name]
        seed_all(opt["seed"])
        with quiet(), contextlib.redirect_stdout(sys.stderr):  # standard output is for results
            agent = create_agent(opt, requireModelExists=True)
            agents = [agent, other_agent(opt, partner, "--partner-model-file") if partner else agent.clone()]
            spoken = list(chats(opt, agents, names, openings, opt["turns"]))
        told = {"model_file": file, "partner_model_file": partner, "model": opt.get("model")}
        told |= {key: opt[key] for key in ("task", "datatype", "seed", "turns")}
        count = write(opt["out"], spoken, told)
        print(json.dumps({"conversations": count, "models": sorted(set(names)), "out": opt["out"]}))
