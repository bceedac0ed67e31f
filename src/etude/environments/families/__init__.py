"""Families of environments: how their ids look, which packages they need, and where their code is.

A family whose ids Gymnasium does not have by itself brings a module with `register()`, which puts them there, and perhaps
`register_id(name)` for a single one, where finding all takes long or some exist only once they are asked for; a family that
can step many copies in one call brings `make_vector(config, num_envs)`, which returns None where it can't with these settings.
One that has a faster class for a task of Gymnasium's, the same to the bit, brings `spec(config)`, which names it.
One whose environments a policy can't read as they are brings `adapter(config)`: their own arguments, and a wrapper for them.
Nothing of a family is imported before one of its ids is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from etude.errors import MissingPackageError

if TYPE_CHECKING:
    from gymnasium.envs.registration import EnvSpec

    from etude.config.schema import EnvironmentConfig
    from etude.environments.vector import VectorEnvironment


@dataclass(frozen=True)
class Family:
    """Environments that come from one place."""

    name: str
    """A word for the command line and the documentation."""
    title: str
    """What people call it."""
    form: str
    """How an id looks."""
    pattern: str
    """The ids that belong to it, as a regular expression."""
    example: str = ""
    """A task that is there whenever the family is. Default: that of `form`."""
    packages: tuple[str, ...] = ()
    """Modules that must be installed."""
    module: str | None = None
    """Our own code for it: a module of this package."""
    extra: str = ""
    """Etude's extra that brings its packages. Default: one of its name."""
    backend: Literal["auto", "envpool"] = "auto"
    """The environment.backend that its example is made with."""
    one_per_process: bool = False
    """Whether a process can hold a single copy: each then gets its own worker."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "example", self.example or self.form)

    @property
    def install(self) -> str:
        """What to give to pip where packages are missing; empty for what comes with Etude itself."""
        return f"etude[{self.extra or self.name}]" if self.packages else ""

    def has(self, name: str) -> bool:
        """Whether `name` is an id of this family."""
        return re.fullmatch(self.pattern, name) is not None

    def missing(self) -> list[str]:
        """Return the packages that are not installed."""
        return [package for package in self.packages if not _is_installed(package)]

    def register(self, name: str | None = None) -> None:
        """Make its ids known to Gymnasium, or at least this one; raises MissingPackageError where a package is not there."""
        missing = self.missing()
        if missing:
            raise MissingPackageError(f"{self.title} ({self.form}) needs {' and '.join(missing)}: pip install '{self.install}'")
        code = self._code()
        if name is not None and hasattr(code, "register_id"):
            code.register_id(name)
        elif hasattr(code, "register"):
            code.register()

    def make_vector(self, config: EnvironmentConfig, num_envs: int) -> VectorEnvironment | None:
        """Return many copies stepped in one call, or None where the family has no such thing for these settings."""
        make = getattr(self._code(), "make_vector", None)
        return None if make is None or self.missing() else make(config, num_envs)

    def make_one(self, config: EnvironmentConfig, render_mode: str | None) -> Any:
        """Return one copy of a Gymnasium class of our own, or None where the registered one is it."""
        make = getattr(self._code(), "make_one", None)
        return None if make is None else make(config, render_mode)

    def adapter(self, config: EnvironmentConfig) -> tuple[dict[str, Any], Callable[[Any], Any]]:
        """Return the arguments that an environment itself takes, and what to put around it; raises UserError for wrong ones."""
        adapt = getattr(self._code(), "adapter", None)
        return (dict(config.kwargs), lambda env: env) if adapt is None else adapt(config)

    def spec(self, config: EnvironmentConfig) -> str | EnvSpec:
        """Return what Gymnasium is to make: the id, or a class of ours that takes its place."""
        ours = getattr(self._code(), "spec", None)
        return config.id if ours is None else ours(config) or config.id

    def _code(self) -> Any:
        return importlib.import_module(f"{__name__}.{self.module}") if self.module else None


def _is_installed(package: str) -> bool:
    if package in sys.modules:
        return sys.modules[package] is not None
    found = importlib.util.find_spec(package)
    return found is not None and found.origin is not None  # a mere folder of that name is no package


# The first family that has an id is asked; the last one has all the others.
FAMILIES = (
    Family(
        "classic",
        "Classic control",
        "CartPole-v1",
        r"(CartPole-v[01]|Pendulum-v1|MountainCar(Continuous)?-v0|Acrobot-v1)",
        module="classic_control",
    ),
    Family(
        "small",
        "Etude's own small tasks",
        "MultiGoal-v0",
        r"(MemoryCorridor-v0|Bandit-v0|Bandit/.+|PointReach-v0|MultiGoal-v0|TwoWays-v0|CartPoleNoVelocity-v0)",
        module="small_tasks",
    ),
    Family(
        "arcade",
        "Etude's arcade-like tasks",
        "BrickWall-v0",
        r"(BrickWall|RoadCrossing|FruitFall)-v0",
        module="arcade",
    ),
    Family(
        "mujoco",
        "MuJoCo",
        "HalfCheetah-v5",
        r"(HalfCheetah|Hopper|Walker2d|Ant|Humanoid|HumanoidStandup|Swimmer|Inverted(Double)?Pendulum|Reacher|Pusher)-v[45]",
        packages=("mujoco",),
        module="mujoco",
    ),
    # Tasks for Etude's own robots and for those of packages, by their presets: Gymnasium knows none of them.
    Family(
        "robots",
        "Robots",
        "quadruped-flat",
        r"(quadruped|biped|ball|go1|go2|anymal|g1)-(flat|rough|climb|motion|goto)",
        packages=("mujoco",),
        extra="mujoco",
    ),
    Family(
        "box2d",
        "Box2D",
        "LunarLander-v3",
        r"(LunarLander(Continuous)?|BipedalWalker(Hardcore)?|CarRacing)-v3",
        packages=("Box2D",),
        module="box2d",
    ),
    Family("toy", "Toy text", "FrozenLake-v1", r"(FrozenLake(8x8)?-v1|Taxi-v\d|CliffWalking(Slippery)?-v\d|Blackjack-v1)"),
    Family("dmc", "DeepMind Control", "dmc/cheetah-run", r"dmc/.+", "dmc/cartpole-balance", ("dm_control",), "dm_control"),
    Family("atari", "Atari", "ALE/Pong-v5", r"(ALE/.+|.+NoFrameskip-v\d)", packages=("ale_py",), module="atari"),
    Family(
        "minigrid",
        "MiniGrid",
        "MiniGrid-DoorKey-5x5-v0",
        r"(MiniGrid|BabyAI)-.+",
        "MiniGrid-Empty-5x5-v0",
        ("minigrid",),
        "minigrid",
    ),
    Family(
        "vizdoom",
        "ViZDoom",
        "VizDoom-Basic-v0 or VizdoomBasic-v1",
        r"(VizDoom-|Vizdoom).+",
        "VizDoom-Basic-v0",
        ("vizdoom",),
        "vizdoom",
    ),
    Family(
        "retro",
        "Retro",
        "Retro/Airstriker-Genesis-v0",
        r"Retro/.+",
        packages=("stable_retro",),
        module="retro",
        one_per_process=True,
    ),
    Family(
        "robotics",
        "Gymnasium-Robotics",
        "FetchReach-v4",
        r"(Fetch|Hand(Reach|Manipulate)|(Ant|Point)Maze_|AdroitHand|FrankaKitchen).*-v\d+",
        packages=("gymnasium_robotics",),
        module="robotics",
    ),
    Family("brax", "Brax", "brax/inverted_pendulum", r"brax/.+", packages=("brax", "jax"), module="brax"),
    # No ids of its own: a backend for those of others.
    Family(
        "envpool", "EnvPool", "environment.backend=envpool", r"(?!)", "CartPole-v1", ("envpool",), "envpool", backend="envpool"
    ),
    Family("gymnasium", "Other Gymnasium environments", "Name-v0 or module:Name-v0", r".+", "CartPole-v1"),
)


def family_of(name: str) -> Family:
    """Return the family that an id belongs to."""
    return next(family for family in FAMILIES if family.has(name))


def register_installed(families: Iterable[Family] = FAMILIES) -> list[Family]:
    """Make the ids of every family that can run here known to Gymnasium; returns those that can't."""
    absent = []
    for family in families:
        if family.missing():
            absent.append(family)
        else:
            family.register()
    return absent
