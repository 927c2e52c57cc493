"""`polyagents human_eval invite`: a link for each annotator."""

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript

from polyagents.errors import InputError
from polyagents.human_eval.steps.database_flag import add_database_flag
from polyagents.human_eval.store import Store
from polyagents.human_eval.views import PATH


class Invite(ParlaiScript):
    """Invite annotators."""

    @classmethod
    def setup_args(cls) -> ParlaiParser:
        """Names."""
        parser = ParlaiParser(
            False,
            False,
            "Invite annotators: a secret link path for each, the same when a name is given again (polyagents)",
        )
        parser.add_argument("names", nargs="*", help="of the annotators")
        add_database_flag(parser)
        return parser

    def run(self) -> None:
        """A line per annotator: name, tab, path."""
        if not self.opt.get("names"):
            raise InputError("human_eval invite needs the names of annotators.")
        for annotator in Store(self.opt["database"]).invite(self.opt["names"]):
            print(f"{annotator.name}\t{PATH}{annotator.token}")
