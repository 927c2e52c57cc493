"""`polyagents human_eval report`: what came of it."""

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript

from polyagents.human_eval.chat_store import rated_chats
from polyagents.human_eval.steps.database_flag import add_database_flag, existing_store


class Report(ParlaiScript):
    """Count, compare, rank."""

    @classmethod
    def setup_args(cls) -> ParlaiParser:
        """A database, a folder."""
        parser = ParlaiParser(
            False,
            False,
            "Win rates, agreement, a ranking, and ratings of chats, with intervals: report.html, report.png and CSV "
            "files (polyagents)",
        )
        add_database_flag(parser)
        parser.add_argument("--out", default="human-eval-report", help="folder of the report; made where it is missing")
        parser.add_argument("--seed", type=int, default=0, help="draws what the ranking's intervals are made of")
        return parser

    def run(self) -> None:
        """Print the summary; the page has all of it."""
        from polyagents.human_eval.report import write_report  # loads the libraries that only it needs

        store = existing_store(self.opt["database"])
        print(write_report(store.judgements(), self.opt["out"], self.opt["seed"], rated_chats(store)))
