"""`polyagents human_eval import`: conversations and pairings from files."""

import json

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript

from polyagents.console import say
from polyagents.errors import InputError
from polyagents.human_eval.reading import Found, read_file
from polyagents.human_eval.steps.database_flag import add_database_flag
from polyagents.human_eval.store import Store

SHOWN = 20  # malformed parts of a file that are named


class Import(ParlaiScript):
    """Fill the store."""

    @classmethod
    def setup_args(cls) -> ParlaiParser:
        """Files, a database."""
        parser = ParlaiParser(
            False,
            False,
            "Import ParlAI's logs (self_chat, interactive, older ones) or ACUTE-Eval's pairings; what is there already "
            "is passed over (polyagents)",
        )
        parser.add_argument("files", nargs="*", help="of any of the formats, told by their content")
        parser.add_argument(
            "--model-name",
            help="of the model in these logs; by default its model file, or, where an older log does not tell that, "
            "the class of its agent",
        )
        add_database_flag(parser)
        return parser

    def run(self) -> None:
        """Read everything, then store; say what was left out."""
        files = self.opt.get("files")
        if not files:
            raise InputError("human_eval import needs files of conversations.")
        found = {file: read_file(file, self.opt.get("model_name")) for file in files}
        for file, part in found.items():
            say_malformed(file, part)
        conversations = [conversation for part in found.values() for conversation in part.conversations]
        pairs = [pair for part in found.values() for pair in part.pairs]
        if not conversations:
            raise InputError(
                f"There is no conversation in {', '.join(files)}; give ParlAI's logs or ACUTE-Eval's pairings."
            )
        store = Store(self.opt["database"])
        added = {"conversations": store.add_conversations(conversations), "pairs": store.add_pairs(pairs)}
        malformed = sum(len(part.malformed) for part in found.values())
        print(json.dumps(added | {"read": len(conversations), "malformed": malformed, "database": store.name}))


def say_malformed(file: str, found: Found) -> None:
    """What of a file was left out, and why."""
    for where, reason in found.malformed[:SHOWN]:
        say(f"{file}, {where}, is left out: {reason}.")
    more = len(found.malformed) - SHOWN
    if more > 0:
        say(f"{file}: {more:,} more are left out, {len(found.malformed):,} in all.")
