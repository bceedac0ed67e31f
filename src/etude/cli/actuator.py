"""`etude robots actuator`: learn a motor from its logs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from etude.cli.options import above_zero, at_least
from etude.cli.output import emit_json, note, note_in_place, say
from etude.cli.parameters import AsJson
from etude.cli.starting import starting

if TYPE_CHECKING:
    from etude.robots.motors.fitting import Fit
    from etude.robots.motors.logs import Logs


def actuator(
    logs: Annotated[list[Path], Parameter(name="LOG")],
    /,
    *,
    out: Path,
    joints: str = ".*",
    history: str = "0,1,2",
    hidden: str = "32,32,32",
    activation: Literal["softsign", "tanh", "elu"] = "softsign",
    step: float | None = None,
    held_out: float = 0.2,
    updates: int = 6000,
    batch_size: int = 1024,
    learning_rate: float = 3e-3,
    stiffness: float | None = None,
    damping: float | None = None,
    seed: int = 0,
    as_json: AsJson = False,
) -> int:
    """Learn a motor as a small network from logs: position errors and velocities, now and before, to torque.

    A log is a .csv with the columns time and, for each joint, JOINT_target, JOINT_position, JOINT_velocity and JOINT_torque;
    or a .npz with time (T,) and target, position, velocity and torque (T, J). Seconds, rad, rad/s and N·m. The end of every
    log is held out: how far the network is off there is printed beside the ideal motor, stiffness · error − damping ·
    velocity. OUT.json and OUT.safetensors are the network, which `network` of a robot's actuators names; OUT.png shows it.

    Parameters
    ----------
    logs
        One file or more.
    out
        Where to write it, without a suffix, such as my_motor.
    joints
        The joints to learn from, as a regular expression: one network is learnt for all of them.
    history
        How many steps ago what the network sees was so; 0 is now.
    hidden
        Units of its layers.
    step
        Seconds between samples; others are put onto that grid. Simulations need a multiple of their timestep. Default: the
        log's.
    held_out
        The share of each log, its end, that is not learnt from.
    updates
        Gradient steps.
    stiffness
        Of the ideal motor, N·m/rad. Default: what fits the logs best, with the damping.
    damping
        Of the ideal motor, N·m·s/rad.
    seed
        Of the first weights and the order of samples.
    """
    from etude.errors import UserError

    at_least(1, updates=updates, batch_size=batch_size)
    above_zero(step=step, learning_rate=learning_rate, stiffness=stiffness)
    at_least(0, damping=damping)
    if not 0 < held_out < 1:
        raise UserError(f"--held-out {held_out:g}: must be above 0 and below 1")
    if (stiffness is None) != (damping is None):
        raise UserError("--stiffness and --damping are of one motor: give both, or neither")
    if len(set(history.split(","))) < len(history.split(",")):
        raise UserError(f"--history {history}: has a step twice")
    past, layers = _numbers("--history", history, 0, 1000), _numbers("--hidden", hidden, 1, 4096)
    with starting(f"a motor from {len(logs)} log{'s' if len(logs) > 1 else ''}", quiet=as_json) as tell:
        tell("loading torch")
        import torch

        from etude.robots.motors.fitting import FitSettings, fit_network
        from etude.robots.motors.logs import read_logs
        from etude.robots.motors.network import bare, files_of_network, save_network

        torch.set_num_threads(1)
        for file in files_of_network(out):
            if file.exists():
                raise UserError(f"--out {out}: {file} is there already: name another, or remove it")
        if not bare(out).parent.is_dir():
            raise UserError(f"--out {out}: there is no folder {bare(out).parent}")
        tell("reading logs")
        read = read_logs(logs, joints, step)
    for remark in read.remarks:
        note(f"note: {remark}")
    if not as_json:
        samples = sum(map(len, read.stretches))
        say(f"{samples:,} samples every {read.step * 1000:g} ms of {len(read.joints)} joints: {', '.join(read.joints[:6])}")
    settings = FitSettings(past, layers, activation, updates, batch_size, learning_rate, held_out, seed)
    ideal = None if stiffness is None or damping is None else (stiffness, damping)
    fit = fit_network(read, settings, ideal, None if as_json else _progress(updates))
    save_network(out, fit.layout, fit.weights)
    picture = _draw(fit, read, bare(out).with_name(bare(out).name + ".png"))
    if as_json:
        files = [str(file) for file in (*files_of_network(out), picture) if file is not None]
        motor = {"stiffness": fit.ideal.stiffness, "damping": fit.ideal.damping}
        joint_errors = {joint: dict(zip(("network", "ideal"), each, strict=True)) for joint, each in fit.of_joints.items()}
        emit_json({"held_out": fit.errors, "ideal": motor, "joints": joint_errors, "files": files})
        return 0
    _report(fit)
    note(f"Written: {', '.join(file.name for file in files_of_network(out))}{'' if picture is None else f', {picture.name}'}")
    limit = f"effort_limit: {fit.layout['largest_torque']:.3g}"
    note(f"use it: actuators: {{legs: {{joints: .*, network: {bare(out).name}, {limit}}}}}")
    return 0


def _numbers(option: str, text: str, least: int, most: int) -> tuple[int, ...]:
    from etude.errors import UserError

    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and least <= int(part) <= most for part in parts):
        raise UserError(f"{option} {text}: whole numbers from {least} to {most} with commas between them, such as 0,1,2")
    return tuple(map(int, parts))


def _progress(updates: int) -> Callable[[int, float, float], None]:
    """Return what tells of the learning: one line on a terminal, else a few."""
    live, tenth = sys.stderr.isatty(), max(1, updates // 5)
    told = [0]

    def tell(done: int, learnt: float, held: float) -> None:
        line = f"  {done:,} of {updates:,} updates: off by {learnt:.3f} N·m, {held:.3f} on what is held out"
        if live:
            note_in_place(line, ends=done == updates)
        elif done // tenth > told[0] or done == updates:
            told[0] = done // tenth
            note(line)

    return tell


def _report(fit: Fit) -> None:
    size = fit.errors["torque"]
    motor = f"stiffness {fit.ideal.stiffness:.1f}, damping {fit.ideal.damping:.2f}"
    say(f"held out: torques of {size:.2f} N·m, root mean square")
    say(f"  network      off by {fit.errors['network']:.3f} N·m ({fit.errors['network'] / size:.1%})")
    say(f"  ideal motor  off by {fit.errors['ideal']:.3f} N·m ({fit.errors['ideal'] / size:.1%}): {motor}")
    if len(fit.of_joints) > 1:
        width = max(map(len, fit.of_joints))
        for joint, (network, ideal) in fit.of_joints.items():
            say(f"    {joint:<{width}}  {network:.3f}, ideal {ideal:.3f}")
    if fit.errors["network"] >= fit.errors["ideal"]:
        note("note: the ideal motor is no worse: more logs, a longer --history or more --updates may help")


def _draw(fit: Fit, logs: Logs, path: Path) -> Path | None:
    """Draw torques that are held out: the first joint's over time, and all beside what was said; None without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        note("note: no picture: pip install 'etude[plots]'")
        return None
    import io

    from etude.files.atomic import write_bytes_atomic

    figure = Figure(figsize=(11, 4), layout="constrained")
    over_time, beside = figure.subplots(1, 2, width_ratios=(2, 1))
    joint = int(fit.held_out.joints[0])
    rows = (fit.held_out.joints == joint).nonzero()[: round(2.0 / logs.step), 0]
    seconds = [i * logs.step for i in range(len(rows))]
    for values, label, color in (
        (fit.held_out.torques, "measured", "0.5"),
        (fit.said_by_ideal, "ideal motor", "C1"),
        (fit.said, "network", "C0"),
    ):
        over_time.plot(seconds, values[rows].numpy(), label=label, color=color, linewidth=1.2)
    over_time.set_xlabel("seconds")
    over_time.set_ylabel(f"torque of {logs.joints[joint]}, N·m")
    over_time.legend(fontsize="small")
    some = slice(None, None, max(1, len(fit.said) // 4000))
    for values, color in ((fit.said_by_ideal, "C1"), (fit.said, "C0")):
        beside.plot(fit.held_out.torques[some].numpy(), values[some].numpy(), ".", markersize=2, alpha=0.4, color=color)
    limit = float(fit.held_out.torques.abs().max())
    beside.plot([-limit, limit], [-limit, limit], color="0.5", linewidth=0.8)
    beside.set_xlabel("measured, N·m")
    beside.set_ylabel("said, N·m")
    for axis in (over_time, beside):
        axis.grid(alpha=0.3)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=90)
    write_bytes_atomic(path, buffer.getvalue())
    return path
