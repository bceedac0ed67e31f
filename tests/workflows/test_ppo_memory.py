"""PPO with networks that remember: states are carried, stored, reset, bootstrapped from and never mixed up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.components.networks.memory import Memory, MemoryNetwork
from etude.components.networks.mlp import MLPConfig
from etude.components.networks.recurrent import GRUConfig, LSTMConfig
from etude.components.networks.transformer import TransformerConfig
from etude.config.compose import compose
from etude.config.schema import Config
from etude.environments.gymnasium import GymnasiumVector
from etude.errors import ConfigError, UserError
from etude.orchestration.evaluator import evaluate_episodes
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly
from etude.training.remarks import remarks
from etude.workflows.base import Phase
from etude.workflows.ppo_memory import RolloutMemory, outputs_of_sequences
from tests.runs_compared import assert_same_state, train
from tests.workflows.test_ppo import Masked
from tests.workflows.tiny_runs import Counting, copied, ppo_config, ppo_of, start, state_of

PHASE = Phase("train")
NETWORKS: dict[str, Any] = {
    "gru": GRUConfig(hidden_dims=(8,), memory_size=8),
    "lstm": LSTMConfig(hidden_dims=(8,), memory_size=8),
    "transformer": TransformerConfig(window=6, width=8, heads=2, layers=2),
}


def remembering(config: Config, actor: Any, critic: Any | None = None) -> Config:
    return replace(config, network={"actor": actor, "critic": critic or actor})


class Age(MemoryNetwork):
    """Counts the steps of its episode and says so."""

    def initial_state(self, n: int) -> Memory:
        return torch.zeros(n, 1)

    def forward(self, observation: Any, state: Any, is_first: torch.Tensor) -> tuple[torch.Tensor, Memory]:
        state = state * ~is_first[:, None] + 1
        return state, state


# ---- states ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_learnt_from_is_what_acted(name: str) -> None:
    """Unrolled from the stored start, the actor says of every step what it said then: ratios begin at 1, in every rollout."""
    run = start(remembering(ppo_config("CartPole-v1"), NETWORKS[name]))
    workflow = ppo_of(run)
    seen_amid_an_episode = False
    for _ in range(4):
        run.workflow.collect(PHASE, 16)
        columns = run.buffers["rollout"].columns
        seen_amid_an_episode |= bool((~columns["is_first"][0]).any() and columns["is_first"][1:].any())
        batch = workflow._prepare(columns)
        with torch.no_grad():
            outputs = outputs_of_sequences(workflow.actor, batch, "actor")
            now = workflow.head(outputs).log_prob(batch["sample"])
        torch.testing.assert_close(now, batch["log_prob"], rtol=0, atol=1e-5)
        run.workflow.update(PHASE, 1)
    assert seen_amid_an_episode


def test_without_the_stored_start_it_would_not_be() -> None:
    run = start(remembering(ppo_config("CartPole-v1"), NETWORKS["gru"]))
    workflow = ppo_of(run)
    for parameter in workflow.actor.parameters():  # a policy that begins near uniform would hide it
        parameter.data.mul_(3.0)
    run.workflow.collect(PHASE, 16)
    run.workflow.update(PHASE, 1)
    run.workflow.collect(PHASE, 16)
    batch = workflow._prepare(run.buffers["rollout"].columns)
    batch["actor_state"] = torch.zeros_like(batch["actor_state"])
    with torch.no_grad():
        now = workflow.head(outputs_of_sequences(workflow.actor, batch, "actor")).log_prob(batch["sample"])
    assert (now - batch["log_prob"]).abs().max() > 1e-4


def test_where_an_episode_is_cut_the_memory_is_that_of_its_end() -> None:
    """A critic that counts: the value of where a step led is one more than the step's own, at a time limit too."""
    T, N = 7, 2
    is_first = torch.zeros(T, N, dtype=torch.bool)
    is_first[3, 0] = True
    critic = Age()
    memory = RolloutMemory({"actor": torch.nn.Identity(), "critic": critic}, N)
    memory.start["critic"] = torch.tensor([[10.0], [20.0]])
    nothing = torch.zeros(N * T, 1)
    values, next_values = memory.values(nothing, nothing, is_first)
    assert values[:, 0].tolist() == [11, 12, 13, 1, 2, 3, 4]
    assert next_values[:, 0].tolist() == [12, 13, 14, 2, 3, 4, 5]
    assert next_values[:, 1].tolist() == [22, 23, 24, 25, 26, 27, 28]
    memory.go_on()
    assert memory.start["critic"].flatten().tolist() == [4, 27]


@pytest.mark.parametrize("terminates", [False, True], ids=["time limit", "termination"])
def test_a_time_limit_is_bootstrapped_and_a_termination_is_not(terminates: bool) -> None:
    """Episodes of 4 steps, reward 1, a critic whose value is the age: the target of each step is 1 and the age it led to."""
    config = remembering(ppo_config(gamma=1.0, gae_lambda=0.0, normalize_advantages="off"), NETWORKS["gru"])
    run = start(config, Counting(4, 4, terminates=terminates, shows_age=False))
    workflow = ppo_of(run)
    workflow.critic = Age()
    workflow._memory = RolloutMemory({"actor": workflow.actor, "critic": workflow.critic}, 4)
    run.workflow.collect(PHASE, 16)
    batch = workflow._prepare(run.buffers["rollout"].columns)
    assert batch["values"][0].tolist() == [1, 2, 3, 4] * 4
    assert batch["returns"][0].tolist() == [3, 4, 5, 1 if terminates else 6] * 4


def test_resuming_amid_a_rollout_keeps_what_it_began_with() -> None:
    config = remembering(ppo_config("CartPole-v1"), NETWORKS["lstm"], NETWORKS["gru"])
    whole, cut = start(config), start(config)
    for run in (whole, cut):
        run.workflow.collect(PHASE, 16)
        run.workflow.update(PHASE, 1)
        run.workflow.collect(PHASE, 5)
    saved = copied(cut.state_dict())
    resumed = assembly.build(config)
    assert resumed.load_state_dict(saved) == []
    for run in (whole, resumed):
        run.workflow.collect(PHASE, 11)
        run.workflow.update(PHASE, 1)
        run.workflow.collect(PHASE, 3)
    assert_same_state(state_of(whole), state_of(resumed))


# ---- combinations ---------------------------------------------------------------------------------------------------


def trained(run: Orchestrator, rollouts: int = 3) -> None:
    for _ in range(rollouts):
        run.workflow.collect(PHASE, 16)
        run.workflow.update(PHASE, 1)
        row = run.workflow.metrics.drain()
        assert all(np.isfinite(value) for value in row.values())
        assert row["train/approx_kl"] < 0.05
    assert all(torch.isfinite(p).all() for p in ppo_of(run).actor.parameters())


@pytest.mark.parametrize("mode", ["off", "rolling"])
@pytest.mark.parametrize("name", NETWORKS)
def test_masks_memory_and_dict_observations_work_together(name: str, mode: str) -> None:
    for space in (spaces.Discrete(5), spaces.MultiDiscrete([2, 3])):
        environment = GymnasiumVector(lambda space=space: Masked(space, 5), 4)
        config = remembering(ppo_config(env={"normalize_observations": mode}), NETWORKS[name])
        run = start(config, environment)
        trained(run)
        result = evaluate_episodes(run.workflow.policy(), environment, 8, mode="greedy", seed=0)
        assert len(result.returns) == 8


@pytest.mark.parametrize("roles", [("gru", "mlp"), ("mlp", "transformer"), ("lstm", "gru")], ids=str)
def test_actor_and_critic_remember_each_for_itself_or_not_at_all(roles: tuple[str, str]) -> None:
    networks = {**NETWORKS, "mlp": MLPConfig(hidden_dims=(8,))}
    run = start(remembering(ppo_config("Pendulum-v1"), networks[roles[0]], networks[roles[1]]))
    before = [copied(dict(part.state_dict())) for part in (ppo_of(run).actor, ppo_of(run).critic)]
    trained(run)
    for old, part in zip(before, (ppo_of(run).actor, ppo_of(run).critic), strict=True):
        assert any(not torch.equal(old[name], value) for name, value in part.state_dict().items())
    assert (run.workflow.initial_state(2) is None) == (roles[0] == "mlp")


def test_the_policy_carries_the_state_and_forgets_at_an_episodes_end() -> None:
    run = start(remembering(ppo_config("CartPole-v1"), NETWORKS["gru"]))
    policy, actor = run.workflow.policy(), ppo_of(run).actor
    seen = torch.randn(9, 3, 4, generator=torch.Generator().manual_seed(0))
    first = torch.zeros(9, 3, dtype=torch.bool)
    first[[0, 4]] = True
    state, actions = policy.initial_state(3), []
    with torch.no_grad():
        for t in range(9):
            result = policy.act(seen[t], state, first[t], mode="greedy", generator=torch.Generator())
            actions.append(result.action)
            state = result.state
        outputs, _ = actor.unroll(seen, actor.initial_state(3), first)  # type: ignore[operator]
    assert torch.equal(torch.stack(actions), outputs.argmax(-1))
    assert policy.initial_state(3) is not None


# ---- settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("batch_size", "near"), [("48", 64), ("16", 32), ("96", 128), ("0.3", 128), ("5000", 256), ("1.0", None), ("0.5", None)]
)
def test_a_batch_is_made_of_whole_rollouts(batch_size: str, near: int | None) -> None:
    words = ["network.actor=gru", "algorithm.rollout_steps=32", f"algorithm.batch_size={batch_size}"]
    if near is None:
        assert compose("CartPole-v1:ppo", words=words)
        return
    with pytest.raises(
        ConfigError, match=rf"algorithm.batch_size={batch_size}: networks with memory.*of 32 steps.*; {near} is"
    ):
        compose("CartPole-v1:ppo", words=words)


def test_an_algorithm_without_sequences_refuses_memory_by_name() -> None:
    config = assembly.resolve(compose("Pendulum-v1:sac", words=["network.actor=gru", "experiment.device=cpu"]).config)
    with pytest.raises(UserError, match=r"network.actor.type=gru: this network has memory, and sac looks at one"):
        assembly.build_workflow(config, spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,)))


def test_compiling_what_cannot_be_compiled_is_said_and_left() -> None:
    words = ["network.actor=gru", "network.critic=lstm", "experiment.device=cpu"]
    asked = assembly.resolve(compose("CartPole-v1:ppo", words=[*words, "experiment.compile=on"]).config)
    (note,) = remarks(asked, asked)
    assert note.startswith("experiment.compile=on is ignored: memory (gru, lstm) would be compiled unrolled")
    assert note.endswith("; updates are eager")
    left_alone = assembly.resolve(compose("CartPole-v1:ppo", words=[*words, "training.total_steps=100_000_000"]).config)
    assert remarks(left_alone, left_alone) == []
    assert left_alone.experiment.compile == "off"
    assert ppo_of(start(asked))._executor.mode == "eager"


def test_a_network_of_ones_own_that_remembers_trains(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """
import torch
from etude.components.networks.memory import MemoryNetwork, forget

class Averaging(MemoryNetwork):
    def __init__(self, observation_space, output_size, rate=0.1):
        super().__init__()
        self.rate, self.size = rate, observation_space.shape[0]
        self.layer = torch.nn.Linear(2 * self.size, output_size)

    def initial_state(self, n):
        return {"mean": torch.zeros(n, self.size)}

    def forward(self, observation, state, is_first):
        mean = forget(state["mean"], is_first) * (1 - self.rate) + self.rate * observation
        return self.layer(torch.cat([observation, mean], -1)), {"mean": mean}
"""
    (tmp_path / "averaging.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    words = ("network.actor={type: averaging.Averaging, rate: 0.3}", "training.total_steps=512", "evaluation.episodes=1")
    run = train("CartPole-v1:ppo", tmp_path / "runs", *words)
    assert run.status == "finished"


@pytest.mark.parametrize("name", NETWORKS)
def test_values_are_those_of_the_first_step_of_an_episode(name: str) -> None:
    run = start(remembering(ppo_config("CartPole-v1"), NETWORKS[name]))
    workflow = ppo_of(run)
    observation = torch.randn(5, 4)
    first, _ = workflow.critic(observation, workflow.critic.initial_state(5), torch.ones(5, dtype=torch.bool))  # type: ignore[operator] # it remembers
    assert torch.equal(workflow.values(observation), first.detach().squeeze(-1))
