"""`polyagents build_wiki_search`: the data of the Wikipedia article search, from a dump."""

import json
import os

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript, register_script

from polyagents.arguments import positive_int
from polyagents.console import say
from polyagents.errors import InputError


@register_script("build_wiki_search")
class BuildWikiSearch(ParlaiScript):
    """Make the data of the Wikipedia article search."""

    @classmethod
    def setup_args(cls) -> ParlaiParser:
        """A dump, a folder."""
        parser = ParlaiParser(
            False,
            False,
            "Make the data of -t polyagents.tasks.wiki_search: sentences of Wikipedia's articles, each with the "
            "article that it was taken out of (polyagents). A build that was stopped goes on when it is started again.",
        )
        # Not `required`: ParlAI parses every command's flags with an empty line to write its list of commands.
        parser.add_argument(
            "--source",
            help="a dump (pages-articles.xml.bz2, read as it is), or what WikiExtractor --json made of one: a file, or "
            "a folder such as ParlAI's DATAPATH/wikipedia/full",
        )
        parser.add_argument("--outdir", help="folder of the data; made where it is missing")
        parser.add_argument("--seed", type=int, default=0, help="draws each article's query, and its split")
        parser.add_argument(
            "--workers", type=positive_int, default=None, help="processes; by default one per core that it may use"
        )
        # The paper's numbers. Literal, as every help would load the task's libraries otherwise.
        fewer = "; of a small source fewer, unless another number is given"
        parser.add_argument(
            "--eval-pool", type=positive_int, default=10_000, help=f"articles to rank a label among{fewer}"
        )
        parser.add_argument("--valid-examples", type=positive_int, default=9_921, help="articles to validate with")
        parser.add_argument("--test-examples", type=positive_int, default=9_925, help="articles to test with")
        return parser

    def run(self) -> None:
        """Build; then say what there is, and what to do with it."""
        from polyagents.tasks.wiki_search.build import Plan, build  # loads the libraries that only it needs
        from polyagents.tasks.wiki_search.splitting import Sizes

        opt = self.opt
        if not opt.get("source") or not opt.get("outdir"):
            raise InputError("build_wiki_search needs --source and --outdir.")
        sizes = Sizes(opt["valid_examples"], opt["test_examples"], opt["eval_pool"])
        workers = opt.get("workers") or cores()
        folder = opt["outdir"]
        made = build(Plan(opt["source"], folder, opt["seed"], sizes, workers))
        say(
            f"{folder}: {made['examples']['train']:,} examples to train on. Train: train_model -t "
            f"polyagents.tasks.wiki_search --wiki-search-path {folder} --eval-candidates fixed "
            f"--fixed-candidates-path {os.path.join(folder, 'pool.txt')} -m bi -mf M"
        )
        print(json.dumps(made["examples"] | {"pages": made["pages"]["pages"], "seed": opt["seed"]}))


def cores() -> int:
    """Those that this process may use; all where the system does not say."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
