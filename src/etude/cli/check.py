"""`etude check`: is an environment of your own as it should be?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from etude.cli.output import drawing, emit_json, styled
from etude.cli.parameters import AsJson, Words

if TYPE_CHECKING:
    from etude.environments.check.report import Remark

_MARKS = {"fine": ("✓", "green"), "notice": ("!", "yellow"), "wrong": ("✗", "bold red")}


def check(
    environment: Annotated[str, Parameter(name="MODULE:ID")], /, *kwargs: Words, steps: int = 1000, as_json: AsJson = False
) -> int:
    """Check an environment: its spaces, what it returns, its ends, its seeds, how it resumes, and its speed.

    What is checked is what training steps: many copies together where there is a class for that, as for robots and Atari.

    ✓ is fine, ! works but could be better, ✗ must be fixed. Exit code 1 if anything is ✗.

    Parameters
    ----------
    environment
        Its id, with the module that registers it: corridor:Corridor-v0. One in the current folder is found. Of robots, the
        id or the YAML of a task, or a robot's own YAML, MJCF or URDF.
    kwargs
        The environment's own arguments, such as length=6; for robots settings, such as environment.max_episode_steps=50.
    steps
        Random steps to take, of all copies together.
    """
    from etude.config.overrides import parse
    from etude.environments.check.check import check_environment

    show = None if as_json else _shown(drawing(soft_wrap=True))
    remarks = check_environment(environment, parse(kwargs).values, steps=steps, on_remark=show)
    failed = any(remark.level == "wrong" for remark in remarks)
    if as_json:
        plain = [
            {"level": remark.level, "check": remark.check, "says": remark.says, "way_out": remark.way_out or None}
            for remark in remarks
        ]
        emit_json({"environment": environment, "passed": not failed, "remarks": plain})
    return int(failed)


def _shown(console: Any) -> Callable[[Remark], None]:
    """Print each remark as it is made."""

    def show(remark: Remark) -> None:
        mark, style = _MARKS[remark.level]
        console.print(styled((mark, style), f" {remark.check:<7} {remark.says}"))
        if remark.way_out:
            console.print(styled(f"          → {remark.way_out}", style="cyan"))

    return show
