"""Keys of a terminal and of a window, and a gamepad, are events like any others."""

from __future__ import annotations

import json
import os
import pty
import termios
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etude.cli import run as command
from etude.errors import MissingPackageError, UserError
from etude.robots.driving import live_events
from etude.robots.driving.driving import Press, Stick
from etude.robots.driving.live_events import Joystick, TerminalKeys, keys_of
from etude.runs.run import Run


def test_a_terminal_gives_keys_at_once_and_is_as_before_afterwards() -> None:
    controller, terminal = pty.openpty()
    try:
        before = termios.tcgetattr(terminal)
        keys = TerminalKeys(terminal)
        assert keys.poll(0.0) == []
        os.write(controller, b"wW a?\x1b[D\x1b")
        assert keys.poll(0.0) == [Press(key) for key in ("w", "w", "space", "a", "left", "esc")]
        keys.close()
        assert termios.tcgetattr(terminal) == before
    finally:
        os.close(controller)
        os.close(terminal)


def test_unknown_keys_are_no_events() -> None:
    assert keys_of("zwé\n\x1b[Z") == ["w", "esc"]
    assert keys_of("") == []


class Pad:
    """A gamepad as pygame shows it."""

    def __init__(self, axes: int = 4) -> None:
        self.axes, self.buttons = [0.0] * axes, [False] * 10

    def get_name(self) -> str:
        return "Pad"

    def get_numaxes(self) -> int:
        return len(self.axes)

    def get_axis(self, axis: int) -> float:
        return self.axes[axis]

    def get_numbuttons(self) -> int:
        return len(self.buttons)

    def get_button(self, button: int) -> bool:
        return self.buttons[button]


def test_a_gamepad_tells_where_its_sticks_are_when_they_move_and_buttons_when_they_go_down() -> None:
    pad = Pad()
    joystick = Joystick(pad)
    assert joystick.poll(0.0) == []
    pad.axes = [0.05, -1.0, 0.9, 0.5]  # ahead, hardly sideways, and to the right
    assert joystick.poll(0.0) == [Stick(1.0, 0.0, -0.5)]
    assert joystick.poll(0.0) == []
    pad.axes, pad.buttons[0] = [0.0] * 4, True
    assert joystick.poll(0.0) == [Stick(0.0, 0.0, 0.0), Press("space")]
    assert joystick.poll(0.0) == []
    pad.buttons[:8] = [False, True, *[False] * 5, True]
    assert joystick.poll(0.0) == [Press("r"), Press("x")]
    with pytest.raises(UserError, match="Pad has 2 axes, and two sticks are needed"):
        Joystick(Pad(2))


@pytest.fixture
def pygame(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    found = pytest.importorskip("pygame")
    yield found
    found.quit()


def test_no_joystick_is_an_error_that_says_what_else_there_is(pygame: Any) -> None:
    if pygame.joystick.get_init() and pygame.joystick.get_count():
        pytest.skip("somebody has one")
    with pytest.raises(UserError, match=r"none is connected; --drive keyboard"):
        Joystick()


def test_a_window_shows_pictures_and_gives_keys_and_closing_it_is_the_wish_to_stop(pygame: Any) -> None:
    from etude.robots.driving.window import RobotWindow

    window = RobotWindow("robot")
    picture = np.zeros((96, 128, 3), np.uint8)
    picture[60:, :, 1] = 200
    window.show(picture, "forward +0.50 of +0.75")
    shown = pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1)
    assert shown.shape == picture.shape
    assert np.array_equal(shown[60:], picture[60:])
    window.poll(0.0)
    for key in (pygame.K_w, pygame.K_SPACE, pygame.K_F1, pygame.K_ESCAPE):
        pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=key))
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    assert window.poll(0.0) == [Press(key) for key in ("w", "space", "esc", "x")]
    window.close()


def test_without_pygame_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_events.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match="need pygame: pip install pygame-ce"):
        Joystick()


def test_where_there_is_a_display_a_window_opens_and_shows_every_step(
    trained: Run, tmp_path: Path, pygame: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from etude.robots.driving.window import RobotWindow

    shown: list[str] = []
    show = RobotWindow.show

    def counted(self: RobotWindow, picture: np.ndarray, text: str) -> None:
        shown.append(text)
        show(self, picture, text)

    monkeypatch.setattr(RobotWindow, "show", counted)
    monkeypatch.setenv("DISPLAY", ":99")
    monkeypatch.setenv("MUJOCO_GL", "egl")
    events = tmp_path / "events.yaml"
    events.write_text("[{time: 0.04, command: [0.5, 0, 0]}, {time: 0.1, key: x}]")
    words = ["--events", str(events), "--render-options", '{"width": 96, "height": 64}', "--json"]
    assert command(["play", str(trained.path), *words]) == 0
    assert len(shown) == 5
    assert "of +0.50" in shown[-1]
    assert not pygame.display.get_init()
    assert len(json.loads(capsys.readouterr().out)["driven"]) == 2
