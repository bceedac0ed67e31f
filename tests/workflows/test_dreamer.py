"""Dreamer: which row's reward belongs where, what imagination learns from, and that it is the same run however it is cut."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from etude.components.rssm import ModelState
from etude.components.world_model import Seen, time_major
from etude.compute.noise import Noise
from etude.config.compose import compose
from etude.config.phases import default_hooks
from etude.errors import ConfigError, UserError
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly
from tests.capture_double import Again, pretend_capture
from tests.runs_compared import assert_same_run, resume, stopped_after, train
from tests.workflows.tiny_replay_runs import start

L, B = 8, 6
TINY = (
    *("algorithm.size=tiny", f"algorithm.batch_size={B}", f"buffers.replay.sequence={L}", "buffers.replay.capacity=1000"),
    *("algorithm.horizon=3", "algorithm.imagination_starts=5", "algorithm.learning_starts=60", "algorithm.train_ratio=6"),
    *("environment.num_envs=2", "training.total_steps=200", "evaluation.every_steps=0", "experiment.compile=off"),
)
ENDINGS = "etude.testing.probes:probe/Endings-v0:dreamer"


def build(spec: str = "CartPole-v1:dreamer", *words: str) -> Orchestrator:
    return start(spec, (*TINY, *words))


def filled(spec: str = "CartPole-v1:dreamer", *words: str) -> tuple[Any, dict[str, Any]]:
    """A workflow that has not learnt yet, and windows (B, L, ...) for it to learn from."""
    orchestrator = build(spec, *words)
    while not orchestrator.buffers["replay"].ready:
        orchestrator._run_cycle()
    batch = orchestrator.buffers["replay"].sample(B, orchestrator.streams["buffer"])
    return orchestrator.workflow, {name: batch[name] for name in orchestrator.workflow.columns if name in batch}  # type: ignore[attr-defined]


def noise() -> Noise:
    return Noise(torch.Generator().manual_seed(7))


def observed(workflow: Any, batch: dict[str, Any]) -> tuple[Seen, dict[str, Any]]:
    steps = time_major(batch)
    return workflow._world.observe(steps, noise()), steps


# ---- where rewards and ends belong ------------------------------------------------------------------------------------


def test_arrivals_are_posteriors_of_where_each_row_led() -> None:
    w, batch = filled(ENDINGS)
    seen, steps = observed(w, batch)
    numbers = w._world.noise(noise(), "posterior", (L + 1, B))
    arrivals = seen.at_arrivals(seen.states.features, seen.extra.features)
    ended = steps["terminated"] | batch["is_first"].transpose(0, 1).roll(-1, 0)
    assert bool(ended[:-1].any()), "the windows hold ends"
    goes_on = torch.zeros(B, dtype=torch.bool)
    for t in range(L):
        action, tokens = w.head.from_environment(steps["action"][t]), w.encoder(steps["next_observation"][t])
        led_to, _ = w.rssm.step(ModelState(*(part[t] for part in seen.states)), action, tokens, goes_on, numbers[t + 1])
        known = seen.known[t] > 0
        torch.testing.assert_close(arrivals[t][known], led_to.features[known], rtol=1e-4, atol=1e-5)


def test_the_prior_is_taught_what_an_end_looks_like() -> None:
    """An end is seen as `next_observation` alone: without a loss there, no dream would ever arrive at one."""
    w, batch = filled(ENDINGS)
    seen, steps = observed(w, batch)
    losses, _ = w._world.losses(seen, steps)
    outputs = w._world.losses(seen._replace(counts=torch.zeros_like(seen.counts)), steps)[0]
    assert losses["dynamics"] > outputs["dynamics"]
    assert losses["reconstruction"] > outputs["reconstruction"]


def test_losses_are_weighed_by_the_settings() -> None:
    words = ("algorithm.reconstruction_weight=30", "algorithm.dynamics_weight=0.5", "algorithm.representation_weight=0.2")
    (plain, batch), (weighed, _) = filled("Pendulum-v1:dreamer"), filled("Pendulum-v1:dreamer", *words)
    one, other = (w.model_loss(batch, noise()).metrics for w in (plain, weighed))
    weights = {"reconstruction": 30.0, "dynamics": 0.5, "representation": 2.0}
    expected = {**dict.fromkeys(one, 1.0), **{f"train/{name}_loss": weight for name, weight in weights.items()}}
    for name, loss in one.items():
        torch.testing.assert_close(other[name], expected[name] * loss)


def test_breaks_are_where_the_next_row_is_another_episode() -> None:
    w, batch = filled(ENDINGS)
    seen, steps = observed(w, batch)
    assert torch.equal(seen.breaks[:-1], steps["is_first"][1:])
    assert bool(seen.breaks[-1].all())


def test_more_breaks_than_there_is_room_for_are_left_out_of_the_losses() -> None:
    w, batch = filled(ENDINGS)
    w._world._rows_per_break = L  # room for one break in each window, the last row
    seen, _ = observed(w, batch)
    assert len(seen.places) == B
    assert torch.equal(seen.known == 0, seen.breaks & ~torch.zeros(L * B).index_fill(0, seen.places, 1).bool().view(L, B))


def test_windows_begin_with_the_state_that_entered_them() -> None:
    """Followed from the stored state with the noise of acting, a window has the states of acting."""
    w, batch = filled()
    steps = time_major(batch)
    begun = w._world.start(steps)
    torch.testing.assert_close(begun.deter, steps["deter"][0])
    for t in range(L - 1):
        before = ModelState(steps["deter"][t], w.rssm.latents.restored(steps["stoch"][t]))
        tokens = w.encoder(steps["observation"][t])
        after, _ = w.rssm.step(before, steps["previous_action"][t], tokens, steps["is_first"][t], None)
        torch.testing.assert_close(after.deter, steps["deter"][t + 1], rtol=1e-4, atol=1e-5)
        # z was drawn by chance; h is a function of what came before.
        same = ~steps["is_first"][t + 1]
        acted = w.head.from_environment(steps["action"][t])
        torch.testing.assert_close(steps["previous_action"][t + 1][same], acted[same])


def test_what_learning_knows_now_replaces_the_states_that_enter_later_rows() -> None:
    w, batch = filled()
    seen, steps = observed(w, batch)
    entering = w._world.entering(steps, seen.states)
    assert torch.equal(entering["deter"][:, 0], batch["deter"][:, 0])
    torch.testing.assert_close(entering["deter"][:, 1:], seen.states.deter[:-1].transpose(0, 1))
    assert torch.equal(w.rssm.latents.restored(entering["stoch"][:, 3]), seen.states.stoch[2])


def test_an_update_writes_states_back_into_the_replay() -> None:
    orchestrator = build()
    while not orchestrator.buffers["replay"].ready:
        orchestrator._run_cycle()
    replay: Any = orchestrator.buffers["replay"]
    before = {name: replay.columns[name].clone() for name in ("deter", "stoch", "reward")}
    orchestrator.workflow.update(orchestrator.scheduler.view(), 2)
    changed = {name: not torch.equal(replay.columns[name], before[name]) for name in before}
    assert changed == {"deter": True, "stoch": True, "reward": False}


def test_without_stored_latents_windows_begin_from_nothing() -> None:
    w, batch = filled("CartPole-v1:dreamer", "algorithm.latents=off")
    assert "deter" not in batch
    seen, steps = observed(w, batch)
    numbers = w._world.noise(noise(), "posterior", (L + 1, B))
    first = torch.ones(B, dtype=torch.bool)
    tokens = w.encoder(steps["observation"][0])
    state, _ = w.rssm.step(w.rssm.initial(B), torch.zeros(B, 2), tokens, first, numbers[0])
    torch.testing.assert_close(seen.states.deter[0], state.deter)
    assert w._world.entering(steps, seen.states) == {}


# ---- imagination ------------------------------------------------------------------------------------------------------


class Heads:
    """Rewards, continuations and values that are read off the features, to follow by hand."""

    def __init__(self, w: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(w._world, "rewards", lambda features: features[..., 0])
        monkeypatch.setattr(w._world, "continuation", lambda features: torch.sigmoid(features[..., 1]))


def test_returns_and_weights_of_dreams_are_by_the_book(monkeypatch: pytest.MonkeyPatch) -> None:
    w, _ = filled()
    Heads(w, monkeypatch)
    features, values = (torch.randn(shape, generator=torch.Generator().manual_seed(3)) for shape in ((4, 5, 2), (4, 5)))
    seen = w._behaviour.judge(features, values)
    gamma, lam = w.settings.gamma, w.settings.td_lambda
    for n in range(5):
        reward, goes_on = features[:, n, 0], torch.sigmoid(features[:, n, 1])
        following, weight, weights = values[3, n], 1.0, []
        for k in range(3):
            weights.append(weight)
            weight = weight * gamma * goes_on[k + 1]  # a step's own outcome weighs the next step, not its own
        for k in reversed(range(3)):
            following = reward[k + 1] + gamma * goes_on[k + 1] * ((1 - lam) * values[k + 1, n] + lam * following)
            torch.testing.assert_close(seen.returns[k, n], following)
        torch.testing.assert_close(seen.weights[:, n], torch.stack([torch.as_tensor(x) for x in weights]))


def test_actions_are_scored_in_the_states_they_were_chosen_in() -> None:
    """The actor's gradient is that of log π(a[k] | s[k]), weighed by the advantage over V(s[k])."""
    w, batch = filled("CartPole-v1:dreamer", "algorithm.entropy_weight=0")
    with torch.no_grad():  # a critic and rewards that say something
        for head in (w.critic, w.reward):
            head.layers[-1].weight.normal_(0, 0.3, generator=torch.Generator().manual_seed(1))
    seen, _ = observed(w, batch)
    dream = w._behaviour.imagine(seen.states.flat(), noise())
    state = {"return_low": torch.tensor(0.0), "return_high": torch.tensor(0.0)}
    losses, _, scale, _ = w._behaviour.losses(dream, state)
    features = dream.states.features
    values = w.numbers.mean(w.critic(features)).detach()
    judged = w._behaviour.judge(features, values)
    log_probs = torch.stack([
        (w.head(w.actor(features[k])).probs.squeeze(-2) * dream.actions[k]).sum(-1).log() for k in range(3)
    ])  # fmt: skip
    divisor = (scale["return_high"] - scale["return_low"]).clamp(min=1)
    expected = -(judged.weights * log_probs * (judged.returns - values[:-1]) / divisor).mean()
    torch.testing.assert_close(losses["actor"], expected)


def test_dreams_leave_the_world_model_alone() -> None:
    w, batch = filled()
    seen, _ = observed(w, batch)
    dream = w._behaviour.imagine(seen.states.flat(), noise())
    state = {"return_low": torch.tensor(0.0), "return_high": torch.tensor(0.0)}
    losses, *_ = w._behaviour.losses(dream, state)
    (losses["actor"] + losses["critic"]).backward()
    model = [*w.rssm.parameters(), *w.encoder.parameters(), *w.reward.parameters(), *w.continues.parameters()]
    assert all(parameter.grad is None for parameter in model)
    assert all(parameter.grad is None for parameter in w.slow_critic.parameters())
    assert any(bool((parameter.grad != 0).any()) for parameter in w.actor.parameters() if parameter.grad is not None)


def test_replayed_returns_lean_on_dreams_and_stop_at_ends() -> None:
    w, batch = filled(ENDINGS)
    with torch.no_grad():
        w.critic.layers[-1].weight.normal_(0, 0.3, generator=torch.Generator().manual_seed(1))
    seen, steps = observed(w, batch)
    starts, imagined = torch.arange(L * B), torch.randn(L * B, generator=torch.Generator().manual_seed(2))
    loss = w._behaviour.replay_value_loss(seen, steps, starts, imagined)
    of_extra = torch.full((L * B,), torch.nan).index_copy(0, seen.places, w.numbers.mean(w.critic(seen.extra.features)))
    worth, of_extra = imagined.view(L, B), of_extra.view(L, B)
    gamma, lam, returns = w.settings.gamma, w.settings.td_lambda, torch.zeros(L, B)
    for b in range(B):
        for t in reversed(range(L)):
            reward, over = steps["reward"][t, b], float(steps["terminated"][t, b])
            if seen.breaks[t, b]:  # nothing of the next row, which is another episode's
                following = of_extra[t, b].nan_to_num(0.0)
            else:
                following = (1 - lam) * worth[t + 1, b] + lam * returns[t + 1, b]
            returns[t, b] = reward + gamma * (1 - over) * following
    logits = w.critic(seen.states.features)
    slow = w.numbers.mean(w.slow_critic(seen.states.features))
    expected = ((w.numbers.loss(logits, returns) + w.numbers.loss(logits, slow)) * seen.known).mean()
    torch.testing.assert_close(loss, expected)
    loss.backward()
    assert any(bool((p.grad != 0).any()) for p in w.rssm.parameters() if p.grad is not None), "it reaches the world model"


def test_dreams_begin_in_rows_spread_over_the_batch() -> None:
    w, _ = filled()
    places = w._starts(48, noise(), torch.device("cpu"))
    assert len(places) == 5
    assert torch.equal(places.unique(), places)
    assert bool((places // (48 / 5) == torch.arange(5)).all())
    assert torch.equal(w._starts(4, noise(), torch.device("cpu")), torch.arange(4))


def test_first_predictions_are_exactly_zero() -> None:
    w, batch = filled()
    seen, _ = observed(w, batch)
    assert w._world.rewards(seen.states.features).abs().sum() == 0
    assert w.numbers.mean(w.critic(seen.states.features)).abs().sum() == 0


# ---- acting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["CartPole-v1:dreamer", "Pendulum-v1:dreamer"])
def test_the_policy_acts_on_what_it_sees(spec: str) -> None:
    w, batch = filled(spec)
    policy, generator = w.policy(), torch.Generator().manual_seed(1)
    first = torch.ones(B, dtype=torch.bool)
    one, other = (
        policy.act(observation, policy.initial_state(B), first, mode="greedy", generator=generator)
        for observation in (batch["observation"][:, 0], 5 - 3 * batch["observation"][:, 0])
    )
    assert not torch.equal(one.state["stoch"], other.state["stoch"])
    again = policy.act(batch["observation"][:, 0], policy.initial_state(B), first, mode="greedy", generator=generator)
    assert torch.equal(again.action, one.action)
    assert torch.equal(again.state["stoch"], one.state["stoch"]), "greedy leaves nothing to chance"


def test_continuous_actions_come_back_on_the_models_scale() -> None:
    w, batch = filled("Pendulum-v1:dreamer")
    samples = torch.tensor([[-1.7], [-0.5], [0.25], [3.0]])
    action = w.head.to_environment(samples)
    torch.testing.assert_close(action, torch.tensor([[-2.0], [-1.0], [0.5], [2.0]]))
    torch.testing.assert_close(w.head.from_environment(action), samples.clamp(-1, 1))
    assert w.head.from_environment(batch["action"]).shape == (B, L, 1)


# ---- pace, phases, halves ---------------------------------------------------------------------------------------------


def test_the_train_ratio_is_exact_across_a_resume(tmp_path: Path) -> None:
    words = (*TINY, "environment.num_envs=1", "algorithm.train_ratio=10", "training.total_steps=100")
    with stopped_after(23):
        run = train("CartPole-v1:dreamer", tmp_path, *words)
    resume(run)
    saved: Any = run.checkpoints().newest_whole().load()
    counters = saved["shared"]["counters"]
    seed = 60
    assert counters["updates"] == int(Fraction(10, L * B) * (100 - seed))


def test_default_phases_collect_pretrain_and_train() -> None:
    config = compose("CartPole-v1:dreamer", words=(*TINY, "algorithm.pretrain_updates=7")).config
    phases = assembly._workflow_class(config).default_phases(config)
    assert [phase["name"] for phase in phases] == ["seed", "pretrain", "train"]
    assert phases[-1]["hooks"][1] == {"update": {"ratio": "1/8"}}
    workflow = assembly._workflow_class(config)
    assert default_hooks(workflow, config) == phases[-1]["hooks"], "a user's phase without hooks trains"


def test_halves_of_an_update_change_their_own_networks_alone() -> None:
    orchestrator = build()
    while not orchestrator.buffers["replay"].ready:
        orchestrator._run_cycle()
    w: Any = orchestrator.workflow
    parts = {"model": (w.encoder, w.rssm, w.decoder, w.reward, w.continues), "controller": (w.actor, w.critic)}

    def weights() -> dict[str, list[Tensor]]:
        return {name: [p.detach().clone() for part in each for p in part.parameters()] for name, each in parts.items()}

    for half, other in (("model", "controller"), ("controller", "model")):
        before = weights()
        hook = w.update_world_model if half == "model" else w.update_controller
        assert hook(orchestrator.scheduler.view(), 2).updates == 2
        after = weights()
        assert all(map(torch.equal, before[other], after[other]))
        assert not all(map(torch.equal, before[half], after[half]))
    assert len(w.optimizer.state) == sum(len(each) for each in weights().values()), "one optimiser has all moments"


@pytest.mark.parametrize(
    "spec",
    [pytest.param("CartPole-v1:dreamer", marks=pytest.mark.slow), "Pendulum-v1:dreamer"],  # as test_conformance.py
)
def test_a_stopped_run_is_the_run_that_was_not(spec: str, tmp_path: Path) -> None:
    words = (*TINY, "training.total_steps=110", "evaluation.every_steps=70", "evaluation.episodes=1")
    words = (*words, "environment.max_episode_steps=20", "evaluation.num_envs=1")
    whole = train(spec, tmp_path / "whole", *words)
    with stopped_after(21):
        parted = train(spec, tmp_path / "parted", *words)
    resume(parted)
    assert_same_run(whole, parted)


@pytest.mark.parametrize(
    "words",
    [
        ("algorithm.stochastic=gaussian",),
        ("algorithm.latents=off",),
        ("algorithm.precision=bfloat16",),
        ("algorithm.optimizer=adam",),
    ],
    ids=["gaussian", "without latents", "bfloat16", "adam"],
)
def test_other_states_train_too(words: tuple[str, ...]) -> None:
    orchestrator = build("Pendulum-v1:dreamer", *words, "training.total_steps=80")
    *_, row = orchestrator.rows()
    assert all(value == value for name, value in row.items() if name.startswith("train/"))
    assert orchestrator.counters.updates > 0


def run_for(cycles: int, monkeypatch: pytest.MonkeyPatch, *, captured: bool) -> tuple[Orchestrator, list[Again]]:
    config = assembly.resolve(compose("CartPole-v1:dreamer", words=(*TINY, "algorithm.train_ratio=24")).config)
    runs: list[Any] = []
    graphs = pretend_capture(monkeypatch, lambda: runs[0].workflow._executor.touched()) if captured else []
    monkeypatch.setattr(assembly, "execution_mode", lambda config: "captured" if captured else "eager")
    runs.append(assembly.build(config))
    runs[0].collector.start(runs[0].workflow.initial_state)
    for _ in range(cycles):
        runs[0]._run_cycle()
    return runs[0], graphs


def test_captured_it_acts_and_learns_as_it_does_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    eager, _ = run_for(36, monkeypatch, captured=False)
    captured, graphs = run_for(36, monkeypatch, captured=True)
    assert len(graphs) == 2, "acting and updates"
    assert eager.counters == captured.counters
    assert eager.counters.updates > 4
    parts = [
        {"workflow": run.workflow.state_dict(), "replay": run.buffers["replay"].columns, "at": run.collector.state_dict()}  # type: ignore[union-attr]
        for run in (eager, captured)
    ]
    for mine, theirs in zip(*(pytree.tree_leaves(part) for part in parts), strict=True):
        if isinstance(mine, Tensor):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


def test_in_bfloat16_every_part_learns_about_what_it_learns_in_full_precision() -> None:
    # The actor is first used in imagination, without gradients: weights rounded there must not be taken for its own later.
    w, batch = filled()
    state, found = {"return_low": w.return_low, "return_high": w.return_high}, {}
    for precision in (torch.float32, torch.bfloat16):
        w._dtype = lambda precision=precision: precision
        w.optimizer.zero_grad(set_to_none=True)
        out = w.loss(batch, state, Noise(torch.Generator().manual_seed(3)))
        out.loss.backward()
        parts = {"rssm": w.rssm, "encoder": w.encoder, "decoder": w.decoder, "actor": w.actor, "critic": w.critic}
        found[precision] = {
            name: torch.cat([p.grad.flatten() for p in part.parameters() if p.grad is not None]) for name, part in parts.items()
        }
        assert out.loss.dtype is torch.float32
    for name, exact in found[torch.float32].items():
        rounded = found[torch.bfloat16][name]
        if name == "actor":  # by a few samples, which rounding may change; but it learns
            assert rounded.norm() > 0
        else:
            assert torch.nn.functional.cosine_similarity(exact, rounded, 0) > 0.9, name


@pytest.mark.slow
@pytest.mark.parametrize(
    ("probe", "worth"),
    [
        ("TimeLimit", {0: 10.0}),
        ("Termination", {state: (1 - 0.9**left) / 0.1 for state, left in enumerate((5, 4, 3, 2, 1))}),
    ],
)
def test_states_are_worth_what_follows_them(probe: str, worth: dict[int, float]) -> None:
    """A time limit takes nothing from what a state is worth, and an end takes all that would have followed."""
    words = (
        *("algorithm.gamma=0.9", "algorithm.learning_rate=1e-3", "algorithm.train_ratio=16", "training.total_steps=4000"),
        *("environment.num_envs=4", "algorithm.imagination_starts=16", "algorithm.horizon=5", "buffers.replay.capacity=10000"),
    )
    orchestrator = build(f"etude.testing.probes:probe/{probe}-v0:dreamer", *words)
    orchestrator.run()
    w: Any = orchestrator.workflow
    batch = orchestrator.buffers["replay"].sample(64, orchestrator.streams["buffer"])
    _, values = w.followed({name: batch[name] for name in w.columns}, generator=torch.Generator().manual_seed(1))
    seen = batch["observation"].argmax(-1).transpose(0, 1)
    for state, expected in worth.items():
        assert values[seen == state].mean().item() == pytest.approx(expected, rel=0.1), state


# ---- looking into it --------------------------------------------------------------------------------------------------


def test_it_dreams_without_an_environment() -> None:
    w, _ = filled()
    dream = w.imagine(6, count=3, generator=torch.Generator().manual_seed(1))
    assert dream.observations.shape == (7, 3, 4)
    assert dream.actions.shape == (6, 3, 2)
    assert dream.rewards.shape == dream.continues.shape == (6, 3)
    assert bool(((dream.continues > 0) & (dream.continues < 1)).all())


def test_open_loop_predictions_depend_on_actions_and_not_on_what_is_seen_then() -> None:
    w, batch = filled()
    one = w.open_loop(batch, 3, 4, generator=torch.Generator().manual_seed(1))
    assert one.observed.shape == (7, B, 4)
    assert one.reconstructed.shape == (3, B, 4)
    later = batch["observation"].clone()
    later[:, 3:] = 9.0
    blind = w.open_loop({**batch, "observation": later}, 3, 4, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(blind.predicted, one.predicted)
    other = w.open_loop({**batch, "action": 1 - batch["action"]}, 3, 4, generator=torch.Generator().manual_seed(1))
    assert not torch.equal(other.predicted, one.predicted)


# ---- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("buffers.replay.sequence=null", "learns from windows"),
        ("environment.normalize_rewards=true", "scales returns itself"),
        ("environment.normalize_observations=rolling", "by their symlog"),
        ("buffers.replay.leave_out=[next_observation]", "is what dreamer learns from"),
    ],
)
def test_settings_that_can_not_work_are_refused(word: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        compose("CartPole-v1:dreamer", words=(*TINY, word))


def test_masked_actions_are_refused() -> None:
    with pytest.raises(UserError, match="action_mask"):
        build("etude.testing.probes:probe/Masked-v0:dreamer")
