"""Training, evaluating and playing take the same steps: the same seeds lead to the same episodes in all three."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

from etude.acting.actor import Actor
from etude.acting.policy import Policy
from etude.buffers.rollout import RolloutBuffer
from etude.compute.random_streams import RandomStreams, derive_seed
from etude.config.compose import compose
from etude.config.schema import Config
from etude.environments.make import make_environment
from etude.environments.vector import Step, VectorEnvironment
from etude.orchestration.evaluator import evaluate_episodes
from etude.orchestration.player import Player
from etude.training import assembly
from etude.using.play import PLAY_SEEDS, play_episodes
from etude.workflows.base import Phase, Workflow
from etude.workflows.collector import Collector

ROOT, STEPS, LIMIT = 5, 120, 15
SHORT = f"environment.max_episode_steps={LIMIT}"
FRAMES = ("environment.wrappers=[stack, {id: time_limit, steps: 15}]", "environment.backend=gymnasium")
HISTORY = "environment.wrappers=[{id: history, count: 3}]"
PPO = ("algorithm.rollout_steps=32", "algorithm.batch_size=32")
REPLAY = ("algorithm.learning_starts=16", "buffers.replay.capacity=1000", "algorithm.batch_size=16")


class Case(NamedTuple):
    spec: str
    words: tuple[str, ...]
    mode: Literal["sample", "greedy"] = "sample"
    """How all three act; where training explores in a way of its own, only the most likely action can be compared."""


CASES = {
    "ppo, Gymnasium's class": Case("CartPole-v1:ppo", ("environment.backend=gymnasium", *PPO)),
    "ppo, native": Case("CartPole-v1:ppo", PPO),
    "ppo, frames and a time limit": Case("CartPole-v1:ppo", (*FRAMES, *PPO)),
    "ppo, frames around a native class": Case("CartPole-v1:ppo", (HISTORY, SHORT, *PPO)),
    "ppo, the most likely action": Case("CartPole-v1:ppo", PPO, "greedy"),
    "ppo, normalised": Case(
        "Pendulum-v1:ppo",
        ("environment.normalize_observations=rolling", "environment.normalize_rewards=true", SHORT, *PPO),
    ),
    "ppo, gru": Case(
        "CartPoleNoVelocity-v0:ppo", ("network.actor.type=gru", "network.critic.type=gru", SHORT, *PPO)
    ),
    "ppo, transformer": Case(
        "CartPole-v1:ppo", ("network.actor.type=transformer", "network.critic.type=transformer", SHORT, *PPO)
    ),
    "a2c": Case("CartPole-v1:a2c", ("environment.backend=gymnasium",)),
    "reinforce": Case("CartPole-v1:reinforce", (SHORT,)),
    "random": Case("Pendulum-v1:random", (SHORT,)),
    "sac": Case("Pendulum-v1:sac", (*REPLAY, SHORT)),
    "td3": Case("Pendulum-v1:td3", (*REPLAY, SHORT), "greedy"),
    "dqn": Case("CartPole-v1:dqn", REPLAY, "greedy"),
    "dqn, frames": Case("CartPole-v1:dqn", (*FRAMES, *REPLAY), "greedy"),
    "q_learning": Case("FrozenLake-v1:q_learning", (), "greedy"),
    "robots": Case("quadruped-flat:ppo", (SHORT, *PPO)),
}  # fmt: skip


@dataclass
class Learnt:
    """An algorithm that has learnt a little, and its policy as it is brought back from a run."""

    config: Config
    workflow: Workflow
    policy: Policy
    mode: Literal["sample", "greedy"]

    def make(self, num_envs: int) -> VectorEnvironment:
        return make_environment(self.config.environment, num_envs=num_envs)

    def collect(self, num_envs: int, root: int, steps: int) -> dict[str, Any]:
        """What training's collector gathers from fresh episodes, by column, (T, N, ...)."""
        streams = RandomStreams(root)
        collector = Collector(self.make(num_envs), streams, torch.device("cpu"))
        actor = Actor(self.workflow, "explore" if self.mode == "sample" else self.mode, streams["action"])
        collector.start(actor.initial_state)
        rows = RolloutBuffer(steps)
        collector.collect(actor, rows, steps)
        collector.environment.close()
        return rows.columns


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def learnt(request: pytest.FixtureRequest) -> Iterator[Learnt]:
    case: Case = request.param
    config = assembly.resolve(
        compose(case.spec, words=("environment.num_envs=2", "experiment.compile=off", *case.words)).config
    )
    if case.spec.startswith("quadruped"):
        pytest.importorskip("mujoco")
    run = assembly.build(config)
    phase = Phase("train", total_steps=config.training.total_steps)
    assert run.collector is not None
    run.collector.start(run.workflow.initial_state)
    for _ in range(30):  # whoever learns from whole episodes needs some
        run.workflow.collect(phase, 32)
        if run.workflow.update(phase, 4).updates:
            break
    else:
        assert case.spec.endswith(":random")
    environment = make_environment(config.environment, num_envs=1)
    policy = assembly.build_policy(config, run.workflow.policy().state_dict(), environment)
    yield Learnt(config, run.workflow, policy, case.mode)
    environment.close()
    run.close()


class Recording:
    """An environment that notes what is done in it."""

    def __init__(self, environment: VectorEnvironment) -> None:
        self._environment = environment
        self.steps: list[dict[str, Tensor]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def step(self, action: Tensor) -> Step:
        step = self._environment.step(action)
        row = {"action": action, "reward": step.reward, "terminated": step.terminated, "truncated": step.truncated}
        self.steps.append({name: value.clone() for name, value in row.items()})
        return step


def test_evaluation_takes_the_training_collectors_path(learnt: Learnt) -> None:
    copies = 3
    environment: Any = Recording(learnt.make(copies))
    measured = evaluate_episodes(learnt.policy, environment, 2 * copies, mode=learnt.mode, seed=ROOT)
    environment.close()
    count = len(environment.steps)
    rows = learnt.collect(copies, ROOT, count)
    for name in ("action", "reward", "terminated", "truncated"):
        evaluated = torch.stack([step[name] for step in environment.steps])
        assert torch.equal(rows[name], evaluated), name
    ended = (rows["terminated"] | rows["truncated"]).numpy()
    lengths = [np.diff([-1, *np.flatnonzero(ended[:, i])])[:2] for i in range(copies)]
    assert measured.lengths.tolist() == np.concatenate(lengths).tolist()
    if learnt.config.environment.max_episode_steps == LIMIT:
        assert measured.lengths.max() == LIMIT or bool(rows["terminated"].any())
        assert longest(ended) <= LIMIT


def test_playing_takes_the_training_collectors_path(learnt: Learnt) -> None:
    rows = learnt.collect(1, ROOT, STEPS)
    player = Player(learnt.policy, learnt.make(1), mode=learnt.mode)
    player.begin(ROOT)
    moments = [player.step() for _ in range(STEPS)]
    player.close()
    assert sum(moment.ended for moment in moments) >= 2
    for ours, theirs in (("next_observation", "next_observation"), *((name, name) for name in SAME)):
        assert_same(rows[ours], [getattr(moment, theirs) for moment in moments], ours)
    for name in moments[0].extras:  # which show a difference that a choice between two actions hides
        assert_same(rows[name], [moment.extras[name] for moment in moments], name)


def test_a_played_episode_is_one_that_training_would_collect(learnt: Learnt) -> None:
    player = Player(learnt.policy, learnt.make(1), mode=learnt.mode)
    episodes = list(play_episodes([player], 2, root_seed=ROOT, keep_paths=True, max_steps=STEPS))
    player.close()
    for number, episode in enumerate(episodes):
        assert episode.path is not None
        rows = learnt.collect(1, derive_seed(ROOT, PLAY_SEEDS, number), episode.length)
        assert_same(rows["observation"], episode.path["observations"], "observations")
        assert_same(rows["action"], episode.path["actions"], "actions")
        assert_same(rows["reward"], episode.path["rewards"], "rewards")
        last = rows["terminated"][-1, 0], rows["truncated"][-1, 0]
        assert episode.ending == ("terminated" if last[0] else "truncated" if last[1] else "max steps")


SAME = ("observation", "action", "reward", "terminated", "truncated")


def assert_same(column: Any, played: Any, name: str) -> None:
    """Compare a column (T, 1, ...), or one for each part, with what was played (T, ...)."""
    if isinstance(column, dict):
        for part, values in column.items():
            ours = played[part] if isinstance(played, dict) else [each[part] for each in played]
            assert_same(values, ours, f"{name}.{part}")
        return
    wanted = column.squeeze(1).numpy()
    given = np.array(played).astype(wanted.dtype)
    assert np.array_equal(wanted, given), name


def longest(ended: np.ndarray) -> int:
    return max(int(np.diff([-1, *np.flatnonzero(ended[:, i])]).max()) for i in range(ended.shape[1]))
