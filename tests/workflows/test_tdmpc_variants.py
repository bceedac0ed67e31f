"""TD-MPC2 on pictures and raw vectors, with other dynamics, with the first version's settings, and what it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.compute.noise import Noise
from etude.config.compose import compose
from etude.config.schedules import Moment
from etude.errors import ConfigError, UserError
from etude.training import assembly
from tests.runs_compared import assert_same_run, resume, stopped_after, train
from tests.workflows.tdmpc_runs import BOX_ACTIONS, ENDINGS, TINY, build, trained, window_of

# ---- pictures, raw vectors, other dynamics --------------------------------------------------------------------------------


def on_pictures(*words: str) -> tuple[Any, dict[str, Any]]:
    """A workflow that sees pictures, and a batch of windows that are all the same picture."""
    space, action = spaces.Box(0, 255, (9, 64, 64), np.uint8), spaces.Box(-1, 1, (2,))
    config = compose("Pendulum-v1:tdmpc", words=(*TINY, "experiment.device=cpu", *words)).config
    w: Any = assembly.build_workflow(config, space, action)
    picture = torch.randint(0, 256, (9, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    falses = torch.zeros(4, 3, dtype=torch.bool)
    seen = picture.expand(4, 3, 9, 64, 64)
    batch = {"observation": seen, "next_observation": seen, "sample": torch.zeros(4, 3, 2), "reward": torch.zeros(4, 3)}
    return w, {**batch, "terminated": falses, "is_first": falses}


@pytest.mark.parametrize(("words", "latents"), [((), 4), (("algorithm.random_shift=0",), 1)])
def test_pictures_are_shifted_while_learning_and_not_while_acting(words: tuple[str, ...], latents: int) -> None:
    w, batch = on_pictures(*words)
    noise = Noise(torch.Generator().manual_seed(1))
    out = w.model_loss(batch, noise)
    assert len(out.carry["latents"][:, 0].detach().unique(dim=0)) == latents, "each window's first picture by itself"
    shifts = {name: request.shape for name, request in noise.requests.items() if "shift" in name}
    assert shifts == ({"next_shift": (4, 3, 2), "first_shift": (4, 2)} if latents > 1 else {})
    seen, first = batch["observation"][:, 0], torch.ones(4, dtype=torch.bool)
    generator = torch.Generator().manual_seed(1)
    w.policy().act(seen, w.policy().initial_state(4), first, mode="greedy", generator=generator)
    assert len(w.model.encode(seen).unique(dim=0)) == 1


def test_vectors_ask_for_no_shifts() -> None:
    orchestrator = build()
    w, noise = trained(orchestrator), Noise(torch.Generator().manual_seed(1))
    w.model_loss(window_of(orchestrator), noise)
    assert set(noise.requests) == {"next_action"}


RAW = ("network.encoder={type: identity}", "network.dynamics={type: mlp, hidden_dims: [32, 32], activation: relu}")
NOT_RAW = ("network.encoder.", "algorithm.latent_dim", "network.dynamics.")
RAW_TINY = (*(word for word in TINY if not word.startswith(NOT_RAW)), *RAW)


def test_the_raw_vector_may_be_the_latent() -> None:
    orchestrator = build("Pendulum-v1:tdmpc", "algorithm.horizon=1", tiny=RAW_TINY)
    w = trained(orchestrator)
    batch = window_of(orchestrator)
    assert torch.equal(w.model.encode(batch["observation"]), batch["observation"])
    with torch.no_grad():
        pair = torch.cat([batch["observation"][:, 0], batch["sample"][:, 0]], -1)
        loss = (w.dynamics(pair) - batch["next_observation"][:, 0]).square().mean()
        metrics = w.model_loss(batch, Noise(torch.Generator())).metrics
    torch.testing.assert_close(metrics["train/consistency_loss"], loss)
    assert "train/model_grad_norm_encoder" not in w.metrics.drain()


def test_a_stopped_run_on_raw_vectors_is_the_run_that_was_not(tmp_path: Path) -> None:
    whole = train("Pendulum-v1:tdmpc", tmp_path / "whole", *RAW_TINY)
    with stopped_after(33):
        parted = train("Pendulum-v1:tdmpc", tmp_path / "parted", *RAW_TINY)
    resume(parted)
    assert_same_run(whole, parted)


def test_raw_pictures_are_refused_with_what_to_use() -> None:
    config = compose("Pendulum-v1:tdmpc", words=(*RAW_TINY, "experiment.device=cpu")).config
    with pytest.raises(UserError, match=r"^network.encoder: type=identity .* the observation is a picture; use normed_mlp"):
        assembly.build_workflow(config, spaces.Box(0, 255, (3, 64, 64), np.uint8), spaces.Box(-1, 1, (2,)))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            RAW[:1],
            r"network.dynamics.simplex=8: with network.encoder.type=identity .* set it to null, or network.dynamics.type=mlp",
        ),
        ((*RAW, "algorithm.latent_dim=8"), r"algorithm.latent_dim=8: with network.encoder.type=identity it follows"),
    ],
)
def test_what_does_not_go_with_raw_vectors_is_said(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        compose("Pendulum-v1:tdmpc", words=words)


def random_steps(seed: int, network: str) -> tuple[Any, dict[str, Any]]:
    """A workflow that knows nothing, and 5,000 steps of uniformly random actions."""
    words = (network, "algorithm.horizon=1", "algorithm.learning_starts=5000", "training.total_steps=5000")
    orchestrator = build("Pendulum-v1:tdmpc", *words, f"experiment.seed={seed}", tiny=RAW_TINY)
    while orchestrator._run_cycle():
        pass
    return orchestrator.workflow, window_of(orchestrator, 5000)


@pytest.mark.slow
def test_a_deterministic_model_predicts_the_next_state_of_a_pendulum() -> None:
    network = "network.dynamics={type: mlp, hidden_dims: [64, 64], activation: relu}"
    (w, seen), (_, others) = (random_steps(seed, network) for seed in (1, 2))

    def error(batch: dict[str, Any]) -> Any:
        _, led_to = w.model.ahead(w.model.encode(batch["observation"][:, 0]), batch["sample"])
        return (led_to - batch["next_observation"]).square().mean()

    optimizer, generator = torch.optim.Adam(w.dynamics.parameters()), torch.Generator().manual_seed(0)
    for k in range(5000):
        optimizer.param_groups[0]["lr"] = 2e-3 * (1 - k / 5000)
        rows = torch.randint(5000, (256,), generator=generator)
        optimizer.zero_grad()
        error({name: seen[name][rows] for name in ("observation", "sample", "next_observation")}).backward()
        optimizer.step()
    still = (others["observation"] - others["next_observation"]).square().mean()
    assert still > 0.05, "a model that says that nothing moves would do"
    assert error(others) < 1e-3


# ---- schedules and presets ------------------------------------------------------------------------------------------------


def test_the_smallest_deviation_of_plans_follows_its_schedule_and_stays_with_the_policy() -> None:
    schedule = "algorithm.min_std={start: 0.5, end: 0.1, end_at: 80, unit: decisions}"
    orchestrator = build("Pendulum-v1:tdmpc", schedule)
    w: Any = orchestrator.workflow
    seen, first = torch.zeros(2, 3), torch.ones(2, dtype=torch.bool)

    def least(policy: Any) -> float:
        on = {"mode": "greedy", "generator": torch.Generator().manual_seed(1)}
        return float(policy.decide(seen, policy.initial_state(2), first, **on)[1].std.min())

    assert least(w.policy()) >= 0.5
    while orchestrator._run_cycle():
        pass
    assert 0.1 <= least(w.policy()) < 0.5
    config = compose("Pendulum-v1:tdmpc", words=(*TINY, schedule, "experiment.device=cpu")).config
    alone: Any = assembly.build_workflow(config, w.context.observation_space, w.context.action_space).policy()
    alone.load_state_dict(w.policy().state_dict())
    assert least(alone) == least(w.policy())


@pytest.mark.parametrize(
    ("task", "repeat"), [("cartpole-swingup", 8), ("cartpole-balance", 8), ("walker-stand", 2), ("cheetah-run", 4)]
)
def test_the_first_versions_settings_are_a_preset(task: str, repeat: int) -> None:
    config = compose(f"dmc/{task}:tdmpc_v1", words=()).config
    assert [wrapper.skip for wrapper in config.environment.wrappers] == [repeat]  # type: ignore[attr-defined]
    settings = config.algorithm
    assert (settings.name, settings.horizon, settings.momentum, settings.critics, settings.batch_size) == (
        "tdmpc",
        5,
        0.1,
        2,
        512,
    )
    floor = [settings.min_std.at(Moment(0, 10**6, decisions)) for decisions in (0, 12_500, 25_000, 90_000)]
    assert floor == pytest.approx([0.5, 0.275, 0.05, 0.05])


def test_pixels_are_a_preset_of_the_control_suite() -> None:
    config = compose("dmc/walker-walk:tdmpc_pixels", words=()).config
    assert [wrapper.id for wrapper in config.environment.wrappers] == ["frame_skip", "channels_first", "stack"]
    assert (config.algorithm.name, config.buffers["replay"].frame_stack) == ("tdmpc", 3)


# ---- what it shows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "names"), [((), {"plans", "rewards"}), (("algorithm.plan=false",), {"rewards"})])
def test_plans_and_rewards_are_shown_and_nothing_is_changed_by_it(words: tuple[str, ...], names: set[str]) -> None:
    w = trained(build(ENDINGS, BOX_ACTIONS, *words))
    streams = ("noise", "buffer", "action")
    before = [w.context.streams[name].get_state() for name in streams]
    shown = [w.media(torch.Generator().manual_seed(1)) for _ in range(2)]
    assert set(shown[0]) == names
    for name, picture in shown[0].items():
        assert picture.dtype == torch.uint8
        assert picture.shape[-1] == 3
        assert torch.equal(picture, shown[1][name])
        assert len(picture.flatten(0, 1).unique(dim=0)) > 2
    after = [w.context.streams[name].get_state() for name in streams]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_nothing_is_shown_before_there_is_anything() -> None:
    assert build().workflow.media(torch.Generator()) == {}
