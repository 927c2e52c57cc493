"""`polyagents serve`: a chat page for one model, and JSON endpoints."""

import argparse
import dataclasses
import os
import socket
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from polyagents.arguments import INDEX_URL, add_backend_flag, add_fields_flag, port_number, positive_int, threshold
from polyagents.commands.configuration import ConfiguredParser
from polyagents.commands.context_answers import add_rerank_flags
from polyagents.console import LOADING, number_of, say, waiting
from polyagents.errors import InputError
from polyagents.faults import parlai_is_installed
from polyagents.serving.http_server import address, listen, listening, run_until_stopped
from polyagents.zoo.datapath import datapath
from polyagents.zoo.resolve import zoo_file

if TYPE_CHECKING:
    from polyagents.serving.access_tokens import AccessTokens

CANDIDATES = ("candidates_file", "index_dir", "index_url")


def parser() -> argparse.ArgumentParser:
    """Declare the flags: a model, candidates, and who may ask."""
    parser = ConfiguredParser(
        "polyagents serve",
        "A chat page for one model, and JSON endpoints POST /rank and /chat, /v1/rerank and /v2/rerank (Cohere's), "
        "/v1/embeddings (OpenAI's), /v1/systemone (TypeSafe's).",
    )
    parser.add_argument("-mf", "--model-file", help="a trained model")
    candidates = parser.add_mutually_exclusive_group()
    candidates.add_argument(
        "--candidates-file",
        help="UTF-8 text, one reply per line, or with ids, as for rank; by default, as in interactive, all labels "
        "of the model's task",
    )
    add_fields_flag(parser)
    candidates.add_argument("--index-dir", help="candidates that `index build` encoded, instead of a file")
    candidates.add_argument("--index-url", help=INDEX_URL)
    add_rerank_flags(parser)
    add_backend_flag(parser)
    parser.add_argument("--host", default="127.0.0.1", help="any address except this machine's own needs --token")
    parser.add_argument("--port", type=port_number, default=8008, help="0 takes any free port")
    tokens = parser.add_mutually_exclusive_group()
    tokens.add_argument(
        "--token-file",
        help="file with the token that every request must send, or one for each client, per line: NAME SCOPE[,SCOPE] "
        "TOKEN, of the scopes ask, metrics and admin, or TOKEN; or set it in the environment as POLYAGENTS_TOKEN",
    )
    tokens.add_argument("--token", help="the same on the command line, visible in the process list")
    parser.add_argument(
        "--requests-per-minute",
        type=positive_int,
        default=600,
        help="limit of one client: an address, or a token if it has a name or there are several; requests beyond it "
        "get status 429",
    )
    parser.add_argument(
        "--texts-per-minute",
        type=positive_int,
        default=60_000,
        help="limit of the texts that the model reads for one client: documents to rerank, texts to encode, candidates",
    )
    parser.add_argument(
        "--hand-over",
        type=threshold,
        default=0.0,
        help="the chat leaves a message to a person if its reply is less probable; the model must be calibrated",
    )
    parser.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="how standard error is written, line by line"
    )
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="info writes a line for each request, without its texts; debug adds these, and the lines of probes",
    )
    return parser


def run(opt: Mapping[str, Any]) -> None:
    """Load the model and serve until Ctrl-C."""
    from polyagents.serving.guard import is_loopback  # loads the web libraries

    tokens, host = tokens_of(opt), opt["host"]
    if not opt["model_file"]:
        raise InputError("serve needs --model-file.")
    if not tokens.current and not is_loopback(host):
        raise InputError(
            f"--host {host} lets other machines in, which needs --token; give one, or omit --host to serve this "
            f"machine only."
        )
    with listening(host, opt["port"]) as opened:  # errors in it are reported before the model is loaded
        from polyagents.serving.logs import logging_to_stderr

        with logging_to_stderr(opt["log_format"], opt["log_level"]):
            serve(opt, tokens, opened)


def serve(opt: Mapping[str, Any], tokens: "AccessTokens", opened: socket.socket) -> None:
    """Load the model and serve it on a socket."""
    with waiting(LOADING):
        from polyagents.serving.access_tokens import MAY_ASK
        from polyagents.serving.ranking_app import create_app
        from polyagents.serving.reloading import Reloader, freeze, on_hangup
        from polyagents.serving.sources import Sources

    sources = Sources(**{field.name: opt[field.name] for field in dataclasses.fields(Sources)})  # named as its flag
    if not any(opt[name] for name in CANDIDATES):
        write_replies_of_task(zoo_file(opt["model_file"]))
    reloader = Reloader(sources, tokens)
    on_hangup(reloader.reload_soon)
    served = sources.load()
    per_minute, texts = opt["requests_per_minute"], opt["texts_per_minute"]
    app = create_app(served, tokens, per_minute, texts_per_minute=texts, reloader=reloader)
    freeze()
    listen(opened)
    # A reader of the terminal has given the token; a reader of a container's log may not be allowed to have it.
    first = next((token.secret for token in tokens.current if MAY_ASK in token.scopes), "TOKEN")
    shown = quote(first, safe="", errors="surrogateescape") if sys.stderr.isatty() else "TOKEN"
    query = f"?token={shown}" if tokens.current else ""
    say(
        f"{served.model} ({served.kind}) with {number_of(served.size, 'candidate')} of {served.source}: "
        f"{address(opened)}/{query} (Ctrl-C ends it)"
    )
    run_until_stopped(app, opened, own_logs=False)


def tokens_of(opt: Mapping[str, Any]) -> "AccessTokens":
    """Return the tokens of all requests, which may be none; an InputError says which file or line is wrong."""
    from polyagents.serving.access_tokens import AccessTokens  # loads the web libraries

    if opt["token_file"]:
        return AccessTokens(path=opt["token_file"])
    try:
        return AccessTokens(opt["token"] or "")
    except InputError as error:
        raise InputError(f"--token: {error}") from error


def write_replies_of_task(model_file: str) -> None:
    """Write all labels of a model's task to the file where `Sources.read` looks for them, if it does not exist.

    That needs ParlAI, which reads the task; without it `Sources.read` says what to give.
    """
    from polyagents.parlai_files.parlai_options import read
    from polyagents.ranking.task_candidates import task_candidates_path

    saved = read(model_file)
    if not saved.get("task") or os.path.exists(task_candidates_path(model_file, str(saved["task"]))):
        return
    if not parlai_is_installed():
        return
    from polyagents.parlai_patches import patches
    from polyagents.parlai_patches.compat import quiet
    from polyagents.parlai_patches.saved_options import is_trusted_task
    from polyagents.parlai_patches.task_messages import write_task_candidates

    if not is_trusted_task(str(saved["task"])):
        raise InputError(
            f"{model_file} was trained on the task {saved['task']}, and a file may not decide which code runs; name "
            f"the replies with --candidates-file or --index-dir."
        )
    patches.apply()
    with quiet():
        write_task_candidates({**saved, "model_file": model_file, "datapath": datapath()})
