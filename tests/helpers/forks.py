"""Python in children of one process that has loaded what most commands import: they may be killed, and cost no start.

What is about starting a command (what is imported, in which order, with which environment) is no test for this.
"""

import atexit
import contextlib
import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback

import filelock

COMMAND = "from polyagents.__main__ import main; main()"
LIBRARIES = ("faiss", "fastapi", "scipy.stats", "sqlalchemy.orm", "transformers.models.bert.modeling_bert", "uvicorn")
LOADED = ("parlai.scripts.eval_model", "parlai.scripts.train_model", "polyagents.index.approximate",
          "polyagents.parlai_agents.ranker_agent")  # fmt: skip


@functools.cache
def address():
    """The address of the process that forks: one for all of a run, which ends with it (tests/conftest.py)."""
    folder = os.environ["FORKS"]
    path = f"{folder}/socket"
    with filelock.FileLock(f"{folder}/lock"):
        if not os.path.exists(path):
            command = [sys.executable, "-W", "ignore:pkg_resources is deprecated", __file__, path]
            with open(f"{folder}/alive", "rb", buffering=0) as alive:
                server = subprocess.Popen(command, stdin=alive, stdout=subprocess.PIPE)
            assert [server.stdout.readline() for _ in range(2)] == [b"ready\n"] * 2
            atexit.register(server.poll)  # it outlives this process
    return path


class Child:
    """A process that runs some Python, as subprocess.Popen has it."""

    def __init__(
        self, code, *arguments, stdin, stdout, stderr, cwd=None, program="polyagents", bare=False, **variables
    ):
        """Start it.

        Args:
            stdin, stdout, stderr: files; of the latter two, subprocess.PIPE makes one to read from.
            program: the name under which it was called.
            bare: with the libraries of others only, as if ParlAI and polyagents had not been imported yet.
            variables: of its environment.
        """
        self.args, self.returncode = arguments, None
        self.connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.connection.connect(f"{address()}.bare" if bare else address())
        request = [code, [program, *map(str, arguments)], str(cwd or os.getcwd()), dict(os.environ | variables)]
        with contextlib.ExitStack() as sent:
            self.stdout, stdout = piped(stdout, sent)
            self.stderr, stderr = piped(stderr, sent)
            files = [one if isinstance(one, int) else one.fileno() for one in (stdin, stdout, stderr)]
            socket.send_fds(self.connection, [json.dumps(request).encode()], files)
        self.pid = int(self.connection.recv(100))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.wait()
        for file in filter(None, (self.stdout, self.stderr)):
            file.close()

    def wait(self, timeout=300):
        """The exit code, or the signal that ended it as a negative number."""
        if self.returncode is None:
            self.connection.settimeout(timeout)
            self.returncode = os.waitstatus_to_exitcode(int(self.connection.recv(100)))
            self.connection.close()
        return self.returncode

    def poll(self):
        """The same, or None as long as it runs."""
        ended = self.returncode is not None or select.select([self.connection], [], [], 0)[0]
        return self.wait() if ended else None

    def send_signal(self, number):
        """Send a signal, if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


def piped(file, sent):
    """The two ends of a child's output: of a pipe for subprocess.PIPE, else the file, of which nothing is read."""
    if file != subprocess.PIPE:
        return None, file
    end, beginning = os.pipe()
    sent.callback(os.close, beginning)
    return os.fdopen(end, encoding="utf-8"), beginning


def run(code, *arguments, stdin="", **variables):
    """Run some Python to its end: as subprocess.run has it, with texts."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8")) for _ in range(3)]
        files[0].write(stdin)
        files[0].seek(0)
        child = Child(code, *arguments, **dict(zip(("stdin", "stdout", "stderr"), files, strict=True)), **variables)
        code = child.wait()
        for file in files:
            file.seek(0)
        return subprocess.CompletedProcess(child.args, code, files[1].read(), files[2].read())


# ---- the process that forks ------------------------------------------------------------------------------------------


def begin(code, arguments, folder, environment, files):
    """The child: run, and end as Python does."""
    for number, (file, name, mode) in enumerate(zip(files, ("stdin", "stdout", "stderr"), "rww", strict=True)):
        os.dup2(file, number)
        os.close(file)
        errors = "backslashreplace" if name == "stderr" else "strict"
        stream = open(number, mode, buffering=1, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv, status = arguments, 0
    try:
        try:
            exec(compile(code, "<code>", "exec"), {"__name__": "__main__"})
        except Exception as error:
            status = 1
            sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(status)


def keep(connection):
    """Start a child, say its number, and its status when it has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    child = os.fork()
    if not child:
        connection.close()
        begin(*json.loads(request), files)
    for file in files:
        os.close(file)
    connection.send(b"%d" % child)
    with contextlib.suppress(BrokenPipeError):  # nobody waited
        connection.send(b"%d" % os.waitpid(child, 0)[1])
    os._exit(0)


def serve(path):
    """Fork for whoever connects, until standard input ends: one process with the libraries, and a second with all."""
    gc.disable()
    for name in LIBRARIES:
        __import__(name)
    if os.fork():
        path = f"{path}.bare"
    else:
        for name in LOADED:
            __import__(name)
    gc.freeze()  # children look for garbage in what is their own
    gc.enable()
    del sys.modules["__main__"].__file__  # processes that children spawn shall not load it
    sys.modules["__main__"].__spec__ = None
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(path)
        server.listen(16)
        print("ready", flush=True)
        while server in select.select([server, sys.stdin], [], [])[0]:
            connection, _ = server.accept()
            if not os.fork():
                server.close()
                keep(connection)
            connection.close()


if __name__ == "__main__":
    serve(sys.argv[1])
