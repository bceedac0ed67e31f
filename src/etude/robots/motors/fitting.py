"""Learns a motor's network from its logs, and measures it on samples it was not shown, beside an ideal motor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from etude.errors import UserError
from etude.robots.motors.logs import Logs, Stretch
from etude.robots.motors.network import LONGEST_S, MotorLayout, MotorNetwork, shapes_of

FEWEST = 200
"""Samples, of those to learn from."""
Progress = Callable[[int, float, float], None]
"""From updates so far to the errors on what is learnt from and on what is held out, N·m."""


@dataclass(frozen=True)
class FitSettings:
    """How a network is learnt."""

    history: tuple[int, ...] = (0, 1, 2)
    hidden: tuple[int, ...] = (32, 32, 32)
    activation: str = "softsign"
    updates: int = 6000
    batch_size: int = 1024
    learning_rate: float = 3e-3
    held_out: float = 0.2
    """The share of each stretch, its end, that is not learnt from."""
    seed: int = 0


@dataclass(frozen=True)
class Samples:
    """What a network sees, and what it is to say."""

    errors: Tensor
    """(S, H)"""
    velocities: Tensor
    """(S, H)"""
    torques: Tensor
    """(S,)"""
    joints: Tensor
    """Which joint each is of, (S,)."""


@dataclass(frozen=True)
class IdealMotor:
    """torque = stiffness · (target − position) − damping · velocity, within what the logs have."""

    stiffness: float
    damping: float
    limit: float

    def torque(self, samples: Samples, now: int) -> Tensor:
        """(S,); `now` is the column of the present."""
        wanted = self.stiffness * samples.errors[:, now] - self.damping * samples.velocities[:, now]
        return wanted.clamp(-self.limit, self.limit)


@dataclass(frozen=True)
class Fit:
    """A network that was learnt, and how good it is."""

    layout: dict[str, object]
    """Of `save_network`."""
    weights: dict[str, Tensor]
    ideal: IdealMotor
    held_out: Samples
    said: Tensor
    """By the network of the samples held out, N·m."""
    said_by_ideal: Tensor
    errors: dict[str, float]
    """On the samples held out: root mean squares of the network's errors and the ideal motor's, and of the torque, N·m."""
    of_joints: dict[str, tuple[float, float]]
    """The first two for each joint."""


def fit_network(
    logs: Logs, settings: FitSettings, ideal: tuple[float, float] | None = None, on_progress: Progress | None = None
) -> Fit:
    """Learn a network; `ideal` is (stiffness, damping) of the motor to compare with, by default what fits the logs best."""
    learnt, held = _split(logs, settings)
    generator = torch.Generator().manual_seed(settings.seed)
    scales = [float(values.std().clamp(min=1e-6)) for values in (learnt.errors, learnt.velocities, learnt.torques)]
    layout = {
        "step": logs.step,
        "history": settings.history,
        "hidden": settings.hidden,
        "activation": settings.activation,
        **dict(zip(("error_scale", "velocity_scale", "torque_scale"), scales, strict=True)),
        "largest_torque": float(max(learnt.torques.abs().max(), held.torques.abs().max())),
        "updates": settings.updates,
        "joints": logs.joints,
    }
    network = _begin(layout, generator)
    _learn(network, learnt, held, settings, generator, on_progress)
    now = settings.history.index(0)
    motor = IdealMotor(*(ideal or _best_ideal(learnt, now)), limit=float(layout["largest_torque"]))  # type: ignore[arg-type] # a number
    with torch.no_grad():
        said = network.torque(held.errors, held.velocities)
    by_ideal = motor.torque(held, now)
    errors = {"network": _rms(said - held.torques), "ideal": _rms(by_ideal - held.torques), "torque": _rms(held.torques)}
    of_joints = {
        joint: tuple(_rms((each - held.torques)[held.joints == i]) for each in (said, by_ideal))
        for i, joint in enumerate(logs.joints)
        if bool((held.joints == i).any())
    }
    weights = {name: value.detach() for name, value in network.weights.items()}
    return Fit(layout | {"measured": errors}, weights, motor, held, said, by_ideal, errors, of_joints)  # type: ignore[arg-type] # pairs


def _split(logs: Logs, settings: FitSettings) -> tuple[Samples, Samples]:
    """Cut off the end of every stretch: samples side by side are too alike to be held out one by one."""
    if 0 not in settings.history:
        raise UserError(f"--history {list(settings.history)}: must have 0, what is now")
    if max(settings.history) * logs.step > LONGEST_S:
        raise UserError(
            f"--history {list(settings.history)}: steps of {logs.step * 1000:g} ms: must be {LONGEST_S:g} s at most"
        )
    deepest, order = max(settings.history), {joint: i for i, joint in enumerate(logs.joints)}
    learnt, held = [], []
    for stretch in logs.stretches:
        cut = round(len(stretch) * (1 - settings.held_out))
        learnt.append(_samples(stretch, 0, cut, settings.history, order[stretch.joint]))
        held.append(_samples(stretch, cut, len(stretch), settings.history, order[stretch.joint]))
    both = _together(learnt), _together(held)
    if len(both[0].torques) < FEWEST or not len(both[1].torques):
        raise UserError(
            f"the logs have {len(both[0].torques)} samples to learn from and {len(both[1].torques)} to hold out, with "
            f"{deepest} steps of history before each; {FEWEST} and 1 at least"
        )
    if not bool(both[0].torques.std() > 0):
        raise UserError("the torque in the logs never changes: there is nothing to learn")
    return both


def _samples(stretch: Stretch, begin: int, end: int, history: Sequence[int], joint: int) -> Samples:
    """Of the steps from `begin` to `end`, without those whose history lies before `begin`."""
    steps = np.arange(begin + max(history), end)
    error = stretch.target - stretch.position
    places = steps[:, None] - np.array(history)[None]
    parts = (error[places], stretch.velocity[places], stretch.torque[steps])
    errors, velocities, torques = (torch.from_numpy(np.ascontiguousarray(part, np.float32)) for part in parts)
    return Samples(errors, velocities, torques, torch.full((len(steps),), joint))


def _together(parts: Sequence[Samples]) -> Samples:
    return Samples(
        *(torch.cat([getattr(part, name) for part in parts]) for name in ("errors", "velocities", "torques", "joints"))
    )


def _begin(layout: Mapping[str, object], generator: torch.Generator) -> MotorNetwork:
    described = MotorLayout(version=1, sha256="", **layout)  # type: ignore[arg-type] # its own fields
    weights = {}
    for name, shape in shapes_of(described).items():
        bound = (6 / sum(shape)) ** 0.5 if len(shape) == 2 else 0.0
        weights[name] = ((torch.rand(shape, generator=generator) * 2 - 1) * bound).requires_grad_()
    return MotorNetwork(described, weights)


def _learn(
    network: MotorNetwork,
    learnt: Samples,
    held: Samples,
    settings: FitSettings,
    generator: torch.Generator,
    on_progress: Progress | None,
) -> None:
    optimizer = torch.optim.Adam(network.weights.values(), lr=settings.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, settings.updates)
    scale, every, count = network.layout.torque_scale, max(1, settings.updates // 20), len(learnt.torques)
    recent = 0.0
    for update in range(1, settings.updates + 1):
        chosen = torch.randint(count, (min(settings.batch_size, count),), generator=generator)
        said = network.torque(learnt.errors[chosen], learnt.velocities[chosen])
        loss = ((said - learnt.torques[chosen]) / scale).square().mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        recent = float(loss.detach()) ** 0.5 * scale
        if on_progress is not None and (update % every == 0 or update == settings.updates):
            with torch.no_grad():
                off = network.torque(held.errors, held.velocities) - held.torques
            on_progress(update, recent, _rms(off))
    if not np.isfinite(recent):
        raise UserError("the network has learnt no numbers: a lower --learning-rate may help, or logs in rad, rad/s and N·m")


def _best_ideal(samples: Samples, now: int) -> tuple[float, float]:
    """Stiffness and damping that are least off, in squares."""
    seen = torch.stack([samples.errors[:, now], -samples.velocities[:, now]], 1).double()
    stiffness, damping = torch.linalg.lstsq(seen, samples.torques[:, None].double()).solution[:, 0].tolist()
    return stiffness, damping


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())
