"""World Models: what is encoded and when, how controllers are judged, and that it is the same run however it is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from etude.components.mdn_rnn import CELL, HIDDEN
from etude.components.networks.vae import Posterior
from etude.config.compose import compose
from etude.errors import ConfigError, UserError
from etude.orchestration.orchestrator import Orchestrator
from etude.telemetry.jsonl import read_rows
from etude.training import assembly
from etude.workflows.world_models.config import LATENT
from etude.workflows.world_models.policy import Controller
from tests.capture_double import pretend_capture
from tests.runs_compared import assert_resumes_again_and_again, assert_same_state, train
from tests.workflows.tiny_replay_runs import start
from tests.workflows.tiny_runs import PHASE, copied, state_of

TINY = (
    *("algorithm.latent_dim=3", "algorithm.memory_size=6", "algorithm.mixtures=2", "network.vae.hidden_dims=[8]"),
    *("algorithm.batch_size=8", "algorithm.memory_batch_size=4", "buffers.replay.sequence=5", "buffers.replay.capacity=400"),
    *("algorithm.collect_steps=120", "algorithm.vae_updates=12", "algorithm.memory_updates=12", "algorithm.population=4"),
    *(
        "algorithm.episodes=2",
        "algorithm.generations=4",
        "algorithm.dream_steps=7",
        "environment.num_envs=3",
        "algorithm.dream=false",
    ),
    *("environment.max_episode_steps=20", "training.total_steps=600", "evaluation.every_steps=0", "experiment.compile=off"),
)
CART = "CartPole-v1:world_models"
PIXELS = (
    *("environment.wrappers=[pixel_observations, {id: resize, size: 64}]", "network.vae.channels=[2, 2, 4, 4]"),
    *("environment.num_envs=2", "algorithm.collect_steps=24", "environment.max_episode_steps=6", "buffers.replay.capacity=100"),
)


def collected(spec: str = CART, *words: str) -> tuple[Any, Any, Orchestrator]:
    """A workflow whose random behaviour is stored, and the replay."""
    run = start(spec, (*TINY, *words))
    run.workflow.collect(PHASE, 40)
    return run.workflow, run.buffers["replay"], run


# ---- phases -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "phases"),
    [
        ((), ["collect", "vae", "memory", "evolve"]),
        (("algorithm.memory=random",), ["collect", "vae", "evolve"]),
        (("algorithm.memory=off",), ["collect", "vae", "evolve"]),
        (("algorithm.dream=true",), ["collect", "vae", "memory", "dream"]),
        (("training.total_steps=100",), ["collect", "vae", "memory"]),
    ],
)
def test_a_run_is_these_phases(words: tuple[str, ...], phases: list[str]) -> None:
    run = start(CART, (*TINY, *words))
    assert [phase.name for phase in run.scheduler.phases] == phases


def test_a_budget_that_leaves_nothing_to_evolve_in_is_remarked() -> None:
    config = compose(CART, words=[*TINY, "training.total_steps=100"]).config
    (said,) = assembly._workflow_class(config).remarks(config)
    assert said.startswith("algorithm.collect_steps=120: leaves nothing of training.total_steps=100")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (CART, ()),
        (CART, ("algorithm.dream=true", "algorithm.exploration=brownian")),
        ("Pendulum-v1:world_models", ("algorithm.memory=off", "algorithm.exploration=brownian")),
        (
            CART,
            (
                *PIXELS,
                "buffers.replay.storage=disk",
                "training.total_steps=60",
                "algorithm.vae_updates=3",
                "algorithm.episodes=1",
            ),
        ),
    ],
    ids=["in the task", "in dreams", "no memory", "pixels on disk"],
)
def test_stopped_anywhere_it_is_the_run_that_was_not(spec: str, words: tuple[str, ...], tmp_path: Path) -> None:
    rows = ("logging.every_steps=30", "logging.every_updates=4", "checkpoint.every_steps=0", "evaluation.episodes=1")
    run = assert_resumes_again_and_again(spec, tmp_path, *TINY, *rows, *words, most=3)
    assert run.summary["counters"]["updates"] > 12


@pytest.mark.parametrize("hook", ["collect", "update_vae", "update_memory", "dream", "evolve"])
def test_work_in_pieces_is_the_work_at_once(hook: str) -> None:
    outcomes = []
    for counts in ((7,), (3, 1, 3)):
        workflow, _, run = collected()
        for before in ("update_vae", "update_memory", "evolve"):
            getattr(workflow, before)(PHASE, 4)
        for count in counts:
            getattr(workflow, hook)(PHASE, count)
        outcomes.append((copied(state_of(run)), workflow.metrics.drain()))
    assert_same_state(outcomes[0][0], outcomes[1][0])
    assert outcomes[0][1] == outcomes[1][1]


# ---- what V sees ------------------------------------------------------------------------------------------------------


def test_everything_that_was_seen_is_encoded_as_v_is_now_and_once() -> None:
    workflow, replay, _ = collected()
    workflow.update_vae(PHASE, 3)
    assert not bool(replay.columns[LATENT].any())
    workflow.update_memory(PHASE, 1)
    batch = replay.sample(20, torch.Generator().manual_seed(1), (LATENT, "observation"))
    torch.testing.assert_close(batch[LATENT], torch.cat(workflow.vae.observe(batch["observation"]), -1))
    workflow.vae.observe = pytest.fail
    workflow.update_memory(PHASE, 1)
    del workflow.vae.observe
    before = replay.columns[LATENT].clone()
    workflow.update_vae(PHASE, 1)
    workflow.update_memory(PHASE, 1)
    assert not torch.equal(replay.columns[LATENT][:40], before[:40])


def test_what_was_collected_since_is_encoded_too() -> None:
    workflow, replay, _ = collected()
    workflow.update_vae(PHASE, 3)
    workflow.update_memory(PHASE, 1)
    old = replay.columns[LATENT][:40].clone()
    workflow.collect(PHASE, 10)
    workflow.update_memory(PHASE, 1)
    assert torch.equal(replay.columns[LATENT][:40], old)
    assert bool(replay.columns[LATENT][40:50].any(-1).all())


def test_v_looks_at_the_scale_of_vectors_before_it_learns() -> None:
    workflow, replay, _ = collected("Pendulum-v1:world_models")
    workflow.update_vae(PHASE, 1)
    seen = torch.cat([batch["observation"] for batch in workflow._walk(replay, 0)]).double()
    torch.testing.assert_close(workflow.vae.moments.mean, seen.mean(0))
    torch.testing.assert_close(workflow.vae.moments.var, seen.var(0, correction=0))
    workflow.collect(PHASE, 5)
    workflow.update_vae(PHASE, 1)
    assert int(workflow.vae.moments.count) == len(seen)


def test_latents_are_drawn_anew_for_every_batch() -> None:
    workflow, replay, _ = collected()
    workflow.update_vae(PHASE, 1)
    workflow._encode(replay)
    drawn: list[Tensor] = []
    original = Posterior.draw

    def noted(self: Posterior, noise: Tensor) -> Tensor:
        drawn.append(noise)
        return original(self, noise)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Posterior, "draw", noted)
        workflow.update_memory(PHASE, 2)
    assert not torch.equal(drawn[0], drawn[1])


# ---- random behaviour -------------------------------------------------------------------------------------------------


def test_a_random_network_is_another_one_in_each_episode_and_the_same_within() -> None:
    run = start(CART, TINY)
    weights = []
    for _ in range(30):
        run.workflow.collect(PHASE, 1)
        assert run.collector is not None
        weights.append(run.collector.actor_state["explorer"].clone())
    first = run.buffers["replay"].columns["is_first"][:30]  # type: ignore[attr-defined]
    for t in range(1, 30):
        for copy in range(3):
            assert torch.equal(weights[t][copy], weights[t - 1][copy]) != bool(first[t, copy])


def test_wandering_actions_stay_within_bounds_and_close_to_the_last() -> None:
    _, replay, _ = collected("Pendulum-v1:world_models", "algorithm.exploration=brownian", "algorithm.exploration_std=0.1")
    actions, first = replay.columns["action"][:40, :, 0], replay.columns["is_first"][:40]
    assert bool((actions.abs() <= 2).all())
    moved = (actions[1:] - actions[:-1]).abs()[~first[1:]]
    assert 0.02 < float(moved.mean()) < 0.5  # 0.1 of bounds that are ±2
    assert actions[0].unique().numel() == 3


# ---- controllers ------------------------------------------------------------------------------------------------------


def test_every_row_has_a_controller_of_its_own() -> None:
    run = start("Pendulum-v1:world_models", TINY)
    controller: Controller = run.workflow.controller  # type: ignore[assignment]
    features, weights = torch.randn(5, controller.features), torch.randn(5, controller.size)
    together = controller(features, weights)
    for row in range(5):
        matrix = weights[row].view(controller.outputs, -1)
        torch.testing.assert_close(together[row], torch.tanh(matrix[:, :-1] @ features[row] + matrix[:, -1]))


def test_controllers_are_judged_by_whole_episodes_in_the_task() -> None:
    workflow, replay, _ = collected("etude.testing.probes:probe/Now-v0:world_models")  # 10 steps an episode
    held = replay.size
    result = workflow.evolve(PHASE, 30)  # 4 candidates · 2 episodes on 3 copies: three turns of 10 steps
    assert (result.updates, result.decisions, replay.size) == (1, 90, held)
    assert workflow.evolution.generation == 1
    assert torch.equal(workflow.controller.weights, workflow.evolution.mean.float())
    rows = workflow.metrics.drain()
    assert rows["train/fitness_mean"] <= rows["train/fitness_best"] <= 10


def test_what_evolution_does_is_no_part_of_what_is_stored() -> None:
    workflow, replay, _ = collected()
    workflow.evolve(PHASE, 5)
    workflow.collect(PHASE, 3)
    assert bool(replay.columns["is_first"][40].all())
    workflow.evolve(PHASE, 1)  # and its turn begins anew
    assert workflow.judging._steps == 1


@torch.no_grad()
def test_a_dream_is_its_steps_one_by_one() -> None:
    workflow, replay, _ = collected(CART, "algorithm.temperature=1.3")
    with torch.enable_grad():
        workflow.update_vae(PHASE, 2)
        workflow.update_memory(PHASE, 4)
    chance = torch.Generator().manual_seed(3)
    starts = workflow._beginnings(replay, 2, chance)
    weights, state = torch.randn(4, workflow.controller.size, generator=chance), chance.get_state()
    returns = workflow.dreamt(weights, starts, 6, chance)
    chance.set_state(state)
    numbers = [(torch.rand(2, 3, generator=chance), torch.randn(2, 3, generator=chance)) for _ in range(6)]
    memory = workflow.memory
    for candidate in range(4):
        for episode in range(2):
            latent, state, alive, total = starts[episode : episode + 1], memory.initial(1), 1.0, 0.0
            for uniform, normal in numbers:
                seen = torch.cat([latent, state[HIDDEN]], -1)
                action = workflow.controller(seen, weights[candidate : candidate + 1])
                state = memory.step(state, latent, action)
                outlook = memory.outlook(state[HIDDEN])
                total += alive * float(memory.rewards.mean(outlook.reward))
                alive *= 1 - float(outlook.end.sigmoid())
                latent = outlook.draw(uniform[episode : episode + 1], normal[episode : episode + 1], 1.3)
            assert float(returns[candidate, episode]) == pytest.approx(total, rel=1e-4, abs=1e-5)


def test_dreams_begin_as_episodes_do_and_end_where_m_says() -> None:
    workflow, replay, _ = collected()
    workflow.update_vae(PHASE, 1)
    workflow._encode(replay)
    first = replay.columns["is_first"][:40]
    means, log_vars = replay.columns[LATENT][:40][first].chunk(2, -1)
    starts = workflow._beginnings(replay, 200, torch.Generator().manual_seed(1))
    apart = ((starts[:, None] - means) / log_vars.mul(0.5).exp()).abs().amax(-1).amin(1)
    assert float(apart.max()) < 6  # deviations
    torch.nn.init.constant_(workflow.memory.head.bias[-1:], 50.0)  # every step is the last
    one, many = (workflow.dreamt(torch.zeros(4, workflow.controller.size), starts[:2], n, torch.Generator()) for n in (1, 5))
    torch.testing.assert_close(one, many)


def test_dreams_earn_more_where_the_controller_does_what_pays() -> None:
    """M's memory is told that action 1 pays: evolution in dreams finds it."""
    workflow, _, _ = collected(CART, "algorithm.memory_size=24", "algorithm.sigma=1")
    workflow.update_vae(PHASE, 5)
    chance = torch.Generator().manual_seed(2)
    optimizer = torch.optim.Adam(workflow.memory.parameters(), 2e-2)
    for _ in range(80):
        action = torch.randint(0, 2, (6, 16), generator=chance)
        latent, never = torch.randn(6, 16, 3, generator=chance), torch.zeros(6, 16, dtype=torch.bool)
        one_hot = workflow.head.from_environment(action)
        losses = workflow.memory.losses(latent, one_hot, never, action.float(), never)
        optimizer.zero_grad()
        (losses["reward"] + losses["done"]).backward()
        optimizer.step()
    workflow.dream(PHASE, 1)
    before = workflow.metrics.drain()["train/fitness_mean"]
    workflow.dream(PHASE, 10)
    workflow.metrics.drain()
    workflow.dream(PHASE, 1)
    assert workflow.metrics.drain()["train/fitness_mean"] > max(5.5, before)


# ---- the policy -------------------------------------------------------------------------------------------------------


def test_the_policy_remembers_what_it_saw_and_did() -> None:
    workflow, _, _ = collected("Pendulum-v1:world_models")
    policy, chance = workflow.policy(), torch.Generator().manual_seed(1)
    workflow.controller.weights.normal_(generator=chance)
    seen, first = torch.randn(2, 4, 3, generator=chance), torch.ones(4, dtype=torch.bool)
    action, state, _ = policy.act(seen[0], policy.initial_state(4), first, mode="greedy", generator=chance)
    latent = workflow.vae(seen[0])
    after = workflow.memory.step(workflow.memory.initial(4), latent, action / 2)
    torch.testing.assert_close(state, after)
    again, state, _ = policy.act(seen[1], state, ~first, mode="greedy", generator=chance)
    features = torch.cat([workflow.vae(seen[1]), after[HIDDEN]], -1)
    torch.testing.assert_close(again, 2 * workflow.controller(features))
    assert set(state) == {HIDDEN, CELL}


def test_without_a_memory_it_is_one_pass() -> None:
    policy = collected()[0].policy()
    assert policy.one_pass() is policy
    for spec in (CART, "Pendulum-v1:world_models"):
        workflow, replay, _ = collected(spec, "algorithm.memory=off")
        chance = torch.Generator().manual_seed(1)
        workflow.controller.weights.normal_(generator=chance)
        policy, seen = workflow.policy(), replay.sample(6, chance)["observation"][:, 0]
        first = torch.ones(6, dtype=torch.bool)
        one, other = (p.act(seen, None, first, mode="greedy", generator=chance).action for p in (policy, policy.one_pass()))
        torch.testing.assert_close(one, other)


# ---- captured -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exploration", ["random_network", "brownian"])
def test_captured_it_acts_learns_and_dreams_as_it_does_eager(exploration: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Any] = []

    def touched() -> list[Tensor]:
        return [*runs[-1].workflow._vae_executor.touched(), *runs[-1].workflow._memory_executor.touched()]

    words = (*TINY, f"algorithm.exploration={exploration}")
    for mode in ("eager", "captured"):
        graphs = pretend_capture(monkeypatch, touched) if mode == "captured" else []
        monkeypatch.setattr(assembly, "execution_mode", lambda config, mode=mode: mode)
        runs.append(assembly.build(assembly.resolve(compose(CART, words=words).config)))
        run = runs[-1]
        run.collector.start(run.workflow.initial_state)
        for hook, count in (("collect", 40), ("update_vae", 5), ("update_memory", 5), ("dream", 2), ("evolve", 12)):
            getattr(run.workflow, hook)(PHASE, count)
        assert len(graphs) == (5 if mode == "captured" else 0), "exploring, V, M, dreams and candidates"
    for mine, theirs in zip(*(pytree.tree_leaves(state_of(run)) for run in runs), strict=True):
        if isinstance(mine, Tensor):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-4)


# ---- what is seen and said --------------------------------------------------------------------------------------------


def test_losses_and_fitness_are_logged_and_films_made_of_pixels(tmp_path: Path) -> None:
    words = (
        *PIXELS,
        "training.total_steps=24",
        "algorithm.dream=true",
        "algorithm.vae_updates=2",
        "algorithm.memory_updates=2",
    )
    run = train(CART, tmp_path, *TINY, *words, "logging.every_updates=1", "evaluation.every_steps=24", "evaluation.episodes=1")
    logged = {name for row in read_rows(run.metrics_path) for name in row}
    names = ("vae_loss", "reconstruction_loss", "kl", "memory_loss", "memory_nll", "reward_loss", "done_loss", "fitness_best")
    assert {f"train/{name}" for name in names} <= logged
    films = {path.name: path.stat().st_size > 100 for path in (run.path / "videos").iterdir()}
    assert films == {f"steps-0000000024-{name}.mp4": True for name in ("open_loop", "dream")}


def test_media_of_pixels_and_vectors() -> None:
    chance = torch.Generator().manual_seed(1)
    workflow, _, _ = collected(CART, *PIXELS)
    assert workflow.media(chance) == {}
    workflow.update_vae(PHASE, 1)
    assert {name: tuple(part.shape) for name, part in workflow.media(chance).items()} == {"open_loop": (5, 204, 408, 3)}
    workflow.update_memory(PHASE, 1)
    assert {name: tuple(part.shape) for name, part in workflow.media(chance).items()} == {
        "open_loop": (5, 204, 408, 3),
        "dream": (8, 68, 408, 3),
    }
    vectors, _, _ = collected("Pendulum-v1:world_models")
    vectors.update_vae(PHASE, 1)
    assert [*vectors.media(chance)] == ["open_loop"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("algorithm.dream=true", "algorithm.memory=random"), "algorithm.memory=random: dreams are M's, which must be learnt"),
        (("environment.normalize_observations=rolling",), "world_models scales observations itself; set it to off"),
        (("environment.normalize_rewards=true",), "learns rewards of any size as they are; set it to false"),
        (("buffers.replay.sequence=null",), "buffers.replay.sequence=null: world_models learns from windows"),
        (("buffers.replay.n_step=3",), "buffers.replay.n_step=3: world_models sums rewards itself"),
        (("buffers.replay.priority={}",), "buffers.replay: world_models draws uniformly"),
        (("buffers.replay.leave_out=[is_first]",), "buffers.replay.leave_out: 'is_first' is what world_models learns from"),
        (("algorithm.population=1",), "algorithm.population=1: must be at least 2"),
        (("algorithm.temperature=0",), "algorithm.temperature=0: must be above 0"),
        (("algorithm.memory=none",), "algorithm.memory=none: must be one of learnt, random, off"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_wrong_setting_is_one_line(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(CART, words=[*TINY, *words])
    assert says in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_phase_that_learns_a_memory_that_is_not_learnt_is_one_line() -> None:
    workflow, _, _ = collected(CART, "algorithm.memory=random")
    with pytest.raises(UserError, match=r"algorithm.memory=random leaves M as it is; set it to learnt"):
        workflow.update_memory(PHASE, 1)
    with pytest.raises(UserError, match=r"algorithm.memory=random can't dream; set it to learnt"):
        workflow.dream(PHASE, 1)


def test_pictures_of_another_size_are_one_line() -> None:
    words = (*TINY, "environment.wrappers=[pixel_observations]")
    with pytest.raises(UserError, match=r"network.vae: a vae sees pictures of 64 x 64 pixels, not 400 x 600"):
        assembly.build(assembly.resolve(compose(CART, words=words).config))
