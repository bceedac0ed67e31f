"""Policies that follow a world model are exported with what they remember as inputs and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.acting.policy import Policy
from etude.config.compose import compose
from etude.deploy.acting_graph import graph_of
from etude.deploy.check import TOLERANCE, largest_difference
from etude.deploy.graph import PolicyGraph
from etude.deploy.onnx_file import onnx_model, run_onnx
from etude.deploy.torch_files import capture, exported_program, run_exported_program, run_torchscript, torchscript
from etude.training import assembly
from tests.deploy.conftest import needs_onnx

SEEN = spaces.Box(-np.inf, np.inf, (3,), np.float32)
BOTH = spaces.Dict({"picture": spaces.Box(0, 255, (16, 16, 3), np.uint8), "numbers": SEEN})
GROUPS = spaces.Dict({"actor": SEEN, "critic": spaces.Box(-1, 1, (2,))})
REACH, CHOICES = spaces.Box(-2.0, 2.0, (2,), np.float32), spaces.Discrete(3, start=1)
DREAMER = ("CartPole-v1:dreamer", "algorithm.size=tiny")
CONTROLLER = ("CartPole-v1:world_models", "algorithm.latent_dim=3", "algorithm.memory_size=6", "network.vae.hidden_dims=[8]")


def exported(observations: spaces.Space[Any], actions: spaces.Space[Any], spec: str, *words: str) -> tuple[Policy, PolicyGraph]:
    """A policy with random weights, and what is written of it."""
    config = compose(spec, words=(*words, "experiment.device=cpu")).config
    workflow: Any = assembly.build_workflow(config, observations, actions)
    if spec.endswith(":world_models"):
        workflow.controller.weights.normal_(generator=torch.Generator().manual_seed(1))
    policy = workflow.policy()
    return policy, graph_of(policy, observations, actions, config.algorithm.name)


@pytest.mark.parametrize(
    ("observations", "actions", "words", "scripted"),
    [
        (BOTH, REACH, DREAMER, True),
        (GROUPS, CHOICES, (*DREAMER, "algorithm.stochastic=gaussian"), False),
        (SEEN, REACH, CONTROLLER, True),
        (SEEN, CHOICES, CONTROLLER, False),
    ],
    ids=["pictures", "groups", "bounded", "choices"],
)
def test_what_is_remembered_goes_in_and_out(
    observations: Any, actions: Any, words: tuple[str, ...], scripted: bool, tmp_path: Path
) -> None:
    policy, graph = exported(observations, actions, *words)
    remembered = {"begun"} | ({"deter", "stoch", "previous_action"} if words[0] == DREAMER[0] else {"hidden", "cell"})
    assert set(graph.memory) == {f"memory_{name}" for name in remembered}
    assert "critic" not in graph.inputs, "what only the simulator knows is not part of it"
    file = tmp_path / "policy"
    file.write_bytes(torchscript(graph) if scripted else exported_program(capture(graph)))
    run = run_torchscript(file, graph) if scripted else run_exported_program(file, graph)
    assert largest_difference(policy, graph, observations, run) <= TOLERANCE


@needs_onnx
def test_dreamer_in_onnx(tmp_path: Path) -> None:
    policy, graph = exported(SEEN, REACH, *DREAMER)
    (tmp_path / "policy.onnx").write_bytes(onnx_model(capture(graph), graph))
    run = run_onnx(tmp_path / "policy.onnx", graph)
    assert largest_difference(policy, graph, SEEN, run) <= TOLERANCE

    def forgetful(inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        return run({name: np.zeros_like(value) if name in graph.memory else value for name, value in inputs.items()})

    assert largest_difference(policy, graph, SEEN, forgetful) > TOLERANCE, "what is remembered decides"
