"""Run README and docs as a reader would: every fenced block in order, in an empty folder, with the network off.

    python scripts/pages.py                       # every page, and a table at the end; exit code 1 if a command failed
    python scripts/pages.py README.md             # one page
    python scripts/pages.py --brief README.md     # as CI does: with fewer updates than are printed

A page has one shell, so that `cd` and variables carry over, and one Python. The page of an application in examples/ is
pasted into a copy of its folder; a page with a folder of its own name, such as docs/faq.md, beside a copy of that.
Fences that name no language, or another
than bash and python, show what is printed and are not run. HTML comments, which nobody sees in the rendered page, tell
the rest:

    <!-- needs: network -->     before a fence: why it cannot be run here, one of REASONS
    <!-- until Ctrl-C -->       before a fence: its last command is a server, which runs until the next comment below,
                                the next server, or the end of the page
    <!-- Ctrl-C -->             between fences: where the page says to stop that server
"""

import argparse
import collections
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parent.parent
REASONS = {
    "network": "it downloads packages, models or data",
    "real data": "it reads a data set that has to be downloaded first",
    "your files": "capital letters stand for files, folders or addresses of the reader's",
    "clone": "it is run in a clone of the repository",
    "hours": "it takes hours, or a GPU",
    "machines": "it takes several machines or processes, or Docker",
    "people": "somebody has to click, type or answer",
}
LANGUAGES = ("bash", "python")
SECONDS = 900  # for one command; on two slow cores the longest takes five minutes
# What --brief puts in the place of what is printed: the same commands, which train for a moment.
BRIEF = {
    "--max-train-steps 100 ": "--max-train-steps 25 ",
    'how = {"model": "bi", ': 'how = {"max_train_steps": 2, "model": "bi", ',
}
TYPED = "hello"  # what is typed where a command asks; the end of the input follows

# Executes what it is sent, a JSON string on each line, as one module that may await, and answers with a line.
PYTHON = """
import ast, asyncio, json, os, sys, traceback
names = {"__name__": "__main__"}
for line in sys.stdin:
    done = "0"
    try:
        waiting = eval(compile(json.loads(line), "page", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if waiting is not None:
            asyncio.run(waiting)
    except BaseException:
        traceback.print_exc()
        done = "1"
    sys.stdout.flush()
    os.write(3, done.encode() + b"\\n")
"""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page, with what the comment before it says."""

    language: str
    code: str
    line: int
    needs: str | None = None
    serves: bool = False
    stops: bool = False  # not a fence but the comment that stops the server

    def commands(self) -> list[str]:
        """Shell commands one by one, each with its continuation lines and here-documents; Python in one piece."""
        return [self.code] if self.language == "python" else shell_commands(self.code)


@dataclass
class Result:
    """What became of a page: how many commands, and why some were not run or failed."""

    page: str
    passed: int = 0
    marked: collections.Counter[str] = field(default_factory=collections.Counter)
    failed: list[str] = field(default_factory=list)
    seconds: float = 0.0


def pages() -> list[str]:
    """Every Markdown page for readers, relative to the root of the repository."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted((str(page.relative_to(ROOT)) for page in found), key=lambda name: (name.count("/"), name))


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page that can be run, and the stops between them; ValueError for a comment that means nothing."""
    comment = ""
    for token in MarkdownIt().parse(text):
        line = (token.map or [0])[0] + 1
        if token.type == "html_block" and token.content.startswith("<!--"):
            comment = token.content.strip().removeprefix("<!--").removesuffix("-->").strip()
            if comment == "Ctrl-C":
                yield Block("", "", line, stops=True)
                comment = ""
        elif token.type == "fence":
            if token.info.strip() in LANGUAGES:
                needs = comment.removeprefix("needs: ") if comment.startswith("needs: ") else None
                if (needs or "network") not in REASONS:
                    raise ValueError(f"line {line}: {needs!r} is no reason; there are {', '.join(REASONS)}")
                yield Block(token.info.strip(), token.content, line, needs, serves=comment == "until Ctrl-C")
            comment = ""
        elif token.type.endswith("_open"):
            comment = ""


def shell_commands(code: str) -> list[str]:
    """Commands of a shell script: the shortest runs of lines that bash takes for complete."""
    commands, begun = [], ""
    for line in code.splitlines():
        begun += f"{line}\n"
        checked = subprocess.run(["bash", "-n"], input=begun, capture_output=True, text=True, check=False)
        if line.endswith("\\") or checked.returncode or checked.stderr:
            continue
        if not all(one.strip().startswith("#") or not one.strip() for one in begun.splitlines()):
            commands.append(begun)
        begun = ""
    if begun:
        raise ValueError(f"bash does not understand:\n{begun}")
    return commands


class Session:
    """A shell and a Python in an empty folder, which what a page says is pasted into."""

    def __init__(self, folder: str, log: str):
        self.folder, self.log = folder, log
        self.shell = self.start(["bash", "--noprofile", "--norc"])
        self.python: tuple[subprocess.Popen[str], int] | None = None
        self.server: int | None = None
        self.ask(self.shell, "set -m; echo 0 >&3\n")  # -m: a server can then be interrupted

    def start(self, command: list[str]) -> tuple[subprocess.Popen[str], int]:
        """A process that reads its orders from standard input and answers on descriptor 3."""
        ours, theirs = os.pipe()
        environment = os.environ | {"HOME": self.folder, "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        with open(self.log, "a", encoding="utf-8") as log:
            process = subprocess.Popen(
                ["bash", "-c", f'exec 3>&{theirs} {theirs}>&-; exec "$@"', "bash", *command],
                cwd=self.folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[theirs],
                text=True,
                start_new_session=True,
            )
        os.close(theirs)
        return process, ours

    def ask(self, asked: tuple[subprocess.Popen[str], int], order: str) -> str:
        """Send an order and wait for the line that answers it; TimeoutError after SECONDS."""
        process, answers = asked
        assert process.stdin is not None
        process.stdin.write(order)
        process.stdin.flush()
        answer, until = b"", time.monotonic() + SECONDS
        os.set_blocking(answers, False)
        while not answer.endswith(b"\n"):
            with contextlib.suppress(BlockingIOError):
                answer += os.read(answers, 100)
            if process.poll() is not None:
                return "the session ended"
            if time.monotonic() > until:
                raise TimeoutError
            time.sleep(0.02)
        return answer.decode().strip()

    def run(self, command: str, language: str) -> bool:
        """Whether a command ends well, with a word and the end of the input for what asks."""
        if language == "python":
            self.python = self.python or self.start(["python", "-c", PYTHON])
            return self.ask(self.python, f"{json.dumps(command)}\n") == "0"
        return self.ask(self.shell, f"{{\n{command}}} <<'_TYPED_'\n{TYPED}\n_TYPED_\necho $? >&3\n") == "0"

    def serve(self, command: str) -> bool:
        """Whether a command becomes a server that answers at the address that it prints; it stays until `stop`."""
        self.stop()
        before = os.path.getsize(self.log)
        self.server = int(self.ask(self.shell, f"{{\n{command}}} </dev/null &\necho $! >&3\n"))
        until = time.monotonic() + SECONDS
        while time.monotonic() < until and os.path.exists(f"/proc/{self.server}"):
            with open(self.log, "rb") as log:
                log.seek(before)
                found = re.search(rb"https?://[\w.:]+\d", log.read())
            if found and answers(found[0].decode()):
                return True
            time.sleep(0.2)
        return False

    def stop(self) -> bool:
        """Interrupt the server as Ctrl-C does; whether there was none, or it ended as it should."""
        if self.server is None:
            return True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.server, signal.SIGINT)
        ended = self.ask(self.shell, f"wait {self.server}; echo $? >&3\n")
        self.server = None
        return ended in ("0", "130")

    def close(self) -> None:
        """End all that was started."""
        self.stop()
        for process, ours in filter(None, (self.shell, self.python)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            os.close(ours)


def answers(address: str) -> bool:
    """Whether a server is there, whatever it says."""
    try:
        urllib.request.urlopen(address, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def brief(text: str) -> str:
    """A page with fewer updates."""
    for printed, less in BRIEF.items():
        text = text.replace(printed, less)
    return text


def run_page(page: str, text: str) -> Result:
    """Paste a page into an empty folder, block by block; what fails is printed at once with the end of its output."""
    result, begin = Result(page), time.monotonic()
    work = tempfile.mkdtemp(prefix="page-")
    folder, log = os.path.join(work, "empty"), os.path.join(work, "log")
    os.mkdir(folder)
    if page.startswith("examples/") and page.count("/") > 1:  # the reader is in a copy of the folder
        shutil.copytree(ROOT / os.path.dirname(page), folder, dirs_exist_ok=True)
    if (data := ROOT / page.removesuffix(".md")).is_dir():  # docs/faq of docs/faq.md: the reader is in a clone
        shutil.copytree(data, os.path.join(folder, page.removesuffix(".md")))
    Path(log).touch()
    session = Session(folder, log)
    try:
        for block in blocks(text):
            if block.stops:
                note(result, session.stop(), "Ctrl-C", block, log)
            elif block.needs:
                result.marked[block.needs] += len(block.commands())
            else:
                run_block(block, session, result)
        if session.server is not None:
            note(result, session.stop(), "Ctrl-C at the end of the page", None, log)
    finally:
        session.close()
        shutil.rmtree(work, ignore_errors=True)
    result.seconds = time.monotonic() - begin
    return result


def run_block(block: Block, session: Session, result: Result) -> None:
    """Every command of a block."""
    commands = block.commands()
    for number, command in enumerate(commands, 1):
        serve = block.serves and number == len(commands)
        before = os.path.getsize(session.log)
        passed = session.serve(command) if serve else session.run(command, block.language)
        result.passed += passed
        if not passed:
            note(result, False, command, block, session.log, before)


def note(result: Result, passed: bool, command: str, block: Block | None, log: str, before: int = 0) -> None:
    """Keep and print what failed."""
    if passed:
        return
    where = f"{result.page}:{block.line}" if block else result.page
    result.failed.append(f"{where}: {command.strip()}")
    said = Path(log).read_bytes()[before:].decode(errors="replace").splitlines()[-40:]
    print(f"FAILED {result.failed[-1]}\n" + "\n".join(f"    {line}" for line in said), flush=True)


def table(results: list[Result]) -> str:
    """One row for each page, in Markdown."""
    lines = ["| page | commands | as printed | marked | failed |", "| --- | --- | --- | --- | --- |"]
    total = Result("all")
    for one in results:
        total.passed += one.passed
        total.marked += one.marked
        total.failed += one.failed
    for one in [*results, total]:
        marked = ", ".join(f"{count} {reason}" for reason, count in one.marked.most_common())
        commands = one.passed + one.marked.total() + len(one.failed)
        if commands:
            lines.append(f"| {one.page} | {commands} | {one.passed} | {marked} | {len(one.failed) or ''} |")
    return "\n".join(lines)


def without_network() -> None:
    """Start again in a network of its own, with the loopback only, where the system allows it."""
    if os.environ.get("PAGES_NETWORK") != "off":
        if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode:
            print("No network namespaces here: only the model hub is off.", flush=True)
            return
        os.environ["PAGES_NETWORK"] = "off"
        os.execvp("unshare", ["unshare", "-rn", sys.executable, *sys.argv])
    import fcntl
    import socket
    import struct

    with socket.socket() as any_socket:  # what `ip link set lo up` does
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up and running


def main() -> None:
    """Run the pages that are named, or all."""
    parser = argparse.ArgumentParser(description="Paste the pages into empty folders, without network.")
    parser.add_argument("pages", nargs="*", help="pages relative to the root of the repository; all by default")
    parser.add_argument("--brief", action="store_true", help="train for a moment: with fewer updates than are printed")
    given = parser.parse_args()
    without_network()
    results = []
    for page in given.pages or pages():
        text = (ROOT / page).read_text(encoding="utf-8")
        results.append(run_page(page, brief(text) if given.brief else text))
        print(f"{page}: {results[-1].passed} ran in {results[-1].seconds:.0f} s", flush=True)
    print(table(results))
    sys.exit(any(one.failed for one in results))


if __name__ == "__main__":
    main()
