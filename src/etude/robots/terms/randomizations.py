"""What differs between robots, and between the episodes of one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Generator, Tensor

from etude.config.constraints import Bounds, Interval, NonNegativeFloat, above, at_least, between
from etude.config.registry import import_own, is_import_path
from etude.config.robots import Durations, Range
from etude.config.validate import Validator
from etude.errors import UserError, did_you_mean
from etude.robots.scene import FLOOR, Scene
from etude.robots.simulators.simulation import Simulation
from etude.robots.state import State
from etude.robots.terms.table import options_of

RANDOMIZATIONS: dict[str, type[Randomization]] = {}
LEAST_MASS = 0.1
"""Kilograms that a base must keep."""
Kind = TypeVar("Kind", bound="Randomization")


def offer(cls: type[Kind]) -> type[Kind]:
    """Decorate a randomisation to offer it under the snake-case form of its name."""
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in cls.__name__).lstrip("_")
    RANDOMIZATIONS[name] = cls
    cls.name = name
    return cls


@dataclass(frozen=True)
class Spread:
    """A range to draw from, uniformly."""

    range: Range


class Randomization:
    """Draws for every robot at the start of a run, and for those that begin an episode."""

    Options: ClassVar[type] = Spread
    name: ClassVar[str] = ""
    allowed: ClassVar[Bounds] = Bounds()
    """What may be drawn."""
    at_reset: ClassVar[bool] = True
    """Whether each episode draws anew; what changes masses does not, because all that derives from them would follow."""

    def __init__(self, options: Any, state: State, generator: Generator) -> None:
        self.options, self.state, self.generator = options, state, generator
        self.simulation: Simulation = state.simulation
        self.check()
        self.prepare()

    def check(self) -> None:
        """Refuse a range that no robot could have."""
        message = Interval(self.allowed).violated_by(self.options.range)
        if message:
            raise self.refusal(message)

    def refusal(self, message: str) -> UserError:
        """Return an error that names the range."""
        return UserError(f"environment.robot.randomization.{self.name}.range={list(self.options.range)}: {message}")

    def prepare(self) -> None:
        """Ask the simulation for the fields to change."""

    def draw(self, width: int = 1) -> Tensor:
        """Return numbers from the range for every robot, (N, width)."""
        low, high = self.options.range
        u = torch.rand((self.state.count, width), generator=self.generator, device=self.state.device)
        return low + (high - low) * u

    def start(self) -> None:
        """Draw for all robots when a run begins."""
        self.reset(torch.ones(self.state.count, dtype=torch.bool, device=self.state.device))

    def reset(self, which: Tensor) -> None:
        """Draw for the robots `which`, (N,) bool."""
        drawn = self.draw(self.width(self.simulation.scene))
        value = self.state.drawn.setdefault(self.name, drawn)
        value.copy_(torch.where(which[:, None], drawn, value))
        self.apply(value)

    @classmethod
    def width(cls, scene: Scene) -> int:
        """How many numbers each robot has."""
        return 1

    def apply(self, value: Tensor) -> None:
        """Make the drawn values (N, width) take effect."""

    def step(self) -> None:
        """What happens amid an episode."""


class _Fields(Randomization):
    """Changes model fields from their nominal values."""

    fields: ClassVar[tuple[str, ...]] = ()

    def prepare(self) -> None:
        """Take hold of the fields, and remember their nominal values."""
        self.live = {name: self.simulation.model_field(name) for name in self.fields}
        self.nominal = {name: field.clone() for name, field in self.live.items()}
        self._floor = self.simulation.scene.model.geom(FLOOR).id


@offer
class FloorFriction(_Fields):
    """Sliding friction of the ground"""

    allowed = at_least(0)
    fields = ("geom_friction",)

    def apply(self, value: Tensor) -> None:
        """The ground's friction is the one that counts."""
        self.live["geom_friction"][:, self._floor, 0] = value[:, 0].to(self.live["geom_friction"].dtype)


@offer
class FeetFriction(_Fields):
    """Sliding friction of the feet, where the model gives them a higher priority than the ground's, 1"""

    allowed = at_least(0)
    fields = ("geom_friction",)

    def prepare(self) -> None:
        """Find the feet."""
        super().prepare()
        model, feet = self.simulation.scene.model, self.simulation.scene.feet
        names = [{model.geom(i).name, model.body(model.geom_bodyid[i]).name} for i in range(model.ngeom)]
        geoms = [i for i in range(model.ngeom) if names[i] & set(feet) and model.geom_priority[i] > 1]
        if not geoms:
            raise UserError(
                "environment.robot.randomization.feet_friction: the ground's friction counts; use floor_friction, or give the "
                'feet priority="2" in the model'
            )
        self._geoms = torch.tensor(geoms, dtype=torch.int64, device=self.state.device)

    def apply(self, value: Tensor) -> None:
        """All feet of a robot get the same friction."""
        self.live["geom_friction"][:, self._geoms, 0] = value.to(self.live["geom_friction"].dtype)


@offer
class Restitution(_Fields):
    """How much of its speed a foot keeps when it hits the ground"""

    allowed = between(0, 0.99)
    fields = ("geom_solref",)

    def apply(self, value: Tensor) -> None:
        """A damping ratio ζ gives back exp(−πζ / √(1 − ζ²)) of the speed; the stiffness stays what it is at ζ = 1."""
        log = value[:, 0].clamp(1e-3, 0.99).log()
        ratio = (-log / (torch.pi**2 + log.square()).sqrt()).to(torch.float64)
        solref, time = self.live["geom_solref"], self.nominal["geom_solref"][:, self._floor, 0]
        # Negative numbers are MuJoCo's way to give stiffness and damping themselves.
        solref[:, self._floor, 0] = -1 / time.square()
        solref[:, self._floor, 1] = (-2 * ratio / time).to(solref.dtype)


class _Masses(_Fields):
    """Changes what the simulator derives constants from: once, when a run begins."""

    at_reset = False
    fields = ("body_mass", "body_inertia")

    def scale(self, bodies: Any, factor: Tensor) -> None:
        """Multiply the nominal masses and, with them, inertias."""
        for name, field in self.live.items():
            nominal = self.nominal[name][:, bodies]
            field[:, bodies] = nominal * factor.to(field.dtype).view(*factor.shape, *[1] * (field.ndim - 2))
        self.simulation.update_constants()


@offer
class BaseMass(_Masses):
    """Kilograms added to the base; its inertia grows in proportion"""

    def apply(self, value: Tensor) -> None:
        """Add to the nominal mass."""
        base = [self.simulation.scene.trunk_body]
        nominal = self.nominal["body_mass"][:, base]
        self.scale(base, (nominal + value.to(nominal.dtype)) / nominal)

    def check(self) -> None:
        """Leave the base a mass."""
        super().check()
        scene = self.simulation.scene
        mass = float(scene.model.body_mass[scene.trunk_body])
        if mass + self.options.range[0] < LEAST_MASS:
            raise self.refusal(f"the base weighs {mass:g} kg, and must keep {LEAST_MASS:g}")


@offer
class LinkMass(_Masses):
    """Factor of the mass of every other body"""

    allowed = above(0)

    @staticmethod
    def _links(scene: Scene) -> list[int]:
        model = scene.model
        return [i for i in range(1, model.nbody) if i != scene.trunk_body and model.body_mass[i] > 0]

    @classmethod
    def width(cls, scene: Scene) -> int:
        """One for each body."""
        return len(cls._links(scene))

    def apply(self, value: Tensor) -> None:
        """Multiply."""
        self.scale(self._links(self.simulation.scene), value)


@offer
class BaseCom(_Fields):
    """Metres by which the base's centre of mass is off, along each axis"""

    allowed = between(-1, 1)
    at_reset = False
    fields = ("body_ipos",)

    @classmethod
    def width(cls, scene: Scene) -> int:
        """Three axes."""
        return 3

    def apply(self, value: Tensor) -> None:
        """Add to the nominal centre."""
        base, centre = self.simulation.scene.trunk_body, self.nominal["body_ipos"]
        self.live["body_ipos"][:, base] = centre[:, base] + value.to(centre.dtype)
        self.simulation.update_constants()


class _PerJoint(_Fields):
    @classmethod
    def width(cls, scene: Scene) -> int:
        """One for each joint."""
        return len(scene.joints)


class _Gains(_PerJoint):
    """Motors' gains: torque = gain · target + bias · (1, position, velocity)."""

    allowed = at_least(0)
    fields = ("actuator_gainprm", "actuator_biasprm")
    is_last: bool = True
    """Of several such randomisations the last one writes for all."""

    def prepare(self) -> None:
        """Remember which motors hold a position."""
        super().prepare()
        self._holds_position = torch.as_tensor(self.simulation.scene.controls_position, device=self.state.device)
        self._is_network = torch.as_tensor(self.simulation.scene.of_network, device=self.state.device)

    def apply(self, value: Tensor) -> None:
        """All motors of a kind are written from what every such randomisation drew."""
        if not self.is_last:
            return
        ones = torch.ones_like(value)
        stiffness, damping, torque = (self.state.drawn.get(name, ones) for name in ("stiffness", "damping", "torque"))
        gain, bias = self.live["actuator_gainprm"], self.live["actuator_biasprm"]
        of_gain, of_bias = self.nominal["actuator_gainprm"], self.nominal["actuator_biasprm"]
        stiffer, damped = stiffness * torque, damping * torque
        factor = torch.where(self._is_network, torque, torch.where(self._holds_position, stiffer, damped))
        gain[..., 0] = of_gain[..., 0] * factor.to(gain.dtype)
        bias[..., 1] = of_bias[..., 1] * stiffer.to(bias.dtype)
        bias[..., 2] = of_bias[..., 2] * damped.to(bias.dtype)


@offer
class Stiffness(_Gains):
    """Factor of each motor's stiffness"""


@offer
class Damping(_Gains):
    """Factor of each motor's damping"""


@offer
class Torque(_Gains):
    """Factor of each motor's torque"""


@offer
class MotorOffset(Randomization):
    """Radians by which each motor's idea of its position is off"""

    allowed = between(-1, 1)

    @classmethod
    def width(cls, scene: Scene) -> int:
        """One for each joint."""
        return len(scene.joints)


@offer
class JointFriction(_PerJoint):
    """Coulomb friction added to each joint, N·m"""

    allowed = at_least(0)
    fields = ("dof_frictionloss",)

    def prepare(self) -> None:
        """Remember where the joints are."""
        super().prepare()
        self._dofs = self.state.joint_dofs

    def apply(self, value: Tensor) -> None:
        """Add to the nominal friction."""
        self._add("dof_frictionloss", value)

    def _add(self, name: str, value: Tensor) -> None:
        loss = self.nominal[name][:, self._dofs] + value.to(self.nominal[name].dtype)
        self.live[name][:, self._dofs] = loss.clamp(min=0)


@offer
class JointDamping(JointFriction):
    """Viscous friction added to each joint, N·m·s/rad"""

    fields = ("dof_damping",)

    def apply(self, value: Tensor) -> None:
        """Add to the nominal damping."""
        self._add("dof_damping", value)


@offer
class Armature(JointFriction):
    """Factor of each rotor's inertia"""

    at_reset = False
    fields = ("dof_armature",)

    def apply(self, value: Tensor) -> None:
        """Multiply."""
        nominal = self.nominal["dof_armature"][:, self._dofs]
        self.live["dof_armature"][:, self._dofs] = nominal * value.to(nominal.dtype)
        self.simulation.update_constants()


@dataclass(frozen=True)
class PushOptions:
    """How often and how hard."""

    every_s: Durations = (5.0, 10.0)
    linear: NonNegativeFloat = 0.5
    """m/s to either side, in x and y."""
    angular: NonNegativeFloat = 0.5
    """rad/s about every axis."""


@offer
class Push(Randomization):
    """A push: a change of the base's velocity, every few seconds"""

    Options = PushOptions

    def check(self) -> None:
        """Its options say all."""

    def prepare(self) -> None:
        """Remember how hard each axis is pushed."""
        sizes = [self.options.linear] * 2 + [self.options.angular] * 3
        self._size = torch.tensor(sizes, dtype=torch.float32, device=self.state.device)

    def draw(self, width: int = 1) -> Tensor:
        """Return seconds until the next push, (N, 1)."""
        low, high = self.options.every_s
        u = torch.rand((self.state.count, width), generator=self.generator, device=self.state.device)
        return low + (high - low) * u

    def step(self) -> None:
        """Count down; push those whose time has come."""
        left = self.state.drawn[self.name].sub_(self.state.dt)
        due = left[:, 0] <= 0
        again, count = self.draw(), self.state.count
        u = torch.rand((count, 5), generator=self.generator, device=self.state.device) * 2 - 1
        kick = torch.where(due[:, None], u * self._size, 0.0)
        memory = self.state.memory
        pushed = torch.cat([kick[:, :2], torch.zeros_like(kick[:, :1]), kick[:, 2:]], 1)
        memory.push.copy_(torch.where(due[:, None], pushed, memory.push))
        velocity = torch.zeros_like(self.simulation.qvel)
        first = self.simulation.scene.base_dof
        velocity[:, first : first + 6] = pushed
        self.simulation.push(velocity)
        left.copy_(torch.where(due[:, None], again, left))


def find_randomization(name: str, where: str) -> type[Randomization]:
    """Return a randomisation by its name, or a user's own class by its import path."""
    if name in RANDOMIZATIONS:
        return RANDOMIZATIONS[name]
    if not is_import_path(name):
        near = did_you_mean(name, RANDOMIZATIONS) or f" (there are {', '.join(sorted(RANDOMIZATIONS))})"
        raise UserError(f"{where}: unknown randomisation{near}")
    cls = import_own(name, f"{where}: randomisation")
    if not (isinstance(cls, type) and issubclass(cls, Randomization)):
        raise UserError(f"{where}: is no class derived from {Randomization.__module__}.{Randomization.__name__}")
    cls.name = name
    return cls


def build_randomizations(config: dict[str, Any], state: State, generator: Generator) -> list[Randomization]:
    """Return the randomisations that a task names; null takes one out."""
    where, built = "environment.robot.randomization", []
    for name, options in config.items():
        if options is None:
            continue
        cls = find_randomization(name, f"{where}.{name}")
        built.append(
            cls(Validator().build(cls.Options, options_of(options, f"{where}.{name}"), f"{where}.{name}"), state, generator)
        )
    gains = [randomization for randomization in built if isinstance(randomization, _Gains)]
    for randomization in gains[:-1]:
        randomization.is_last = False
    return built
