"""`etude play`: watch a run's policy, or record it."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from etude.cli.driving_choice import DriveBy, check_drive, choose_source, is_robot, stretch_line
from etude.cli.options import above_zero, at_least, exclusive
from etude.cli.output import emit_json, note, say
from etude.cli.parameters import Device, RenderOptions, RunName, RunsFolder, StoredCode, Trust
from etude.cli.places import find_run
from etude.cli.render_options import read_render_options
from etude.cli.starting import starting
from etude.cli.stored_code import again_with_stored_code
from etude.environments.display import has_display
from etude.telemetry.silence import CHECKPOINT_PRINTS, is_silenced

if TYPE_CHECKING:
    from etude.environments.rendering import Show
    from etude.orchestration.player import Moment
    from etude.robots.driving.driving import Wish
    from etude.runs.run import Run
    from etude.using.drive import Drive
    from etude.using.play import Episode, Stage


def play(
    run: RunName,
    /,
    *,
    episodes: Annotated[int | None, Parameter(alias="--num-rollouts")] = None,
    checkpoint: str | None = None,
    mode: Literal["auto", "greedy", "sample"] = "auto",
    seed: int = 0,
    max_steps: Annotated[int | None, Parameter(alias="--max-path-length")] = None,
    render: Literal["window", "none", "video"] | None = None,
    video: Path | None = None,
    grid: str = "1x1",
    fps: float | None = None,
    record_length: int | None = None,
    render_options: RenderOptions = None,
    drive: DriveBy = "auto",
    events: Path | None = None,
    step_by_step: bool = False,
    paths: Path | None = None,
    device: Device = None,
    runs: RunsFolder = None,
    trust: Trust = False,
    stored_code: StoredCode = False,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Watch a run's policy play, in a window or in a video, with the settings and statistics stored in the run.

    Parameters
    ----------
    episodes
        How many episodes. Default: 5, or as many as --record-length needs.
    checkpoint
        best, last, a sequence number or environment steps. Default: best, or last where there is no best.
    mode
        greedy: the most likely action; sample: as in training; auto: as in the run's own evaluations.
    seed
        The first episode's seed; the next ones count on from it. A seed printed plays its episode again.
    max_steps
        End episodes after this many steps.
    render
        window, none or video. Default: video with --video, a window where there is a display, else none.
    video
        A file (.mp4 or .gif), or a folder for a file an episode. Default with --render video: in the run's videos/.
    grid
        Rows and columns of environments in the video, such as 2x3.
    fps
        Frames per second. Default: the environment's own.
    record_length
        A video of exactly this many frames, over as many episodes as it takes.
    render_options
        JSON of further arguments of the environment, such as '{"width": 640, "height": 480}'. For a robot also camera
        (follow, behind, fixed), distance, azimuth and elevation.
    drive
        For robots. keyboard: keys change the velocity asked for, in a window or in the terminal; joystick: its sticks do; off:
        the task draws it, as in training; auto: keyboard where there is a window.
    events
        For robots: a YAML or JSON file of keys, a list of {time, key} or {time, command}, that ends with the key x.
    step_by_step
        Wait for Enter before each step, and say what is seen, done and earned.
    paths
        Write every step of every episode to this .npz file.
    as_json
        Print JSON with every episode.
    """
    from etude.errors import UserError

    at_least(1, episodes=episodes, max_steps=max_steps, record_length=record_length)
    above_zero(fps=fps)
    exclusive({"--step-by-step": step_by_step, "--json": as_json})
    exclusive({"--episodes": episodes, "--record-length": record_length})
    if step_by_step and not sys.stdin.isatty():
        raise UserError("--step-by-step waits for Enter and needs a terminal")
    options, rows_and_columns = read_render_options(render_options), _read_grid(grid)
    wants_video = record_length is not None or rows_and_columns != (1, 1)
    show = _what_to_show(render, video, wants_video=wants_video)
    if show == "nothing" and fps is not None:
        raise UserError(f"--fps {fps:g} is of pictures, and there are none: record them with --video FILE.mp4")
    if stored_code:
        return again_with_stored_code(find_run(run, runs).run, run, trusted=trust)
    with starting(f"playing {run}", quiet=as_json) as tell:
        found = find_run(run, runs)
        robot = is_robot(found.run, trusted=trust)
        check_drive(drive, events, robot=robot, name=found.run.id)
        if step_by_step and (drive in ("keyboard", "joystick") or events is not None):
            raise UserError("--step-by-step can't be driven meanwhile: choose one")
        tell("loading torch")
        import torch

        from etude.compute.random_streams import seed_global_generators
        from etude.telemetry.paths_file import PathsFile
        from etude.telemetry.recorder import Recorder
        from etude.using import play as playing

        torch.set_num_threads(1)
        if show == "nothing" and render is None:
            note("no display: playing without pictures; --video FILE.mp4 records them")
        records, steers = show == "pictures", drive in ("keyboard", "joystick")
        opens_window = robot and (show == "window" or (steers and render is None and has_display()))
        if opens_window:
            show = "pictures"  # a robot draws itself into memory, and the window shows that
        is_driven = robot and not step_by_step and (steers or events is not None or opens_window)
        count = episodes if is_driven and record_length is None else playing.number_of_episodes(episodes, record_length)
        tell("reading the checkpoint, building environments")
        stage = playing.set_stage(
            found.run,
            checkpoint or found.checkpoint,
            mode=mode,
            show=show,
            copies=rows_and_columns[0] * rows_and_columns[1],
            render_options=options,
            fps=fps,
            endless=is_driven and drive != "off",
            trusted=trust,
            device=device,
        )
    with ExitStack() as stack:
        stack.callback(stage.close)
        seed_global_generators(seed)  # an environment may draw from them
        recorder = keep = None
        if records:
            target = video or _default_video(found.run, stage, seed)
            rows, columns = rows_and_columns
            recorder = stack.enter_context(Recorder(target, fps=stage.fps, rows=rows, columns=columns, length=record_length))
        if paths is not None:
            keep = stack.enter_context(PathsFile(paths))
        _introduce(stage, as_json)
        driven = None
        if is_driven:
            driven = _take_the_wheel(stack, stage, drive, events, opens_window=opens_window, as_json=as_json)
        before_step, on_step = (_wait_for_enter, _tell_step) if step_by_step else (None, None)
        if driven is not None:
            before_step, on_step = driven.before_step, driven.on_step
        played: list[Episode] = []
        for episode in playing.play_episodes(
            stage.players,
            count,
            root_seed=stage.root_seed,
            seed=seed,
            max_steps=max_steps,
            recorder=recorder,
            keep_paths=keep is not None,
            before_step=before_step,
            on_step=on_step,
        ):
            if keep is not None and episode.path is not None:
                keep.add(episode.path)
            _say(_line(episode), as_json)
            played.append(episode)
    files = [str(file) for file in recorder.files] if recorder is not None else []
    _report(stage, played, files, driven, as_json)
    for file in [*files, *([str(paths)] if paths is not None else [])]:
        note(f"wrote {file}")
    return 0


def _take_the_wheel(
    stack: ExitStack, stage: Stage, drive: DriveBy, events: Path | None, *, opens_window: bool, as_json: bool
) -> Drive:
    """Open the window and the source of commands, and let go of both at the end."""
    from etude.robots.driving.window import RobotWindow
    from etude.using.drive import Drive

    window = None
    if opens_window:
        window = RobotWindow(stage.policy.config.environment.id)
        stack.callback(window.close)
    source = choose_source(drive, events, window)
    if source is not None and source is not window:
        stack.callback(source.close)
    driven = Drive(stage, source, window=window, on_stretch=lambda stretch: _say(stretch_line(stretch), as_json))
    stack.callback(driven.close)
    return driven


def _introduce(stage: Stage, as_json: bool) -> None:
    stored = stage.stored
    if stored.note is not None:
        note(stored.note)
    _say(f"{stored.config.environment.id} · {stored.config.algorithm.name} · {stored.run.id}", as_json)
    which = " (best)" if stored.checkpoint.is_best else ""
    steps = f"{stored.checkpoint.counters['env_steps']:,} environment steps"
    if not is_silenced(CHECKPOINT_PRINTS):
        _say(f"checkpoint {stored.checkpoint.name}{which} · {steps} · {stage.mode} actions", as_json)


def _report(stage: Stage, played: list[Episode], files: list[str], driven: Drive | None, as_json: bool) -> None:
    import numpy as np

    returns = [episode.total_reward for episode in played if episode.is_whole]
    mean, spread = (float(np.mean(returns)), float(np.std(returns))) if returns else (None, None)
    if as_json:
        report = {
            "run": stage.stored.run.id,
            "checkpoint": stage.stored.checkpoint.name,
            "env_steps": stage.stored.checkpoint.counters["env_steps"],
            "mode": stage.mode,
            "episodes": [episode.as_json() for episode in played],
            "return_mean": mean,
            "return_std": spread,
            "videos": files,
        }
        if driven is not None:
            report["driven"] = [stretch.as_json() for stretch in driven.stretches]
        emit_json(report)
    elif mean is not None:
        length = np.mean([episode.length for episode in played if episode.is_whole])
        say(f"mean return {mean:.2f} ± {spread:.2f} · length {length:.1f} · {_count(len(returns), 'episode')}")


def _line(episode: Episode) -> str:
    return (
        f"episode {episode.number:>3}  return {episode.total_reward:>10.2f}  length {episode.length:>5}"
        f"  {episode.ending:<10}  seed {episode.seed}"
    )


def _say(text: str, as_json: bool) -> None:
    if not as_json:
        say(text)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _what_to_show(render: str | None, video: Path | None, *, wants_video: bool) -> Show:
    from etude.errors import UserError

    if video is not None and video.suffix and not video.is_dir():
        from etude.files.video import check_format

        check_format(video)
    if video is not None and render is not None and render != "video":
        raise UserError(f"--render {render} and --video {video}: choose one")
    if render == "video" or video is not None:
        return "pictures"
    if wants_video and render is None:
        return "pictures"
    if wants_video:
        raise UserError(f"--grid and --record-length are of a video, not of --render {render}; name it with --video FILE.mp4")
    if render == "none":
        return "nothing"

    if has_display():
        return "window"
    return "nothing"


def _default_video(run: Run, stage: Stage, seed: int) -> Path:
    return run.videos / f"play-{stage.stored.checkpoint.name}-seed-{seed}.mp4"


def _read_grid(text: str) -> tuple[int, int]:
    from etude.errors import UserError

    rows, _, columns = text.lower().partition("x")
    if not (rows.isdecimal() and columns.isdecimal() and int(rows) and int(columns)):
        raise UserError(f"--grid {text}: must be rows x columns, such as 2x3")
    return int(rows), int(columns)


def _wait_for_enter() -> Wish:
    """Return whether to go on: Enter is yes, q and the end of the input are no."""
    try:
        return "stop" if input("Enter: next step, q: stop ").strip().lower() in ("q", "quit") else "go on"
    except EOFError:
        return "stop"


def _tell_step(moment: Moment) -> None:
    said = {"observation": _summary(moment.observation), "action": _summary(moment.action), "reward": f"{moment.reward:g}"}
    for name in ("value", "log_prob"):
        if name in moment.extras:
            said[name] = _summary(moment.extras[name])
    if moment.ended:
        said["end"] = "terminated" if moment.terminated else "truncated"
    say("  ".join(f"{name} {value}" for name, value in said.items()))


def _summary(value: Any) -> str:
    """A few numbers as they are, many by their shape and range."""
    import numpy as np

    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_summary(inner)}" for name, inner in value.items()) + "}"
    if value.size <= 8:
        return np.array2string(value, precision=3, separator=" ", suppress_small=True)
    return f"{value.dtype}{list(value.shape)} in [{value.min():.3g}, {value.max():.3g}]"
