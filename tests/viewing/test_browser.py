"""viser serves the page, for who passes the door alone, and stops when it is told to."""

from __future__ import annotations

import math
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest

from etude.viewing.door import Door
from etude.viewing.show import Show

pytestmark = pytest.mark.optional


@pytest.mark.parametrize("task", ["quadruped-goto", "quadruped-motion", "quadruped-rough", "ball-flat"])
def test_a_page_is_served_drawn_and_stopped(
    show_of: Callable[..., Show], capsys: pytest.CaptureFixture[str], task: str
) -> None:
    pytest.importorskip("viser")
    from etude.viewing.browser import Page

    show, door = show_of(task, act="random"), Door("127.0.0.1", 0)
    page = Page(show, door)
    with urllib.request.urlopen(page.address, timeout=10) as answer:
        assert b"<html" in answer.read()
    stranger = urllib.request.Request(page.address, headers={"Origin": "http://evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(stranger, timeout=10)
    for _ in range(3):
        show.live.step()
        page._drawn = page._told = -math.inf  # at once, and though nobody looks
        page.draw(show)
    robots = show.live.robots
    at = page._bodies[robots.scene.base_body].position
    np.testing.assert_allclose(at, show.live.data().xpos[robots.scene.base_body], atol=1e-6)
    page.close()
    door.close()
    assert capsys.readouterr().out == ""
    with pytest.raises(OSError, match=r".*"):
        urllib.request.urlopen(page.address, timeout=2)


def test_controls_ask_and_keys_move_sliders(show_of: Callable[..., Show]) -> None:
    pytest.importorskip("viser")
    from etude.viewing.browser import Page

    show = show_of()
    door = Door("127.0.0.1", 0)
    page = Page(show, door)
    panel = page._panel
    panel._sliders[0].value = 0.5
    panel._ask(SimpleNamespace(client_id=1))
    show.do_later()
    assert show.live.asked == pytest.approx((0.5, 0.0, 0.0))
    show.press("space")
    panel.tell(show)
    assert panel._sliders[0].value == 0.0
    time.sleep(0.05)  # what was set here calls back, and must not be taken for somebody's wish
    show.do_later()
    assert show.live.driver.command == (0.0, 0.0, 0.0)
    page.close()
    door.close()


def test_nobody_can_have_it_tunnelled(show_of: Callable[..., Show]) -> None:
    pytest.importorskip("viser")
    from etude.viewing.browser_server import PageServer

    door = Door("127.0.0.1", 0)
    server = PageServer(door, "Etude")
    assert server.request_share_url() is None
    server.stop()
    door.close()
