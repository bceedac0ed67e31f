"""TD-MPC2: losses by the book, ends inside windows, how it plans and acts, and that it is the same run however it is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from etude.acting.actor import Actor
from etude.components.networks.normed_mlp import BatchedNormedMLP
from etude.compute.accelerate import has_compiler
from etude.compute.noise import Noise
from etude.config.compose import compose
from etude.deploy.acting_graph import graph_of
from etude.errors import ConfigError, UserError
from etude.orchestration.inspection import bottleneck
from etude.training import assembly
from etude.workflows.tdmpc.config import SIZES
from etude.workflows.tdmpc.policy import BINS
from etude.workflows.tdmpc.tdmpc import TDMPC
from tests.capture_double import no_host_reads, pretend_capture
from tests.runs_compared import assert_same_run, resume, stopped_after, train
from tests.workflows.tdmpc_runs import BOX_ACTIONS, ENDINGS, TINY, build, trained, window_of

# ---- losses -----------------------------------------------------------------------------------------------------------------


def cross_entropy(workflow: Any, logits: Tensor, number: Tensor) -> Tensor:
    return -(workflow.model.two_hot.encode(number) * logits.log_softmax(-1)).sum()


def by_the_book(w: Any, batch: dict[str, Any], drawn: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The model's loss and the policy's, one window and one step at a time; a window is over at its first end."""
    s, mean = w.settings, w.model.two_hot.mean
    model_loss, policy_loss = torch.zeros(()), torch.zeros(())
    rows = len(batch["reward"])

    def policy(z: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        center, raw = w.actor(z).chunk(2, -1)
        log_std = -10 + 6 * (raw.tanh() + 1)
        return (center + log_std.exp() * noise).tanh(), log_std

    def critics(network: Any, z: Tensor, action: Tensor, numbers: Tensor) -> Tensor:
        two = numbers.argsort(descending=True)[:2]
        return mean(network(torch.cat([z, action])))[two]

    scale = torch.stack(
        [critics(w.critic, z0, policy(z0, drawn["action"][b, 0])[0], drawn["critics"]).mean() for b, z0 in
         enumerate(w.encoder(batch["observation"][:, 0]))]
    ).detach()  # fmt: skip
    low, high = (0.01 * torch.quantile(scale, share) for share in (0.05, 0.95))
    divisor = (high - low).clamp(min=1.0)
    for b in range(rows):
        z = w.encoder(batch["observation"][b, 0])
        for t in range(s.horizon):
            action, reward, terminated = batch["sample"][b, t], batch["reward"][b, t], batch["terminated"][b, t]
            if t == 0:
                chosen, log_std = policy(z.detach(), drawn["action"][b, 0])
                value = critics(w.critic, z.detach(), chosen, drawn["critics"]).mean()
                policy_loss -= (value / divisor + s.entropy_coef * w.model.actions * log_std.sum()) / rows / (s.horizon + 1)
            with torch.no_grad():
                led_to = w.encoder(batch["next_observation"][b, t])
                next_action, _ = policy(led_to, drawn["next_action"][b, t])
                future = critics(w.target_critic, led_to, next_action, drawn["target_critics"]).min()
                y = reward + w.model.gamma * future * (0.0 if terminated else 1.0)
            pair, weight = torch.cat([z, action]), s.rho**t / s.horizon / rows
            z = w.dynamics(pair)
            outputs = w.reward(pair)
            of_values = sum(cross_entropy(w, logits, y) for logits in w.critic(pair)) / w.model.critics
            model_loss += weight * s.consistency_coef * (z - led_to).square().mean()
            model_loss += weight * s.reward_coef * cross_entropy(w, outputs[:BINS], reward)
            model_loss += weight * s.value_coef * of_values
            ended = torch.sigmoid(outputs[BINS])
            model_loss -= weight * s.termination_coef * torch.log(ended if terminated else 1 - ended)
            if terminated:
                break
            chosen, log_std = policy(z.detach(), drawn["action"][b, t + 1])
            value = critics(w.critic, z.detach(), chosen, drawn["critics"]).mean()
            gain = value / divisor + s.entropy_coef * w.model.actions * log_std.sum()
            policy_loss -= s.rho ** (t + 1) * gain / rows / (s.horizon + 1)
            if batch["truncated"][b, t]:
                break
    return model_loss, policy_loss


def test_losses_agree_with_a_loop_over_windows_and_steps() -> None:
    orchestrator = build(ENDINGS, BOX_ACTIONS, "algorithm.critics=4", "network.critic.dropout=0", "algorithm.horizon=4")
    w = trained(orchestrator, 30)
    batch = window_of(orchestrator, 12)
    ended = batch["terminated"][:, :-1] | batch["truncated"][:, :-1]
    assert batch["terminated"][:, :-1].any(), "no window goes across a real end: this says nothing"
    assert batch["truncated"][:, :-1].any(), "no window goes across a time limit: this says nothing"
    assert not ended.all()
    noise = Noise(torch.Generator().manual_seed(3))
    out = w.model_loss(batch, noise)
    nothing = {name: torch.zeros(()) for name in ("return_low", "return_high")}
    carry = {name: value.detach() for name, value in out.carry.items()}
    policy = w.policy_loss(batch, carry, nothing, noise)
    expected, of_policy = by_the_book(w, batch, noise._drawn)
    torch.testing.assert_close(out.loss, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(policy.loss, of_policy, rtol=1e-4, atol=1e-5)


def test_nothing_behind_an_end_changes_what_is_learnt() -> None:
    orchestrator = build(ENDINGS, BOX_ACTIONS, "network.critic.dropout=0")
    w = trained(orchestrator)
    batch = window_of(orchestrator, 32)
    behind = batch["is_first"].clone()
    behind[:, 0] = False
    behind = behind.cumsum(1) > 0
    assert behind.any()
    other = dict(batch)
    for name in ("reward", "sample", "observation", "next_observation"):
        there = behind.view(*behind.shape, *[1] * (batch[name].ndim - 2))
        other[name] = torch.where(there, torch.full_like(batch[name], 0.7), batch[name])
    losses = []
    for each in (batch, other):
        noise = Noise(torch.Generator().manual_seed(3))
        out = w.model_loss(each, noise)
        carry = {name: value.detach() for name, value in out.carry.items()}
        state = {"return_low": w.return_low, "return_high": w.return_high}
        losses.append(torch.stack([out.loss, w.policy_loss(each, carry, state, noise).loss]))
    torch.testing.assert_close(*losses)


def test_a_real_end_is_worth_its_reward_and_a_time_limit_what_would_follow() -> None:
    orchestrator = build(ENDINGS, BOX_ACTIONS)
    w = trained(orchestrator, 20)
    batch = window_of(orchestrator, 32)
    with torch.no_grad():
        targets = w.targets(batch, w.model.encode(batch["next_observation"]), Noise(torch.Generator().manual_seed(1)))
    over, cut = batch["terminated"], batch["truncated"]
    assert torch.equal(targets[over], batch["reward"][over])
    assert (targets[cut] != batch["reward"][cut]).all()


def test_critics_rewards_and_ends_begin_at_zero() -> None:
    w: Any = build().workflow
    assert isinstance(w.critic, BatchedNormedMLP)
    latent = w.model.encode(torch.randn(5, 3))
    assert not w.values(torch.randn(5, 3)).any()
    rewards, ends = w.model.earned(torch.cat([latent, torch.zeros(5, 1)], -1))
    assert not ends.any()
    assert not w.model.two_hot.mean(rewards).any()


def test_two_critics_at_random_are_believed() -> None:
    w = trained(build("Pendulum-v1:tdmpc", "algorithm.critics=5", "network.critic.dropout=0"))
    pairs = torch.randn(4, 7, 17, generator=torch.Generator().manual_seed(1))
    believed = w.model.believed(w.critic, pairs, torch.tensor([0.1, 0.9, 0.2, 0.8, 0.0]))
    assert believed.shape == (2, 4, 7)
    torch.testing.assert_close(believed, w.model.two_hot.mean(w.critic(pairs)[[1, 3]]))


def test_the_encoder_learns_at_a_share_of_the_rate() -> None:
    for words, expected in (
        ((), 9e-5),
        (("algorithm.learning_rate=lin_1e-3",), 3e-4),
        (("algorithm.encoder_learning_rate=1e-4",), 1e-4),
    ):
        w: Any = build("Pendulum-v1:tdmpc", *words).workflow
        encoder, rest = w.model_optimizer.param_groups
        assert float(encoder["lr"]) == pytest.approx(expected)
        assert float(rest["lr"]) == pytest.approx(float(w.policy_optimizer.param_groups[0]["lr"]))
        assert (encoder["eps"], w.policy_optimizer.param_groups[0]["eps"]) == (1e-8, 1e-5)


@pytest.mark.parametrize(
    ("words", "gamma"),
    [
        (("environment.max_episode_steps=500",), 0.99),
        (("environment.max_episode_steps=1000", "environment.wrappers=[{id: frame_skip, skip: 8}]"), 0.96),
        (("environment.max_episode_steps=10",), 0.95),
        (("environment.max_episode_steps=100_000",), 0.995),
        (("algorithm.gamma=0.9",), 0.9),
    ],
)
def test_the_discount_follows_from_an_episodes_decisions(words: tuple[str, ...], gamma: float) -> None:
    assert float(build("Pendulum-v1:tdmpc", *words).workflow.model.gamma) == pytest.approx(gamma)  # type: ignore[attr-defined]


# ---- planning and acting ----------------------------------------------------------------------------------------------------


def test_what_is_imagined_agrees_with_a_loop() -> None:
    w = trained(build(ENDINGS, BOX_ACTIONS), 30)
    latent = w.model.encode(torch.eye(4)[:2])
    actions = torch.rand(2, 3, w.settings.horizon, 1, generator=torch.Generator().manual_seed(1)) * 2 - 1
    with torch.no_grad():
        w.critic.eval()
        found = w.model.value_of(latent, actions, None)
        for n in range(2):
            for k in range(3):
                z, total, counts = latent[n], torch.zeros(()), torch.ones(())
                for action in actions[n, k]:
                    pair = torch.cat([z, action])
                    outputs = w.reward(pair)
                    total = total + counts * w.model.two_hot.mean(outputs[:BINS])
                    counts = counts * w.model.gamma * (1 - torch.sigmoid(outputs[BINS]))
                    z = w.dynamics(pair)
                action = w.actor(z).chunk(2, -1)[0].tanh()
                total = total + counts * w.model.two_hot.mean(w.critic(torch.cat([z, action]))).mean()
                torch.testing.assert_close(found[n, k], total, rtol=1e-4, atol=1e-5)


def test_many_environments_are_planned_for_as_each_by_itself() -> None:
    w = trained(build("Pendulum-v1:tdmpc", "algorithm.policy_samples=0"))
    policy, seen = w.policy(), torch.randn(3, 3, generator=torch.Generator().manual_seed(2))
    planner, model, s = policy._planner, w.model, w.settings
    noise = torch.randn(s.iterations, 3, s.samples, s.horizon, 1, generator=torch.Generator().manual_seed(1))

    def plan(rows: slice) -> Any:
        latent = model.encode(seen[rows])
        with torch.no_grad():
            start = torch.zeros(len(latent), s.horizon, 1)
            return planner(lambda actions: model.value_of(latent, actions, None), start, noise[:, rows])

    w.critic.eval()
    together = plan(slice(0, 3))
    for n in range(3):
        alone = plan(slice(n, n + 1))
        torch.testing.assert_close(together.mean[n], alone.mean[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(together.value[n], alone.value[0], rtol=1e-4, atol=1e-4)


def act(policy: Any, state: Any, mode: str, seed: int = 1, first: bool = False) -> Any:
    seen = torch.randn(2, 3, generator=torch.Generator().manual_seed(9))
    return policy.act(seen, state, torch.full((2,), first), mode=mode, generator=torch.Generator().manual_seed(seed))


def test_greedy_takes_the_plans_mean_and_exploring_adds_its_deviation() -> None:
    policy = trained(build()).policy()
    state, seen, first = policy.initial_state(2), torch.randn(2, 3), torch.ones(2, dtype=torch.bool)
    assert state.shape == (2, 3, 1)
    results, plans, generators = {}, {}, {}
    for mode in ("greedy", "sample", "explore"):
        generators[mode] = torch.Generator().manual_seed(1)
        results[mode], plans[mode] = policy.decide(seen, state, first, mode=mode, generator=generators[mode])
    plan, drawn = plans["sample"], results["sample"].extras["sample"]
    torch.testing.assert_close(results["greedy"].extras["sample"], plan.mean[:, 0])
    torch.testing.assert_close(results["greedy"].action, 2 * plan.mean[:, 0])  # Pendulum's torque is between -2 and 2
    assert (drawn[:, None] == plan.elites[:, :, 0]).any(1).all()
    noise = torch.randn(2, 1, generator=generators["sample"])  # the numbers that come after those of the sample
    expected = (drawn + plan.std[:, 0] * noise).clamp(-1, 1)
    torch.testing.assert_close(results["explore"].extras["sample"], expected)
    for result in results.values():
        torch.testing.assert_close(result.state, plan.mean)


def test_a_plan_begins_with_what_is_left_of_the_last_and_an_episode_with_none() -> None:
    policy = trained(build()).policy()
    some = torch.full((2, 3, 1), 0.9)
    fresh, warm, anew = (
        act(policy, state, "greedy", first=first)
        for state, first in ((policy.initial_state(2), False), (some, False), (some, True))
    )
    assert torch.equal(fresh.state, anew.state)
    assert not torch.equal(fresh.state, warm.state)


def test_without_planning_the_policy_network_acts() -> None:
    orchestrator = build("Pendulum-v1:tdmpc", "algorithm.plan=false")
    w = trained(orchestrator, 12)
    policy = w.policy()
    assert policy.initial_state(2) is None
    seen = torch.randn(2, 3, generator=torch.Generator().manual_seed(9))
    expected = w.actor(w.encoder(seen)).chunk(2, -1)[0].tanh()
    torch.testing.assert_close(act(policy, None, "greedy").extras["sample"], expected)
    assert policy.one_pass() is not policy
    assert not any("plan" in key for key in w.metrics.drain())


def test_acting_asks_the_device_for_no_number() -> None:
    w = trained(build())
    with no_host_reads():
        for mode in ("explore", "sample", "greedy"):
            act(w, w.initial_state(2), mode)


def test_seed_decisions_are_random_then_come_updates_then_plans() -> None:
    orchestrator = build()
    ways = list[tuple[int, int, str]]()
    original = Actor.__call__

    def noted(self: Actor, *arguments: Any) -> Any:
        ways.append((orchestrator.counters.decisions, orchestrator.counters.updates, self.way))
        return original(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Actor, "__call__", noted)
        while orchestrator._run_cycle():
            pass
    random = [way for way in ways if way[2] == "random"]
    assert len(random) * 2 == 40
    assert {updates for _, updates, _ in random} == {0}
    assert next(updates for _, updates, way in ways if way == "explore") == 6
    assert orchestrator.counters.updates == 6 + (100 - 40) // 2


def test_a_budget_that_ends_with_the_seed_phase_learns_nothing_and_fails_not() -> None:
    orchestrator = build("Pendulum-v1:tdmpc", "training.total_steps=30")
    while orchestrator._run_cycle():
        pass
    assert (orchestrator.counters.decisions, orchestrator.counters.updates) == (30, 0)


def test_rows_tell_of_plans_and_of_each_loss() -> None:
    (*_, row) = build(ENDINGS, BOX_ACTIONS, "logging.every_steps=50").rows()
    parts = ("consistency", "reward", "value", "termination", "model", "policy")
    wanted = {"collect/plan_return", "collect/plan_std", "train/q_mean", "train/termination_accuracy", "train/return_scale"}
    assert wanted | {f"train/{part}_loss" for part in parts} <= set(row)
    assert 0 <= row["train/termination_accuracy"] <= 1


def test_tasks_that_never_end_need_no_termination() -> None:
    (*_, row) = build("Pendulum-v1:tdmpc", "algorithm.episodic=false").rows()
    assert not any("termination" in key for key in row)


# ---- the same run, however it is cut or computed ----------------------------------------------------------------------------


@pytest.mark.slow  # of every algorithm, test_conformance.py stops and resumes one run in every suite
def test_a_stopped_run_is_the_run_that_was_not(tmp_path: Path) -> None:
    words = (*TINY, "evaluation.every_steps=50", "evaluation.episodes=1", "environment.max_episode_steps=20")
    whole = train("Pendulum-v1:tdmpc", tmp_path / "whole", *words)
    with stopped_after(33):
        parted = train("Pendulum-v1:tdmpc", tmp_path / "parted", *words)
    assert parted.status == "interrupted"
    resume(parted)
    assert_same_run(whole, parted)


def final_state(*words: str) -> dict[str, Any]:
    orchestrator = build("Pendulum-v1:tdmpc", "network.critic.dropout=0", "algorithm.critics=3", *words)
    while orchestrator._run_cycle():
        pass
    return orchestrator.workflow.state_dict()


def test_a_captured_run_is_the_eager_run(monkeypatch: pytest.MonkeyPatch) -> None:
    eager = final_state()
    learning: list[Any] = []
    original = TDMPC.initialize

    def noted(self: TDMPC, context: Any) -> None:
        original(self, context)
        learning.append(self)

    monkeypatch.setattr(TDMPC, "initialize", noted)
    monkeypatch.setattr(assembly, "execution_mode", lambda config: "captured")
    graphs = pretend_capture(monkeypatch, lambda: [*learning[0]._executor.touched(), learning[0].planned])
    captured = final_state()
    assert graphs
    assert len(learning) == 1
    for role in ("encoder", "dynamics", "reward", "critic", "actor", "target_critic"):
        for name, value in eager[role].items():
            torch.testing.assert_close(captured[role][name], value, msg=f"{role}.{name}")
    assert torch.equal(eager["return_high"], captured["return_high"])


@pytest.mark.parametrize(
    ("words", "mode", "updates"),
    [
        (("training.total_steps=1000",), "eager", "eager"),
        (("training.total_steps=12_000",), "compiled", "eager"),  # plans alone
        (("training.total_steps=12_000", "algorithm.plan=false"), "eager", "eager"),
        (("training.total_steps=50_000",), "compiled", "compiled"),
        (("training.total_steps=50_000", "algorithm.plan=false"), "compiled", "compiled"),
        (("training.total_steps=50_000", "experiment.compile=off"), "eager", "eager"),
        (("training.total_steps=1000", "experiment.compile=on"), "compiled", "eager"),
    ],
)
def test_plans_and_updates_are_compiled_where_a_run_repays_it(words: tuple[str, ...], mode: str, updates: str) -> None:
    if not has_compiler():
        pytest.skip("needs a C++ compiler")
    w: Any = build("Pendulum-v1:tdmpc", "experiment.device=cpu", *words).workflow
    assert w.context.mode == mode
    assert w._executor.mode == updates
    assert w._compiles_plans == (mode == "compiled")


def test_gradient_steps_are_those_that_a_run_takes() -> None:
    orchestrator = build("Pendulum-v1:tdmpc")
    while orchestrator._run_cycle():
        pass
    assert orchestrator.counters.updates == TDMPC.gradient_steps(orchestrator.workflow.context.config)


def test_compiling_updates_is_not_advised_where_it_takes_minutes() -> None:
    orchestrator = build("Pendulum-v1:tdmpc")
    orchestrator.stopwatch.spent.update(update=60.0, collect=20.0)
    assert bottleneck(orchestrator, "eager") == "update took 75% of the time"


@pytest.mark.slow
def test_a_stopped_run_with_compiled_plans_is_the_run_that_was_not(tmp_path: Path) -> None:
    words = (*TINY, "experiment.compile=on", "experiment.device=cpu")
    whole = train("Pendulum-v1:tdmpc", tmp_path / "whole", *words)
    with stopped_after(35):
        parted = train("Pendulum-v1:tdmpc", tmp_path / "parted", *words)
    resume(parted)
    assert_same_run(whole, parted)


@pytest.mark.slow
def test_a_compiled_plan_is_the_eager_plan() -> None:
    orchestrator = build("Pendulum-v1:tdmpc", "algorithm.critics=3")
    w = trained(orchestrator)
    policy, seen, first = w.policy(), torch.randn(2, 3), torch.zeros(2, dtype=torch.bool)
    state = policy.initial_state(2)
    for _ in range(3):  # the weights are read where they are, as they are then
        plans = [
            policy.decide(seen, state, first, mode="explore", generator=torch.Generator().manual_seed(1), compiled=way)[1]
            for way in (False, True)
        ]
        for one, other in zip(*plans, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
        w.learn(window_of(orchestrator))


# ---- what it can't do -------------------------------------------------------------------------------------------------------


def test_discrete_actions_are_refused_with_what_to_use() -> None:
    with pytest.raises(UserError, match=r"tdmpc plans continuous actions, not Discrete; use dqn or ppo"):
        build("CartPole-v1:tdmpc")


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("environment.normalize_observations=rolling", "replays old observations"),
        ("environment.normalize_rewards=true", "rewards of any size"),
        ("algorithm.elites=17", "must be at most algorithm.samples=16"),
        ("algorithm.policy_samples=16", "must be less than algorithm.samples=16"),
        ("buffers.replay.sequence=5", "windows of algorithm.horizon=3 steps"),
        ("buffers.replay.n_step=3", "looks ahead by algorithm.horizon"),
        ("buffers.replay.priority={}", "draws windows uniformly"),
        ("buffers.replay.leave_out=[is_first]", "is what tdmpc learns from"),
        ("algorithm.critics=1", "must be at least 2"),
    ],
)
def test_settings_that_do_not_go_together_are_said(word: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        compose("Pendulum-v1:tdmpc", words=(*TINY, word))


@pytest.mark.parametrize(("size", "millions"), [("small", 0.2), ("1m", 1), ("5m", 5), ("19m", 19)])
def test_a_size_has_about_as_many_weights_as_its_name_says(size: str, millions: float) -> None:
    config = compose("Pendulum-v1:tdmpc", words=(f"algorithm.size={size}", "experiment.device=cpu")).config
    environment = assembly.make_environment(config.environment, num_envs=1)
    w: Any = assembly.build_workflow(config, environment.single_observation_space, environment.single_action_space)
    networks = (w.encoder, w.dynamics, w.reward, w.critic, w.actor)
    assert sum(p.numel() for network in networks for p in network.parameters()) == pytest.approx(millions * 1e6, rel=0.5)
    assert (w.model.encode(torch.zeros(1, 3)).shape[-1], w.model.critics) == (SIZES[size].latent, SIZES[size].critics)


# ---- exporting ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "observation", [spaces.Box(-1, 1, (3,)), spaces.Dict(actor=spaces.Box(-1, 1, (3,)), critic=spaces.Box(-1, 1, (2,)))]
)
def test_the_policy_network_is_exported_without_planning(observation: spaces.Space) -> None:
    action = spaces.Box(-2, 2, (2,))
    config = compose("Pendulum-v1:tdmpc", words=(*TINY, "algorithm.plan=false", "experiment.device=cpu")).config
    policy = assembly.build_workflow(config, observation, action).policy()
    graph = graph_of(policy, observation, action, "tdmpc")
    seen = torch.rand(4, 3)
    whole = {"actor": seen, "critic": torch.rand(4, 2)} if isinstance(observation, spaces.Dict) else seen
    first = torch.ones(4, dtype=torch.bool)
    expected = policy.act(whole, None, first, mode="greedy", generator=torch.Generator()).action
    assert len(graph.inputs) == 1, "what only the simulator knows is not part of it"
    torch.testing.assert_close(graph(seen), expected)


def test_a_policy_that_plans_is_more_than_one_pass_and_its_noise_is_an_input() -> None:
    w: Any = build().workflow
    policy = w.policy()
    assert policy.one_pass() is policy
    assert graph_of(policy, w.context.observation_space, w.context.action_space, "tdmpc").noise
