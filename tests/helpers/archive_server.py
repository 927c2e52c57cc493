"""A small archive of models, and a server of it on loopback that misbehaves as it is told to."""

import gzip
import http.server
import io
import tarfile
import threading


def tgz(files, *members):
    """A compressed archive of files, and of members that are no files: the same bytes at any time."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
        for member in members:
            archive.addfile(member)
    return gzip.compress(out.getvalue(), mtime=0)


class Server(http.server.ThreadingHTTPServer):
    """A server of one archive, as good or bad as it is told to be."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content, self.etag, self.ranges, self.status = b"", '"first"', True, 200
        self.raw = None  # bytes instead of any answer
        self.location = None  # where a status of 302 sends everybody
        self.cuts = []  # after how many bytes the connection breaks, request by request
        self.gate = threading.Event()  # no answer before it opens
        self.gate.set()
        self.asked = []  # the Range of every request
        self.url = f"http://127.0.0.1:{self.server_port}/models.tgz"


class Handler(http.server.BaseHTTPRequestHandler):
    """One answer of the server."""

    def do_GET(self):
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append(wanted)
        server.gate.wait(30)
        if server.raw is not None:
            self.close_connection = True
            self.wfile.write(server.raw)
            return
        body, status, place = server.content, server.status, None
        if status == 200 and self.resumes(wanted):
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            status = 206 if start < len(body) else 416
            place = f"{start}-{len(body) - 1}" if status == 206 else "*"
            place, body = f"bytes {place}/{len(body)}", body[start:]
        self.send_response_only(status)
        if place:
            self.send_header("Content-Range", place)
        if server.location:
            self.send_header("Location", server.location)
        if server.etag:
            self.send_header("ETag", server.etag)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.cuts.pop(0)] if server.cuts else body)

    def resumes(self, wanted):
        return self.server.ranges and wanted and self.headers.get("If-Range") in (None, self.server.etag)

    def log_message(self, *arguments):
        """Nothing: tests read standard error."""
