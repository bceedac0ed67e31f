"""Policies of all kinds as files: what they do, and what they earn in a process without Etude."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from etude.deploy import act
from etude.deploy import export as exporting
from etude.deploy.acting_graph import graph_of
from etude.deploy.check import TOLERANCE, largest_difference
from etude.deploy.metadata import read_metadata
from etude.deploy.replay import replay
from etude.deploy.torch_files import run_torchscript, torchscript
from etude.errors import UserError
from tests.deploy.conftest import FORMATS
from tests.deploy.kinds import KINDS, fresh, made

REMEMBERS = {"ppo_gru", "ppo_lstm", "bc_gru", "tdmpc", "planet", "dreamer", "dreamer_v1", "dreamer_v2", "world_models"}
DRAWS = {"sql", "diffusion_policy", "diffusion_policy_ddpm", "tdmpc", "planet"}
REPLAYED = ("sql", "diffusion_policy", "dreamer")
"""One that draws, one that decides on chunks and one that remembers; all others are slow tests."""


@pytest.mark.parametrize("name", KINDS)
def test_a_file_acts_as_the_policy(name: str, tmp_path: Path) -> None:
    policy, environment = made(name)
    spaces = environment.single_observation_space, environment.single_action_space
    graph = graph_of(policy, *spaces, name, fresh(name).modes("auto")[0])
    assert bool(graph.memory) == (name in REMEMBERS)
    assert bool(graph.noise) == (name in DRAWS)
    assert (graph.chunk is not None) == name.startswith("diffusion_policy")
    (tmp_path / "policy.pt").write_bytes(torchscript(graph))
    assert largest_difference(policy, graph, spaces[0], run_torchscript(tmp_path / "policy.pt", graph)) <= TOLERANCE
    environment.close()


def _replayed(name: str, formats: list[str], folder: Path) -> None:
    opened: Any = fresh(name)
    done = exporting.export_policy(opened, formats, folder)
    assert done.problems == []
    found = replay(opened, folder, 4)
    assert found.is_alike, found
    if name not in DRAWS:  # the same actions in the same episodes, but for rounding
        assert found.exported == pytest.approx(found.own, rel=1e-3, abs=1e-2)


@pytest.mark.parametrize("name", REPLAYED)
def test_a_file_earns_what_the_policy_earns_without_etude(name: str, tmp_path: Path) -> None:
    _replayed(name, ["torchscript"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_every_format_earns_what_the_policy_earns_without_etude(name: str, tmp_path: Path) -> None:
    for each in FORMATS:
        if each != "mnn":
            _replayed(name, [each], tmp_path / each)


def test_a_replay_knows_a_file_that_is_another_policys(tmp_path: Path) -> None:
    opened: Any = fresh("ppo_gru")
    exporting.export_policy(opened, ["torchscript"], tmp_path)
    policy, environment = made("ppo_gru")
    graph: Any = graph_of(policy, environment.single_observation_space, environment.single_action_space, "ppo")
    for parameter in graph.parts["actor"].parameters():
        parameter.data.neg_()
    (tmp_path / "policy.pt").write_bytes(torchscript(graph))
    found = replay(opened, tmp_path, 8)
    environment.close()
    assert not found.is_alike, found


def test_metadata_says_what_is_remembered_drawn_and_decided_at_once(tmp_path: Path) -> None:
    opened: Any = fresh("diffusion_policy")
    exporting.export_policy(opened, ["torchscript"], tmp_path / "chunks")
    found = read_metadata(tmp_path / "chunks")
    assert (found.chunk.observations, found.chunk.actions) == (2, 3)  # type: ignore[union-attr] # it has one
    assert found.inputs[0].shape == (2, 3)
    assert [(each.name, each.kind, each.shape) for each in found.noise] == [("normal", "normal", (16,))]
    assert found.acts == "sample"
    opened = fresh("dreamer")
    exporting.export_policy(opened, ["torchscript"], tmp_path / "dreams")
    found = read_metadata(tmp_path / "dreams")
    assert [each.input for each in found.memory] == ["memory_deter", "memory_stoch", "memory_previous_action", "memory_begun"]
    assert (found.noise, found.chunk, found.acts) == ((), None, "greedy")


def test_what_was_not_learnt_and_what_can_not_be_an_input_say_so() -> None:
    policy, environment = made("q_learning")
    spaces = environment.single_observation_space, environment.single_action_space
    policy.state_dict = dict  # type: ignore[method-assign] # as one that has learnt nothing
    with pytest.raises(UserError, match="a policy of random can't be exported: there is nothing in it that was learnt"):
        graph_of(policy, *spaces, "random")

    class Gambler(type(policy)):  # type: ignore[misc] # a class of the moment
        def act(self, observation: Any, state: Any, is_first: Any, *, mode: Any, generator: Any) -> Any:
            return super().act(observation, state, torch.bernoulli(torch.ones(1)), mode=mode, generator=generator)

    policy, environment = made("q_learning")
    policy.__class__ = Gambler
    with pytest.raises(UserError, match="draws by torch's bernoulli"):
        graph_of(policy, *spaces, "mine")


def test_a_chunk_is_not_asked_for_at_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`act.py` carries out what it has before it asks again, each row by itself."""
    opened: Any = fresh("diffusion_policy")
    exporting.export_policy(opened, ["torchscript"], tmp_path)
    policy = act.Policy(tmp_path)
    asked, run = [], policy._run
    monkeypatch.setattr(policy, "_run", lambda given: asked.append(given) or run(given))
    for step in range(7):
        first = np.array([step == 0, step in (0, 4)])
        assert policy.act(np.full((2, 3), step, np.float32), first).shape == (2, 1)
    assert len(asked) == 4  # steps 0 and 3 and 6, and where the second row begins anew
    np.testing.assert_array_equal(asked[2]["observation"][1], np.full((2, 3), 4))
    np.testing.assert_array_equal(asked[2]["observation"][0, :, 0], [3, 4])
