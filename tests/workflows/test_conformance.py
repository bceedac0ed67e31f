"""Every algorithm that comes with Etude passes every check; and the checks can fail."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import Generator, Tensor

from etude.config.registry import algorithms
from etude.environments.vector import Observation
from etude.errors import UserError
from etude.testing import CHECKS, check_workflow
from etude.workflows.a2c import A2C
from etude.workflows.base import ActResult, Context, HookResult, Mode, Phase, State
from tests.datasets.episodes import LEARN_FROM_DATA

SMALL_MODEL = (
    *("algorithm.size=tiny", "algorithm.batch_size=8", "buffers.replay.sequence=8", "buffers.replay.capacity=10000"),
    *("algorithm.learning_starts=128", "algorithm.learning_rate=1e-3", "algorithm.train_ratio=2", "environment.num_envs=4"),
)
DREAMING = ("algorithm.horizon=5", "algorithm.imagination_starts=16")
FASTER = ("algorithm.pretrain_updates=0", "algorithm.actor_learning_rate=1e-3", "algorithm.critic_learning_rate=1e-3")
PLANNING = ("algorithm.horizon=3", "algorithm.samples=16", "algorithm.elites=4", "algorithm.iterations=2")
WORDS: dict[str, tuple[str, ...]] = {
    "a2c": ("algorithm.rollout_steps=8", "algorithm.learning_rate=3e-3", "algorithm.optimizer=adam"),
    "cma_es": ("environment.num_envs=8",),
    "q_learning": ("algorithm.learning_rate=0.2", "environment.num_envs=8"),
    "tdmpc": (
        *("algorithm.size=small", "algorithm.latent_dim=32", "algorithm.horizon=2", "algorithm.batch_size=32"),
        *("algorithm.samples=24", "algorithm.policy_samples=4", "algorithm.elites=6", "algorithm.iterations=2"),
        *("algorithm.learning_starts=128", "algorithm.pretrain=16", "algorithm.updates_per_decision=0.25"),
        *("algorithm.learning_rate=3e-3", "algorithm.tau=0.05", "network.critic.dropout=0", "environment.num_envs=8"),
        *(f"network.{role}.hidden_dims=[32]" for role in ("encoder", "dynamics", "reward", "critic", "actor")),
    ),
    "world_models": (
        *("algorithm.latent_dim=4", "algorithm.memory_size=8", "algorithm.mixtures=2", "network.vae.hidden_dims=[16]"),
        *("algorithm.collect_steps=128", "algorithm.batch_size=16", "algorithm.memory_batch_size=4"),
        *("algorithm.vae_updates=20", "algorithm.memory_updates=20", "algorithm.vae_learning_rate=3e-3"),
        *("algorithm.population=4", "algorithm.episodes=2", "algorithm.sigma=0.5", "buffers.replay.sequence=4"),
        *("buffers.replay.capacity=2000", "environment.num_envs=4"),
    ),
    "flash_sac": (
        *("algorithm.learning_rate=3e-3", "algorithm.batch_size=64", "algorithm.learning_starts=128", "algorithm.tau=0.05"),
        *("algorithm.initial_temperature=0.001", "algorithm.temperature_learning_rate=1e-9", "algorithm.atoms=51"),
        *("network.actor={width: 16, blocks: 1, expansion: 2}", "network.critic={width: 32, blocks: 1, expansion: 2}"),
    ),
    "dreamer": (*SMALL_MODEL, *DREAMING),
    "dreamer_v1": (*SMALL_MODEL, *DREAMING, *FASTER),
    "dreamer_v2": (*SMALL_MODEL, *DREAMING, *FASTER),
    "planet": (*SMALL_MODEL, *PLANNING, "algorithm.pretrain_updates=0"),
}
MORE_WORDS = {  # entropy counts as reward: so little of it that values are those of the rewards
    "sac": ("algorithm.temperature=0.01",),
    "tqc": ("algorithm.temperature=0.01",),
    "sql": ("algorithm.reward_scale=100",),
}
TO_LEARN = {
    **dict.fromkeys(("dreamer", "dreamer_v1", "dreamer_v2", "planet"), ("algorithm.train_ratio=16",)),
    "world_models": (
        *("algorithm.collect_steps=512", "algorithm.vae_updates=1000", "algorithm.latent_dim=8", "algorithm.memory=off"),
        *("algorithm.population=16", "algorithm.episodes=3", "environment.num_envs=16"),
    ),
}
"""What else an algorithm needs where it must learn something, and would be slow where it need not."""
LEARNING = ("time_limit", "termination", "next_observation", "action_now", "action_later")
SHORT = {
    "rollout_steps": "16",
    "learning_starts": "128",
    "batch_size": "64",
    "epochs": "8",
    "learning_rate": "1e-2",
    "tau": "0.05",
    "target_every": "1",
    "train_every": "1",
}
"""What makes an algorithm without words of its own quick on tasks this small, where it has such settings."""
SELDOM = {"train_every": "8", "batch_size": "16", "train_ratio": "1"}
"""Where nothing is to be learnt, a few updates tell whether they are exact."""
RELATED = {
    "ppo_student": {*CHECKS},
    **dict.fromkeys(("dreamer_v1", "dreamer_v2"), {*CHECKS} - {"resume", "policy"}),
    # Two runs with one seed are compared by `resume` as well.
    **{name: {"same_seed"} for name in ("planet", "tdmpc", "world_models", "tqc", "td3", "sql")},
}
"""What is left to the slow tests: most of the code under it is that of an algorithm which is checked in every suite."""
MUST_NOT_SKIP = {
    "ppo": {*CHECKS} - {"hidden_state"},
    "a2c": {*CHECKS} - {"hidden_state"},
    "reinforce": {*CHECKS} - {"hidden_state", "time_limit", "termination", "next_observation"},
    "q_learning": {*CHECKS} - {"hidden_state", "action_mask"},
    "cma_es": {*CHECKS} - {"hidden_state", "time_limit", "termination", "next_observation", "endings"},
    **dict.fromkeys(("dqn", "sac"), {*CHECKS} - {"hidden_state"}),
    # Values of its states depend on what came before, not on an observation alone: `test_dreamer.py` looks at these.
    **dict.fromkeys(
        ("dreamer", "dreamer_v1", "dreamer_v2"), {*CHECKS} - {"action_mask", "time_limit", "termination", "next_observation"}
    ),
    "planet": {*CHECKS} - {"action_mask", "time_limit", "termination", "next_observation"},
    # It has no values: a controller is judged by its returns alone.
    "world_models": {*CHECKS} - {"action_mask", "time_limit", "termination", "next_observation"},
    **dict.fromkeys(("td3", "tqc", "sql", "flash_sac"), {*CHECKS} - {"hidden_state", "action_mask"}),
    "tdmpc": {*CHECKS} - {"action_mask"},
    "random": {"endings", "action_mask", "chunk_law", "same_seed", "resume", "policy"},
}


def words_for(name: str) -> tuple[str, ...]:
    if name in WORDS:
        return WORDS[name]
    workflow = algorithms.resolve(name)
    own = {field.name for field in fields(workflow.Config)}
    # What learns from a replay buffer takes many more steps, and can't take such big ones.
    values = {**SHORT, "learning_rate": "3e-3"} if "learning_starts" in own else SHORT
    settings = [f"algorithm.{key}={value}" for key, value in values.items() if key in own]
    small = [f"network.{role}.hidden_dims=[32,32]" for role in workflow.default_networks()]
    return (*settings, *small, *MORE_WORDS.get(name, ()))


def replays(name: str) -> bool:
    return any(field.name == "learning_starts" for field in fields(algorithms.resolve(name).Config))


def seldom(name: str) -> tuple[str, ...]:
    own = {field.name for field in fields(algorithms.resolve(name).Config)} if replays(name) else set()
    return tuple(f"algorithm.{key}={value}" for key, value in SELDOM.items() if key in own)


def pairs() -> list[Any]:
    """Every algorithm with every check; seconds of learning from a replay buffer and relatives are left to the slow tests.

    What learns from a dataset has nothing to learn of a task: `test_offline.py` and `test_diffusion_policy.py` look at it. What
    needs a motion to be like has none here: `test_ppo_amp.py`.
    """
    found = []
    for name in algorithms.builtin_names():
        if name in LEARN_FROM_DATA or name == "ppo_amp":
            continue
        for check in CHECKS:
            is_slow = ((replays(name) or name in TO_LEARN) and check in LEARNING) or check in RELATED.get(name, ())
            found.append(pytest.param(name, check, marks=[pytest.mark.slow] if is_slow else []))
    return found


@pytest.mark.parametrize(("algorithm", "check"), pairs())
def test_the_algorithm_passes(algorithm: str, check: str) -> None:
    more = TO_LEARN.get(algorithm, ()) if check in LEARNING else seldom(algorithm)
    report = check_workflow(algorithm, (*words_for(algorithm), *more), only=[check])
    report.raise_if_failed()
    if report[check].status == "skipped":
        assert check not in MUST_NOT_SKIP.get(algorithm, ()), report[check].detail
        pytest.skip(report[check].detail)


@pytest.mark.parametrize("check", ["time_limit", "termination", "next_observation"])
@pytest.mark.parametrize("algorithm", ["sac", "td3", "tqc", "sql"])
def test_values_of_critics_are_asked_for(algorithm: str, check: str) -> None:
    # Defect 31: skipped, for want of a method. So short that they may fail; whether they pass is a slow test's business.
    small = [f"network.{role}.hidden_dims=[8]" for role in algorithms.resolve(algorithm).default_networks()]
    words = (*words_for(algorithm), "algorithm.batch_size=4", "algorithm.learning_starts=8", *small)
    assert check_workflow(algorithm, words, only=[check], steps=40)[check].status != "skipped"


# ---- and fails, where it is wrong -----------------------------------------------------------------------------------


class LimitsAreEnds(A2C):
    """Takes a time limit for an end."""

    def update(self, phase: Phase, count: int) -> HookResult:
        columns = self.buffer(phase).columns
        if columns:
            columns["terminated"] |= columns["truncated"]
        return super().update(phase, count)


class EndsAreLimits(A2C):
    """Takes an end for a time limit."""

    def update(self, phase: Phase, count: int) -> HookResult:
        columns = self.buffer(phase).columns
        if columns:
            columns["truncated"] |= columns["terminated"]
            columns["terminated"].zero_()
        return super().update(phase, count)


class NextEpisodesObservation(A2C):
    """Bootstraps with what was observed after the reset."""

    def update(self, phase: Phase, count: int) -> HookResult:
        columns = self.buffer(phase).columns
        if columns:
            columns["next_observation"][:-1] = columns["observation"][1:]
        return super().update(phase, count)


class RewardsOneLate(A2C):
    """Credits each action with the reward before its own."""

    def update(self, phase: Phase, count: int) -> HookResult:
        columns = self.buffer(phase).columns
        if columns:
            columns["reward"].copy_(columns["reward"].roll(1, 0))
        return super().update(phase, count)


class CountsCalls(A2C):
    """Does something once a call instead of once a unit."""

    def initialize(self, context: Context) -> None:
        super().initialize(context)
        self.calls = torch.zeros(())

    def collect(self, phase: Phase, count: int) -> HookResult:
        self.calls += 1
        return super().collect(phase, count)


class Forgets(A2C):
    """Keeps a number that no checkpoint knows of."""

    rollouts = 0

    def update(self, phase: Phase, count: int) -> HookResult:
        result = super().update(phase, count)
        self.rollouts += result.updates
        if self.rollouts % 3 == 0:
            with torch.no_grad():
                next(self.actor.parameters()).mul_(0.9)
        return result


class Unseeded(A2C):
    """Draws from a generator that nobody seeded."""

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        own = Generator().manual_seed(int.from_bytes(os.urandom(4)))
        return super().act(observation, state, is_first, mode=mode, generator=own)


class Unmasked(A2C):
    """Looks at everything but the mask."""

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        if isinstance(observation, dict):
            observation = {**observation, "action_mask": torch.ones_like(observation["action_mask"])}
        return super().act(observation, state, is_first, mode=mode, generator=generator)


class HalfAPolicy(A2C):
    """Acts by more than its policy's state holds."""

    turns = 0

    def update(self, phase: Phase, count: int) -> HookResult:
        self.turns += 1
        return super().update(phase, count)

    def policy(self) -> Any:
        policy = super().policy()
        weight = self.actor.layers[-1].bias  # type: ignore[union-attr,operator] # an MLP
        if self.turns:
            policy._on_host = None  # type: ignore[attr-defined]
            policy._forward = lambda seen: self.actor(seen) + torch.tensor([0.0, 1e3]) + 0 * weight  # type: ignore[attr-defined]
        return policy


class Remembers(A2C):
    """Prefers what it did in the steps before, and forgets that at the start of an episode, or doesn't."""

    forgets = True

    def initial_state(self, n: int) -> State:
        return torch.zeros(n, 2)

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        if self.forgets:
            state = state * ~is_first.unsqueeze(-1)
        result = super().act(observation, state, is_first, mode=mode, generator=generator)
        return ActResult(result.action, state + 1.0, result.extras)


class Clings(Remembers):
    """Carries its state into the next episode."""

    forgets = False


class Spreads(Remembers):
    """Lets one environment's start touch all the others."""

    def act(self, observation: Observation, state: State, is_first: Tensor, *, mode: Mode, generator: Generator) -> ActResult:
        state = torch.zeros_like(state) if bool(is_first.any()) else state
        action = (state.sum(-1) > 0).long()
        return ActResult(action, state + 1.0, super().act(observation, state, is_first, mode=mode, generator=generator).extras)


@pytest.fixture
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(algorithms._registered, "broken", request.param)
    return "broken"


@pytest.mark.parametrize(
    ("broken", "check", "says"),
    [
        (LimitsAreEnds, "time_limit", "they should be 10"),
        (EndsAreLimits, "termination", "they should be 4.1, 3.44"),
        (LimitsAreEnds, "next_observation", "they should be 4.5, 5"),
        (NextEpisodesObservation, "next_observation", "they should be 4.5, 5"),
        (RewardsOneLate, "action_now", "of what can be earned"),
        (CountsCalls, "chunk_law", "state.workflow.calls; count units, not calls"),
        (Forgets, "resume", "is all state saved"),
        (Unseeded, "same_seed", "draw from the generators you are given"),
        (Unmasked, "action_mask", "are allowed"),
        (HalfAPolicy, "policy", "is all of it in the state"),
        (Clings, "hidden_state", "still remembers the last episode"),
        (Spreads, "hidden_state", "changes what happens in others"),
    ],
    indirect=["broken"],
)
def test_a_fault_is_found(broken: str, check: str, says: str) -> None:
    report = check_workflow(broken, WORDS["a2c"], only=[check], steps=6_000)
    assert report[check].status == "failed", str(report)
    assert says in report[check].detail
    with pytest.raises(AssertionError, match=f"broken fails 1 of 1 checks\n{check}: .*\n    "):
        report.raise_if_failed()


@pytest.mark.parametrize("check", ["hidden_state", "resume"])
def test_an_actor_with_memory_passes(check: str) -> None:
    memory = ("network.actor={type: gru, hidden_dims: [16]}", "network.critic={type: gru, hidden_dims: [16]}")
    words = ("algorithm.rollout_steps=16", "algorithm.batch_size=0.5", "algorithm.epochs=2", *memory)
    outcome = check_workflow("ppo", words, only=[check])[check]
    assert outcome.status == "passed", outcome.detail


@pytest.mark.parametrize("broken", [Remembers], indirect=True)
def test_a_state_that_is_reset_passes(broken: str) -> None:
    assert check_workflow(broken, WORDS["a2c"], only=["hidden_state"])["hidden_state"].status == "passed"


# ---- the report -----------------------------------------------------------------------------------------------------


def test_the_report_reads_like_a_table() -> None:
    report = check_workflow("random", only=["endings", "hidden_state"])
    assert report.passed
    head, endings, hidden = str(report).splitlines()
    assert head == "random: 1 passed, 1 skipped"
    assert endings.split()[:2] == ["passed", "endings"]
    assert hidden.endswith("its actor keeps no state")


def test_an_unknown_check_or_algorithm_is_one_line() -> None:
    with pytest.raises(UserError, match="there is no check 'resum'; did you mean 'resume'"):
        check_workflow("ppo", only=["resum"])
    with pytest.raises(UserError, match="unknown algorithm 'pp0'"):
        check_workflow("pp0")


@pytest.mark.parametrize("broken", [A2C], indirect=True)
def test_an_exception_of_the_algorithm_is_passed_on_with_where_it_was(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: A2C, phase: Phase, count: int) -> HookResult:
        raise ZeroDivisionError("mine")

    monkeypatch.setattr(A2C, "update", fail)
    with pytest.raises(ZeroDivisionError) as caught:
        check_workflow(broken, only=["same_seed"])
    assert "during the check 'same_seed' of 'broken'" in caught.value.__notes__[0]
