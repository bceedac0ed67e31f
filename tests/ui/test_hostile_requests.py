"""Random and hostile requests: whatever comes, no answer is a failure of the server, and none has what lies outside the runs.

`python -m tests.ui.test_hostile_requests 5000` sends as many as it is told.
"""

from __future__ import annotations

import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from etude.runs.records import read_record
from etude.ui.app import make_app
from tests.ui.asgi_client import HOST, Client
from tests.ui.conftest import TOKEN
from tests.ui.run_folders import make_runs

SECRET = "the-content-of-a-file-outside"
REQUESTS = 500
_PATHS = (
    "/", "/curves", "/run", "/diff", "/start", "/static/app.css", "/static/{odd}", "/static/../{odd}", "/api/runs", "/api/keys",
    "/api/about", "/api/jobs", "/api/metrics", "/api/curves", "/api/diff", "/api/session", "/api/start", "/api/run/{run}",
    "/api/run/{odd}", "/api/run/{run}/tags", "/api/run/{run}/group", "/api/run/{run}/stop", "/api/run/{odd}/tags",
    "/files/{run}/log",    "/files/{run}/report", "/files/{run}/videos/{odd}", "/files/{run}/{odd}/{odd}",
    "/files/{odd}/{odd}/{odd}", "/{odd}", "/inspect", "/api/inspect", "/api/inspect/{odd}", "/api/inspect/{odd}/world",
    "/api/inspect/{odd}/0/steer", "/api/inspect/x/{odd}/poses", "/api/inspect/x/0/{odd}/1.png",
    "/api/inspect/x/0/episode.{odd}",
)  # fmt: skip
_ODD = (
    "..", "%2e%2e", "..%2f..%2fsecret", "%2e%2e%2fsecret%2fsecret.txt", "....//secret", "%00", "a%00.mp4", "%ff%fe",
    "%c0%ae%c0%ae", "linked", "secret.mp4", "steps-1.mp4", "run.json", ".index.sqlite", "<script>alert(1)</script>",
    "%3Cscript%3E",
    "'\"><img>", "\\..\\secret", "%5c..%5c", "a" * 300, "@last", "~", "$HOME", "`id`", "%0d%0aSet-Cookie:x", "%e2%80%ae", "-",
    "NaN", "1e999", "[" * 50, "{}", "videos", "file:%2f%2f%2fetc%2fpasswd", "http:%2f%2fevil.example", "%25%32%65",
    "*", "?", "#", ";", "&",
)  # fmt: skip
_NAMES = (
    "filter",
    "sort",
    "reverse",
    "limit",
    "column",
    "run",
    "metric",
    "axis",
    "band",
    "by",
    "smooth",
    "points",
    "start",
    "end",
)
_VALUES = (
    "seed=1",
    "best",
    "1",
    "0",
    "-1",
    "999999999999",
    "train/loss",
    "time",
    "runs",
    "interval",
    "learning_rate",
    "0.5",
    "inf",
)
_METHODS = ("HEAD", "PUT", "OPTIONS", "get", "\xff")
_CHANGES = ("/tags", "/group", "/stop", "/session", "/start", "/steer", "/inspect")
_HEADERS = {
    "host": (HOST, HOST, HOST, "evil.example", "", "localhost", "[::1]:1", "127.0.0.1:8750@evil", "a" * 500),
    "origin": ("http://evil.example", "null", f"http://{HOST}", "", "file://"),
    "sec-fetch-site": ("cross-site", "same-site", "same-origin", "none", "x"),
    "x-etude-token": (TOKEN, TOKEN, "", "x", "\xff" * 20),
    "content-type": ("application/json", "text/plain", "", "application/json; charset=\xff", "multipart/form-data"),
    "content-length": ("0", "-1", "x", "999999999999", "1e3", ""),
    "range": ("bytes=0-", "bytes=-1", "bytes=9-1", "bytes=" + "9" * 50, "x", "bytes=0-1,2-3"),
    "if-none-match": ('"x"', "*", "", "\x00"),
    "cookie": ("etude-ui=x", "etude-ui=", "=;;=", "a" * 2000),
    "accept-encoding": ("gzip", "\xff"),
}
_BODIES = (
    b"", b"{}", b"[]", b"null", b"{", b"\xff\xfe", b'{"add": ["x"]}', b'{"add": [null]}', b'{"add": "x"}', b'{"group": {}}',
    b"[" * 5000, b'{"group": "\\ud800"}', b'{"add": ["\\u0000"]}', b'{"words": 1}', b'{"words": "--help"}', b'{"remove": [[]]}',
    b"x" * 70_000, b'{"add": [' + b"9" * 5000 + b"]}", b'{"group": 1e999}', b'{"add": ["a,b"], "remove": ["a"]}',
)  # fmt: skip


def attack(folder: Path, requests: int, seed: int = 0) -> Counter[int]:
    """Send requests and return how often each status was answered; an AssertionError names the first that went wrong."""
    root, outside = folder / "runs", folder / "secret"
    runs = make_runs(root, 4, rows=20)
    outside.mkdir()
    for name in ("secret.txt", "secret.mp4", "steps-1.mp4", "run.json", "run.log", "report.html", "git.json"):
        (outside / name).write_text(SECRET)
    (root / "linked").symlink_to(outside)
    (root / runs[0] / "videos").rmdir()
    (root / runs[0] / "videos").symlink_to(outside)
    (root / runs[1] / "run.log").symlink_to(outside / "run.log")
    (root / runs[1] / "report.html").symlink_to(outside / "report.html")
    (root / runs[2] / "videos" / "secret.mp4").symlink_to(outside / "secret.mp4")
    (root / runs[2] / "metrics.jsonl").write_bytes(b"\xff[{}\x00\n" * 20)
    client, generator, seen = Client(make_app(root, token=TOKEN)), random.Random(seed), Counter[int]()
    before = {run: read_record(root / run / "run.json") for run in runs}
    for number in range(requests):
        method, path, query, headers, body = _request(generator, runs)
        answer = client.ask_raw(method, path, query, headers, body)
        what = f"request {number}: {method} {path!r}?{query!r} {headers} {body[:60]!r}"
        assert answer.status < 500, what
        assert SECRET.encode() not in answer.body, what
        assert SECRET not in str(answer.headers), what
        assert "set-cookie" not in answer.headers or path == b"/api/session", what
        assert "content-security-policy" in answer.headers or answer.status == 304, what
        assert b"Traceback" not in answer.body, what
        if not any(name == b"x-etude-token" and value == TOKEN.encode() for name, value in headers):
            assert method in ("GET", "HEAD") or answer.status >= 400, what
        seen[answer.status] += 1
    for run, record in before.items():
        now = read_record(root / run / "run.json")
        assert now is not None
        assert record is not None
        assert {key: now[key] for key in now if key not in ("tags", "group")} == {
            key: record[key] for key in record if key not in ("tags", "group")
        }
    assert all((outside / name).read_text() == SECRET for name in ("secret.txt", "run.log"))
    return seen


def _request(generator: random.Random, runs: list[str]) -> tuple[str, bytes, bytes, list[tuple[bytes, bytes]], bytes]:
    path = generator.choice(_PATHS).replace("{run}", generator.choice(runs))
    while "{odd}" in path:
        path = path.replace("{odd}", _odd(generator), 1)
    pairs = (f"{generator.choice(_NAMES)}={generator.choice((*_VALUES, *_ODD, *runs))}" for _ in range(generator.randrange(5)))
    wanted = {"host": HOST, "x-etude-token": TOKEN, "content-type": "application/json"}
    if generator.random() < 0.6:
        for name in generator.sample(list(_HEADERS), generator.randrange(1, 4)):
            wanted[name] = generator.choice(_HEADERS[name])
    headers = [(name.encode(), value.encode("latin-1")) for name, value in wanted.items()]
    if generator.random() < 0.05:
        headers.append(generator.choice(headers))
    usual = "POST" if path.endswith(_CHANGES) else "GET"
    method = usual if generator.random() < 0.9 else generator.choice((*_METHODS, "GET", "POST"))
    body = generator.choice(_BODIES) if method == "POST" else b""
    return method, path.encode("latin-1", "replace"), "&".join(pairs).encode("latin-1", "replace"), headers, body


def _odd(generator: random.Random) -> str:
    if generator.random() < 0.7:
        return generator.choice(_ODD)
    return "".join(
        f"%{generator.randrange(256):02x}" if generator.random() < 0.5 else chr(generator.randrange(33, 127)) for _ in range(12)
    )


def test_hostile_requests_neither_fail_nor_leak(tmp_path: Path) -> None:
    seen = attack(tmp_path, REQUESTS)
    assert {200, 400, 401, 403, 404, 405, 413, 421} <= set(seen)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        print(dict(sorted(attack(Path(place), int(sys.argv[1]), seed=7).items())))
