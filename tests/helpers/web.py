"""A web server in this process, as `polyagents serve` runs it, and requests that no client library would send."""

import contextlib
import socket
import threading
from pathlib import Path

from polyagents.serving.http_server import address, listening, server_of


@contextlib.contextmanager
def running(app, buffer=None):
    """The address of an application that is served on loopback; so many bytes wait in the kernel for a client."""
    with listening("127.0.0.1", 0) as opened:
        if buffer:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
        opened.listen()  # from here on requests are kept until the server takes them: nobody has to wait for it
        server = server_of(app)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]})
        thread.start()
        try:
            yield address(opened)
        finally:
            server.should_exit = True
            thread.join()


class Stopped:
    """Instead of a web server: it ends at once."""

    def __init__(self, app, own_logs=True):
        self.app = app

    def run(self, sockets):
        """Serve nobody."""


def raw(url, request):
    """Status and everything else that a server says to these bytes; the connection ends after it."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer or not answer.partition(b"\r\n\r\n")[2]:
            part = connection.recv(65536)
            if not part:
                break
            answer += part
    return int(answer.split()[1]), answer.decode("utf-8", "replace")


def unread(url, request):
    """A connection whose client sends this and reads nothing, with little room for what comes."""
    host, port = url.removeprefix("http://").split(":")
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)  # else small windows are served in slow drips
    connection.settimeout(30)
    connection.connect((host, int(port)))
    connection.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        connection.send(request)
    return connection


def path_tricks(app_module, store_module):
    """Paths that lead out of the folder of static files, to sources that are there, and other tricks with paths."""
    own, store = Path(app_module.__file__).name, "%2f".join(Path(store_module.__file__).parts[-2:])
    inside = [f"/static/../{own}", f"/static/%2e%2e/{own}", f"/static/..%2f..%2f{store}", "/static//etc/passwd"]
    return ["/", *inside, "/annotate/../progress/x", "//127.0.0.1/annotate/x", "/annotate/x%0d%0aSet-Cookie:a=b"]
