"""A small stand-in for the model hub's HTTP, on loopback: what huggingface_hub calls to upload a folder and to have it.

Repositories are made, text files come within a commit, and large ones by Git LFS before it (its `basic` transfer);
revisions are resolved, trees listed, files handed out. Everything is kept in memory.
"""

import base64
import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

LARGE = (".safetensors",)  # what the hub keeps by Git LFS


class Hub(ThreadingHTTPServer):
    """Attributes: what it holds, and the requests that came.

    repositories: name -> branch -> its commits, the newest last; each commit has an id and files.
    large: SHA-256 -> content, of files that came by Git LFS.
    asked: method and path of each request.
    token: what an upload must bring.
    lies: a part of a path -> what answers instead of the truth.
    """

    daemon_threads = True

    def __init__(self, token="secret"):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories, self.large, self.asked, self.token = {}, {}, [], token
        self.lies = {}

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"

    def __enter__(self):
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error):
        self.shutdown()
        self.server_close()

    def put(self, name, files, branch="main"):
        """Commit files: path -> bytes."""
        commits = self.repositories.setdefault(name, {}).setdefault(branch, [])
        files = (commits[-1][1] if commits else {}) | files
        commits.append((hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest(), files))
        return commits[-1][0]

    def commit_of(self, name, revision):
        """The id and the files of a branch or of a commit's id; None where there is none."""
        branches = self.repositories.get(name, {})
        if branches.get(revision):
            return branches[revision][-1]
        return next((commit for commits in branches.values() for commit in commits if commit[0] == revision), None)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    ROUTES = (
        ("POST", r"/api/repos/create", "create"),
        ("POST", r"/api/validate-yaml", "validate"),
        ("POST", r"/api/models/(.+)/branch/(.+)", "branch"),
        ("POST", r"/api/models/(.+)/preupload/(.+)", "preupload"),
        ("POST", r"/(.+)\.git/info/lfs/objects/batch", "batch"),
        ("PUT", r"/large/(.+)", "take"),
        ("POST", r"/api/models/(.+)/commit/(.+)", "commit"),
        ("GET", r"/api/models/(.+)/revision/(.+)", "info"),
        ("GET", r"/api/models/(.+)/tree/([^/]+)", "tree"),
        ("GET|HEAD", r"/(.+)/resolve/([^/]+)/(.+)", "resolve"),
    )

    def log_message(self, *message):
        pass

    def handle_one(self):
        size = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(size)
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"{self.command} {path}")
        for part, lie in self.server.lies.items():
            if part in path:
                return lie(self)
        for method, pattern, name in self.ROUTES:
            if re.fullmatch(method, self.command) and (found := re.fullmatch(pattern, path)):
                if self.command in ("POST",) and self.headers.get("Authorization") != f"Bearer {self.server.token}":
                    return self.answer(401, {"error": "Invalid username or password."})
                return getattr(self, name)(*found.groups())
        return self.answer(404, {"error": "no such route"})

    do_GET = do_HEAD = do_POST = do_PUT = handle_one

    def answer(self, code, content=b"", **headers):
        if not isinstance(content, bytes):
            content = json.dumps(content).encode()
            headers.setdefault("Content-Type", "application/json")
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def refuse(self, what):
        """404 as the hub says it; the client tells by X-Error-Code what is missing."""
        self.answer(404, {"error": f"{what} not found"}, X_Error_Code=f"{what}NotFound")

    # ---- uploading ---------------------------------------------------------------------------------------------------

    def create(self):
        wanted = json.loads(self.body)
        name = f"{wanted.get('organization') or 'somebody'}/{wanted['name']}"
        new = name not in self.server.repositories
        self.server.repositories.setdefault(name, {"main": []})
        self.answer(200 if new else 409, {"url": f"{self.server.address}/{name}", "name": name})

    def validate(self):
        content = json.loads(self.body)["content"]
        good = content.startswith("---\n") and "\n---\n" in content
        self.answer(200 if good else 400, {"warnings": [], "errors": [] if good else [{"message": "no metadata"}]})

    def branch(self, name, branch):
        self.server.repositories[name].setdefault(branch, [])
        self.answer(200, {})

    def preupload(self, name, revision):
        if name not in self.server.repositories:
            return self.refuse("Repo")
        files = json.loads(self.body)["files"]
        modes = [
            {"path": f["path"], "shouldIgnore": False, "uploadMode": "lfs" if f["path"].endswith(LARGE) else "regular"}
            for f in files
        ]
        return self.answer(200, {"files": modes})

    def batch(self, name):
        objects = [
            {**one, "actions": {"upload": {"href": f"{self.server.address}/large/{one['oid']}"}}}
            for one in json.loads(self.body)["objects"]
        ]
        self.answer(200, {"transfer": "basic", "objects": objects}, Content_Type="application/vnd.git-lfs+json")

    def take(self, digest):
        assert hashlib.sha256(self.body).hexdigest() == digest
        self.server.large[digest] = self.body
        self.answer(200)

    def commit(self, name, branch):
        files = {}
        for line in self.body.decode().splitlines():
            operation = json.loads(line)
            value = operation["value"]
            if operation["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif operation["key"] == "lfsFile":
                files[value["path"]] = self.server.large[value["oid"]]
        oid = self.server.put(name, files, branch)
        url = f"{self.server.address}/{name}/commit/{oid}"
        self.answer(200, {"success": True, "commitOid": oid, "commitUrl": url, "hookOutput": ""})

    # ---- downloading -------------------------------------------------------------------------------------------------

    def found(self, name, revision):
        if name not in self.server.repositories:
            self.refuse("Repo")
        elif (commit := self.server.commit_of(name, revision)) is None:
            self.refuse("Revision")
        else:
            return commit
        return None

    def info(self, name, revision):
        if commit := self.found(name, revision):
            oid, files = commit
            self.answer(200, {"id": name, "sha": oid, "siblings": [{"rfilename": path} for path in files]})

    def tree(self, name, revision):
        if commit := self.found(name, revision):
            self.answer(200, [self.entry(path, content) for path, content in commit[1].items()])

    def entry(self, path, content):
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        entry = {"type": "file", "path": path, "size": len(content), "oid": blob}
        if path.endswith(LARGE):
            entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 130}
        return entry

    def resolve(self, name, revision, path):
        commit = self.found(name, revision)
        if commit is None:
            return
        oid, files = commit
        if path not in files:
            self.answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound", X_Repo_Commit=oid)
            return
        entry = self.entry(path, files[path])
        etag = entry.get("lfs", entry)["oid"]
        self.answer(200, files[path], ETag=f'"{etag}"', X_Repo_Commit=oid, Content_Type="application/octet-stream")
