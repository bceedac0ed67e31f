"""The training environment and where its episodes stand: what a run collects from, and what a resume goes on with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from etude.acting.actor import Actor
from etude.acting.captured_rollout import CapturedRollout
from etude.acting.episodes import EpisodeStatistics
from etude.acting.policy import State
from etude.acting.rollout import Into, Standing, rollout
from etude.acting.transfer import Transfer
from etude.buffers.base import Buffer
from etude.buffers.last_paths import LastPaths
from etude.buffers.rollout import RolloutBuffer
from etude.compute.random_streams import RandomStreams, derive_seed
from etude.compute.trees import map_tree, restored, storable
from etude.compute.world import ALONE, World
from etude.environments.snapshots.rewind import RewindError
from etude.environments.vector import RAW_REWARD, Observation, VectorEnvironment
from etude.workflows.metrics import MetricSums

REPORTED = "collect/"
"""Where what an environment says of its steps is logged."""


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
        self._streams, self._device = streams, device
        self._transfer = Transfer(environment.device, device)
        self._standing: Standing | None = None
        self._whole: CapturedRollout | None = None
        self._restarts = 0

    @property
    def actor_state(self) -> State:
        """What the actor carries into its next step."""
        return self._stands.state

    @property
    def _stands(self) -> Standing:
        assert self._standing is not None, "start() comes first"
        return self._standing

    def last_paths(self, count: int | None = None) -> list[dict[str, Any]]:
        """Return the last whole episodes that training.keep_paths keeps, the newest last; reads the device."""
        return [] if self._paths is None else self._paths.read(count)

    def start(self, initial_state: Callable[[int], State]) -> Observation:
        """Begin the first episodes, and return how."""
        self._begin(self._seeds("env"), initial_state)
        return self._stands.observation

    @property
    def restarts(self) -> int:
        """How often a resume has lost the episodes under way, and begun new ones."""
        return self._restarts

    def begin_anew(self, seeds: Sequence[int], initial_state: Callable[[int], State]) -> None:
        """Begin new episodes in all copies, copy i with `seeds[i]`; those under way end nowhere and count for nothing."""
        self._begin(list(seeds), initial_state)
        self.episodes.restart()

    def collect(self, actor: Actor, buffer: Buffer, count: int) -> int:
        """Take up to `count` vector steps, fewer if the buffer is full, and return the decisions made."""
        steps = count if buffer.room is None else min(count, buffer.room)
        if (whole := self._captured(actor, buffer)) is not None:
            whole.take(self._stands, steps)
            self.environment.check()
            return steps * self.environment.num_envs
        return self.take(actor, buffer.add, steps, takes_arrays=buffer.takes_arrays)

    def _captured(self, actor: Actor, buffer: Buffer) -> CapturedRollout | None:
        """Return what takes whole rollouts as graphs, once there are columns: those of a run's first rollout, or of a save."""
        if self._paths is not None or not isinstance(buffer, RolloutBuffer):
            return None
        if not CapturedRollout.fits(self.environment, actor, buffer):
            return None
        known = self._whole
        if known is None or known.actor is not actor or known.buffer is not buffer:
            known = self._whole = CapturedRollout(self.environment, actor, buffer, self.episodes)
        return known if buffer.columns and actor.until_change() is None else None

    def take(
        self,
        actor: Actor,
        store: Callable[[Mapping[str, Any]], None],
        steps: int,
        *,
        takes_arrays: bool = False,
        counting: Callable[[], Tensor] | None = None,
    ) -> int:
        """Take vector steps, give each to `store`, which copies what it keeps, and return the decisions made.

        `counting` says after each step whose ends of episodes go into the statistics, (N,); None: everybody's.
        """
        stores = (store,) if self._paths is None else (store, self._paths.add)
        into = Into(stores, self.episodes, self._report, takes_arrays, counting)
        rollout(self.environment, actor, into, self._stands, steps, self._transfer)
        self.environment.check()
        return steps * self.environment.num_envs

    def _report(self, info: dict[str, Tensor]) -> None:
        told = [key for key in info if key != RAW_REWARD]  # which is the episodes' own
        if told:
            values = torch.stack([info[key] for key in told]).float().mean(1)
            self.reports.add_row(values, tuple(f"{REPORTED}{key}" for key in told), group="step")

    def read(self, world: World = ALONE) -> dict[str, float]:
        """Return what there is to log of all ranks' steps since the last call."""
        told = world.mean_of_named(self.reports.drain())
        more = self.environment.more_metrics({key.removeprefix(REPORTED): value for key, value in told.items()})
        return {**self.episodes.read(world), **told, **{f"{REPORTED}{key}": value for key, value in more.items()}}

    def state_dict(self) -> dict[str, Any]:
        """Return where every episode stands."""
        paths, standing = {} if self._paths is None else {"paths": self._paths.state_dict()}, self._standing
        return {
            "environment": self.environment.state_dict(),
            "episodes": self.episodes.state_dict(),
            "reports": self.reports.state_dict(),
            "observation": None if standing is None else standing.observation,
            "is_first": None if standing is None else standing.is_first,
            "state": None if standing is None else storable(standing.state),
            "restarts": self._restarts,
            **paths,
        }

    def load_state_dict(self, state: dict[str, Any], initial_state: Callable[[int], State]) -> str | None:
        """Continue every episode; where the environment can't, begin new ones and say so."""
        self._load_statistics(state)
        self._restarts = state["restarts"]
        if not self._continue_environment(state["environment"]):
            self._restarts += 1
            self._begin(self._seeds("env/restart", self._restarts), initial_state)
            self.episodes.restart()
            return "this environment's state can't be brought back: new episodes begin, unlike in a run never stopped"
        carried = restored(state["state"], self._device, initial_state(self.environment.num_envs))
        observation = map_tree(self._to_environment, state["observation"])
        self._standing = Standing(observation, self._to_environment(state["is_first"]), carried)
        return None

    def _load_statistics(self, state: dict[str, Any]) -> None:
        self.episodes.load_state_dict(state["episodes"])
        self.reports.load_state_dict(state.get("reports", {}))  # runs of before had none
        if self._paths is not None and "paths" in state:
            self._paths.load_state_dict(restored(state["paths"], self._device))

    def _begin(self, seeds: list[int], initial_state: Callable[[int], State]) -> None:
        count = self.environment.num_envs
        observation, _ = self.environment.reset(seeds)
        is_first = torch.ones(count, dtype=torch.bool, device=self.environment.device)
        self._standing = Standing(observation, is_first, initial_state(count))

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
        count, rank = self.environment.num_envs, self._streams.rank
        return [derive_seed(self._streams.root, *purpose, rank * count + i) for i in range(count)]  # by place among all copies

    def _to_environment(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.environment.device, copy=True)
