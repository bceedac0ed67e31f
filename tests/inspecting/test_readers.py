"""What world models, planners and algorithms without values say of a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from etude.components.world_model import PREVIOUS_ACTION
from etude.inspecting.inspector import Inspector
from etude.inspecting.recording import same_future
from tests.inspecting.conftest import Trained
from tests.workflows.tdmpc_runs import TINY as TINY_TDMPC
from tests.workflows.test_dreamer import TINY as TINY_DREAMER

DREAMER = (*(word for word in TINY_DREAMER if "total_steps" not in word), "training.total_steps=72")
TDMPC = (*(word for word in TINY_TDMPC if "total_steps" not in word), "training.total_steps=48")


def test_a_dreamers_predictions_stand_beside_the_truth(trained: Trained) -> None:
    inspector = Inspector.open(trained("CartPole-v1:dreamer", *DREAMER), mode="sample", pictures=False)
    recording = inspector.record(0, max_steps=12)
    for step in recording.steps:
        assert step.insight.probabilities is not None
        assert step.insight.probabilities.sum() == 1 or abs(step.insight.probabilities.sum() - 1) < 1e-6
        assert step.insight.value is not None
        assert step.insight.predicted_reward is not None
        assert np.shape(step.insight.predicted_observation) == np.shape(step.observation)
    future = inspector.branch(recording, 6, max_steps=12)
    assert same_future(recording.steps, future.steps)
    assert [step.insight.predicted_reward for step in future.steps] == [
        step.insight.predicted_reward for step in recording.steps
    ]


def test_a_model_goes_on_from_the_action_that_was_really_taken(trained: Trained) -> None:
    inspector = Inspector.open(trained("CartPole-v1:dreamer", *DREAMER), mode="greedy", pictures=False)
    recording = inspector.record(0, max_steps=6)
    carried: list[Any] = []
    player = recording.performer.player
    listener = player.on_decision
    assert listener is not None

    def note(decision: Any) -> None:
        carried.append(decision.chosen.state[PREVIOUS_ACTION][0].clone())
        listener(decision)

    player.on_decision = note
    other = 1 - int(recording.steps[3].action)
    inspector.branch(recording, 3, action=other, max_steps=5)
    assert torch.equal(carried[3], torch.eye(2)[other])  # after the three steps that were taken again


def test_a_planners_model_says_what_an_action_earns(trained: Trained) -> None:
    inspector = Inspector.open(trained("Pendulum-v1:tdmpc", *TDMPC), mode="greedy", pictures=False)
    recording = inspector.record(0, max_steps=6)
    for step in recording.steps:
        said = step.insight
        assert None not in (said.value, said.q_taken, said.predicted_reward)
        assert said.mean is not None
    assert same_future(recording.steps, inspector.branch(recording, 3, max_steps=6).steps)


def test_an_algorithm_without_values_says_so_in_one_line(trained: Trained) -> None:
    inspector = Inspector.open(trained("CartPole-v1:random"), pictures=False)
    assert inspector.record(0, max_steps=3).columns().values is None
    assert [line for line in inspector.notes if "value function" in line] == [
        "no values and advantages: random has no value function"
    ]
