"""A hub in this process: as much of its interface as `huggingface_hub` uses to make, fill and read a repository."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote


@dataclass
class Repository:
    private: bool = False
    files: dict[str, bytes] = field(default_factory=dict)
    listed: dict[str, int] = field(default_factory=dict)
    """Names and sizes that it claims to have besides."""

    @property
    def commit(self) -> str:
        return hashlib.sha1(repr(sorted(self.files.items())).encode()).hexdigest()


@dataclass
class Hub:
    address: str
    repositories: dict[str, Repository] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """Methods and paths, in order."""
    tokens: set[str] = field(default_factory=set)

    def repository(self, path: str) -> tuple[Repository, str, str] | None:
        """The repository that a path begins with, its name, and the rest of the path."""
        owner, name, *rest = path.strip("/").split("/")
        found = self.repositories.get(f"{owner}/{name}")
        return None if found is None else (found, f"{owner}/{name}", "/".join(rest))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_GET  # noqa: N815 # the server's own names

    def _answer(self) -> None:
        path = unquote(self.path.split("?")[0])
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.hub.asked.append(f"{self.command} {path}")
        self.hub.tokens |= {self.headers["Authorization"]} if "Authorization" in self.headers else set()
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'me'}/{asked['name']}"
            self.hub.repositories.setdefault(
                name, Repository(bool(asked.get("private") or asked.get("visibility") == "private"))
            )
            self._json({"url": f"{self.hub.address}/{name}", "name": name, "id": name})
        elif path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif path.startswith("/api/models/"):
            self._repository(path.removeprefix("/api/models/"), body)
        else:
            self._resolve(path)

    def _repository(self, path: str, body: bytes) -> None:
        found = self.hub.repository(path)
        if found is None:
            self._json({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
            return
        repository, name, rest = found
        if rest.startswith("preupload/"):
            asked = json.loads(body)["files"]
            files = [{"path": each["path"], "uploadMode": "regular", "shouldIgnore": False} for each in asked]
            self._json({"files": files})
        elif rest.startswith("commit/"):
            self._commit(repository, body)
            self._json({"commitUrl": f"{self.hub.address}/{name}/commit/{repository.commit}", "commitOid": repository.commit})
        elif rest.startswith("tree/"):
            self._json(
                [{"type": "file", "path": each, "size": len(data), "oid": "0" * 40} for each, data in repository.files.items()]
            )
        else:
            sizes = {each: len(data) for each, data in repository.files.items()} | repository.listed
            siblings = [{"rfilename": each, "size": size} for each, size in sizes.items()]
            self._json(
                {"id": name, "modelId": name, "sha": repository.commit, "private": repository.private, "siblings": siblings}
            )

    @staticmethod
    def _commit(repository: Repository, body: bytes) -> None:
        for line in body.splitlines():
            entry = json.loads(line)
            if entry["key"] == "file":
                repository.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
            elif entry["key"] == "deletedFile":
                repository.files.pop(entry["value"]["path"], None)

    def _resolve(self, path: str) -> None:
        found = self.hub.repository(path)
        name = "" if found is None else found[2].split("/", 2)[-1]
        if found is None or name not in found[0].files:
            self._json({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
            return
        data = found[0].files[name]
        headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X-Repo-Commit": found[0].commit}
        self._send(data, 200, {**headers, "Content-Type": "application/octet-stream"})

    def _json(self, content: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._send(json.dumps(content).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def _send(self, data: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def serving() -> Iterator[Hub]:
    """Serve an empty hub."""
    handler = type("Handler", (_Handler,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    handler.hub = hub = Hub(f"http://127.0.0.1:{server.server_address[1]}")  # type: ignore[attr-defined] # a class made here
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
