"""How a step serves pages to people who have a link: its flags, the links that it prints, the server."""

import argparse
import re
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from polyagents.arguments import port_number, refuse_given
from polyagents.console import one_line, say
from polyagents.errors import InputError
from polyagents.human_eval.records import ANNOTATE_PATH, JOIN_PATH, PROGRESS_PATH
from polyagents.human_eval.study import PLATFORMS, Study, read_study
from polyagents.human_eval.web.wording import Wording, read_wording
from polyagents.serving import http_server

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from polyagents.human_eval.storage.evaluation_store import EvaluationStore
    from polyagents.human_eval.web.study_pages import Verify

    MakeApp = Callable[[str, Wording, Verify | None], ASGIApp]  # of the organiser's token

EVERYWHERE = ("0.0.0.0", "::")  # an address that a browser cannot open


def add_server_flags(parser: argparse.ArgumentParser) -> None:
    """Add --host and --port, and the flags of a study whose people come uninvited."""
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="by default only this machine can connect; with 0.0.0.0 everybody can who has a link. The links are "
        "secret, but plain HTTP can be read in transit: outside a trusted network put a proxy with HTTPS in front",
    )
    parser.add_argument("--port", type=port_number, default=8009, help="0 takes any free port")
    parser.add_argument(
        "--recruit",
        choices=PLATFORMS,
        help="whoever comes from this platform, or with the one link, gets a place of --study and needs no invitation",
    )
    parser.add_argument("--study", help="a study's settings, a JSON file (docs/running-a-study.md)")
    parser.add_argument("--public-url", help="https://HOST[:PORT], under which people reach this server")
    parser.add_argument("--insecure", action="store_true", help="let people of a platform come by plain HTTP")
    parser.add_argument(
        "--verify", action="store_true", help="ask Prolific whether it knows each submission (PROLIFIC_TOKEN)"
    )


def study_of(opt: Mapping[str, Any]) -> Study | None:
    """Read the study that people come for; None if all are invited; an InputError says which flags do not fit."""
    platform, url = opt["recruit"], opt["public_url"] or ""
    if platform is None:
        why = f"is for people who come uninvited; give --recruit {'|'.join(PLATFORMS)}, too."
        refuse_given(opt, ("study", "verify", "insecure"), why)
    elif not opt["study"]:
        raise InputError(f"--recruit {platform} needs --study FILE, a study's settings; see docs/running-a-study.md.")
    if url:
        check_public_url(url, "http", "https")
    if platform not in (None, "link") and urlsplit(url).scheme != "https" and not opt["insecure"]:
        raise InputError(
            f"--recruit {platform} needs --public-url https://HOST, since plain HTTP can be read and changed in "
            f"transit; give it, or --insecure for a try."
        )
    if opt["verify"] and platform != "prolific":
        raise InputError(
            f"--verify is for --recruit prolific: {platform} cannot say whether a submission that is under way is real."
        )
    return read_study(opt["study"], platform) if platform else None


def check_public_url(given: str | None, *schemes: str) -> None:
    """Refuse what is not the address of a server: of another scheme, or with more than a host and a port."""
    found = re.fullmatch(r"(\w+)://[^\s/?#@\\]+/?", given or "")
    try:
        url = urlsplit(found[0]) if found and found[1].lower() in schemes else None
        fine = url is not None and url.hostname and url.port != 0
    except ValueError:  # of a host or a port that cannot be
        fine = False
    if not fine:
        raise InputError(f"--public-url {given or ''!r:.80} is not an address; give https://HOST[:PORT].")


def verifier(opt: Mapping[str, Any], study: Study | None) -> "Verify | None":
    """Return what confirms a submission (its person, its name); None if nothing does. Say if Prolific refuses us."""
    if study is None or not opt["verify"]:
        return None
    from polyagents.human_eval.platforms.prolific import Prolific

    access, name = Prolific.from_environment(tries=2), study.id  # a person waits for it
    try:
        access.submissions(study)
    except InputError as error:
        say(f"{error} As long as Prolific does not answer, nobody new can take part.")
    return lambda person, submission: access.knows(name, person, submission)


def arrival(study: Study) -> str:
    """Return the address for a platform, after the server's, with the platform's own names of who comes."""
    return JOIN_PATH + PLATFORMS[study.platform].query.replace("{study}", quote(study.id))


def serve_pages(
    opened: socket.socket, opt: Mapping[str, Any], store: "EvaluationStore", make_app: "MakeApp", what: str
) -> None:
    """Print the organiser's link and the links of the invited or of the study, and serve until Ctrl-C.

    The store is closed at the end.
    """
    study, organiser = store.places.study if store.places else None, store.organiser()
    app = make_app(organiser, read_wording(study.texts if study else ""), verifier(opt, study))
    invited = {name: ANNOTATE_PATH + token for name, token in store.invited().items()}
    links = {study.platform: arrival(study)} if study else invited
    http_server.listen(opened)
    start = (opt["public_url"] or reachable(http_server.address(opened))).rstrip("/")
    print(f"organiser\t{start}{PROGRESS_PATH}{organiser}", flush=True)
    for name, link in links.items():
        print(f"{one_line(name)}\t{start}{link}", flush=True)
    say(f"{what} (Ctrl-C ends it)")
    http_server.run_until_stopped(app, opened)
    store.close()


def reachable(start: str) -> str:
    """Return an address that others can open, if the server listens on all of this machine's."""
    for everywhere in EVERYWHERE:
        host = f"[{everywhere}]" if ":" in everywhere else everywhere
        start = start.replace(f"//{host}:", f"//{socket.gethostname()}:")
    return start
