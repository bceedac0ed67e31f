"""`etude evaluate`: measure a run's policy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from etude.cli.options import above_zero, at_least, exclusive
from etude.cli.output import emit_json, note, note_in_place, say
from etude.cli.parameters import Device, RunName, RunsFolder, StoredCode, Trust
from etude.cli.places import find_run
from etude.cli.starting import starting
from etude.cli.stored_code import again_with_stored_code
from etude.telemetry.silence import CHECKPOINT_PRINTS, is_silenced


def evaluate(
    run: RunName,
    /,
    *,
    episodes: int = 100,
    checkpoint: str | None = None,
    ladder: bool = False,
    mode: Literal["auto", "greedy", "sample", "both"] = "auto",
    seed: int = 0,
    num_envs: int | None = None,
    timeout: float | None = None,
    device: Device = None,
    out: Path | None = None,
    runs: RunsFolder = None,
    trust: Trust = False,
    stored_code: StoredCode = False,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Measure a run's policy on fresh episodes, with the settings and statistics stored in the run.

    Seeds are disjoint from those of training and of the evaluations during it. Every result is also appended to the run's
    logs/evaluations.jsonl.

    Parameters
    ----------
    episodes
        How many episodes, each run to its end, the same number in every copy of the environment.
    checkpoint
        best, last, a sequence number or environment steps; all for each that is kept. Default: last.
    ladder
        Evaluate every checkpoint that is kept, on the same episodes: the same as --checkpoint all.
    mode
        greedy: the most likely action; sample: as in training; both; auto: as in the run's own evaluations.
    seed
        Another set of episodes.
    num_envs
        Copies of the environment to evaluate on. Default: as many as episodes, at most 16.
    timeout
        Give up after this many seconds and report what has finished.
    out
        Write the JSON to this file too.
    as_json
        Print JSON with every episode's return.
    """
    at_least(1, episodes=episodes, num_envs=num_envs)
    above_zero(timeout=timeout)
    exclusive({"--ladder": ladder, "--checkpoint": None if checkpoint == "all" else checkpoint})
    if stored_code:
        return again_with_stored_code(find_run(run, runs).run, run, trusted=trust)
    with starting(f"evaluating {run}", quiet=as_json) as tell:
        found = find_run(run, runs)
        tell("loading torch")
        import torch

        from etude.using import evaluate as evaluating
        from etude.using.stored_policy import open_policy

        torch.set_num_threads(1)
        climbs = ladder or checkpoint == "all"
        wanted = [saved.name for saved in evaluating.kept_checkpoints(found.run)] if climbs else []
        names = wanted or [checkpoint or found.checkpoint or "last"]
        if not is_silenced(CHECKPOINT_PRINTS):
            tell(f"reading checkpoint {names[0]}")
        first = open_policy(found.run, names[0], trusted=trust, device=device)
    reports: list[dict[str, Any]] = []
    for name in names:
        stored = open_policy(found.run, name, trusted=trust, device=device) if reports else first
        if not reports:
            if stored.note is not None:
                note(stored.note)
            _say(f"{stored.config.environment.id} · {stored.config.algorithm.name} · {found.run.id}", as_json)
        results = evaluating.measure(
            stored, episodes, mode=mode, seed=seed, num_envs=num_envs, timeout_s=timeout, on_progress=_progress(episodes)
        )
        report = {
            "run": found.run.id,
            "checkpoint": stored.checkpoint.name,
            "is_best": stored.checkpoint.is_best,
            "env_steps": stored.checkpoint.counters["env_steps"],
            "seed": seed,
            "modes": {each: evaluating.as_json(result) for each, result in results.items()},
        }
        reports.append(report)
        _say("\n".join(_lines(report)), as_json)
    _write({"run": found.run.id, "checkpoints": reports} if climbs else reports[0], out, as_json)
    return 0


def _write(report: dict[str, Any], out: Path | None, as_json: bool) -> None:
    from etude.errors import UserError
    from etude.files.atomic import standard_json, write_json_atomic

    if as_json:
        emit_json(standard_json(report))
    if out is not None:
        try:
            write_json_atomic(out, report)
        except OSError as error:
            raise UserError(f"--out {out}: {error.strerror or error}") from None


def _lines(report: dict[str, Any]) -> list[str]:
    best = " (best)" if report["is_best"] else ""
    lines = [f"checkpoint {report['checkpoint']}{best} · {report['env_steps']:,} environment steps"]
    for mode, values in report["modes"].items():
        if not values["returns"]:
            lines.append(f"  {mode:<7} no episode finished in time")
            continue
        interval = values["return_ci95"]
        raw = f"  of the task itself {values['raw_return_mean']:.2f}" if "raw_return_mean" in values else ""
        mean = f"  mean within [{interval[0]:.2f}, {interval[1]:.2f}] at 95%" if interval else ""
        # Two lines, for eighty columns.
        lines.append(f"  {mode:<7} return {values['return_mean']:.2f} ± {values['return_std']:.2f}{mean}")
        lines.append(
            f"          min {values['return_min']:.2f}, max {values['return_max']:.2f}{raw}  length {values['length_mean']:.1f}"
            f"  {len(values['returns'])} episodes{', then out of time' if values['timed_out'] else ''}"
        )
    return lines


def _say(text: str, as_json: bool) -> None:
    if not as_json:
        say(text)


def _progress(episodes: int):
    """Show how far it is, on a terminal only."""
    if not sys.stderr.isatty():
        return None

    def show(finished: int) -> None:
        note_in_place(f"{finished}/{episodes} episodes", ends=finished >= episodes)

    return show
