"""Exported files do what the policy does, wherever they are loaded."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.acting.policy import ActorPolicy
from etude.cli import run as command
from etude.components.distributions import make_head
from etude.components.networks.build import build_network
from etude.components.networks.mlp import MLPConfig
from etude.components.networks.recurrent import GRUConfig, LSTMConfig
from etude.components.networks.transformer import TransformerConfig
from etude.components.normalizers import ObservationNormalizer
from etude.deploy import export as exporting
from etude.deploy.acting_graph import graph_of
from etude.deploy.check import TOLERANCE, largest_difference
from etude.deploy.graph import ActorGraph
from etude.deploy.onnx_file import onnx_model, run_onnx
from etude.deploy.torch_files import capture, exported_program, run_exported_program, run_torchscript, torchscript
from etude.environments.vector import ACTION_MASK
from etude.runs.run import Run
from etude.using.stored_policy import open_policy
from tests.deploy.conftest import HAS_ONNX, QUIET, formats_of, needs_onnx
from tests.runs_compared import train


def _policy(observations: spaces.Space[Any], actions: spaces.Space[Any], network: Any = None) -> ActorPolicy:
    """One with random weights, and statistics of observations that are not the usual ones."""
    head = make_head(actions)
    actor = build_network(network or MLPConfig(hidden_dims=(16,)), observations, head.size, seed=1)
    normalizer = ObservationNormalizer(observations, "rolling")
    for part in normalizer.parts:
        part.update(torch.randn(50, *part.mean.shape) * 3 + 1)  # type: ignore[operator, union-attr] # running moments
    return ActorPolicy(normalizer, actor, head, observations)


def _worst(policy: ActorPolicy, observations: spaces.Space[Any], actions: spaces.Space[Any], folder: Path) -> float:
    """The largest difference of TorchScript and of torch.export."""
    graph = graph_of(policy, observations, actions, "ppo")
    (folder / "policy.pt").write_bytes(torchscript(graph))
    (folder / "policy.pt2").write_bytes(exported_program(capture(graph)))
    runners = run_torchscript(folder / "policy.pt", graph), run_exported_program(folder / "policy.pt2", graph)
    return max(largest_difference(policy, graph, observations, run) for run in runners)


@pytest.mark.parametrize("name", ["cartpole", "pendulum", "quadruped"])
def test_every_file_acts_as_the_policy(name: str, exports: Callable[[str], exporting.Export]) -> None:
    done = exports(name)
    assert done.problems == []
    assert list(done.metadata.files) == formats_of(name)
    for written in done.metadata.files.values():
        assert (done.folder / written.file).is_file()
        assert written.max_difference is not None
        assert written.max_difference <= TOLERANCE


def test_q_values_are_exported_as_the_best_action(tmp_path: Path) -> None:
    words = ("training.total_steps=48", "algorithm.learning_starts=16", "environment.num_envs=1", *QUIET)
    run = train("CartPole-v1:dqn", tmp_path / "runs", *words)
    done = exporting.export_policy(open_policy(run, "last"), ["torchscript", "torch"], tmp_path / "out")
    assert done.problems == []


SEEN = spaces.Box(-np.inf, np.inf, (5,), np.float32)
MASKED = spaces.Dict({"seen": SEEN, ACTION_MASK: spaces.MultiBinary(5)})


@pytest.mark.parametrize(
    ("observations", "actions"),
    [
        (SEEN, spaces.Discrete(4, start=-1)),
        (MASKED, spaces.Discrete(5)),
        (MASKED, spaces.MultiDiscrete([2, 3], start=[1, 4])),
        (SEEN, spaces.MultiBinary(3)),
        (SEEN, spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, np.inf], np.float32))),
        (spaces.Dict({"a": SEEN, "b": spaces.Discrete(3, start=2)}), spaces.Box(-400.0, 400.0, (2, 1), np.float32)),
        (spaces.Box(0, 255, (12, 12, 3), np.uint8), spaces.Discrete(3)),
        (spaces.MultiDiscrete([3, 4]), spaces.Box(0, 10, (2,), np.int64)),
    ],
    ids=str,
)
def test_every_kind_of_observation_and_action(observations: Any, actions: Any, tmp_path: Path) -> None:
    assert _worst(_policy(observations, actions), observations, actions, tmp_path) <= TOLERANCE


def test_actions_are_in_the_environments_own_units() -> None:
    actions = spaces.Discrete(3, start=7)
    chosen = graph_of(_policy(SEEN, actions), SEEN, actions, "ppo")(torch.randn(50, 5))
    assert isinstance(chosen, torch.Tensor)
    assert all(int(choice) in actions for choice in chosen)
    whole = spaces.Box(0, 10, (2,), np.int64)
    rounded = graph_of(_policy(SEEN, whole), SEEN, whole, "ppo")(torch.randn(50, 5))
    assert isinstance(rounded, torch.Tensor)
    assert rounded.dtype == torch.int64


def test_the_check_knows_a_graph_that_is_not_the_policy() -> None:
    """Also for choices, whose scores are taken from the graph itself."""
    actions = spaces.Discrete(4)
    policy, other = _policy(SEEN, actions), _policy(SEEN, actions)
    torch.nn.init.normal_(next(other.parts.parameters()), generator=torch.Generator().manual_seed(9))
    graph = graph_of(other, SEEN, actions, "ppo")

    def run(inputs: Any) -> Any:
        return {"action": graph(torch.from_numpy(inputs["observation"])).numpy()}  # type: ignore[union-attr] # one result

    assert largest_difference(policy, graph, SEEN, run) > TOLERANCE
    assert largest_difference(other, graph, SEEN, run) <= TOLERANCE


@pytest.mark.parametrize(
    "network", [LSTMConfig(memory_layers=2), TransformerConfig(width=16, heads=2, window=4)], ids=lambda n: n.type
)
def test_memory_is_an_input_and_an_output(network: Any, tmp_path: Path) -> None:
    actions = spaces.Box(-1.0, 1.0, (2,), np.float32)
    policy = _policy(SEEN, actions, network)
    assert ActorGraph(policy, SEEN, actions).memory
    assert _worst(policy, SEEN, actions, tmp_path) <= TOLERANCE


@needs_onnx
def test_memory_in_onnx(tmp_path: Path) -> None:
    actions = spaces.Discrete(3)
    policy = _policy(SEEN, actions, GRUConfig())
    graph = ActorGraph(policy, SEEN, actions)
    (tmp_path / "policy.onnx").write_bytes(onnx_model(capture(graph), graph))
    assert largest_difference(policy, graph, SEEN, run_onnx(tmp_path / "policy.onnx", graph)) <= TOLERANCE


@needs_onnx
def test_the_onnx_file_names_inputs_by_key_takes_any_batch_and_tells_nothing_of_this_machine(
    exports: Callable[[str], exporting.Export],
) -> None:
    import onnx  # type: ignore[import-not-found] # an extra

    done = exports("quadruped")
    model = onnx.load(str(done.folder / "policy.onnx"))
    assert [value.name for value in model.graph.input] == ["actor"]  # and not what the critic alone sees
    assert [value.name for value in model.graph.output] == ["action"]
    rows, size = model.graph.input[0].type.tensor_type.shape.dim
    assert rows.dim_param
    assert size.dim_value == done.metadata.inputs[0].shape[0]
    assert str(Path(exporting.__file__).parents[1]).encode() not in (done.folder / "policy.onnx").read_bytes()


def test_files_load_where_there_is_no_etude(exports: Callable[[str], exporting.Export]) -> None:
    script = f"""
import sys, json, warnings
sys.modules["etude"] = None
warnings.simplefilter("ignore")
import numpy as np, torch
rows = torch.tensor([[1.0, 0.0, 0.5], [0.0, 1.0, -3.0], [-1.0, 0.0, 8.0]])
found = [torch.jit.load("policy.pt")(rows), torch.export.load("policy.pt2").module()(rows)]
if {HAS_ONNX}:
    import onnxruntime
    found += onnxruntime.InferenceSession("policy.onnx").run(["action"], {{"observation": rows.numpy()}})
print(json.dumps([np.asarray(each.detach() if hasattr(each, "detach") else each).tolist() for each in found]))
"""
    folder = exports("pendulum").folder
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    with zipfile.ZipFile(folder / "policy.pt") as archive:
        contents = b"".join(archive.read(name) for name in archive.namelist())
    assert str(Path(exporting.__file__).parents[1]).encode() not in contents
    assert np.shape(found[0]) == (3, 1)
    for each in found[1:]:
        np.testing.assert_allclose(each, found[0], atol=1e-5)
    assert np.abs(found[0]).max() <= 2.0


def test_a_file_that_acts_otherwise_is_kept_and_told(
    pendulum: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = exporting._RUNNERS["torchscript"]

    def off(path: Path, graph: Any) -> Any:
        run = honest(path, graph)
        return lambda inputs: {name: value + 2e-4 for name, value in run(inputs).items()}

    monkeypatch.setitem(exporting._RUNNERS, "torchscript", off)
    assert command(["export", str(pendulum.path), "--format", "torchscript", "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert "differs from the policy by 0.0002" in said
    assert (tmp_path / "out" / "policy.pt").is_file()
    monkeypatch.setitem(
        exporting._RUNNERS, "torchscript", lambda path, graph: lambda inputs: {"action": inputs["observation"][:, :1] * np.nan}
    )
    assert command(["export", str(pendulum.path), "--format", "torchscript", "--out", str(tmp_path / "out")]) == 1
    assert json.loads((tmp_path / "out" / "metadata.json").read_text())["files"]["torchscript"]["max_difference"] is None
