"""`etude trials`: put a run's robot through scripted commands."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from etude.cli.options import above_zero, at_least
from etude.cli.output import emit_json, note, say
from etude.cli.parameters import AsJson, Device, RenderOptions, RunName, RunsFolder, Trust
from etude.cli.places import find_run
from etude.cli.render_options import read_render_options
from etude.cli.starting import starting

if TYPE_CHECKING:
    from etude.config.robots import CommandConfig
    from etude.robots.crossing import Crossing
    from etude.robots.goal_trial import GoalResult
    from etude.robots.trial import Script, TrialResult
    from etude.using.stored_policy import StoredPolicy

HEADER = (
    f"{'trial':<10} {'asked':>18} {'done':>18} {'falls':>8} {'slip':>6} {'lift':>6} {'steps/s':>8} {'power':>7} "
    f"{'apart':>6} {'clash':>6}"
)


_WAY = f"{'trial':<13} {'asked':>18} {'there':>6} {'off':>7}"
_WALK = f"{'falls':>8} {'slip':>6} {'lift':>6} {'power':>7}"
HEADERS = {
    "velocity": HEADER,
    "position": f"{_WAY} {'after':>7} {_WALK}",
    "pose": f"{_WAY} {'turned':>9} {'after':>7} {_WALK}",
    "jump": f"{'trial':<13} {'asked':>18} {'jumped':>7} {'high':>7} {'far':>7} {'off':>7} {'falls':>8} {'power':>7}",
}
"""Of places: how many robots are there, how far off they are (and in which direction), after how long."""


def trials(
    run: RunName,
    /,
    *,
    checkpoint: str = "last",
    robots: int = 64,
    seconds: float = 8.0,
    only: Annotated[str | None, Parameter(name="--only")] = None,
    scripts: Path | None = None,
    crossings: bool = False,
    level: int | None = None,
    speed: float | None = None,
    seed: int = 0,
    video: Path | None = None,
    render_options: RenderOptions = None,
    device: Device = None,
    runs: RunsFolder = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> int:
    """Put a run's robot through scripted commands, without exploration noise, randomisation or pushes but the script's.

    Standing, forward, backward, sideways, turning, mixed and pushed; where a task asks for places, poses or jumps, some of
    these, and where robots are at the end. How well each is tracked, falls, slip, foot lift, power,
    how near feet come and how often legs touch are printed; logs/trials/ in the run has them as JSON, every quantity over time
    as CSV, and a plot. Trials that are stopped write what there is by then.

    Parameters
    ----------
    checkpoint
        best, last, a sequence number or environment steps.
    robots
        How many robots do each trial, from their own starts.
    seconds
        How long each trial lasts. The first two seconds don't count for the means.
    only
        Names of trials to run, with commas between them; with --crossings, kinds of ground.
    scripts
        A YAML file of your own trials: a list of {name, commands: [[second, forward, sideways, turn], ...], push}; of goals the
        three numbers are metres ahead and to the left, and radians to turn left or metres to jump.
    crossings
        Let robots cross tiles of each kind of the task's ground instead, straight from the middle of one, and count who gets
        off it without a fall.
    level
        With --crossings, the level of these tiles from 0. Default: the hardest.
    speed
        With --crossings, what is asked for, m/s. Default: 0.8.
    seed
        Another set of starts.
    video
        A folder for a video of each trial, such as forward.mp4.
    render_options
        JSON that says how: camera (follow, behind, fixed), distance, azimuth, elevation, robot, width, height.
    """
    from etude.errors import UserError

    at_least(1, robots=robots)
    above_zero(seconds=seconds)
    view = read_render_options(render_options)
    if view and video is None:
        raise UserError("--render-options are of a video: name a folder with --video")
    if crossings and scripts is not None:
        raise UserError("--crossings: asks for one thing, straight ahead; leave out --scripts")
    if level is not None and not crossings:
        raise UserError(f"--level {level}: is of the ground that is crossed; add --crossings")
    if speed is not None and not crossings:
        raise UserError(f"--speed {speed:g}: is of --crossings; what trials ask for is in --scripts")
    above_zero(speed=0.8 if speed is None else speed)
    if only is not None and not _names(only):
        raise UserError("--only names no trial: leave it out for all of them")
    with starting(f"trials of {run}", quiet=as_json) as tell:
        tell("loading torch and the simulator")
        from etude.using.stored_policy import open_policy
        from etude.using.trials import run_trials, save_trials

        stored = open_policy(find_run(run, runs).run, checkpoint, trusted=trust, device=device)
        task = stored.config.environment.robot
        if task is None:
            raise UserError(f"run {stored.run.id} is of {stored.config.environment.id}, which is no robot's task")
        if crossings and task.commands.goal != "velocity":
            raise UserError(f"--crossings ask for velocities, and this task for goals (commands.goal={task.commands.goal})")
        chosen = [] if crossings else _choose(only, scripts, task.commands)
    settings: dict[str, Any] = {"robots": robots, "seconds": seconds, "seed": seed, "videos": video, "view": view}
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        if crossings:
            settings |= {"level": level, "speed": 0.8 if speed is None else speed}
            return _cross(stored, None if only is None else _names(only), as_json=as_json, **settings)
        if not as_json:
            say(HEADERS[task.commands.goal])
        results = run_trials(stored, chosen, on_result=None if as_json else _show, **settings)
    finally:
        signal.signal(signal.SIGTERM, before)
    folder = save_trials(stored, results, task.timestep * task.decimation)
    if as_json:
        emit_json({"run": stored.run.id, "trials": [result.as_json() for result in results]})
    note(f"Written: {folder}" + ("" if video is None else f" and {video}"))
    if len(results) == len(chosen) and all(result.complete for result in results):
        return 0
    note(
        f"etude: interrupted after {sum(result.complete for result in results)} of {len(chosen)} trials; the rest is not there"
    )
    return 130


def _cross(stored: StoredPolicy, kinds: list[str] | None, *, as_json: bool, **settings: Any) -> int:
    from etude.using.trials import run_crossings, save_crossings

    if not as_json:
        say(f"{'ground':<16} {'level':>5} {'crossed':>10} {'share':>6} {'falls':>6} {'seconds':>8}")
    results, is_all = run_crossings(stored, kinds, on_result=None if as_json else _show_crossing, **settings)
    path = save_crossings(stored, results)
    if as_json:
        emit_json({"run": stored.run.id, "crossings": [result.as_json() for result in results]})
    note(f"Written: {path}" + ("" if settings["videos"] is None else f" and {settings['videos']}"))
    if is_all:
        return 0
    note(f"etude: interrupted after {len(results)} kinds of ground; the rest is not there")
    return 130


def _show_crossing(result: Crossing) -> None:
    crossed = f"{result.crossed}/{result.robots}"
    took = "-" if result.seconds is None else f"{result.seconds:.1f}"
    share = result.crossed / result.robots
    say(f"{result.kind:<16} {result.level:>5} {crossed:>10} {share:>6.0%} {result.falls:>6} {took:>8}")


def _names(only: str) -> list[str]:
    return [name.strip() for name in only.split(",") if name.strip()]


def _or_none(value: float | None, shape: str) -> str:
    return f"{'-' if value is None else format(value, shape):>6}"


def _show(result: TrialResult) -> None:
    if result.goal is not None:
        say(_goal_line(result, result.goal))
        return
    asked, done = (" ".join(f"{value:+.2f}" for value in triple) for triple in (result.command, result.velocity))
    falls = f"{result.falls}/{result.robots}"
    say(
        f"{result.name:<10} {asked:>18} {done:>18} {falls:>8} {result.slip:>6.2f} {result.foot_lift:>6.3f} "
        f"{result.steps_per_second:>8.1f} {result.power:>7.0f} "
        f"{_or_none(result.feet_apart, '.2f')} {_or_none(result.leg_clash, '.1%')}"
    )


def _goal_line(result: TrialResult, goal: GoalResult) -> str:
    asked = " ".join(f"{value:+.2f}" for value in goal.asked[: 2 if goal.kind == "position" else 3])
    begin, falls = f"{result.name:<13} {asked:>18}", f"{f'{result.falls}/{result.robots}':>8}"
    if goal.kind == "jump":
        measured = " ".join(_with_unit(value, "m") for value in (goal.height, goal.length, goal.landing_error))
        return f"{begin} {goal.reached:>7.0%} {measured} {falls} {result.power:>7.0f}"
    turned = "" if goal.heading_error is None else f" {_with_unit(goal.heading_error, 'rad', 9)}"
    walk = f"{falls} {result.slip:>6.2f} {result.foot_lift:>6.3f} {result.power:>7.0f}"
    return f"{begin} {goal.reached:>6.0%} {_with_unit(goal.distance, 'm')}{turned} {_with_unit(goal.seconds, 's')} {walk}"


def _with_unit(value: float | None, unit: str, width: int = 7) -> str:
    return f"{'-' if value is None else f'{value:.2f} {unit}':>{width}}"


def _choose(only: str | None, path: Path | None, task: CommandConfig) -> list[Script]:
    from etude.cli.own_files import read_own_yaml
    from etude.errors import UserError, did_you_mean
    from etude.robots.trial import read_scripts, usual_scripts

    scripts = usual_scripts(task)
    if path is not None:
        data = read_own_yaml(path, f"--scripts {path}")
        if not isinstance(data, list) or not all(isinstance(entry, dict) for entry in data):
            raise UserError(f"--scripts {path}: must be a list of trials")
        scripts = read_scripts(data)
    if only is None:
        return scripts
    names = {script.name: script for script in scripts}
    wanted = _names(only)
    for name in wanted:
        if name not in names:
            raise UserError(f"--only {name}: no such trial{did_you_mean(name, names)} (there are {', '.join(names)})")
    return [names[name] for name in wanted]
