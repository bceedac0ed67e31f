"""The first two Dreamers and PlaNet: what tells them apart from DreamerV3, and that each is the same run however it is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces
from torch import Tensor
from torch.utils import _pytree as pytree

from etude.components.latents import Categorical, Gaussian
from etude.components.rssm import ModelState
from etude.components.two_hot import Squared
from etude.components.world_actions import world_actions
from etude.compute.noise import Noise
from etude.config.compose import compose
from etude.errors import ConfigError, UserError
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly
from tests.capture_double import pretend_capture
from tests.runs_compared import assert_same_run, resume, stopped_after, train
from tests.workflows.tiny_replay_runs import start

L, B = 8, 6
TINY = (
    *("algorithm.size=tiny", f"algorithm.batch_size={B}", f"buffers.replay.sequence={L}", "buffers.replay.capacity=1000"),
    *("algorithm.horizon=3", "algorithm.learning_starts=60", "algorithm.train_ratio=6", "algorithm.pretrain_updates=0"),
    *("environment.num_envs=2", "training.total_steps=200", "evaluation.every_steps=0", "experiment.compile=off"),
)
DREAMS = ("algorithm.imagination_starts=5",)
PLANS = ("algorithm.samples=16", "algorithm.elites=4", "algorithm.iterations=2")
TASK = "MountainCarContinuous-v0"
"""Without settings of its own for these."""
WORDS = {"dreamer_v1": DREAMS, "dreamer_v2": DREAMS, "planet": PLANS}


def filled(name: str, *words: str, environment: str = TASK) -> tuple[Any, dict[str, Any]]:
    """A workflow that has not learnt yet, and windows (B, L, ...) for it to learn from."""
    orchestrator: Orchestrator = start(f"{environment}:{name}", (*TINY, *WORDS.get(name, DREAMS), *words))
    while not orchestrator.buffers["replay"].ready:
        orchestrator._run_cycle()
    batch = orchestrator.buffers["replay"].sample(B, orchestrator.streams["buffer"])
    workflow: Any = orchestrator.workflow
    return workflow, {name: batch[name] for name in workflow.columns if name in batch}


def noise() -> Noise:
    return Noise(torch.Generator().manual_seed(7))


def scale(workflow: Any) -> dict[str, Tensor]:
    return {"return_low": workflow.return_low, "return_high": workflow.return_high}


def speaking(workflow: Any) -> Any:
    """The workflow with heads that say something: their last layers begin as zeros."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for head in (workflow.reward, workflow.continues, workflow.critic, workflow.slow_critic):
            for parameter in head.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return workflow


# ---- versions --------------------------------------------------------------------------------------------------------


def test_versions_are_settings_of_one_algorithm() -> None:
    first, second = filled("dreamer_v1")[0], filled("dreamer_v2")[0]
    assert isinstance(first.rssm.latents, Gaussian)
    assert isinstance(second.rssm.latents, Categorical)
    assert isinstance(first.numbers, Squared)
    assert first._behaviour.through_model
    assert second._behaviour.through_model, "continuous actions: through the model"
    assert not filled("dreamer_v2", environment="CartPole-v1")[0]._behaviour.through_model, "discrete ones: by their worth"


@pytest.mark.parametrize("name", ["dreamer_v1", "dreamer_v2"])
def test_the_actor_climbs_returns_through_the_model_which_stays_as_it_is(name: str) -> None:
    w, batch = filled(name, "algorithm.entropy_weight=0")
    out = speaking(w).controller_loss(batch, scale(w), noise())
    gradients = torch.autograd.grad(out.loss, [*w.actor.parameters()], retain_graph=True)
    assert all(bool((gradient != 0).any()) for gradient in gradients)
    others = [p for part in w.model_parts for p in part.parameters()]
    found = torch.autograd.grad(out.loss, others, allow_unused=True)
    assert all(gradient is None or not bool(gradient.any()) for gradient in found)


def test_gradients_through_the_model_are_those_of_moving_the_actions() -> None:
    """The gradient of a dream's returns in an actor's bias is what moving that bias does to them."""
    w = speaking(filled("dreamer_v1", "algorithm.entropy_weight=0")[0])
    shapes = {"imagined_actions": (3, 4, 1), "imagined_states": (3, 4, 16)}
    generator = torch.Generator().manual_seed(2)
    begun = ModelState(*(torch.randn(part.shape, generator=generator) for part in w.rssm.initial(4)))
    bias = [*w.actor.parameters()][-1]

    def loss() -> Tensor:
        still = Noise(drawn={name: torch.zeros(shape) for name, shape in shapes.items()})  # no action beyond its bounds
        return w._behaviour.losses(w._behaviour.imagine(begun, still), scale(w))[0]["actor"]

    (gradient,) = torch.autograd.grad(loss(), [bias])
    step = 0.05
    with torch.no_grad():
        bias[0] += step  # of the mean; the deviation does not count without noise
    above = loss()
    with torch.no_grad():
        bias[0] -= 2 * step
    below = loss()
    assert gradient[0].item() == pytest.approx(((above - below) / (2 * step)).item(), rel=0.05)
    assert gradient[0] != 0


def test_free_nats_of_a_batch_count_its_mean() -> None:
    w, batch = filled("dreamer_v2", "algorithm.free_nats=0")
    mean = w.model_loss(batch, noise()).metrics["train/kl"]
    for free, expected in ((float(mean) / 2, mean), (float(mean) * 2, torch.tensor(2 * float(mean)))):
        w._world._free_nats = free
        found = w.model_loss(batch, noise()).metrics["train/dynamics_loss"]
        torch.testing.assert_close(found, 0.8 * expected, rtol=1e-4, atol=1e-6)


def test_the_slow_critic_is_copied_every_so_many_updates() -> None:
    w, batch = filled("dreamer_v2", "algorithm.slow_critic_every=2")
    speaking(w)
    weights = [p.clone() for p in w.slow_critic.parameters()]
    stage = w._executor.update
    assert stage.after_every == 2
    assert w.settings.bootstrap == "slow_critic"
    w.learn(batch)  # every stage takes part
    after = list(w.slow_critic.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(after, weights, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(after, w.critic.parameters(), strict=True))


def test_each_part_has_its_own_rate() -> None:
    w, _ = filled("dreamer_v1", "algorithm.learning_rate=1e-3", "algorithm.actor_learning_rate=2e-4")
    rates = {group["name"]: float(group["lr"]) for group in w.optimizer.param_groups}
    assert rates == {"model": pytest.approx(1e-3), "actor": pytest.approx(2e-4), "critic": pytest.approx(8e-5)}


def test_noise_of_exploring_is_added_or_replaces_a_share() -> None:
    bounded, chosen = world_actions(spaces.Box(-2, 2, (3,)), 0.0), world_actions(spaces.Discrete(4), 0.0)
    generator = torch.Generator().manual_seed(1)
    moved = bounded.disturbed(torch.zeros(4000, 3), 0.3, generator)
    assert moved.std().item() == pytest.approx(0.3, rel=0.05)
    always = torch.nn.functional.one_hot(torch.zeros(4000, dtype=torch.long), 4).float()
    other = (chosen.disturbed(always, 0.4, generator).argmax(-1) != 0).float().mean().item()
    assert other == pytest.approx(0.4 * 3 / 4, abs=0.03)


# ---- PlaNet ----------------------------------------------------------------------------------------------------------


def test_plans_are_worth_the_rewards_of_their_dreams() -> None:
    """A slow loop over each sequence by itself, on a model whose states are drawn without chance."""
    w, batch = filled("planet")
    w.learn(batch)
    policy, plans = w._policy, torch.rand(2, 5, 3, 1, generator=torch.Generator().manual_seed(2)) * 2 - 1
    w.rssm.latents.distribution = lambda outputs: Certain(outputs.float().chunk(2, -1)[0])
    state = ModelState(*(torch.randn(2, size, generator=torch.Generator().manual_seed(3)) for size in (128, 16)))
    with torch.no_grad():
        values = policy.value_of(state, plans, torch.Generator().manual_seed(1))
        for n in range(2):
            for s in range(5):
                now, total, likely = ModelState(state.deter[n : n + 1], state.stoch[n : n + 1]), 0.0, 1.0
                for action in plans[n, s]:
                    now = w.rssm.dream(now, action[None], torch.zeros(1, 16))
                    total += likely * float(w._world.rewards(now.features))
                    likely *= float(w._world.continuation(now.features))
                assert float(values[n, s]) == pytest.approx(total, rel=1e-4, abs=1e-5)


class Certain:
    """A distribution of one value."""

    def __init__(self, mean: Tensor) -> None:
        self.mean = mean

    def draw(self, noise: Tensor) -> Tensor:
        return self.mean


def test_planet_acts_at_random_before_it_learns() -> None:
    orchestrator = start(f"{TASK}:planet", (*TINY, *PLANS, "algorithm.learning_starts=900", "training.total_steps=400"))
    for _ in range(150):
        orchestrator._run_cycle()
    actions = orchestrator.buffers["replay"].columns["action"][:150].float()
    assert actions.std().item() == pytest.approx(3**-0.5, rel=0.1), "uniform between the bounds"


@pytest.mark.parametrize(
    ("spec", "words", "says"),
    [
        ("CartPole-v1:planet", (), "use dreamer for discrete ones"),
        (f"{TASK}:planet", ("algorithm.elites=2000",), "algorithm.elites=2000: must be at most algorithm.samples=1000"),
        (f"{TASK}:dreamer_v1", ("buffers.replay.sequence=null",), "dreamer_v1 learns from windows"),
    ],
)
def test_settings_that_can_not_work_are_refused(spec: str, words: tuple[str, ...], says: str) -> None:
    with pytest.raises((ConfigError, UserError), match=says):
        assembly.build(assembly.resolve(compose(spec, words=words).config))


# ---- runs ------------------------------------------------------------------------------------------------------------


# The others are stopped and resumed by test_conformance.py in every suite, with discrete actions.
@pytest.mark.parametrize("name", ["dreamer_v1", *(pytest.param(name, marks=pytest.mark.slow) for name in [*WORDS][1:])])
def test_a_stopped_run_is_the_run_that_was_not(name: str, tmp_path: Path) -> None:
    words = (*TINY, *WORDS[name], "training.total_steps=110", "evaluation.every_steps=70", "evaluation.episodes=1")
    words = (
        *words,
        "environment.max_episode_steps=20",
        "evaluation.num_envs=1",
        "evaluation.every_updates=0",
        "algorithm.pretrain_updates=2",
    )
    whole = train(f"{TASK}:{name}", tmp_path / "whole", *words)
    with stopped_after(40):
        parted = train(f"{TASK}:{name}", tmp_path / "parted", *words)
    resume(parted)
    assert_same_run(whole, parted)


@pytest.mark.parametrize("name", WORDS)
def test_captured_it_acts_and_learns_as_it_does_eager(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Any] = []
    for captured in (False, True):
        words = (*TINY, *WORDS[name])
        config = assembly.resolve(compose(f"{TASK}:{name}", words=words).config)
        made: list[Any] = []
        graphs = pretend_capture(monkeypatch, lambda made=made: made[0].workflow._executor.touched()) if captured else []
        monkeypatch.setattr(assembly, "execution_mode", lambda config, captured=captured: "captured" if captured else "eager")
        made.append(assembly.build(config))
        made[0].collector.start(made[0].workflow.initial_state)
        for _ in range(45):
            made[0]._run_cycle()
        runs += made
        ways = 3 if name == "planet" else 2  # acting, at random too where there is a warm-up, and updates
        assert len(graphs) == (ways if captured else 0)
    eager, again = ({"workflow": run.workflow.state_dict(), "replay": run.buffers["replay"].columns} for run in runs)
    assert runs[0].counters.updates > 2
    for mine, theirs in zip(pytree.tree_leaves(eager), pytree.tree_leaves(again), strict=True):
        if isinstance(mine, Tensor):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)
