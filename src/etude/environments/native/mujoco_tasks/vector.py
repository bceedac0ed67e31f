"""What Gymnasium's MuJoCo tasks have in common: N copies in one simulation, seeded, cut and begun again like its own class."""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Literal, TypeVar

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.envs.mujoco.mujoco_env import expand_model_path
from gymnasium.utils import seeding
from mujoco import (
    MjModel,  # type: ignore[attr-defined] # compiled, without stubs
    get_mju_user_warning,  # type: ignore[attr-defined]
    set_mju_user_warning,  # type: ignore[attr-defined]
)
from torch import Tensor

from etude.environments.native.mujoco_batch import MujocoSimulation
from etude.environments.spaces import observation_specs
from etude.environments.state_vector import generator_at
from etude.environments.step_buffers import BufferPair, StepBuffers
from etude.environments.vector import Observation, Step, VectorEnvironment
from etude.errors import UserError, did_you_mean


@dataclass(frozen=True)
class MujocoParameters:
    """The keyword arguments of a task, named and set as in Gymnasium."""

    frame_skip: int


P = TypeVar("P", bound=MujocoParameters)


class MujocoVector(VectorEnvironment, Generic[P]):
    """N copies of a Gymnasium v5 task. Same seeds and actions give Gymnasium's own trajectories, bit for bit.

    A task says what it observes and what a step is worth; NumPy does both for all copies at once. Operations stand in
    Gymnasium's order and precision (a cost of the float32 action is a float32), or the last bit would differ.
    """

    id: ClassVar[str]
    xml: ClassVar[str]
    parameters_type: ClassVar[type[MujocoParameters]]

    device = torch.device("cpu")
    snapshot = "exact"

    def __init__(
        self,
        num_envs: int,
        *,
        max_episode_steps: int | None = None,
        kwargs: Mapping[str, Any] | None = None,
        threads: int | None = None,
    ) -> None:
        self.num_envs = num_envs
        self.parameters: P = self._read_parameters(kwargs or {})
        model = _load_model(expand_model_path(self.xml))
        self.simulation = MujocoSimulation(model, num_envs, frame_skip=self.parameters.frame_skip, threads=threads)
        self.qpos, self.qvel, self.dt = self.simulation.qpos, self.simulation.qvel, self.simulation.dt
        self.prepare()

        spec = gymnasium.registry[self.id]
        self.return_threshold = spec.reward_threshold
        self._max_episode_steps = max_episode_steps or spec.max_episode_steps or np.iinfo(np.int64).max
        low, high = model.actuator_ctrlrange.astype(np.float32).T
        self.single_action_space = spaces.Box(low, high, dtype=np.float32)
        self.single_observation_space = spaces.Box(
            -np.inf, np.inf, (sum(part.shape[1] for part in self.observe()),), np.float64
        )

        self._elapsed = np.zeros(num_envs, np.int64)
        self._generators: list[np.random.Generator] = []  # one a copy, from the first reset on
        specs = observation_specs(self.single_observation_space)
        self._buffers = BufferPair.zeros(num_envs, specs)

    @classmethod
    def supports(cls, kwargs: Mapping[str, Any]) -> bool:
        """Return whether these keyword arguments mean something here; those for rendering or other models do not."""
        return not cls._problem(kwargs)

    def prepare(self) -> None:
        """Ask the simulation for the fields that this task reads beside positions and velocities."""

    @abstractmethod
    def draw_state(self, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions and velocities that one copy's next episode begins with, drawn in Gymnasium's order."""

    @abstractmethod
    def observe(self) -> tuple[np.ndarray, ...]:
        """Return the parts of every copy's observation, (N, ...) each, in their order."""

    @abstractmethod
    def advance(self, action: np.ndarray) -> tuple[np.ndarray, np.ndarray | bool]:
        """Simulate one step; return each copy's reward and whether it is in a terminal state, (N,) both."""

    def simulate(self, action: np.ndarray) -> None:
        """Let `action` (N, actuators) act for one step."""
        self.simulation.ctrl[...] = action
        self.simulation.step()

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        """Begin new episodes, copy i with `seeds[i]`."""
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} copies")
        self._generators = [seeding.np_random(seed)[0] for seed in seeds]
        self._begin_episodes(np.arange(self.num_envs))
        buffers = self._buffers.next()
        self._write_observation(buffers)
        return buffers.observation, {}

    def step(self, action: Tensor) -> Step:
        """Act in every copy; one that ends begins its next episode in the same step."""
        if not self._generators:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        given = np.ascontiguousarray(action.numpy(), np.float32)
        if given.shape != self.simulation.ctrl.shape:
            raise ValueError(f"actions of shape {given.shape}, not {self.simulation.ctrl.shape}")
        buffers = self._buffers.next()
        buffers.reward[:], buffers.terminated[:] = self.advance(given)
        self._elapsed += 1
        np.greater_equal(self._elapsed, self._max_episode_steps, out=buffers.truncated)
        self._write_observation(buffers)
        ended = np.flatnonzero(buffers.terminated | buffers.truncated)
        if not ended.size:
            return buffers.as_step(buffers.observation)
        buffers.finals[""][...] = buffers.arrays[""]
        self._begin_episodes(ended)
        self._write_observation(buffers)  # the same again in copies that go on
        return buffers.as_step(buffers.final_observation)

    def state_dict(self) -> dict[str, Any]:
        """Return the simulations, each copy's generator and how far its episode has come."""
        return {
            "simulation": self.simulation.state_dict(),
            "generators": [generator.bit_generator.state for generator in self._generators],
            "elapsed": torch.from_numpy(self._elapsed.copy()),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue every copy where it was."""
        self.simulation.load_state_dict(state["simulation"])
        self._generators = [generator_at(saved) for saved in state["generators"]]
        self._elapsed[:] = state["elapsed"].numpy()

    def _begin_episodes(self, ids: np.ndarray) -> None:
        states = [self.draw_state(self._generators[index]) for index in ids.tolist()]
        qpos, qvel = (np.stack(part) for part in zip(*states, strict=True))
        self.simulation.reset(ids, qpos, qvel)
        self._elapsed[ids] = 0

    def _write_observation(self, buffers: StepBuffers) -> None:
        np.concatenate(self.observe(), axis=1, out=buffers.arrays[""], casting="same_kind")

    @classmethod
    def _read_parameters(cls, kwargs: Mapping[str, Any]) -> Any:
        if problem := cls._problem(kwargs):
            raise UserError(problem)
        return cls.parameters_type(**kwargs)

    @classmethod
    def _problem(cls, kwargs: Mapping[str, Any]) -> str:
        """Return what is wrong with the first keyword argument that has no meaning here, or nothing."""
        defaults = {field.name: field.default for field in dataclasses.fields(cls.parameters_type)}
        for name, value in kwargs.items():
            if name not in defaults:
                return f"environment.kwargs.{name}: native {cls.id} has no such parameter{did_you_mean(name, defaults)}"
            if wanted := _wanted(defaults[name], value):
                return f"environment.kwargs.{name}={value!r}: must be {wanted}"
        return ""


@dataclass(frozen=True)
class NoisyStartParameters(MujocoParameters):
    """What a task with a disturbed start can always be given."""

    reset_noise_scale: float


N = TypeVar("N", bound=NoisyStartParameters)


class NoisyStartVector(MujocoVector[N]):
    """Draws uniform noise around the pose, and uniform or normal noise around rest."""

    velocity_noise: ClassVar[Literal["uniform", "normal"]] = "uniform"

    def draw_state(self, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the disturbed pose and the velocities of one copy."""
        model, scale = self.simulation.model, self.parameters.reset_noise_scale
        qpos = model.qpos0 + generator.uniform(-scale, scale, model.nq)
        if self.velocity_noise == "normal":
            noise = scale * generator.standard_normal(model.nv)
        else:
            noise = generator.uniform(-scale, scale, model.nv)
        return qpos, np.zeros(model.nv) + noise  # a sum as in Gymnasium: it has no -0.0


def lengths(vectors: np.ndarray) -> np.ndarray:
    """Return the length of each row, as `np.linalg.norm` of one vector: by a dot product, whose last bit a sum's may miss."""
    return np.sqrt(np.vecdot(vectors, vectors))


def _load_model(path: str) -> MjModel:
    """Compile Gymnasium's own file in silence: a warning about it would leave a MUJOCO_LOG.TXT in the user's folder."""
    handler = get_mju_user_warning()
    set_mju_user_warning(lambda _: None)
    try:
        return MjModel.from_xml_path(path)
    finally:
        set_mju_user_warning(handler)


def _wanted(default: Any, value: Any) -> str:
    """Return what a parameter with this default has to be, or nothing where `value` is that."""
    if isinstance(default, bool):
        return "" if isinstance(value, bool) else "true or false"
    if isinstance(default, int):
        return "" if isinstance(value, int) and not isinstance(value, bool) and value >= 1 else "a positive whole number"
    if isinstance(default, float):
        return "" if _is_number(value) else "a number"
    is_pair = isinstance(value, Sequence) and len(value) == 2 and all(map(_is_number, value))
    return "" if is_pair else "a lower and an upper bound"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
