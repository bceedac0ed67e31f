"""Who drives the robot that `etude play` shows: a keyboard, a joystick, a file, or nobody."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from etude.cli.output import note

if TYPE_CHECKING:
    from etude.robots.driving.driving import EventSource
    from etude.robots.driving.window import RobotWindow
    from etude.runs.run import Run
    from etude.using.drive import Stretch

DriveBy = Literal["auto", "keyboard", "joystick", "off"]


def is_robot(run: Run, *, trusted: bool) -> bool:
    """Whether a run is of a robot's task."""
    from etude.training import stored_config

    return stored_config.load_config(run, trusted=trusted).environment.robot is not None


def check_drive(drive: DriveBy, events: Path | None, *, robot: bool, name: str) -> None:
    """Refuse what can't be driven, or by two at once."""
    from etude.errors import UserError

    wanted = "--events" if events is not None else f"--drive {drive}"
    if events is not None and drive not in ("auto", "off"):
        raise UserError(f"--drive {drive} and --events {events}: choose one")
    if not robot and (events is not None or drive != "auto"):
        raise UserError(f"{wanted} is for robots, and run {name} is of none")


def choose_source(drive: DriveBy, events: Path | None, window: RobotWindow | None) -> EventSource | None:
    """Return where commands come from: by default from the window's keys, if there is one; None: from the task itself."""
    from etude.cli.own_files import read_own_yaml
    from etude.robots.driving.driving import HELP, read_events
    from etude.robots.driving.live_events import Joystick, TerminalKeys

    if events is not None:
        return read_events(read_own_yaml(events, f"--events {events}"), f"--events {events}")
    if drive == "joystick":
        return Joystick()
    if drive == "keyboard" and window is None:
        keys = TerminalKeys()
        note(HELP)
        return keys
    return window if drive in ("auto", "keyboard") else None


def stretch_line(stretch: Stretch) -> str:
    """Return what was asked and done, in one line."""
    asked, done = (" ".join(f"{value:+.2f}" for value in triple) for triple in (stretch.command, stretch.velocity))
    line = f"{stretch.begin:6.2f} s to {stretch.end:6.2f} s  asked {asked}"
    if stretch.left is None:
        return f"{line}  done {done}"
    return f"{line}  left {' '.join(f'{value:+.2f}' for value in stretch.left)}"
