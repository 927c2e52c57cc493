"""`polyagents human_eval export`: what is stored, for ParlAI's tools."""

import json

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript

from polyagents.errors import InputError
from polyagents.human_eval import acute_eval_format, parlai_format
from polyagents.human_eval.chat_store import rated_chats
from polyagents.human_eval.export import write_crowd_task
from polyagents.human_eval.steps.database_flag import add_database_flag, existing_store

TARGETS = ("acute_eval", "parlai", "crowd_task")


class Export(ParlaiScript):
    """Write what is stored."""

    @classmethod
    def setup_args(cls) -> ParlaiParser:
        """A target, a place."""
        parser = ParlaiParser(
            False,
            False,
            "Write ACUTE-Eval's pairings (acute_eval), ParlAI's conversations (parlai), or a folder to run ACUTE-Eval "
            "with on a crowd platform, from ParlAI's git tree (crowd_task) (polyagents)",
        )
        parser.add_argument("--to", help=", ".join(TARGETS))
        parser.add_argument("--out", help="the file to write; of crowd_task, the folder")
        add_database_flag(parser)
        return parser

    def run(self) -> None:
        """Write, say how many."""
        target, out = self.opt.get("to"), self.opt.get("out")
        if target not in TARGETS or not out:
            raise InputError(f"human_eval export needs --to {'|'.join(TARGETS)} and --out.")
        store = existing_store(self.opt["database"])
        conversations, pairs = store.conversations(), store.pairs()
        if not conversations:
            raise InputError(
                f"There is no conversation in {store.name}; import some first, or give another --database."
            )
        if target == "parlai":
            parlai_format.write(out, conversations.values(), chats=rated_chats(store))
            print(json.dumps({"conversations": len(conversations), "out": out}))
            return
        if not pairs:
            raise InputError(f"There are no pairs in {store.name}; make some with polyagents human_eval pairs.")
        if target == "acute_eval":
            acute_eval_format.write(out, pairs, conversations)
        else:
            write_crowd_task(out, pairs, conversations)
        print(json.dumps({"pairs": len(pairs), "out": out}))
