"""`polyagents rank`: contexts in, ranked candidates out."""

import io
import json
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from parlai.core.params import ParlaiParser
from parlai.core.script import ParlaiScript, register_script

from polyagents.arguments import positive_int
from polyagents.errors import InputError
from polyagents.index.store import CandidateStore
from polyagents.index.texts import read_candidates
from polyagents.models.options import PRECISIONS
from polyagents.ranker import Candidates, Ranker


def read_contexts(lines: TextIO) -> Iterator[str]:
    r"""The contexts of a stream, one per line; blank lines are skipped.

    A line is plain text, or JSON: `{"context": "hi"}`, or `{"context": ["your persona: i ski .", "hi"]}` for turns.
    """
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line.startswith("{"):
            if line:
                yield line
            continue
        try:
            context = json.loads(line)["context"]
            yield context if isinstance(context, str) else "\n".join(context)
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f'Line {number} of the input is no context: give plain text, or JSON such as {{"context": "hi"}} or '
                f'{{"context": ["first turn", "second turn"]}}.'
            ) from error


@register_script("rank")
class Rank(ParlaiScript):
    """Rank candidates for every context on standard input."""

    @classmethod
    def setup_args(cls) -> ParlaiParser:
        """A model, candidates, and how many to return."""
        parser = ParlaiParser(
            False, False, "Rank candidates for contexts on standard input; JSON lines out (polyagents)"
        )
        # Not `required`: ParlAI parses every command's flags with an empty line to write its list of commands.
        parser.add_argument("-mf", "--model-file", help="a trained model")
        parser.add_argument("--candidates-file", help="UTF-8 text, one candidate per line")
        parser.add_argument("--index-dir", help="candidates encoded earlier by build_index, in place of a file")
        parser.add_argument(
            "--exact", action="store_true", help="search exactly, also where the index has an approximate one"
        )
        parser.add_argument("--top-k", type=positive_int, default=10, help="how many candidates to return")
        parser.add_argument("--rerank", help="a second model, such as a cross-encoder, to re-order what was found")
        parser.add_argument(
            "--rerank-top", type=positive_int, default=50, help="how many candidates the second model re-orders"
        )
        parser.add_argument("--precision", choices=PRECISIONS, default=None, help="by default as in training")
        return parser

    def run(self) -> None:
        """Read, rank, write."""
        if not self.opt.get("model_file") or bool(self.opt.get("candidates_file")) == bool(self.opt.get("index_dir")):
            raise InputError("rank needs --model-file, and either --candidates-file or --index-dir.")
        overrides = {"precision": self.opt["precision"]} if self.opt.get("precision") else {}
        ranker = Ranker.load(self.opt["model_file"], **overrides)
        for stream in (sys.stdin, sys.stdout):
            if isinstance(
                stream, io.TextIOWrapper
            ):  # whatever the terminal's encoding; bad bytes are no reason to stop
                stream.reconfigure(encoding="utf-8", errors="replace")
        second = Ranker.load(self.opt["rerank"], **overrides) if self.opt.get("rerank") else None
        top_k, candidates = self.opt["top_k"], self.candidates(ranker)
        for context in read_contexts(sys.stdin):
            line: dict[str, Any] = {"context": context}
            shortlist = top_k if second is None else self.opt["rerank_top"]
            if isinstance(candidates, CandidateStore) and candidates.shortlist is not None:
                (matches,), (line["complete"],) = ranker.search([context], candidates, shortlist)
            else:
                matches = ranker.rank(context, candidates, shortlist)
            if second is not None:
                matches = second.rerank(context, matches, top_k)
            found = [{"index": match.index, "text": match.text, "score": round(match.score, 4)} for match in matches]
            print(json.dumps(line | {"candidates": found}, ensure_ascii=False), flush=True)

    def candidates(self, ranker: Ranker) -> Candidates:
        """What is ranked, encoded as far as that can be done ahead."""
        if self.opt.get("index_dir"):
            return ranker.open_index(self.opt["index_dir"], self.opt["exact"])
        return ranker.prepare(read_candidates(self.opt["candidates_file"]))
