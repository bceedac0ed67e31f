from __future__ import annotations

from pathlib import Path

import pytest

from etude.ui.access import Access, is_loopback
from etude.ui.app import make_app
from etude.ui.guard import LARGEST_BODY
from tests.ui.asgi_client import HOST, Client
from tests.ui.conftest import TOKEN

CHANGES = (
    "/api/session",
    "/api/start",
    "/api/run/{run}/tags",
    "/api/run/{run}/group",
    "/api/run/{run}/stop",
    "/api/run/{run}/resume",
    "/api/inspect",
    *(f"/api/inspect/session/{what}" for what in ("stop", "close", "0/branch", "0/more", "0/drive", "0/steer")),
)


@pytest.mark.parametrize("path", CHANGES)
def test_every_change_needs_the_token(path: str, stranger: Client, runs: list[str]) -> None:
    path = path.format(run=runs[0])
    assert stranger.post(path).status == 401
    assert stranger.post(path, headers={"x-etude-token": TOKEN[:-1]}).status == 401
    assert stranger.post(path, headers={"x-etude-token": ""}).status == 401


@pytest.mark.parametrize("path", CHANGES)
def test_a_token_from_another_site_is_refused(path: str, client: Client, runs: list[str]) -> None:
    path = path.format(run=runs[0])
    for headers in ({"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}):
        assert client.post(path, headers=headers).status == 403
    # Another port of this machine is the same site to a browser, and not ours.
    assert client.post(path, headers={"origin": "http://127.0.0.1:9999", "sec-fetch-site": "same-site"}).status == 403


def test_own_pages_may_change(client: Client, runs: list[str]) -> None:
    headers = {"origin": f"http://{HOST}", "sec-fetch-site": "same-origin"}
    assert client.post(f"/api/run/{runs[0]}/tags", {"add": ["x"]}, headers).json() == {"tags": ["x"]}


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8750", "127.0.0.1.evil.example", "localhost.evil", "", "[::1", "a:b"]
)
def test_other_names_for_this_machine_are_refused(host: str, client: Client) -> None:
    for path in ("/", "/api/runs", "/static/app.css"):
        assert client.get(path, {"host": host}).status == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8750", "localhost:9000", "LOCALHOST", "[::1]:8750"])
def test_names_of_loopback_are_served(host: str, client: Client) -> None:
    assert client.get("/api/runs", {"host": host}).status == 200


def test_other_sites_can_link_to_a_page_and_read_nothing(stranger: Client, runs: list[str]) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert stranger.get("/curves", link).status == 200
    assert stranger.get("/api/runs", link).status == 403
    assert stranger.get(f"/files/{runs[0]}/log", link).status == 403
    frame = {**link, "sec-fetch-dest": "iframe"}
    assert stranger.get("/curves", frame).status == 403
    assert stranger.get("/api/runs", {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}).status == 403


def test_elsewhere_reading_needs_the_token_too(root: Path, runs: list[str]) -> None:
    app = make_app(root, token=TOKEN, host="192.168.1.5")
    at = {"host": "192.168.1.5:8750"}
    assert Client(app).get("/", at).status == 200
    assert Client(app).get("/static/app.css", at).status == 200
    for path in ("/api/runs", f"/api/run/{runs[0]}", f"/files/{runs[0]}/log", "/api/curves?metric=train/loss", "/api/about"):
        assert Client(app).get(path, at).status == 401
        assert Client(app, TOKEN).get(path, at).status == 200 or path.endswith("log")
    cookie = Client(app, TOKEN).post("/api/session", headers=at).headers["set-cookie"]
    assert TOKEN not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    with_cookie = {**at, "cookie": f"other=1; {cookie.partition(';')[0]}"}
    assert Client(app).get("/api/runs", with_cookie).status == 200
    assert Client(app).post(f"/api/run/{runs[0]}/tags", {"add": ["x"]}, with_cookie).status == 401


def test_on_every_address_only_addresses_and_this_machine_are_names(root: Path, runs: list[str]) -> None:
    access = Access(TOKEN, "0.0.0.0")
    assert access.refusal("GET", "/api/runs", {"host": "10.0.0.7:1", "x-etude-token": TOKEN}) is None
    refusal = access.refusal("GET", "/api/runs", {"host": "evil.example", "x-etude-token": TOKEN})
    assert refusal is not None
    assert refusal.status == 421


def test_loopback_is_known() -> None:
    assert [is_loopback(host) for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1")] == [True] * 4
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "example.org", "192.168.0.1", "")] == [False] * 5


def test_a_header_that_decides_may_stand_once(client: Client) -> None:
    twice = [(b"host", HOST.encode()), (b"host", b"evil.example")]
    assert client.ask_raw("GET", b"/api/runs", b"", twice).status == 400


def test_sizes_are_limited(client: Client, runs: list[str]) -> None:
    path = f"/api/run/{runs[0]}/tags"
    large = b"x" * (LARGEST_BODY + 1)
    assert client.ask("POST", path, {"content-type": "application/json"}, large).status == 413
    assert client.ask("POST", path, {"content-length": str(10**9)}).status == 413
    assert client.ask("POST", path, {"content-length": "-1"}).status == 400
    assert client.get("/api/runs?filter=" + "x" * 60_000).status == 414
    assert client.get("/" + "x" * 2000).status == 414


def test_only_reading_and_posting_are_answered(client: Client) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "X"):
        answer = client.ask(method, "/api/runs")
        assert answer.status == 405
        assert "access-control-allow-origin" not in answer.headers


def test_every_answer_has_the_headers_of_security(client: Client, runs: list[str]) -> None:
    paths = ("/", "/static/app.css", "/api/runs", f"/api/run/{runs[0]}", "/nothing", "/api/run/nothing", "/static/nothing")
    for answer in (*map(client.get, paths), client.get("/", {"host": "evil"}), client.ask("PUT", "/")):
        policy = answer.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert "default-src 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
