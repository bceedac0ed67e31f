"""How DQN acts: epsilon, the warm-up, masks, and that evaluating takes no random actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.components.networks.mlp import HostMLP
from etude.errors import UserError
from etude.training import assembly
from tests.workflows.dqn_runs import ACTIONS, DISTRIBUTIONS, build, config, dqn_of, learner, masked_observation, stir


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def act(workflow: Any, observation: Any, mode: str, seed: int = 0) -> torch.Tensor:
    first = torch.zeros(len(next(iter(observation.values())) if isinstance(observation, dict) else observation)).bool()
    return workflow.act(observation, None, first, mode=mode, generator=generator(seed)).action


@pytest.mark.parametrize("chunk", [1, 5, 200])
def test_epsilon_follows_the_environment_steps_however_they_are_collected(chunk: int) -> None:
    """From 0.9 to 0.2 over steps 100 to 300, of two environments."""
    words = ("algorithm.epsilon={start: 0.9, end: 0.2, start_at: 100, end_at: 300}", f"algorithm.train_every={chunk}")
    orchestrator = build(*words)
    workflow, seen = dqn_of(orchestrator), []
    original = workflow.advance

    def watched(rows: int) -> None:
        original(rows)
        seen.append(workflow._share.value)

    workflow.advance = watched  # type: ignore[method-assign] # of this run alone
    while orchestrator._run_cycle():
        pass
    steps = range(0, 400, 2)
    line = [0.9 if s < 100 else 0.2 if s > 300 else 0.9 - 0.7 * (s - 100) / 200 for s in steps]
    assert seen == pytest.approx(line)
    # What a row says is read where its cycle began: of one cycle of 400 steps, at the start.
    assert workflow.hyper_parameters()["epsilon"] == pytest.approx(0.9 if chunk == 200 else 0.2, abs=0.02)


def test_the_share_of_random_actions_is_epsilon() -> None:
    workflow = learner("algorithm.epsilon=0.3", "algorithm.learning_starts=0", space=spaces.Box(-1, 1, (3,)))
    observation = torch.randn(1, 3, generator=generator()).expand(4000, 3).contiguous()
    greedy = act(workflow, observation, "greedy")[0]
    taken = act(workflow, observation, "explore")
    assert (taken == greedy).float().mean().item() == pytest.approx(0.7 + 0.3 / ACTIONS, abs=0.03)
    others = torch.bincount(taken, minlength=ACTIONS)[[a for a in range(ACTIONS) if a != greedy]] / 4000
    assert others.tolist() == pytest.approx([0.3 / ACTIONS] * 3, abs=0.03)


def test_exactly_so_many_random_actions_come_before_the_first_update() -> None:
    orchestrator = build("algorithm.epsilon=0", "algorithm.train_every=1")
    workflow, asked = dqn_of(orchestrator), []
    original = workflow._policy.values_on_host

    def watched(observation: Any) -> np.ndarray:
        asked.append(len(observation))
        return original(observation)

    workflow._policy.values_on_host = watched  # type: ignore[method-assign] # of this run alone
    while orchestrator._run_cycle():
        if orchestrator.counters.updates == 2:
            assert orchestrator.counters.env_steps == 40
            assert not asked
    assert sum(asked) == 400 - 40
    assert orchestrator.counters.updates == 2 * (1 + (400 - 40) // 2)


@pytest.mark.parametrize("kind", DISTRIBUTIONS)
@pytest.mark.parametrize("dueling", [True, False])
def test_evaluating_takes_the_best_allowed_action_and_draws_nothing(kind: str, dueling: bool) -> None:
    workflow = learner(*DISTRIBUTIONS[kind], f"algorithm.dueling={dueling}", "algorithm.epsilon=1")
    stir(workflow)
    observation = masked_observation(64)
    with torch.no_grad():
        values = workflow.q.values(workflow.q(observation))
    expected = [
        max((v, a) for a, v in enumerate(row) if m[a])[1]
        for row, m in zip(values.tolist(), observation["action_mask"], strict=True)
    ]
    for mode in ("greedy", "sample"):
        stream = generator(1)
        taken = workflow.policy().act(observation, None, torch.zeros(64).bool(), mode=mode, generator=stream).action
        assert taken.tolist() == expected
        assert torch.equal(stream.get_state(), generator(1).get_state())
    assert not workflow.policy().stochastic
    torch.testing.assert_close(workflow.values(observation), values[torch.arange(64), expected])


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_exploring_never_takes_what_a_mask_forbids(epsilon: float) -> None:
    workflow = learner(f"algorithm.epsilon={epsilon}", "algorithm.learning_starts=0")
    observation = masked_observation(500)
    taken = act(workflow, observation, "explore")
    assert observation["action_mask"][torch.arange(500), taken].all()
    if epsilon == 1:
        alone = observation["action_mask"].sum(-1) > 1
        assert len(set(taken[alone].tolist())) == ACTIONS


def test_small_networks_act_by_their_numpy_twin() -> None:
    workflow = learner(space=spaces.Box(-1, 1, (3,)))
    assert isinstance(workflow._policy._forward, HostMLP)
    observation = torch.randn(9, 3, generator=generator())
    with torch.no_grad():
        torch.testing.assert_close(workflow._policy.values(observation), workflow.q.values(workflow.q(observation)))


def test_a_saved_policy_acts_like_the_one_it_was_saved_from() -> None:
    words = ("algorithm.dueling=true", *DISTRIBUTIONS["quantile"])
    workflow, other = learner(*words), learner(*words, "experiment.seed=2")
    stir(workflow)
    observation = masked_observation(200)
    assert not torch.equal(act(other, observation, "greedy"), act(workflow, observation, "greedy"))
    other.policy().load_state_dict(workflow.policy().state_dict())
    assert torch.equal(act(other, observation, "greedy"), act(workflow, observation, "greedy"))


def test_what_it_can_not_do_is_said() -> None:
    with pytest.raises(UserError, match="must be Discrete, not Box"):
        assembly.build(config(spec="Pendulum-v1:dqn"))
    with pytest.raises(UserError, match=r"algorithm.v_max=-20: must be above algorithm.v_min=-10"):
        build("algorithm.distribution=categorical", "algorithm.v_max=-20")
    with pytest.raises(UserError, match="replays old observations"):
        build("environment.normalize_observations=rolling")
