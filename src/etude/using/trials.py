"""Trials of a run's robot: its stored policy on scripted commands, with a table, plots and CSV files in the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from etude.acting.actor import Actor
from etude.compute.random_streams import derive_seed
from etude.compute.trees import map_tree
from etude.environments.make import make_environment
from etude.environments.rendering import Camera, frames_per_second, prepare_drawing
from etude.environments.vector import VectorEnvironment
from etude.errors import EtudeError, UserError
from etude.files.atomic import write_bytes_atomic, write_json_atomic, write_text_atomic
from etude.files.csv_text import csv_text
from etude.files.regular import own_folder
from etude.robots.crossing import Crossing, run_crossing
from etude.robots.environment import RobotVector
from etude.robots.trial import Act, Script, TrialResult, run_trial
from etude.telemetry.recorder import Recorder
from etude.training.assembly import acts_captured
from etude.using.stored_policy import StoredPolicy

TRIAL_SEEDS = "robot trials"
FOLDER = "trials"


def run_trials(
    stored: StoredPolicy,
    scripts: Sequence[Script],
    *,
    robots: int,
    seconds: float,
    seed: int = 0,
    videos: Path | None = None,
    view: Mapping[str, Any] | None = None,
    on_result: Callable[[TrialResult], None] | None = None,
) -> list[TrialResult]:
    """Return how the policy does on each script, always with its most likely action.

    `videos` is a folder for a file of each, of the robot that `view` looks at. A KeyboardInterrupt ends them; the results then
    are those there are, and the last of them may not be complete.
    """
    config = stored.config
    results: list[TrialResult] = []
    with _robots_of(stored, robots, seconds, videos, view) as (base, begin):
        try:
            for script in scripts:
                start = derive_seed(config.experiment.seed, TRIAL_SEEDS, seed, script.name)
                with _recording(videos, script.name, base) as look:
                    results.append(run_trial(base, begin(), script, seconds=seconds, seed=start, look=look))
                if on_result is not None:
                    on_result(results[-1])
                if not results[-1].complete:
                    break
        except KeyboardInterrupt:
            if not results:
                raise
    return results


def run_crossings(
    stored: StoredPolicy,
    kinds: Sequence[str] | None,
    *,
    level: int | None,
    speed: float,
    robots: int,
    seconds: float,
    seed: int = 0,
    videos: Path | None = None,
    view: Mapping[str, Any] | None = None,
    on_result: Callable[[Crossing], None] | None = None,
) -> tuple[list[Crossing], bool]:
    """Return how many robots walk off tiles of each kind of the task's ground, held at a level, the hardest by default.

    And whether that is all of it: a KeyboardInterrupt ends them, and those there are by then are returned.
    """
    results: list[Crossing] = []
    with _robots_of(stored, robots, seconds, videos, view) as (base, begin):
        if base.terrain is None:
            raise UserError(f"--crossings: {stored.config.environment.id} is on flat ground, which has no tiles to cross")
        ground = base.terrain.config
        there = list(dict.fromkeys(base.terrain.column_kinds))
        for kind in kinds or ():
            if kind not in there:
                raise UserError(f"--only {kind}: the task has no such ground (there are {', '.join(there)})")
        level = ground.levels - 1 if level is None else level
        if not 0 <= level < ground.levels:
            raise UserError(f"--level {level}: the task's ground has levels 0 to {ground.levels - 1}")
        try:
            for kind in kinds or there:
                start = derive_seed(stored.config.experiment.seed, TRIAL_SEEDS, seed, kind)
                with _recording(videos, kind, base) as look:
                    results.append(
                        run_crossing(base, begin(), kind, level, speed=speed, seconds=seconds, seed=start, look=look)
                    )
                if on_result is not None:
                    on_result(results[-1])
        except KeyboardInterrupt:
            if not results:
                raise
    return results, len(results) == len(kinds or there)


@contextmanager
def _robots_of(
    stored: StoredPolicy, robots: int, seconds: float, videos: Path | None, view: Mapping[str, Any] | None
) -> Iterator[tuple[RobotVector, Callable[[], Act]]]:
    """Give the run's robots and what begins to act for them anew, always with the most likely action."""
    config = stored.config
    environment = make_environment(config.environment, num_envs=robots)
    try:
        base = environment.base
        if not isinstance(base, RobotVector):
            raise UserError(f"run {stored.run.id} is of {config.environment.id}, which is no robot's task")
        if environment is not base:
            raise UserError("trials are for robots without environment.wrappers")
        if round(seconds / base.dt) > base.episode_steps:
            raise UserError(
                f"--seconds {seconds:g}: an episode of {config.environment.id} lasts {base.episode_steps * base.dt:g} s"
            )
        base.look(view or {})
        if videos is not None:
            prepare_drawing(config.environment.id)
        device = torch.device(config.experiment.device)
        actor = Actor(stored.build(environment), "greedy", torch.Generator(device), captured=acts_captured(config))

        def there(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(device)

        def begin() -> Act:
            state = actor.initial_state(robots)

            def act(observation: Any, is_first: torch.Tensor) -> torch.Tensor:
                nonlocal state
                with torch.no_grad():
                    action, state, _ = actor(map_tree(there, observation), state, there(is_first))
                return action.to(base.device)

            return act

        yield base, begin
    finally:
        environment.close()


@contextmanager
def _recording(folder: Path | None, name: str, environment: VectorEnvironment) -> Iterator[Callable[[], None] | None]:
    """Give what adds a frame to a video of this name, if there is to be one; the file appears when it is complete."""
    if folder is None:
        yield None
        return
    camera = Camera(environment, name)
    with Recorder(folder / f"{name}.mp4", fps=frames_per_second(environment)) as recorder:
        recorder.begin(1)
        yield lambda: recorder.add([camera.take()])


def save_trials(stored: StoredPolicy, results: Sequence[TrialResult], dt: float) -> Path:
    """Write the numbers, CSVs of each quantity and a plot into the run's logs/trials/; returns that folder."""
    folder = own_folder(own_folder(stored.run.logs) / FOLDER)
    summary = {"version": 1, "checkpoint": stored.checkpoint.name, "trials": [result.as_json() for result in results]}
    write_json_atomic(folder / "trials.json", summary)
    for result in results:
        for name, columns in result.columns.items():
            _write_csv(folder / f"{result.name}-{name}.csv", columns, result.series[name], dt)
            _write_csv(folder / f"{result.name}-{name}-first.csv", columns, result.first[name], dt)
    picture = _plot(results, dt)
    if picture is not None:
        write_bytes_atomic(folder / "trials.png", picture)
    return folder


def save_crossings(stored: StoredPolicy, results: Sequence[Crossing]) -> Path:
    """Write the numbers into the run's logs/trials/; returns the file."""
    path = own_folder(own_folder(stored.run.logs) / FOLDER) / "crossings.json"
    numbers = [result.as_json() for result in results]
    write_json_atomic(path, {"version": 1, "checkpoint": stored.checkpoint.name, "crossings": numbers})
    return path


def _write_csv(path: Path, columns: Sequence[str], values: np.ndarray, dt: float) -> None:
    table = values.reshape(len(values), -1)
    rows = (
        {"second": f"{(step + 1) * dt:.3f}", **{name: f"{value:.5f}" for name, value in zip(columns, row, strict=True)}}
        for step, row in enumerate(table)
    )
    write_text_atomic(path, csv_text(["second", *columns], rows))


def _curves(result: TrialResult) -> Iterator[tuple[str, np.ndarray | None, np.ndarray]]:
    """Yield a title, what was asked and what was done, (T,): of goals nothing, and what was left of them."""
    command, velocity, goal = result.series["command"], result.series["velocity"], result.goal
    if goal is None:
        for column, label in enumerate(("forward, m/s", "sideways, m/s", "turn, rad/s")):
            yield label, command[:, column], velocity[:, column]
        return
    yield "place ahead, m", None, command[:, 0]
    yield "place to the left, m", None, command[:, 1]
    if goal.kind == "jump":
        yield "height of the base, m", None, result.series["height"]
    else:
        yield "heading to turn left, rad", None, command[:, 2]


def _plot(results: Sequence[TrialResult], dt: float) -> bytes | None:
    """Velocity beside command, a row for each script; None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    import io

    figure = Figure(figsize=(11, 2.2 * len(results)), layout="constrained")
    for row, result in enumerate(results):
        seconds = (np.arange(len(result.series["velocity"])) + 1) * dt
        for column, (label, asked, done) in enumerate(_curves(result)):
            axis = figure.add_subplot(len(results), 3, 3 * row + column + 1)
            if asked is not None:
                axis.plot(seconds, asked, color="0.6", linestyle="--", label="asked")
            axis.plot(seconds, done, color="C0", label="done" if result.goal is None else "left to go, or height")
            if result.goal is None:
                axis.set_ylim(-1.2, 1.2)
            axis.grid(alpha=0.3)
            if row == 0:
                axis.set_title(label)
            if column == 0:
                axis.set_ylabel(f"{result.name}\n{result.falls} of {result.robots} fell")
            if row == 0 and column == 0:
                axis.legend(fontsize="small")
    buffer = io.BytesIO()
    try:
        figure.savefig(buffer, format="png", dpi=90)
    except ValueError as error:
        raise EtudeError(f"the plot of the trials can't be drawn: {error}") from error
    return buffer.getvalue()
