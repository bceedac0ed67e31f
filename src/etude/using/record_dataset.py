"""Records a policy's episodes as a dataset: demonstrations, or data of whatever quality a checkpoint has.

Episode i begins with a seed that follows from the recording's own and from i. Copies of the environment play rounds of one
episode each, so which actions are drawn depends on nothing else: a recording that was killed and begun again stores the
episodes of one that never was.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from etude import __version__
from etude.acting.actor import Actor
from etude.compute.random_streams import derive_seed, isolated_global_generators
from etude.compute.trees import map_tree
from etude.config.validate import to_plain
from etude.datasets.dataset import Dataset
from etude.datasets.episode import Episode
from etude.datasets.manifest import Manifest, Origin
from etude.datasets.places import folder_of
from etude.datasets.writer import DatasetWriter, writing
from etude.environments.make import make_environment
from etude.environments.space_data import to_data
from etude.environments.vector import Observation, VectorEnvironment
from etude.files.printable import one_line
from etude.orchestration.evaluator import MAX_ENVS
from etude.training import assembly
from etude.using.stored_policy import StoredPolicy

PURPOSE = "dataset"
"""Seeds of recordings are disjoint from those of training and of evaluations."""


def record(
    stored: StoredPolicy,
    name: str,
    root: Path,
    episodes: int,
    *,
    mode: Literal["auto", "greedy", "sample"] = "auto",
    seed: int = 0,
    num_envs: int | None = None,
    description: str = "",
    on_progress: Callable[[int], None] | None = None,
) -> Dataset:
    """Have a dataset of so many episodes of a run's policy: those that are there already are kept."""
    config, checkpoint = stored.config, stored.checkpoint
    way = stored.modes(mode)[0]
    count = num_envs or min(episodes, MAX_ENVS)
    root_seed = derive_seed(config.experiment.seed, PURPOSE, seed)
    with ExitStack() as stack:
        stack.enter_context(isolated_global_generators(root_seed))
        environment = make_environment(config.environment, num_envs=count)
        stack.callback(environment.close)
        policy = stored.build(environment)
        origin = Origin(
            kind="run",
            source=stored.run.id,
            checkpoint=checkpoint.name,
            env_steps=int(checkpoint.counters["env_steps"]),
            algorithm=config.algorithm.name,
            mode=way,
            seed=seed,
            num_envs=count,
            etude=__version__,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        task = to_plain(config.environment)
        for of_this_machine in ("num_envs", "workers", "samplers", "device"):
            task.pop(of_this_machine, None)
        manifest = Manifest(
            to_data(environment.single_observation_space),
            to_data(environment.single_action_space),
            origin,
            task,
            one_line(description),
        )
        device = torch.device(config.experiment.device)
        actor = Actor(policy, way, torch.Generator(device), captured=assembly.acts_captured(config))
        folder = folder_of(name, root)
        writer = stack.enter_context(writing(folder, manifest))
        have = {episode.seed for episode in Dataset(folder, writer.manifest).episodes()}
        for first in range(0, episodes, count):
            wanted = [_seed(root_seed, index) for index in range(first, min(first + count, episodes))]
            if any(each not in have for each in wanted):
                seeds = [_seed(root_seed, index) for index in range(first, first + count)]
                _play_round(actor, environment, seeds, set(wanted) - have, writer, device)
            if on_progress is not None:
                on_progress(min(first + count, episodes))
    return Dataset(folder)


def _seed(root: int, index: int) -> int:
    return derive_seed(root, "env", index)


@torch.no_grad()
def _play_round(
    actor: Actor,
    environment: VectorEnvironment,
    seeds: list[int],
    wanted: set[int],
    writer: DatasetWriter,
    device: torch.device,
) -> None:
    """Play one episode in every copy, and store those that are wanted as they end."""
    actor.generator.manual_seed(derive_seed(seeds[0], "action"))
    count = environment.num_envs
    observation, _ = environment.reset(seeds)
    state = actor.initial_state(count)
    is_first = torch.ones(count, dtype=torch.bool, device=device)
    missing = {copy for copy, seed in enumerate(seeds) if seed in wanted}
    paths = {copy: _Path() for copy in missing}
    while missing:
        seen = map_tree(lambda t: t.to(device), observation)
        here = map_tree(lambda t: t.to("cpu", copy=True), observation)
        action, state, _ = actor(seen, state, is_first)
        done = action.to("cpu", copy=True)
        step = environment.step(action.to(environment.device))
        environment.check()
        reward, terminated = step.reward.to("cpu", copy=True), step.terminated.to("cpu", copy=True)
        ended = terminated | step.truncated.to("cpu")
        for copy in missing:
            paths[copy].add(_of(here, copy), done[copy], reward[copy])
        finished = [copy for copy in sorted(missing) if ended[copy]]
        if finished:
            last = map_tree(lambda t: t.to("cpu", copy=True), step.final_observation)
            writer.add(*(paths[copy].end(_of(last, copy), bool(terminated[copy]), seeds[copy]) for copy in finished))
            missing -= set(finished)
        observation, is_first = step.observation, ended.to(device)


class _Path:
    """One episode as it goes on."""

    def __init__(self) -> None:
        self._rows: list[tuple[Observation, Tensor, Tensor]] = []

    def add(self, observation: Observation, action: Tensor, reward: Tensor) -> None:
        self._rows.append((observation, action, reward))

    def end(self, last: Observation, terminated: bool, seed: int) -> Episode:
        seen: list[Any] = [*(row[0] for row in self._rows), last]
        whole: Any = map_tree(lambda *rows: torch.stack(rows), seen[0], *seen[1:])
        actions, rewards = [row[1] for row in self._rows], [row[2] for row in self._rows]
        return Episode(whole, torch.stack(actions), torch.stack(rewards), terminated, seed)


def _of(observation: Observation, copy: int) -> Observation:
    return {name: part[copy] for name, part in observation.items()} if isinstance(observation, dict) else observation[copy]
