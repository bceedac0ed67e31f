"""How fast a training goes on this machine, by training it for some seconds and throwing the run away.

Counted is what lies between two rows of the run, after the rows in which libraries warm up and code is compiled: environment
steps and updates per second, and what of the time goes into what.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from etude.config.compose import compose
from etude.training import assembly, session

Mode = Literal["auto", "off", "capture", "on"]
WARM_UP_ROWS = 2
ENDLESS = 10**12
_WITHOUT_EXTRAS = (
    f"training.total_steps={ENDLESS}",
    "evaluation.every_steps=0",
    "evaluation.every_updates=0",
    "checkpoint.every_minutes=null",
    "checkpoint.every_steps=0",
    "checkpoint.every_updates=0",
    "logging.every_steps=1000",
    "logging.every_updates=10",
    "logging.report=false",
)
SHARE = "time/share/"


@dataclass(frozen=True)
class Speed:
    """What one training came to."""

    mode: str
    """How updates ran: eager, compiled, captured."""
    steps_per_s: float
    """Environment steps, all copies together."""
    updates_per_s: float
    started_s: float
    """Seconds from the start of the training to the first row that counts: compiling, and random behaviour at the beginning."""
    shares: dict[str, float]
    """What the time of the whole training went into."""

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)


def measure(spec: str | None, words: Sequence[str], mode: Mode, *, file: Path | None = None, seconds: float) -> Speed:
    """Train for `seconds` after the warm-up."""
    composition = compose(spec, file=file, words=(*words, *_WITHOUT_EXTRAS, f"experiment.compile={mode}"))
    with TemporaryDirectory() as folder, open(os.devnull, "w") as nowhere:
        training = session.start(composition, root=Path(folder), quiet=True, stream=nowhere)
        learns = bool(composition.config.network)
        begun, warm = time.perf_counter(), 0
        first: tuple[float, float, float] | None = None
        rows = iter(training)
        for row in rows:
            now = time.perf_counter()
            warm += 1 if row["updates"] or not learns else 0
            if first is None and warm > WARM_UP_ROWS:
                first = now, row["env_steps"], row["updates"]
            elif first is not None and now - first[0] >= seconds:
                break
        else:
            raise AssertionError("a training without an end has ended")
        rows.close()  # type: ignore[attr-defined] # a generator, which saves and stops
        assert first is not None
        took = now - first[0]
        shares = {name.removeprefix(SHARE): value for name, value in row.items() if name.startswith(SHARE)}
        return Speed(
            mode=assembly.execution_mode(training.config),
            steps_per_s=(row["env_steps"] - first[1]) / took,
            updates_per_s=(row["updates"] - first[2]) / took,
            started_s=first[0] - begun,
            shares=dict(sorted(shares.items(), key=lambda item: -item[1])),
        )


def best_of(one: Speed | None, other: Speed) -> Speed:
    """Return the faster of two: whatever else a machine does makes it slower, never faster."""
    return other if one is None or other.steps_per_s > one.steps_per_s else one
