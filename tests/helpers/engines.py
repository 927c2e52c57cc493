"""Vector engines of the tests' own: Milvus Lite as a folder and as a server on loopback, PostgreSQL with pgvector."""

import contextlib
import socket
import subprocess
import sys
import time

import postgres


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@contextlib.contextmanager
def milvus_server(folder, port=None):
    """The port of a running Milvus Lite server."""
    port = port or free_port()
    command = [sys.executable, "-c", "from milvus_lite.cmdline import main; main()", "server"]
    command += ["--data-dir", str(folder), "--host", "127.0.0.1", "--port", str(port)]  # it binds 0.0.0.0 by itself
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None and time.monotonic() < deadline, "the server did not start"
            time.sleep(0.05)  # a process that starts cannot be waited for otherwise
        yield port
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def running(kind, folder, socket=None, of_postgres="/tmp"):
    """The URL of an engine without candidates, but for the name behind its last slash.

    Args:
        kind: milvus-lite, milvus-server or pgvector.
        folder: for its data.
        socket: the folder of the socket of a running PostgreSQL; None starts one.
        of_postgres: for the data of one that is started, which runs as another user.
    """
    if kind == "milvus-lite":
        yield f"milvus:{folder}/candidates.db/{{name}}"
    elif kind == "milvus-server":
        with milvus_server(folder / "data") as port:
            yield f"milvus://127.0.0.1:{port}/{{name}}"
    else:
        with contextlib.nullcontext(socket) if socket else postgres.server(of_postgres) as place:
            server, _, query = postgres.new_database(place).partition("?")
            # A small table is read from end to end otherwise, and the graph would never be tried.
            yield f"{server}/{{name}}?{query}&options=-c%20enable_seqscan%3Doff"
