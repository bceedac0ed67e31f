"""`etude bench`: how fast a training goes on this machine."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from etude.cli.options import above_zero, at_least
from etude.cli.output import drawing, emit_json, styled
from etude.cli.parameters import AsJson, Spec, Words
from etude.cli.starting import starting

if TYPE_CHECKING:
    from etude.diagnosis.speed import Speed


def bench(
    spec: Spec = None,
    /,
    *overrides: Words,
    file: Annotated[Path | None, Parameter(name=["--config", "-c"])] = None,
    mode: tuple[Literal["auto", "off", "capture", "on"], ...] = ("off",),
    seconds: float = 5.0,
    rounds: int = 2,
    as_json: AsJson = False,
) -> int:
    """Measure how fast a training goes here: environment steps and updates per second, and what takes the time.

    It trains for some seconds and keeps nothing. Several modes are measured in turn, and of each the best round is shown:
    etude bench Pendulum-v1:sac --mode off --mode on

    Parameters
    ----------
    spec
        What to train, such as CartPole-v1:ppo; ENV:random is the environment with hardly anything around it.
    overrides
        Settings, such as environment.num_envs=16.
    file
        A YAML or JSON file of settings.
    mode
        How updates run (experiment.compile); may be given several times.
    seconds
        Seconds that count in each round, after the warm-up.
    rounds
        Rounds of each mode.
    """
    above_zero(seconds=seconds)
    at_least(1, rounds=rounds)
    best: dict[str, Speed] = {}
    with starting(spec or "bench") as tell:
        tell("loading torch")
        from etude.diagnosis.speed import best_of, measure

        for number in range(rounds):
            for each in dict.fromkeys(mode):
                tell(f"round {number + 1} of {rounds}: compile={each}")
                found = measure(spec, overrides, each, file=file, seconds=seconds)
                best[each] = best_of(best.get(each), found)
    if as_json:
        emit_json({each: speed.as_json() for each, speed in best.items()})
    else:
        _show(best)
    return 0


def _show(best: Mapping[str, Speed]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold dim")
    for heading, side in (("compile", "left"), ("updates run", "left"), ("env steps/s", "right"), ("updates/s", "right"),
                          ("started in", "right"), ("time goes into", "left")):  # fmt: skip
        table.add_column(heading, justify="right" if side == "right" else "left", overflow="fold")
    for each, speed in best.items():
        shares = ", ".join(f"{name} {share:.0%}" for name, share in speed.shares.items() if share >= 0.01)
        numbers = (f"{speed.steps_per_s:,.0f}", f"{speed.updates_per_s:,.1f}", f"{speed.started_s:.1f} s")
        table.add_row(*map(styled, (each, speed.mode, *numbers, shares)))
    drawing(width=None if sys.stdout.isatty() else 160).print(table)
