"""Training, evaluating and playing take the same steps: the same seeds lead to the same episodes in all three."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from etude import assembly
from etude.buffers.rollout import RolloutBuffer
from etude.compute.random_streams import RandomStreams
from etude.config.compose import compose
from etude.environments.make import make_environment
from etude.orchestration.evaluator import evaluate_episodes
from etude.orchestration.player import Player
from etude.workflows.collector import Collector

ROOT, STEPS = 5, 120


@pytest.mark.parametrize("wrappers", ["[]", "[stack, {id: time_limit, steps: 15}]"])
def test_play_and_evaluation_take_the_training_collectors_path(wrappers: str) -> None:
    words = (
        "algorithm.batch_size=32",
        "environment.num_envs=1",
        f"environment.wrappers={wrappers}",
        "environment.backend=gymnasium",
    )
    config = assembly.resolve(compose("CartPole-v1:ppo", words=words).config)
    run = assembly.build(config)
    policy, device = run.workflow.policy(), torch.device("cpu")

    collector = Collector(make_environment(config.environment), RandomStreams(ROOT), device)
    collector.start(run.workflow.initial_state)
    rows = RolloutBuffer(STEPS)
    collector.collect(run.workflow.act, rows, STEPS)

    player = Player(policy, make_environment(config.environment), mode="sample")
    player.begin(ROOT)
    moments = [player.step() for _ in range(STEPS)]
    for name in ("observation", "action", "reward", "terminated", "truncated"):
        played = np.array([getattr(moment, name) for moment in moments])
        assert np.array_equal(rows.columns[name].squeeze(1).numpy(), played), name
    led_to = np.array([moment.next_observation for moment in moments])
    assert np.array_equal(rows.columns["final_observation"].squeeze(1).numpy(), led_to)

    ends = [i for i, moment in enumerate(moments) if moment.ended]
    lengths = np.diff([-1, *ends])
    assert len(lengths) >= 3
    measured = evaluate_episodes(policy, make_environment(config.environment), len(lengths), mode="sample", seed=ROOT)
    assert measured.lengths.tolist() == lengths.tolist()
    run.close()
