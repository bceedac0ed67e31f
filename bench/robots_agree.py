"""Whether Etude's Go1 task is mjlab's: the compiled models, and every term on the same states.

python bench/robots_agree.py --mjlab FOLDER [--mjlab-python PYTHON]      # 1 if something differs that should not
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from robots_go1 import DATA, find_model, write_robot
from robots_mjlab_states import model_facts

from etude.config.compose import compose
from etude.robots.environment import RobotVector

HERE = Path(__file__).resolve().parent
REWARDS = {
    "track_linear_velocity": "track_linear_velocity",
    "track_angular_velocity": "track_turn",
    "upright": "upright",
    "pose": "pose_by_speed",
    "dof_pos_limits": "joint_limits",
    "action_rate_l2": "action_rate",
    "foot_clearance": "feet_clearance",
    "foot_slip": "feet_slip",
    "soft_landing": "landing_force",
}
"""Mjlab's name of each reward, and Etude's."""
TOLERANCE = 1e-5
"""Of the largest value."""
KNOWN = {
    "observation base_linear_velocity": "mjlab's is that of its IMU, 7 cm off the base",
    "observation feet_contact": "a foot stands from 1 N on; mjlab's from any force on",
    "reward foot_slip": "as feet_contact",
}
"""Differences that are meant to be there."""


class Difference(NamedTuple):
    """One thing compared."""

    what: str
    largest: float
    size: float
    """The largest value of mjlab's."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, print a table, and return 1 if something differs that is not known to."""
    options = _parser().parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="etude-robots-") as scratch:
        facts = _ask_mjlab(options, Path(scratch) / "mjlab.npz")
        robot = write_robot(find_model(options.mjlab), Path(scratch) / "robot")
        count = facts["qpos"].shape[1]
        words = [f"environment.robot.model={robot}", f"environment.num_envs={count}", "environment.robot.simulator=cpu"]
        config = compose(file=DATA / "go1-flat.yaml", words=words).config
        environment = RobotVector(config.environment, count, training=True)
        environment.reset(range(count))
        found = [*compare_models(facts, model_facts(environment.scene.model)), *compare_terms(facts, environment)]
    return _show(found)


def _ask_mjlab(options: argparse.Namespace, out: Path) -> Mapping[str, np.ndarray]:
    path = os.pathsep.join(map(str, options.mjlab))
    command = [options.mjlab_python, str(HERE / "robots_mjlab_states.py"), str(out)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"mjlab failed:\n{done.stderr[-3000:]}")
    with np.load(out) as stored:
        return dict(stored)


def compare_models(theirs: Mapping[str, np.ndarray], ours: Mapping[str, np.ndarray]) -> Iterator[Difference]:
    """Compare options, and the fields of all parts that have a name on both sides, by name."""
    for key, value in theirs.items():
        kind, _, name = key.partition("/")
        if kind == "option":
            yield _difference(f"option {name}", value, ours[key])
        elif kind == "model":
            owner = {"geom": "geom", "body": "body", "jnt": "joint", "dof": None, "actuator": "actuator"}[
                name.partition("_")[0]
            ]
            pairs = _pairs(theirs, ours, owner) if owner else [(i, i) for i in range(len(value))]
            rows = np.array(pairs)
            yield _difference(f"model {name}", value[rows[:, 0]], ours[key][rows[:, 1]])


def _pairs(theirs: Mapping[str, np.ndarray], ours: Mapping[str, np.ndarray], owner: str) -> list[tuple[int, int]]:
    own = ours[f"names/{owner}"].tolist()
    named = [(i, name) for i, name in enumerate(theirs[f"names/{owner}"].tolist()) if name and name != "terrain"]
    return [(i, own.index(name)) for i, name in named]


def compare_terms(facts: Mapping[str, np.ndarray], environment: RobotVector) -> Iterator[Difference]:
    """Put the states that mjlab was in before Etude's terms, and compare what they say."""
    said: dict[str, list[np.ndarray]] = {}
    seen: list[np.ndarray] = []
    critic = environment.groups["critic"]
    for moment in range(len(facts["qpos"])):
        _put(environment, {name: torch.from_numpy(value[moment]) for name, value in facts.items() if "/" not in name})
        for name, own in REWARDS.items():
            term, weight = environment.rewards[own]
            said.setdefault(name, []).append((term(environment.state) * weight).numpy().copy())
        seen.append(critic.push(environment.state).numpy().copy())
    for name, values in said.items():
        yield _difference(f"reward {name}", facts[f"reward/{name}"], np.stack(values))
    observed, first = np.stack(seen), 0
    for name, _, size in critic.terms:
        columns = slice(first, first + size)
        yield _difference(f"observation {name}", facts["critic"][..., columns], observed[..., columns])
        first += size


def _put(environment: RobotVector, moment: Mapping[str, Any]) -> None:
    """Make a state of mjlab's the present one; an action of Etude's is half of mjlab's, and a bias has the other sign."""
    state, memory, simulation = environment.state, environment.memory, environment.simulation
    simulation.qpos.copy_(moment["qpos"])
    simulation.qvel.copy_(moment["qvel"])
    memory.action.copy_(moment["action"] / 2)
    memory.previous_action.copy_(moment["previous_action"] / 2)
    memory.command.copy_(moment["command"])
    memory.landed.copy_(moment["feet_landed"])
    memory.air_time.copy_(moment["feet_air_time"])
    place = torch.zeros_like(moment["feet_force"])
    place[..., 2] = moment["feet_height"]
    for kind, value in (("force", moment["feet_force"]), ("position", place), ("velocity", moment["feet_velocity"])):
        for index, foot in enumerate(environment.scene.feet):
            last = environment.scene.sensors[f"{kind}/{foot}"].stop
            simulation.sensors[:, last - 3 : last] = value[:, index]
    state.drawn["motor_offset"].copy_(-moment["encoder_bias"])
    state.refresh()


def _difference(what: str, theirs: np.ndarray, ours: np.ndarray) -> Difference:
    theirs, ours = np.asarray(theirs, float), np.asarray(ours, float)
    return Difference(what, float(np.abs(theirs - ours).max()), float(np.abs(theirs).max()))


def _show(found: Sequence[Difference]) -> int:
    bad = 0
    for what, largest, size in found:
        differs = largest > TOLERANCE * size
        note = KNOWN.get(what, "DIFFERS") if differs else ""
        bad += note == "DIFFERS"
        sys.stdout.write(f"{what:<38}{size:>12.6g}{largest:>12.2g}  {note}\n")
    sys.stdout.write(f"{len(found)} compared, {bad} differ that should not\n")
    return int(bad > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mjlab", type=Path, action="append", default=[], help="a folder of packages for mjlab's python")
    parser.add_argument("--mjlab-python", default=os.environ.get("MJLAB_PYTHON", sys.executable))
    return parser


if __name__ == "__main__":
    sys.exit(main())
