"""Policies that follow a world model of pictures, or of a robot's groups, as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from etude.config.compose import compose
from etude.deploy.acting_graph import graph_of
from etude.deploy.check import TOLERANCE, largest_difference
from etude.deploy.torch_files import run_torchscript, torchscript
from etude.training import assembly

SEEN = spaces.Box(-np.inf, np.inf, (3,), np.float32)
BOTH = spaces.Dict({"picture": spaces.Box(0, 255, (16, 16, 3), np.uint8), "numbers": SEEN})
GROUPS = spaces.Dict({"actor": SEEN, "critic": spaces.Box(-1, 1, (2,))})
REACH, CHOICES = spaces.Box(-2.0, 2.0, (2,), np.float32), spaces.Discrete(3, start=1)


@pytest.mark.parametrize(
    ("observations", "actions", "words"),
    [(BOTH, REACH, ()), (GROUPS, CHOICES, ("algorithm.stochastic=gaussian",))],
    ids=["pictures and numbers", "groups"],
)
def test_a_file_acts_as_dreamer_and_reads_what_dreamer_reads(
    observations: Any, actions: Any, words: tuple[str, ...], tmp_path: Path
) -> None:
    config = compose("CartPole-v1:dreamer", words=(*words, "algorithm.size=tiny", "experiment.device=cpu")).config
    policy = assembly.build_workflow(config, observations, actions).policy()
    graph = graph_of(policy, observations, actions, "dreamer")
    assert graph.memory
    assert "critic" not in graph.inputs, "what only the simulator knows is not part of it"
    (tmp_path / "policy.pt").write_bytes(torchscript(graph))
    assert largest_difference(policy, graph, observations, run_torchscript(tmp_path / "policy.pt", graph)) <= TOLERANCE
