"""Two runs are the same when every logged number (time aside) and every final weight is, to the last bit."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from etude.config.compose import compose
from etude.orchestration.orchestrator import Orchestrator
from etude.runs.run import Run
from etude.runs.settings_files import HASH, settings_hash
from etude.telemetry.jsonl import read_rows
from etude.telemetry.names import deterministic_items
from etude.training import session


def train(spec: str, root: Path, *words: str) -> Run:
    with open(os.devnull, "w") as nowhere:
        return session.train(compose(spec, words=words), root=root, quiet=True, stream=nowhere).run


def resume(run: Run, *words: str, **options: Any) -> session.Outcome:
    with open(os.devnull, "w") as nowhere:
        return session.resume(run, words=words, quiet=True, stream=nowhere, **options)


@contextmanager
def stopped_after(cycles: int) -> Iterator[None]:
    """Every training within is interrupted once it has run this many cycles itself."""
    original: Callable[[Orchestrator], bool] = Orchestrator._run_cycle

    def counted(self: Orchestrator) -> bool:
        alive = original(self)
        self.__dict__["_counted"] = self.__dict__.get("_counted", 0) + 1
        if self.__dict__["_counted"] >= cycles:
            self.interrupt("SIGINT")
        return alive

    Orchestrator._run_cycle = counted
    try:
        yield
    finally:
        Orchestrator._run_cycle = original


def assert_resumes(spec: str, folder: Path, *words: str, after: int) -> None:
    """A run that is stopped after some cycles and resumed is the run that was not stopped."""
    whole = train(spec, folder / "whole", *words)
    with stopped_after(after):
        stopped = train(spec, folder / "stopped", *words)
    resume(stopped)
    assert_same_run(stopped, whole)


def assert_resumes_again_and_again(spec: str, folder: Path, *words: str, most: int) -> Run:
    """The same with a stop after every few cycles, up to `most`; returns the run."""
    whole = train(spec, folder / "whole", *words)
    generator = random.Random(spec)
    with stopped_after(generator.randint(1, most)):
        run = train(spec, folder / "cut", *words)
    stops = 1
    while run.status == "interrupted":
        with stopped_after(generator.randint(1, most)):
            resume(run)
        stops += 1
    assert stops > 2
    assert run.status == "finished"
    assert_same_run(whole, run)
    return run


def forge_settings(run: Run, text: str) -> None:
    """Replace the run's settings as a stranger would, who knows what else to change."""
    run.resolved_path.write_text(text)
    run.update_status(**{HASH: settings_hash(text)})


def rows(run: Run) -> list[dict[str, bytes]]:
    logged = read_rows(run.metrics_path)
    return [{key: struct.pack("<d", value) for key, value in deterministic_items(row).items()} for row in logged]


def state(run: Run) -> Any:
    parts = run.checkpoints().newest_whole().load()
    parts["shared"].pop("elapsed_s")  # type: ignore[union-attr] # the one value that is a time
    return parts


def assert_same_state(one: Any, other: Any, path: str = "") -> None:
    assert type(one) is type(other), path
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype, path
        assert torch.equal(one.nan_to_num(12345.0), other.nan_to_num(12345.0)), path
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), path
        for key in one:
            assert_same_state(one[key], other[key], f"{path}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), path
        for index, (left, right) in enumerate(zip(one, other, strict=True)):
            assert_same_state(left, right, f"{path}[{index}]")
    else:
        assert one == other or (one != one and other != other), f"{path}: {one} {other}"


def assert_same_run(one: Run, other: Run) -> None:
    left, right = rows(one), rows(other)
    assert len(left) == len(right)
    for index, (a, b) in enumerate(zip(left, right, strict=True)):
        assert a == b, f"row {index}: {[key for key in {*a, *b} if a.get(key) != b.get(key)]}"
    assert_same_state(state(one), state(other))
