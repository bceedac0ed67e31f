"""The page is for this machine's own browser; an address that others reach asks for the token."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from websockets.datastructures import Headers
from websockets.http11 import Request

from etude.errors import UserError
from etude.viewing.door import Door


@pytest.fixture
def local() -> Iterator[Door]:
    door = Door("127.0.0.1", 0)
    yield door
    door.close()


@pytest.fixture
def open_to_all() -> Iterator[Door]:
    door = Door("0.0.0.0", 0)
    yield door
    door.close()


def status(door: Door, path: str = "/", **headers: str) -> int | None:
    """None: it gets in."""
    named = {"Host": f"127.0.0.1:{door.port}", **{name.replace("_", "-"): value for name, value in headers.items()}}
    answer = door.refusal(Request(path, Headers(named)))
    return None if answer is None else answer.status_code


def test_our_own_page_gets_in(local: Door) -> None:
    origin = f"http://127.0.0.1:{local.port}"
    assert local.address == f"{origin}/"
    assert status(local) is None
    assert status(local, Upgrade="websocket", Origin=origin) is None
    assert status(local, Host=f"localhost:{local.port}") is None


def test_pages_of_others_do_not(local: Door) -> None:
    assert status(local, Upgrade="websocket", Origin="http://evil.example") == 403
    assert status(local, Upgrade="websocket", Origin="null") == 403
    assert status(local, Sec_Fetch_Site="cross-site") == 403
    assert status(local, Host="evil.example") == 421  # a name that was pointed at this machine


def test_where_others_reach_it_the_token_opens(open_to_all: Door) -> None:
    door = open_to_all
    assert not door.is_local
    assert status(door) == 401
    assert status(door, Upgrade="websocket", Origin=f"http://127.0.0.1:{door.port}") == 401
    query = urlsplit(door.address).query
    assert status(door, "/?token=wrong") == 401
    answer = door.refusal(Request(f"/?{query}", Headers({"Host": f"127.0.0.1:{door.port}"})))
    assert answer is not None
    assert (answer.status_code, answer.headers["Location"]) == (303, "/")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert query.removeprefix("token=") not in cookie
    assert status(door, Cookie=cookie.partition(";")[0]) is None
    name = cookie.partition("=")[0]
    assert status(door, Cookie=f"{name}=x") == 401
    other = Door("0.0.0.0", 0)  # a browser sends it the same cookies
    assert status(other, Cookie=cookie.partition(";")[0]) == 401
    assert (
        name
        not in other.refusal(Request(f"/?{urlsplit(other.address).query}", Headers({"Host": "127.0.0.1"}))).headers[
            "Set-Cookie"
        ]
    )
    other.close()


def test_the_usual_port_gives_way_and_a_named_one_does_not(local: Door) -> None:
    first = Door("127.0.0.1")
    second = Door("127.0.0.1")
    assert first.port != second.port
    first.close()
    second.close()
    with pytest.raises(UserError, match=f"--port {local.port}: Address already in use"):
        Door("127.0.0.1", local.port)
