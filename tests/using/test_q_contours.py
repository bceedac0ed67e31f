"""Pictures of the Q-function: one with each checkpoint, of what was saved, and training does not notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etude.components.critics import with_action
from etude.errors import UserError
from etude.using import q_contours
from etude.using.stored_policy import open_policy
from tests.runs_compared import assert_same_state, state, train

TINY = (
    *("network.critic.hidden_dims=[16]", "algorithm.batch_size=8", "algorithm.learning_starts=8", "environment.num_envs=2"),
    *("training.total_steps=80", "evaluation.every_steps=0", "checkpoint.every_steps=40", "algorithm.gradient_steps=1"),
)
WITH = "training.callbacks=[{type: q_contours, observations: [[0, 0], [1, 2]], samples: 5, trajectories: 3}]"
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("algorithm", ["sac", "sql", "td3", "tqc"])
def test_there_is_a_picture_with_each_checkpoint(algorithm: str, tmp_path: Path) -> None:
    run = train(f"MultiGoal-v0:{algorithm}", tmp_path, *TINY, WITH)
    pictures = sorted((run.logs / "q_contours").iterdir())
    assert [file.name for file in pictures] == [f"steps-{steps:010d}.png" for steps in (0, 40, 80)]
    assert all(file.read_bytes().startswith(PNG) for file in pictures)


def test_training_does_not_notice(tmp_path: Path) -> None:
    drawn = train("MultiGoal-v0:td3", tmp_path / "drawn", *TINY, WITH)
    plain = train("MultiGoal-v0:td3", tmp_path / "plain", *TINY)
    one, other = state(drawn), state(plain)
    one["shared"].pop("callbacks")
    other["shared"].pop("callbacks")
    assert_same_state(one, other)


def test_contours_are_the_lowest_critic_s_values(tmp_path: Path) -> None:
    from etude.environments.make import make_environment

    run = train("MultiGoal-v0:td3", tmp_path, *TINY)
    stored = open_policy(run, "last")
    environment = make_environment(stored.config.environment, num_envs=1)
    w: Any = stored.workflow(environment)
    heights = q_contours._contours(w, torch.tensor([1.0, 2.0]))
    across, up = 30, 7
    action = torch.tensor([[-1 + across / 20, -1 + up / 20]])
    with torch.no_grad():
        expected = w.critic(with_action(torch.tensor([[1.0, 2.0]]), action)).amin()
    assert heights[up, across] == pytest.approx(expected.item(), rel=1e-5)
    paths = q_contours._paths(w, environment, "greedy", torch.Generator().manual_seed(1), seed=3)
    assert len(paths) == 1
    assert np.abs(paths[0][0]).max() < 1  # it begins near the middle
    assert np.abs(np.diff(paths[0], axis=0)).max() <= 1 + 1e-6  # and no step is longer than an action
    assert q_contours.draw(stored, [[0, 0]], trajectories=0) == q_contours.draw(stored, [[0, 0]], trajectories=0)


@pytest.mark.parametrize(
    ("spec", "observations", "message"),
    [
        ("Pendulum-v1:td3", "[[0, 0, 0]]", "continuous actions of two dimensions, and Pendulum-v1 has Box"),
        ("MultiGoal-v0:td3", "[[0, 0, 0]]", "is not an observation of MultiGoal-v0"),
        ("MultiGoal-v0:random", "[[0, 0]]", "random has no Q-function of actions"),
    ],
)
def test_nothing_to_draw_is_said_before_training(spec: str, observations: str, message: str, tmp_path: Path) -> None:
    words = TINY if spec.endswith("td3") else ("training.total_steps=80",)
    with pytest.raises(UserError, match=message):
        train(spec, tmp_path, *words, f"training.callbacks=[{{type: q_contours, observations: {observations}}}]")
