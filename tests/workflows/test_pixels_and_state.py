"""Observations of pixels and numbers, through an encoder each, train with an on-policy and an off-policy algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.components.critics import Ensemble
from etude.components.networks.keyed_encoder import KeyedEncoder
from etude.components.networks.mlp import MLP, MLPConfig
from etude.config.compose import compose
from etude.training import assembly
from etude.workflows.base import Phase
from tests.runs_compared import state, train

NAME = "PixelsAndState-v0"
ENCODERS = "{pixels: {type: cnn, channels: [4], kernels: [6], strides: [6]}, state: {type: mlp, hidden_dims: [8]}}"


class PixelsAndState(gymnasium.Env[Any, Any]):
    """Go where the picture is bright: pixels show it, the state says where one is."""

    def __init__(self) -> None:
        parts: dict[str, gymnasium.Space[Any]] = {
            "pixels": spaces.Box(0, 255, (36, 36, 1), np.uint8),
            "state": spaces.Box(-1, 1, (1,), np.float32),
        }
        self.observation_space, self.action_space = spaces.Dict(parts), spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.age, self.at, self.right = 0, 0.0, bool(self.np_random.integers(2))
        return self._observe(), {}

    def step(self, action: Any) -> Any:
        self.age, self.at = self.age + 1, float(np.clip(self.at + 0.2 * action[0], -1, 1))
        return self._observe(), self.at if self.right else -self.at, False, self.age == 10, {}

    def _observe(self) -> dict[str, Any]:
        pixels = np.zeros((36, 36, 1), np.uint8)
        pixels[:, 18:] = 255 * self.right
        pixels[:, :18] = 255 * (not self.right)
        return {"pixels": pixels, "state": np.array([self.at], np.float32)}


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    gymnasium.register(NAME, PixelsAndState)
    yield
    del gymnasium.registry[NAME]


def test_ppo_trains_on_pixels_and_state(tmp_path: Path) -> None:
    words = ("algorithm.rollout_steps=16", "algorithm.batch_size=32", "algorithm.epochs=1", "training.total_steps=256")
    networks = (f"network.actor={{type: gru, memory_size: 8, encoders: {ENCODERS}}}", f"network.critic.encoders={ENCODERS}")
    run = train(f"{NAME}:ppo", tmp_path, *words, *networks, "evaluation.episodes=1")
    assert run.status == "finished"


def test_sac_trains_on_pixels_and_state(tmp_path: Path) -> None:
    networks = (f"network.actor.encoders={ENCODERS}", f"network.critic.encoders={ENCODERS}")
    short = ("training.total_steps=140", "environment.num_envs=4", "evaluation.episodes=1", "algorithm.batch_size=16")
    small = ("network.actor.hidden_dims=[16]", "network.critic.hidden_dims=[16]", "algorithm.learning_starts=100")
    run = train(f"{NAME}:sac", tmp_path, *short, *small, *networks)
    assert run.status == "finished"
    assert run.summary["counters"]["updates"] > 0
    assert all(torch.isfinite(value).all() for value in state(run)["shared"]["workflow"]["critic"].values())


def test_critics_whose_encoders_learn_keep_one_each() -> None:
    space = PixelsAndState().observation_space
    members = [MLP(MLPConfig(hidden_dims=(8,)), space, 1, generator=torch.Generator().manual_seed(i)) for i in range(2)]
    together = Ensemble.of(members)
    assert isinstance(together, Ensemble)
    one, other = (member.encoder for member in members)
    assert isinstance(one, KeyedEncoder)
    assert not torch.equal(next(one.parameters()), next(other.parameters()))
    seen = {"pixels": torch.zeros(3, 36, 36, 1, dtype=torch.uint8), "state": torch.zeros(3, 1)}
    assert together(seen).shape == (2, 3, 1)


def test_dreamer_films_what_it_predicts_of_pixels_and_charts_the_state(tmp_path: Path) -> None:
    words = ("algorithm.size=tiny", "algorithm.batch_size=4", "algorithm.learning_starts=40", "algorithm.train_ratio=4")
    more = (
        "buffers.replay.sequence=8",
        "buffers.replay.capacity=1000",
        "algorithm.imagination_starts=4",
        "algorithm.horizon=2",
    )
    run = train(f"{NAME}:dreamer", tmp_path, *words, *more, "training.total_steps=64", "evaluation.episodes=1")
    media = {path.name.partition("-open")[2]: path for path in (run.path / "videos").glob("steps-*64-open_loop*")}
    assert {name: path.stat().st_size > 100 for name, path in media.items()} == {
        "_loop-pixels.mp4": True,
        "_loop-state.png": True,
    }


def test_a_replay_says_at_the_start_what_dreamers_latents_take() -> None:
    words = ("algorithm.size=tiny", "buffers.replay.sequence=8", "buffers.replay.capacity=1000")
    run = assembly.build(assembly.resolve(compose("CartPole-v1:dreamer", words=words).config))
    assert run.collector is not None
    run.collector.start(run.workflow.initial_state)
    expected = sum(run.buffers["replay"].room_for.expected.values())  # type: ignore[attr-defined]
    run.workflow.collect(Phase("train", total_steps=100), 1)
    assert run.buffers["replay"].nbytes == pytest.approx(expected, rel=0.05)
