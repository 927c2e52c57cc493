"""`polyagents human_eval chat`: people talk with models, and rate them."""

import contextlib
import itertools
import sys

from parlai.core.agents import Agent, create_agent
from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript

from polyagents.arguments import positive_int
from polyagents.commands.serve import listening
from polyagents.errors import InputError
from polyagents.human_eval.chat_models import ChatModels
from polyagents.human_eval.chat_store import MOST, RATE, Chats, Plan, people
from polyagents.human_eval.formats import count
from polyagents.human_eval.self_chat import all_openings
from polyagents.human_eval.steps.database_flag import add_database_flag, existing_store
from polyagents.human_eval.steps.models import check_there, other_agent, with_our_agent
from polyagents.human_eval.steps.serve import add_server_flags, serve
from polyagents.human_eval.web.chat_app import create_app
from polyagents.ranker import quiet


class ChatStep(ParlaiScript):
    """Let people talk with models."""

    @classmethod
    def setup_args(cls) -> ParlaiParser:
        """Models, a task, what people are asked to do, where; and all flags of the models."""
        parser = ParlaiParser(
            True,
            True,
            "People talk with models in their browsers, blind and assigned in balance, and rate them. Model files come "
            "first: human_eval chat M N ... Prints the organiser's link and one for each person that was invited "
            "(polyagents)",
        )
        parser.add_argument("files", nargs="*", help="model files; flags of models count for all of them")
        add_database_flag(parser)
        add_server_flags(parser)
        parser.add_argument(
            "--turns", type=positive_int, default=6, help=f"messages of the person, at least; at most are {MOST}"
        )
        parser.add_argument("--conversations", type=positive_int, default=2, help="of each person")
        parser.add_argument(
            "--rate",
            choices=RATE,
            default="both",
            help="what people rate: replies (good or bad, as they like), the whole (1 to 5, needed), or both",
        )
        parser.add_argument(
            "--seed", type=int, default=0, help="draws personas, which model is first, and what models draw"
        )
        parser.set_defaults(interactive_mode=True, datatype="valid", batchsize=1)
        return parser

    @classmethod
    def _run_args(cls, args: list[str] | None = None) -> None:
        """The first model's flags are those that ParlAI's parser knows."""
        args = list(args or ())
        files = list(itertools.takewhile(lambda argument: not argument.startswith("-"), args))
        if not files and not {"-h", "--help"} & set(args):
            raise InputError("human_eval chat needs model files, before all flags: human_eval chat M N -t TASK.")
        for file in files:
            check_there(file, "human_eval chat")
        super()._run_args(with_our_agent([*args, "-mf", files[0]]) if files else args)

    def run(self) -> None:
        """Read the personas, load the models, serve."""
        opt = self.opt
        if opt["turns"] > MOST:
            raise InputError(f"--turns {opt['turns']} is too many; give up to {MOST}.")
        store = existing_store(opt["database"])
        invited = people(store)
        if not invited:
            raise InputError(f"Nobody is invited in {store.name}; run polyagents human_eval invite NAME first.")
        with listening(opt["host"], opt["port"]) as opened:  # what is wrong with it is said before models are loaded
            personas = [one.personas for one in all_openings(opt, opt["seed"])] if opt.get("task") else [("", "")]
            agents = self.load()
            chosen = ("turns", "conversations", "rate", "seed")
            chats = Chats(store, Plan(list(agents), personas, **{name: opt[name] for name in chosen}))
            organiser = store.organiser()
            app = create_app(chats, ChatModels(agents, opt["seed"]), organiser)
            told = (
                f"{count(len(invited), 'person', 'people')}, {count(opt['conversations'], 'chat')} of each, "
                f"{count(len(agents), 'model')}, in {store.name}"
            )
            serve(opened, app, organiser, invited, told)
        store.close()

    def load(self) -> dict[str, Agent]:
        """The models by the files that were given; one that was given twice is one."""
        first, *others = dict.fromkeys(self.opt["files"])
        with quiet(), contextlib.redirect_stdout(sys.stderr):  # standard output is for results
            agents = {first: create_agent(self.opt, requireModelExists=True)}
            return agents | {file: other_agent(self.opt, file, "human_eval chat") for file in others}
