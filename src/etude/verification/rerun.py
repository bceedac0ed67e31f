"""Runs a run again, in separate processes: from the beginning, through what was changed on the way, to its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from etude.errors import EtudeError, UserError
from etude.telemetry.jsonl import read_rows
from etude.telemetry.names import Row
from etude.verification.code_place import CodePlace
from etude.verification.subject import Position, Subject, merged

_MOST_SITTINGS = 1000
_SCRIPT = Path(__file__).resolve().with_name("child.py")


@dataclass(frozen=True)
class Rerun:
    """What came out: rows, and the checkpoint at the place of the stored one."""

    path: Path
    rows: Sequence[Row]
    kept: Path | None
    end: Position
    facts: dict[str, Any]
    stops: tuple[Position, ...] = ()
    """Where it was really stopped: at cycle boundaries."""


@dataclass(frozen=True)
class Sitting:
    """One process: what it changes first, and where it stops; without a place, where the run itself ends."""

    stop_at: Position | None
    words: tuple[str, ...] = ()


def plan(subject: Subject, pause: Position | None = None) -> list[Sitting]:
    """The sittings of a re-run: one for each stop that changed settings, and one for a `pause` that changes nothing."""
    stops = [(change.at, change.words()) for change in merged(subject.changes_within)]
    if pause is not None:
        stops = sorted([*stops, (pause, ())], key=lambda stop: stop[0])
    last = None if subject.ends_by_itself else subject.end
    places = [*(place for place, _ in stops), last]
    return [Sitting(place, words) for place, words in zip(places, [(), *(words for _, words in stops)], strict=True)]


def run_again(
    subject: Subject,
    place: CodePlace,
    sittings: Sequence[Sitting],
    *,
    folder: Path,
    allow_imports: bool,
    on_facts: Callable[[dict[str, Any]], None],
    on_row: Callable[[Row], None],
) -> Rerun:
    """Run the sittings one after another, each in a fresh process, into `folder`.

    `on_facts` hears what each process finds out about itself, before it trains and after; it may raise to end everything.
    """
    kept = folder / "compared"
    request: dict[str, Any] = {
        "task": "run",
        "settings": subject.settings,
        "stored": str(subject.run.path.resolve()),
        "allow_imports": allow_imports,
        "root": str(folder / "runs"),
        "keep_at": None if subject.last is None else list(Position.of(subject.last.counters)),
        "owes_evaluation": subject.last is not None and bool(subject.last.metadata.get("owes_evaluation")),
        "kept": str(kept),
        "end": list(subject.whole),
        "moved": None if place.moved is None else [str(path) for path in place.moved],
    }
    waiting, path, reached = list(sittings), None, Position()
    facts: dict[str, Any] = {}
    stops: list[Position] = []
    for _ in range(_MOST_SITTINGS):
        sitting = waiting.pop(0) if waiting else Sitting(sittings[-1].stop_at)
        stop_at = None if sitting.stop_at is None else list(sitting.stop_at)
        own = {"resume": path, "words": sitting.words, "stop_at": stop_at}
        ended: dict[str, Any] = {}
        for event in _events({**request, **own}, place, folder):
            if "row" in event:
                on_row(event["row"])
            if "begun" in event:
                facts = facts or event["begun"]  # of the first process, which began with the run's first settings
                on_facts(event["begun"])
            ended = event.get("ended", ended)
        path = facts["run"]
        before, reached = reached, Position(*ended["position"])
        on_facts(ended)
        if waiting:
            stops.append(reached)
            if ended["finished"] and not waiting[0].words and sitting.stop_at is not None:
                raise UserError(f"there is no cycle boundary to stop at from {sitting.stop_at.env_steps:,} steps to the end")
        # A run that stopped by itself and was resumed all the same: so is this one.
        goes_on = not ended["finished"] and not ended["stopped"] and before < reached < subject.end
        if not waiting and not goes_on:
            break
    run = Path(str(path))
    metrics = run / "metrics.jsonl"
    return Rerun(
        path=run,
        rows=read_rows(metrics) if metrics.exists() else [],
        kept=next(kept.iterdir()) if kept.is_dir() else None,
        end=reached,
        facts=facts,
        stops=tuple(stops),
    )


def compare_modes(subject: Subject, place: CodePlace, checkpoint: Path, *, folder: Path, allow_imports: bool) -> dict[str, Any]:
    """Take one gradient step from a checkpoint, eager and compiled; returns the largest difference and where it is."""
    request = {
        "task": "modes",
        "settings": subject.last_settings,
        "allow_imports": allow_imports,
        "checkpoint": str(checkpoint),
    }
    modes: dict[str, Any] = {}
    for event in _events(request, place, folder):
        modes = event.get("modes", modes)
    return modes


def _events(request: dict[str, Any], place: CodePlace, folder: Path) -> Iterator[dict[str, Any]]:
    """Start the child and yield what it says; its own errors are raised here."""
    folder.mkdir(parents=True, exist_ok=True)
    asked, log = folder / "request.json", folder / "child.log"
    asked.write_text(json.dumps(request, default=str), encoding="utf-8")
    with open(log, "ab") as output:
        start = output.tell()
        with _child(asked, place, output) as (process, pipe):
            for line in pipe:
                event = json.loads(line)
                if "error" in event:
                    error = event["error"]
                    kind = UserError if error["exit_code"] == 2 else EtudeError
                    raise kind(f"the re-run: {error['message']}")
                yield event
            code = process.wait()
    if code != 0:
        said = log.read_bytes()[start:].decode(errors="replace").strip().splitlines()
        raise EtudeError("\n".join([f"the re-run failed with exit code {code}; it said last:", *said[-15:]]))


@contextmanager
def _child(asked: Path, place: CodePlace, output: IO[bytes]) -> Iterator[tuple[subprocess.Popen[bytes], IO[str]]]:
    environment = dict(os.environ)
    path = [*(str(entry) for entry in place.python_path), *filter(None, [environment.get("PYTHONPATH")])]
    if path:
        environment["PYTHONPATH"] = os.pathsep.join(path)
    ours, theirs = os.pipe()
    with open(ours, encoding="utf-8") as pipe:
        try:
            process = subprocess.Popen(
                # -P: the folder of the script is not on the path; there is nothing in it for the stored code to import.
                [sys.executable, "-P", str(_SCRIPT), str(asked), str(theirs)],
                cwd=place.cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(theirs,),
                start_new_session=True,  # Ctrl-C is for this process, which then ends that one
            )
        finally:
            os.close(theirs)
        try:
            yield process, pipe
        finally:
            if process.poll() is None:
                # Its environments may have their own processes.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
