"""A motor that is known is logged, learnt as a network, and put into a robot in its place: how near are torques and motion?

    python bench/motor_network.py [--robots 8] [--seconds 30] [--updates 6000]

The known motor is a position controller with stiffness 30 and damping 1 whose commands and sensors are 10 ms late, whose torque
falls with its speed (26 N·m at standstill, none at 14 rad/s), and whose gear has friction (0.6 N·m, and 0.05 N·m·s/rad). Logs
are what it did in the legs of the quadruped while they were moved about at random, every physics step of 5 ms.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from etude.config.robots import ActuatorConfig, ResetConfig, RobotConfig
from etude.config.schema import EnvironmentConfig
from etude.robots.environment import RobotVector
from etude.robots.motors.fitting import FitSettings, fit_network
from etude.robots.motors.logs import read_logs
from etude.robots.motors.network import MotorLayout, save_network

STIFFNESS, DAMPING, STALL, FASTEST, COULOMB, VISCOUS, LATE = 30.0, 1.0, 26.0, 14.0, 0.6, 0.05, 2
LIMIT = 24.0
STEP = 0.005


@dataclass(frozen=True)
class KnownMotor:
    """In the place of a network: it sees the same, and says what this motor does."""

    layout: MotorLayout = field(default_factory=lambda: MotorLayout(1, STEP, (0, LATE), (), "tanh", 1.0, 1.0, 1.0, LIMIT, ""))

    def to(self, device: torch.device) -> KnownMotor:
        """It has no weights."""
        return self

    def torque(self, errors: Tensor, velocities: Tensor) -> Tensor:
        """(..., 2) each → (...)"""
        speed = velocities[..., 0]
        wanted = STIFFNESS * errors[..., 1] - DAMPING * velocities[..., 1]
        up, down = (STALL * (1 - speed / FASTEST)).clamp(0, LIMIT), (STALL * (-1 - speed / FASTEST)).clamp(-LIMIT, 0)
        return torch.maximum(torch.minimum(wanted, up), down) - COULOMB * torch.tanh(speed / 0.1) - VISCOUS * speed


def robots(count: int, motor: ActuatorConfig, decimation: int = 1) -> RobotVector:
    """Quadrupeds on flat ground that nothing ends."""
    task = RobotConfig(
        model="quadruped",
        timestep=STEP,
        decimation=decimation,
        actuators={"all": motor},
        observations={"actor": {"joint_position": {}}},
        reset=ResetConfig(joints=0.1, velocity=0.0),
    )
    environment = RobotVector(EnvironmentConfig(id="bench", num_envs=count, max_episode_steps=10**6, robot=task), count)
    environment.reset(range(count))
    return environment


@contextmanager
def known() -> Iterator[ActuatorConfig]:
    """Give motors that are the known one."""
    with patch("etude.robots.scene.networks_of", lambda *_: {"known": KnownMotor()}):
        yield ActuatorConfig(network="known", effort_limit=LIMIT)


def swings(count: int, steps: int, seed: int) -> Tensor:
    """Random smooth actions, (steps, count, 12): sums of three waves of 0.3 to 4 Hz, and sudden steps now and then."""
    generator = torch.Generator().manual_seed(seed)
    seconds = torch.arange(steps)[:, None, None, None] * STEP
    u = torch.rand(3, 3, count, 12, generator=generator)
    waves = (u[0] * (2 * torch.pi * (0.3 + 3.7 * u[1].square()) * seconds + 2 * torch.pi * u[2]).sin()).sum(1)
    held = torch.rand(steps // 80 + 1, count, 12, generator=generator).mul(2).sub(1)
    jumps = held.repeat_interleave(80, 0)[:steps] * (torch.rand(1, count, 12, generator=generator) < 0.3)
    return (0.7 * waves + jumps).clamp(-1, 1)


def record(count: int, seconds: float, folder: Path) -> list[Path]:
    """Write a log of each robot."""
    actions = swings(count, round(seconds / STEP), seed=1)
    rows: dict[str, list[np.ndarray]] = {name: [] for name in ("target", "position", "velocity", "torque")}
    with known() as motor:
        environment = robots(count, motor)
    names = environment.scene.joints
    for action in actions:
        rows["position"].append(environment.state.joint_position.numpy().copy())
        rows["velocity"].append(environment.state.joint_velocity.numpy().copy())
        environment.step(action)
        rows["target"].append(environment._targets.numpy().copy())
        rows["torque"].append(environment.simulation.torques.numpy().copy())
    paths = []
    for robot in range(count):
        time_, table = np.arange(len(actions))[:, None] * STEP, [np.stack(each)[:, robot] for each in rows.values()]
        path = folder / f"robot{robot}.csv"
        header = ",".join(["time", *(f"{joint}_{quantity}" for quantity in rows for joint in names)])
        np.savetxt(path, np.concatenate([time_, *table], 1), delimiter=",", header=header, comments="", fmt="%.6g")
        paths.append(path)
    return paths


def motion(count: int, seconds: float, motor: ActuatorConfig) -> tuple[Tensor, Tensor]:
    """Joint positions and torques of robots that get the same actions, (steps, count, 12) each."""
    environment = robots(count, motor)
    seen = []
    for action in swings(count, round(seconds / STEP), seed=2):
        environment.step(action)
        seen.append((environment.state.joint_position.clone(), environment.simulation.torques.clone()))
    return torch.stack([position for position, _ in seen]), torch.stack([torque for _, torque in seen])


def speeds(motors: dict[str, ActuatorConfig]) -> dict[str, float]:
    """Environment steps a second, of four physics steps each: the best of five turns, which are taken by all in order."""
    environments = {name: robots(1024, motor, 4) for name, motor in motors.items()}
    best = dict.fromkeys(motors, 0.0)
    action = torch.zeros(1024, 12)
    for _ in range(5):
        for name, environment in environments.items():
            begin = time.perf_counter()
            for _ in range(20):
                environment.step(action)
            best[name] = max(best[name], 20 * 1024 / (time.perf_counter() - begin))
    return best


def main() -> None:
    """Log, learn, compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--robots", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--updates", type=int, default=6000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        logs = read_logs(record(given.robots, given.seconds, Path(folder)))
        begin = time.perf_counter()
        fit = fit_network(logs, FitSettings(updates=given.updates))
        print(f"{sum(map(len, logs.stretches)):,} samples, learnt in {time.perf_counter() - begin:.0f} s")
        of, motor = fit.errors, f"stiffness {fit.ideal.stiffness:.1f}, damping {fit.ideal.damping:.2f}"
        print(f"held out, root mean square of {of['torque']:.2f} N·m: network off by {of['network']:.3f} N·m")
        print(f"  the best ideal motor by {of['ideal']:.3f} N·m ({motor})")
        save_network(Path(folder) / "motor", fit.layout, fit.weights)
        learnt = ActuatorConfig(network=str(Path(folder) / "motor"), effort_limit=LIMIT)
        nominal = ActuatorConfig(stiffness=STIFFNESS, damping=DAMPING, effort_limit=LIMIT)
        best = ActuatorConfig(stiffness=fit.ideal.stiffness, damping=max(0.0, fit.ideal.damping), effort_limit=LIMIT)
        with known() as motor:
            truth = motion(64, 2.0, motor)
        for name, each in (("network", learnt), ("ideal, as the controller is set", nominal), ("ideal, best fit", best)):
            found = motion(64, 2.0, each)
            for upto in (0.5, 2.0):
                last = round(upto / STEP)
                off, torque = (
                    (one[:last] - other[:last]).square().mean().sqrt() for one, other in zip(found, truth, strict=True)
                )
                print(f"robot with {name}, first {upto} s: joints off by {off:.4f} rad, torques by {torque:.2f} N·m")
        curve = replace(nominal, stall_torque=STALL, velocity_limit=FASTEST)
        for name, rate in speeds({"ideal": nominal, "curve": curve, "network": learnt}).items():
            print(f"1,024 robots, {name} motors: {rate:,.0f} steps a second")


if __name__ == "__main__":
    main()
