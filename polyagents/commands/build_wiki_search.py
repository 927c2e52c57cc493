"""`polyagents build_wiki_search`: the data of the Wikipedia article search, from a dump."""

import argparse
import json
import os
from collections.abc import Mapping
from typing import Any

from polyagents.arguments import CommandParser, Whole, positive_int, seed_number
from polyagents.console import command, number_of, say
from polyagents.threads import available_cores


def parser() -> argparse.ArgumentParser:
    """Declare the flags: a dump, a folder."""
    parser = CommandParser(
        "polyagents build_wiki_search",
        "Make the data of -t polyagents.tasks.wiki_search: sentences of Wikipedia's articles, each with the article "
        "that it was taken from. To resume a stopped build, start it again.",
    )
    parser.add_argument(
        "--source",
        required=True,
        help="a dump (pages-articles.xml.bz2, read as it is), or the output of WikiExtractor --json: a file, or a "
        "folder such as ParlAI's DATAPATH/wikipedia/full",
    )
    parser.add_argument("--outdir", required=True, help="folder of the data; created if it is missing")
    parser.add_argument("--seed", type=seed_number, default=0, help="draws each article's query, and its split")
    parser.add_argument(
        "--workers", type=Whole(1, 1_024), default=None, help="processes; by default one per available core"
    )
    # The paper's numbers, literal, as the module that defines them imports the task's libraries.
    fewer = "; fewer for a small source, unless you give a number"
    parser.add_argument("--eval-pool", type=positive_int, default=10_000, help=f"articles to rank a label among{fewer}")
    parser.add_argument("--valid-examples", type=positive_int, default=9_921, help="articles to validate with")
    parser.add_argument("--test-examples", type=positive_int, default=9_925, help="articles to test with")
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Build; then say what was built, and how to use it."""
    from polyagents.tasks.wiki_search.build_data import WikiPlan, build  # imports what only this command needs
    from polyagents.tasks.wiki_search.splitting import Sizes

    sizes = Sizes(opt["valid_examples"], opt["test_examples"], opt["eval_pool"])
    folder = opt["outdir"]
    made = build(WikiPlan(opt["source"], folder, opt["seed"], sizes, opt["workers"] or available_cores()))
    task = ("-t", "polyagents.tasks.wiki_search", "--wiki-search-path", folder)
    pool = ("--eval-candidates", "fixed", "--fixed-candidates-path", os.path.join(folder, "pool.txt"))
    train = command("train_model", "-m", "bi", "-mf", "M", *task, *pool)
    say(f"{folder}: {number_of(made['examples']['train'], 'example')} to train on. Train: {train}")
    print(json.dumps(made["examples"] | {"pages": made["pages"]["pages"], "seed": opt["seed"]}))
