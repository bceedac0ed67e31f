"""What is shown of a moment in words and numbers, alike on every screen."""

from __future__ import annotations

from etude.files.printable import one_line
from etude.viewing.show import Show

NAMES = ("forward", "sideways", "turn")


def facts(show: Show) -> list[tuple[str, str]]:
    """Return names and values, none of them longer than a line."""
    live, checkpoints = show.live, show.checkpoints
    found = [("task", show.title)]
    if checkpoints is not None:
        kept = " (deleted meanwhile)" if checkpoints.is_gone else ""
        found += [
            ("run", f"{checkpoints.run.id} · {show.status}"),
            ("checkpoint", f"{checkpoints.label}{kept}" + (" · following" if checkpoints.follows else "")),
        ]
        if checkpoints.problem is not None:
            found.append(("problem", checkpoints.problem))
    found += [
        ("time", f"{live.seconds:.1f} s · episode {live.episode} · {_count(live.falls, 'fall')}"),
        ("speed", "paused" if show.paused else f"{show.speed:g}× · real {show.rate:.2f}×"),
        ("asked by", "you" if live.is_driven else "the task"),
    ]
    return [(name, one_line(value)) for name, value in found]


def velocities(show: Show) -> list[tuple[str, str, str]]:
    """Return names, what is done, and what is asked for: a velocity, or how far away the place to go to is."""
    asks_place = show.live.robots.task.commands.goal == "position"
    found = []
    for name, asked, done in zip(NAMES, show.live.asked, show.live.done, strict=True):
        place = "" if name == "turn" else f"place {_signed(asked)} m"
        found.append((name, _signed(done), place if asks_place else f"of {_signed(asked)}"))
    return found


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}"  # never -0.00


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")
