"""`etude export`: write a run's policy into files that run without Etude."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from etude.cli.options import at_least
from etude.cli.output import emit_json, note, say
from etude.cli.parameters import AsJson, RunName, RunsFolder, Trust
from etude.cli.places import find_run
from etude.cli.starting import starting

if TYPE_CHECKING:
    from etude.deploy.metadata import FileLayout

FOLDER = "exports"
LEAST_FOLLOWED = 0.5
"""Share of what was asked for that a robot that walks does."""
JUDGED_FROM_S = 2.0
"""Seconds of walking: a robot needs one to get going."""


def export(
    run: RunName,
    /,
    *,
    formats: Annotated[list[str] | None, Parameter(name="--format", consume_multiple=True)] = None,
    checkpoint: str | None = None,
    out: Path | None = None,
    replay: int | None = None,
    check_walk: float | None = None,
    runs: RunsFolder = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> int:
    """Write a run's policy into files that run without Etude, with metadata.json beside them.

    The observation normaliser and the action's scaling are inside. Every file is compared with the policy on 100 random
    observations; one that differs by more than 1e-5 is kept, and the exit code is 1.

    Parameters
    ----------
    formats
        One or more of onnx (policy.onnx), torchscript (policy.pt), torch (torch.export, policy.pt2) and mnn (policy.mnn, made
        from policy.onnx). Default: onnx.
    checkpoint
        best, last, a sequence number or environment steps. Default: last.
    out
        The folder to write into. Default: exports/ID.
    replay
        Evaluate so many episodes twice, by the policy and by its file in a process without Etude. The exit code is 1 if the
        mean returns are further apart than three standard errors and rounding explain.
    check_walk
        For robots: let the exported robot walk forward at 0.5 m/s for this many seconds in plain MuJoCo, from the files alone;
        on uneven ground, on the easiest tile of each kind. The exit code is 1 if it falls, or (from 2 seconds on) does less
        than half of what it is asked for.
    """
    from etude.errors import UserError

    at_least(2, replay=replay)
    if check_walk is not None and not 0 < check_walk < float("inf"):
        raise UserError(f"--check-walk {check_walk:g}: must be above 0")
    with starting(f"exporting {run}", quiet=as_json) as tell:
        found = find_run(run, runs)
        tell("loading torch")
        import torch

        from etude.deploy.export import choose_formats, export_policy
        from etude.using.stored_policy import open_policy

        torch.set_num_threads(1)
        chosen = choose_formats(formats or ["onnx"])
        # Files are made on the CPU wherever the policy was trained.
        stored = open_policy(found.run, checkpoint or found.checkpoint or "last", trusted=trust, device="cpu")
    if check_walk is not None and stored.config.environment.robot is None:
        raise UserError(f"--check-walk: {stored.config.environment.id} is no robot's task")
    if check_walk is not None and "onnx" not in chosen:
        raise UserError("--check-walk lets policy.onnx walk: add onnx to --format")
    folder = out or Path(FOLDER) / found.run.id
    if not as_json:
        say(f"{stored.config.environment.id} · {stored.config.algorithm.name} · {found.run.id} · {stored.checkpoint.name}")
    done = export_policy(stored, chosen, folder, None if as_json else _show)
    failures = [str(problem) for problem in done.problems]
    replayed = None
    if replay is not None and done.metadata.files:
        from etude.deploy.replay import replay as replay_episodes

        replayed = replay_episodes(stored, folder, replay)
        means = f"{replayed.runtime} returned {replayed.exported:.2f}, the policy {replayed.own:.2f}"
        line = f"{means}, over {replayed.episodes} episodes"
        failures += [] if replayed.is_alike else [f"--replay: {line}"]
        if not as_json:
            say(f"  replayed without Etude: {line}")
    walked = None
    if check_walk is not None and "onnx" in done.metadata.files:
        from etude.deploy.walk import WalkError

        try:
            walked = _walk(folder, check_walk, as_json)
        except WalkError as error:
            failures.append(f"--check-walk: {error}")
        if walked is not None:
            failures += _failures(walked)
    if as_json:
        files = {name: {"path": str(folder / file.file), **_plain(file)} for name, file in done.metadata.files.items()}
        report = {"run": found.run.id, "checkpoint": stored.checkpoint.name, "folder": str(folder), "files": files}
        again = None if replayed is None else asdict(replayed)
        emit_json({**report, "replay": again, "walk": walked, "problems": failures})
    for line in done.notes:
        note(f"note: {line}")
    for line in failures:
        note(f"etude: {line}")
    note(f"Written: {folder}")
    return 1 if failures else 0


def _show(path: Path, written: FileLayout) -> None:
    from etude.deploy.check import OBSERVATIONS

    size = f"{path.stat().st_size / 1024:,.0f} KiB"
    difference = "NaN" if written.max_difference is None else f"{written.max_difference:.1e}"
    say(f"  {path.name:<12} {size:>10}   largest difference {difference} on {OBSERVATIONS} observations")


def _walk(folder: Path, seconds: float, as_json: bool) -> dict[str, Any]:
    from etude.deploy.walk import walk

    walked = walk(folder, seconds)
    if not as_json:
        if walked["goal"] != "velocity":
            _show_way(walked)
            return walked
        asked, done = walked["command"], walked["velocity"]
        wanted = f"{asked[0]:+.2f} m/s" if asked[0] else f"{asked[2]:+.2f} rad/s"
        say(
            f"  walked {walked['seconds']:g} s, asked for {wanted}: forward {done['forward']:+.2f}, "
            f"sideways {done['sideways']:+.2f} m/s, turn {done['turn']:+.2f} rad/s; fell {walked['falls']} times"
        )
        for place in walked["places"] if len(walked["places"]) > 1 else []:
            say(f"    {place['kind']:<16} {place['followed']:>6.0%} of that, fell {place['falls']} times")
    return walked


def _show_way(walked: dict[str, Any]) -> None:
    ahead, _, turn = walked["command"]
    pose = f" and {turn:+.2f} rad" if walked["goal"] == "pose" else ""
    for place in walked["places"]:
        left = " ".join(f"{value:+.2f}" for value in place["left"])
        where = "" if len(walked["places"]) == 1 else f" on {place['kind']}"
        say(
            f"  walked {walked['seconds']:g} s{where}, asked for a place {ahead:.2f} m ahead{pose}: "
            f"did {place['followed']:.0%} of the way, left {left}; fell {place['falls']} times"
        )


def _failures(walked: dict[str, Any]) -> list[str]:
    """Say why a walk is none: it fell, or was asked to go and (nearly) stood."""
    failures = []
    if walked["falls"]:
        failures.append(f"the robot fell {walked['falls']} times in {walked['seconds']:g} s")
    slow = [place["kind"] for place in walked["places"] if place["followed"] < LEAST_FOLLOWED]
    if slow and walked["seconds"] >= JUDGED_FROM_S:
        where = "" if len(walked["places"]) == 1 else f" (less than half of it on {', '.join(slow)})"
        failures.append(f"the robot did {walked['followed']:.0%} of what it was asked for{where}: it does not walk")
    return failures


def _plain(written: FileLayout) -> dict[str, Any]:
    return {"sha256": written.sha256, "max_difference": written.max_difference}
