"""Steps the environment with a workflow's `act` and writes every transition straight into a buffer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from etude.buffers.base import Buffer
from etude.buffers.last_paths import LastPaths
from etude.compute.packed_transfer import PackedTransfer
from etude.compute.random_streams import RandomStreams, derive_seed
from etude.compute.trees import map_tree
from etude.environments.snapshots.rewind import RewindError
from etude.environments.vector import RAW_REWARD, ArrayStep, Observation, Step, VectorEnvironment
from etude.workflows.base import ActResult, Explore, State
from etude.workflows.episodes import EpisodeStatistics
from etude.workflows.metrics import MetricSums

REPORTED = "collect/"
"""Where what an environment says of its steps is logged."""
WORTH_PINNING = 2**18
"""Bytes from which a tensor goes to a GPU faster through pinned memory: pictures, not rewards."""


class Collector:
    """Owns the training environment, the last observation, the actor's state and the episode statistics."""

    def __init__(
        self,
        environment: VectorEnvironment,
        streams: RandomStreams,
        device: torch.device,
        *,
        keep_paths: int = 0,
        key: str = "training.keep_paths",
    ) -> None:
        """`keep_paths` is how many whole episodes to keep, and `key` what a user calls it."""
        self.environment = environment
        self._paths = LastPaths.of(environment, keep_paths, key) if keep_paths else None
        self.episodes = EpisodeStatistics(environment.num_envs, environment.device)
        self.reports = MetricSums()
        """What the environment says of its steps (`Step.info`), such as a reward's terms: means over copies and steps."""
        self._streams = streams
        self._device = device
        self._state: State = None
        self._observation: Observation | None = None
        self._is_first: Tensor | None = None
        self._restarts = 0
        self._pack: PackedTransfer | None = None
        self._carried: tuple[Observation, Tensor] | None = None  # the last observation, where it has crossed already

    @property
    def actor_state(self) -> State:
        """What the actor carries into its next step."""
        return self._state

    def last_paths(self, count: int | None = None) -> list[dict[str, Any]]:
        """Return the last whole episodes that training.keep_paths keeps, the newest last; reads the device."""
        return [] if self._paths is None else self._paths.read(count)

    def start(self, initial_state: Callable[[int], State]) -> Observation:
        """Begin the first episodes, and return how."""
        count, self._carried = self.environment.num_envs, None
        self._observation, _ = self.environment.reset(self._seeds("env"))
        self._is_first = torch.ones(count, dtype=torch.bool, device=self.environment.device)
        self._state = initial_state(count)
        return self._observation

    def collect(self, act: Callable[..., ActResult], buffer: Buffer, count: int, explore: Explore | None = None) -> int:
        """Take up to `count` vector steps, fewer if the buffer is full, and return the decisions made.

        `explore` is what `act` does while exploring, from array to array, for an actor without a state of its own.
        """
        steps = count if buffer.room is None else min(count, buffer.room)
        if explore is not None and self.environment.step_arrays is not None and buffer.takes_arrays:
            self._collect_arrays(explore, self.environment.step_arrays, buffer, steps)
        else:
            self._collect_tensors(act, buffer, steps)
        self.environment.check()
        return steps * self.environment.num_envs

    def _collect_tensors(self, act: Callable[..., ActResult], buffer: Buffer, steps: int) -> None:
        generator = self._streams["action"]
        here = self._to_workflow if self.environment.device != self._device else _unchanged
        observation, is_first = self._observation, self._is_first
        assert observation is not None, "start() comes first"
        assert is_first is not None
        with torch.no_grad():
            seen, first = self._carried or (map_tree(here, observation), here(is_first))
            for _ in range(steps):
                action, self._state, extras = act(seen, self._state, first, mode="explore", generator=generator)
                step = self.environment.step(action.to(self.environment.device))
                ended = step.terminated | step.truncated
                moved = self._moved(step, ended)
                # Where nothing ended both are one: what crosses to another device crosses once.
                led_to = next_seen = moved["observation"]
                if step.final_observation is not step.observation:
                    led_to = map_tree(here, step.final_observation)
                row = {
                    "observation": seen,
                    "is_first": first,
                    "action": action,
                    "reward": moved["reward"],
                    "terminated": moved["terminated"],
                    "truncated": moved["truncated"],
                    "next_observation": led_to,
                    **extras,
                }
                buffer.add(row)
                if self._paths is not None:
                    self._paths.add(row)
                self.episodes.add(step.reward, ended, step.info.get(RAW_REWARD))
                if step.info:
                    self._report(step.info)
                observation, is_first = step.observation, ended
                seen, first = next_seen, moved["ended"]
        self._observation, self._is_first = observation, is_first
        self._carried = (seen, first) if self._pack is not None else None

    def _collect_arrays(
        self, explore: Explore, step_arrays: Callable[[np.ndarray], ArrayStep], buffer: Buffer, steps: int
    ) -> None:
        """The same in NumPy from end to end: half of what a step of one quick task takes with tensors."""
        assert isinstance(self._observation, Tensor)
        assert self._is_first is not None
        seen, first = self._observation.numpy(), self._is_first.numpy()
        for _ in range(steps):
            action = explore(seen)
            step = step_arrays(action)
            ended = step.terminated | step.truncated
            row = {
                "observation": seen,
                "is_first": first,
                "action": action,
                "reward": step.reward,
                "terminated": step.terminated,
                "truncated": step.truncated,
                "next_observation": step.final_observation,
            }
            buffer.add(row)
            if self._paths is not None:
                self._paths.add(row)
            self.episodes.add_arrays(step.reward, ended)
            seen, first = step.observation, ended
        self._observation, self._is_first = torch.from_numpy(seen), torch.from_numpy(first)

    def _moved(self, step: Step, ended: Tensor) -> dict[str, Any]:
        """Return what a step says on the workflow's device; from the host to a GPU in one copy."""
        tree = {
            "observation": step.observation,
            "reward": step.reward,
            "terminated": step.terminated,
            "truncated": step.truncated,
            "ended": ended,
        }
        if self.environment.device == self._device:
            return tree
        if self.environment.device.type == "cpu" and self._device.type == "cuda":
            if self._pack is None:
                self._pack = PackedTransfer(tree, self._device)
            return self._pack(tree)
        here = self._to_workflow
        return {key: map_tree(here, value) for key, value in tree.items()}

    def _report(self, info: dict[str, Tensor]) -> None:
        told = [key for key in info if key != RAW_REWARD]  # which is the episodes' own
        if told:
            values = torch.stack([info[key] for key in told]).float().mean(1)
            self.reports.add_row(values, tuple(f"{REPORTED}{key}" for key in told), group="step")

    def read(self) -> dict[str, float]:
        """Return what there is to log of the steps since the last call."""
        told = self.reports.drain()
        more = self.environment.more_metrics({key.removeprefix(REPORTED): value for key, value in told.items()})
        return {**self.episodes.read(), **told, **{f"{REPORTED}{key}": value for key, value in more.items()}}

    def state_dict(self) -> dict[str, Any]:
        """Return where every episode stands."""
        paths = {} if self._paths is None else {"paths": self._paths.state_dict()}
        return {
            "environment": self.environment.state_dict(),
            "episodes": self.episodes.state_dict(),
            "reports": self.reports.state_dict(),
            "observation": self._observation,
            "is_first": self._is_first,
            "state": self._state,
            "restarts": self._restarts,
            **paths,
        }

    def load_state_dict(self, state: dict[str, Any], initial_state: Callable[[int], State]) -> str | None:
        """Continue every episode; where the environment can't, begin new ones and say so."""
        self.episodes.load_state_dict(state["episodes"])
        self.reports.load_state_dict(state.get("reports", {}))  # runs of before had none
        if self._paths is not None and "paths" in state:
            self._paths.load_state_dict(_moved(state["paths"], self._device))
        self._restarts, self._carried = state["restarts"], None
        if not self._continue_environment(state["environment"]):
            self._restarts += 1
            self._observation, _ = self.environment.reset(self._seeds("env/restart", self._restarts))
            self._is_first = torch.ones_like(state["is_first"]).to(self.environment.device)
            self.episodes.restart()
            self._state = initial_state(self.environment.num_envs)
            return "this environment's state can't be brought back: new episodes begin, unlike in a run never stopped"
        self._observation = map_tree(self._to_environment, state["observation"])
        self._is_first = self._to_environment(state["is_first"])
        self._state = _moved(state["state"], self._device)
        return None

    def _continue_environment(self, saved: dict[str, Any]) -> bool:
        """Restore the environment if its state was captured and still leads where it did."""
        if not saved:
            return False
        try:
            self.environment.load_state_dict(saved)
        except RewindError:
            return False
        return True

    def _seeds(self, *purpose: object) -> list[int]:
        return [derive_seed(self._streams.root, *purpose, i) for i in range(self.environment.num_envs)]

    def _to_workflow(self, tensor: Tensor) -> Tensor:
        if self._device.type == "cuda" and tensor.device.type == "cpu" and tensor.nbytes >= WORTH_PINNING:
            tensor = tensor.pin_memory()  # in memory that torch keeps and reuses; the copy then waits for nobody
        return tensor.to(self._device, non_blocking=True)

    def _to_environment(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.environment.device, copy=True)


def _moved(state: State, device: torch.device) -> State:
    if isinstance(state, dict):
        return {key: _moved(value, device) for key, value in state.items()}
    return state.to(device) if isinstance(state, Tensor) else state


def _unchanged(tensor: Tensor) -> Tensor:
    return tensor
