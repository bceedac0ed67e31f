"""Pictures of what a network sees: stacks side by side, and what in them decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etude.errors import UserError
from etude.inspecting import pictures
from etude.inspecting.inspector import Inspector
from tests.inspecting.conftest import Trained

TASK = """
import gymnasium, numpy as np
from gymnasium import spaces

class Bright(gymnasium.Env):
    observation_space = spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.seen(), {}

    def step(self, action):
        self.time += 1
        return self.seen(), float(action), self.time >= 8, False, {}

    def seen(self):
        picture = np.full((36, 36, 1), 20 + self.time, np.uint8)
        picture[:18, 18:] = 255
        return picture

if "Bright-v0" not in gymnasium.registry:
    gymnasium.register("Bright-v0", Bright)
"""
SMALL_CNN = "{type: cnn, channels: [4], kernels: [6], strides: [6], hidden_dims: [8]}"
WORDS = (
    f"network.actor={SMALL_CNN}",
    f"network.critic={SMALL_CNN}",
    "environment.wrappers=[{id: stack, count: 4}]",
)


@pytest.fixture
def inspector(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inspector:
    (tmp_path / "bright_task.py").write_text(TASK)
    monkeypatch.syspath_prepend(tmp_path)
    return Inspector.open(trained("bright_task:Bright-v0:ppo", *WORDS), pictures=False, trusted=True)


def test_a_stack_lies_side_by_side_the_newest_at_the_right(inspector: Inspector) -> None:
    recording = inspector.record(0)
    frames = pictures.frames_of(recording.steps[5].observation)  # type: ignore[arg-type] # one picture
    assert [int(frame[-1, 0, 0]) for frame in frames] == [22, 23, 24, 25]
    picture: Any = pictures.stack_picture(inspector.environment, recording.steps[5].observation)
    assert picture.shape == (36, 4 * 36, 3)


def test_saliency_is_red_where_the_decision_comes_from(inspector: Inspector, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that looks at the upper right corner alone."""
    recording = inspector.record(0)
    monkeypatch.setattr(pictures, "_scores", lambda performer, batch, action: batch[:, :6, 30:].float().mean((1, 2, 3)))
    picture = pictures.saliency(inspector, recording, 2)
    redness = picture[..., 0].astype(int) - picture[..., 1]
    assert redness[:3, -3:].min() > 60
    assert np.abs(redness[18:]).max() == 0


def test_saliency_asks_the_policy_itself(inspector: Inspector) -> None:
    recording = inspector.record(0, max_steps=3)
    before = pictures.frames_of(recording.steps[1].observation)[-1]  # type: ignore[arg-type] # one picture
    assert pictures.saliency(inspector, recording, 1).shape == (36, 36, 3)
    assert not np.array_equal(pictures.saliency(inspector, recording, 1), before)


def test_a_policy_that_sees_no_pictures_has_no_saliency(trained: Trained) -> None:
    blind = Inspector.open(trained("CartPole-v1:ppo"), pictures=False)
    with pytest.raises(UserError, match="this policy sees none"):
        pictures.saliency(blind, blind.record(0, max_steps=2), 0)
