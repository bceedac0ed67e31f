"""Logs of motors: time, and of each joint its target, position, velocity and torque, as CSV or npz, on an even grid of time."""

from __future__ import annotations

import csv
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from etude.errors import UserError

QUANTITIES = ("target", "position", "velocity", "torque")
ALIASES = {"q_target": "target", "q_des": "target", "des": "target", "q": "position", "pos": "position", "dq": "velocity",
           "vel": "velocity", "tau": "torque", "tau_est": "torque", "effort": "torque"}  # fmt: skip
GAP = 3.5
"""Steps without a sample from which on a log is two."""
EVEN = 0.02
"""Share of a step by which samples may be off the grid before they are put onto it."""
LARGEST = 2**31
_COLUMN = re.compile(rf"(?P<joint>.+?)[_./ :](?P<quantity>{'|'.join([*QUANTITIES, *ALIASES])})")


@dataclass(frozen=True)
class Stretch:
    """What one motor did without a gap, a sample every step: (T,) each, rad, rad/s and N·m."""

    joint: str
    target: np.ndarray
    position: np.ndarray
    velocity: np.ndarray
    torque: np.ndarray

    def __len__(self) -> int:
        return len(self.target)


@dataclass(frozen=True)
class Logs:
    """All stretches of all files."""

    step: float
    stretches: tuple[Stretch, ...]
    remarks: tuple[str, ...]
    """What was done to the samples, a line each."""

    @property
    def joints(self) -> tuple[str, ...]:
        """Whose logs they are."""
        return tuple(dict.fromkeys(stretch.joint for stretch in self.stretches))


def read_logs(paths: Sequence[Path], joints: str = ".*", step: float | None = None) -> Logs:
    """Read files; `joints` is a regular expression of those to use, `step` the seconds between samples: the first file's."""
    stretches: list[Stretch] = []
    remarks: list[str] = []
    for path in paths:
        time, columns = _read(path)
        try:
            chosen = {joint: values for joint, values in columns.items() if re.fullmatch(joints, joint)}
        except re.error as error:
            raise UserError(f"--joints '{joints}': is no regular expression: {error}") from error
        if not chosen:
            raise UserError(f"--joints '{joints}': {path} has no such joint (it has {', '.join(columns)})")
        _check(path, time, chosen)
        if step is None:
            step = float(f"{np.median(np.diff(time)):.3g}")
        found, remark = _on_grid(path, time, chosen, step)
        stretches += found
        remarks += [f"{path.name}: {remark}"] if remark else []
    if not stretches or step is None:
        raise UserError("no log has two samples in a row")
    return Logs(step, tuple(stretches), tuple(remarks))


def _read(path: Path) -> tuple[np.ndarray, dict[str, dict[str, np.ndarray]]]:
    """Return the time (T,) and {joint: {quantity: (T,)}}."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such log")
    if path.stat().st_size > LARGEST:
        raise UserError(f"{path}: larger than the {LARGEST:,} bytes allowed")
    if path.suffix == ".npz":
        return _read_npz(path)
    if path.suffix == ".csv":
        return _read_csv(path)
    raise UserError(f"{path}: a log is a .csv or a .npz file")


def _read_csv(path: Path) -> tuple[np.ndarray, dict[str, dict[str, np.ndarray]]]:
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            names = [name.strip() for name in next(csv.reader([file.readline()]), [])]
            table = np.loadtxt(file, delimiter=",", ndmin=2)
    except (ValueError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is no table of numbers: {' '.join(str(error).split())}") from error
    if table.shape[1] != len(names):
        raise UserError(f"{path}: {len(names)} names in the first line, and {table.shape[1]} numbers in the rows")
    if "time" not in names:
        raise UserError(f"{path}: there is no column `time` (there are {', '.join(names[:8])})")
    time = table[:, names.index("time")]
    columns: dict[str, dict[str, np.ndarray]] = {}
    for place, name in enumerate(names):
        is_bare = name in QUANTITIES or name in ALIASES
        matched = None if is_bare else _COLUMN.fullmatch(name)
        quantity = name if matched is None else matched["quantity"]
        quantity = ALIASES.get(quantity, quantity)
        if quantity in QUANTITIES:
            joint = path.stem if matched is None else matched["joint"]
            columns.setdefault(joint, {})[quantity] = table[:, place]
    if not columns:
        raise UserError(f"{path}: no column is called target, position, velocity or torque, nor JOINT_target and so on")
    return time, columns


def _read_npz(path: Path) -> tuple[np.ndarray, dict[str, dict[str, np.ndarray]]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {ALIASES.get(str(name), str(name)): np.asarray(file[name]) for name in file.files}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise UserError(f"{path}: is no npz file of plain arrays: {error}") from error
    missing = [name for name in ("time", *QUANTITIES) if name not in arrays]
    if missing:
        raise UserError(f"{path}: there is no array `{missing[0]}` (there are {', '.join(arrays)})")
    time = np.asarray(arrays["time"], float).reshape(-1)
    values = {name: np.asarray(arrays[name], float).reshape(len(arrays[name]), -1) for name in QUANTITIES}
    width = values["target"].shape[1]
    if any(value.shape != (len(time), width) for value in values.values()):
        shapes = ", ".join(f"{name} {arrays[name].shape}" for name in ("time", *QUANTITIES))
        raise UserError(f"{path}: arrays must be of (T,) or (T, J) alike: {shapes}")
    usual = [path.stem] if width == 1 else [f"joint_{i}" for i in range(width)]
    joints = [str(name) for name in np.atleast_1d(arrays["joints"])] if "joints" in arrays else usual
    if len(joints) != width:
        raise UserError(f"{path}: joints: {len(joints)} names for {width} columns")
    return time, {joint: {name: values[name][:, i] for name in QUANTITIES} for i, joint in enumerate(joints)}


def _check(path: Path, time: np.ndarray, columns: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    for joint, values in columns.items():
        for quantity in QUANTITIES:
            if quantity not in values:
                raise UserError(f"{path}: joint '{joint}' has no column {joint}_{quantity}")
            bad = np.flatnonzero(~np.isfinite(values[quantity]))
            if len(bad):
                raise UserError(f"{path}: {joint}_{quantity} is no number in row {bad[0] + 1}")
    if len(time) < 2:
        raise UserError(f"{path}: has {len(time)} samples; a motor wants thousands")
    backward = np.flatnonzero(~(np.diff(time) > 0))
    if len(backward):
        raise UserError(f"{path}: time goes back, or stands still, after row {backward[0] + 1}")


def _on_grid(
    path: Path, time: np.ndarray, columns: Mapping[str, Mapping[str, np.ndarray]], step: float
) -> tuple[list[Stretch], str]:
    """Cut a log at its gaps, and put samples that are off the grid onto it: targets are held, the rest is linear between."""
    usual = float(np.median(np.diff(time)))
    cuts = np.flatnonzero(np.diff(time) > GAP * usual) + 1
    stretches, moved = [], False
    for rows in np.split(np.arange(len(time)), cuts):
        if len(rows) < 2:
            continue
        seconds = time[rows] - time[rows[0]]
        grid = np.arange(int(np.floor(seconds[-1] / step + EVEN)) + 1) * step
        is_even = len(grid) == len(rows) and bool((np.abs(grid - seconds) <= EVEN * step).all())
        moved |= not is_even
        if len(grid) < 2:
            continue
        last = np.searchsorted(seconds, grid + EVEN * step, side="right") - 1
        for joint, values in columns.items():
            given = {name: values[name][rows] for name in QUANTITIES}
            if not is_even:
                held = {"target": given["target"][last]}
                given = {name: np.interp(grid, seconds, given[name]) for name in QUANTITIES} | held
            stretches.append(Stretch(joint, **given))
    said = [f"{len(cuts)} gaps"] if len(cuts) else []
    said += [f"samples every {usual * 1000:.3g} ms put onto a grid of {step * 1000:.3g} ms"] if moved else []
    return stretches, ", ".join(said)
