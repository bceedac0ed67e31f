"""What stands beside an exported policy: what goes in, what comes out, and where it came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

import etude
from etude.config.hashing import config_hash
from etude.config.validate import Validator, to_plain
from etude.deploy.graph import ACTION, PolicyGraph
from etude.deploy.robot_layout import RobotLayout
from etude.environments.spaces import TensorSpec
from etude.errors import UserError
from etude.files.atomic import write_json_atomic
from etude.files.documents import DocumentError, read_json
from etude.using.stored_policy import StoredPolicy

METADATA = "metadata.json"
VERSION = 2
_LARGEST_FILE = 2**24
_NORMALIZATION = {
    "off": "inputs are used as they are",
    "rolling": "by the mean and variance of the training, clipped at ±10; inside the file: give raw observations",
    "static": "finite bounds to [0, 1]; inside the file: give raw observations",
}


@dataclass(frozen=True)
class InputLayout:
    """One argument of the policy."""

    name: str
    shape: tuple[int, ...]
    """Without the number of rows, which comes first and is free."""
    dtype: str
    labels: tuple[str, ...] = ()
    """A word for each entry, where the task has some."""


@dataclass(frozen=True)
class MemoryLayout:
    """What the policy remembers: an argument that begins with zeros, and the result that is the next step's argument."""

    input: str
    output: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class NoiseLayout:
    """Random numbers that a decision needs, drawn anew for each: standard normal ones, or uniform ones in [0, 1)."""

    name: str
    kind: Literal["normal", "uniform"]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class ChunkLayout:
    """Of a policy that decides on several actions at once."""

    observations: int
    """The newest so many are its input (N, observations, ...), the oldest first; an episode's first stands for those before."""
    actions: int
    """Its result is so many actions (N, actions, ...), which are carried out before it is asked again."""


@dataclass(frozen=True)
class ActionLayout:
    """The result, in the environment's own units: the most likely action, or one that is drawn, as `acts` says."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    kind: Literal["continuous", "discrete", "multi_discrete", "multi_binary"]
    low: tuple[float | None, ...] = ()
    """Of continuous actions, flat; null where there is no bound."""
    high: tuple[float | None, ...] = ()
    choices: tuple[int, ...] = ()
    """Of discrete actions: how many there are of each part, flat."""
    first: tuple[int, ...] = ()
    """Of discrete actions: the number that each part counts from, flat."""
    labels: tuple[str, ...] = ()
    """A word for each action, or for each entry of a continuous one."""


@dataclass(frozen=True)
class FileLayout:
    """A file of the export."""

    file: str
    sha256: str
    max_difference: float | None
    """From the policy itself on random observations; null where it is NaN."""


@dataclass(frozen=True)
class Metadata:
    """The contents of metadata.json."""

    version: int
    etude: str
    run: str
    checkpoint: str
    env_steps: int
    config_hash: str
    environment: str
    algorithm: str
    wrappers: tuple[dict[str, Any], ...]
    """What stands between the task and the policy, the outermost last. None of it is inside the files."""
    normalization: str
    inputs: tuple[InputLayout, ...]
    action: ActionLayout
    memory: tuple[MemoryLayout, ...] = ()
    noise: tuple[NoiseLayout, ...] = ()
    chunk: ChunkLayout | None = None
    acts: Literal["greedy", "sample"] = "greedy"
    robot: RobotLayout | None = None
    files: dict[str, FileLayout] = dataclasses.field(default_factory=dict)
    """By format: onnx, torchscript, torch, mnn."""


def describe(stored: StoredPolicy, graph: PolicyGraph, robot: RobotLayout | None = None) -> Metadata:
    """Return everything but the files."""
    config, environment = stored.config, stored.config.environment
    labels = tuple(environment.spec.observation_labels)
    joints = () if robot is None else tuple(joint.name for joint in robot.joints)
    return Metadata(
        version=VERSION,
        etude=etude.__version__,
        run=stored.run.id,
        checkpoint=stored.checkpoint.name,
        env_steps=int(stored.checkpoint.counters["env_steps"]),
        config_hash=str(stored.run.record.get("config_hash") or config_hash(config)),
        environment=environment.id,
        algorithm=config.algorithm.name,
        wrappers=tuple(to_plain(wrapper) for wrapper in environment.wrappers),
        normalization=f"{environment.normalize_observations}: {_NORMALIZATION[environment.normalize_observations]}",
        inputs=tuple(
            InputLayout(name, spec.shape, _dtype(spec), labels if len(graph.inputs) == 1 and len(labels) == _size(spec) else ())
            for name, spec in graph.inputs.items()
        ),
        action=_action(graph, tuple(environment.spec.action_labels) or joints),
        memory=tuple(MemoryLayout(name, f"next_{name}", spec.shape, _dtype(spec)) for name, spec in graph.memory.items()),
        noise=tuple(NoiseLayout(name, name, spec.shape) for name, spec in graph.noise.items()),  # type: ignore[arg-type] # called as their kinds
        chunk=None if graph.chunk is None else ChunkLayout(*graph.chunk),
        acts=graph.mode,
        robot=robot,
    )


def _action(graph: PolicyGraph, labels: tuple[str, ...]) -> ActionLayout:
    space, spec = graph.action_space, graph.action_spec
    if isinstance(space, spaces.Box):
        low, high = (tuple(float(x) if np.isfinite(x) else None for x in bound.flat) for bound in (space.low, space.high))
        fitting = labels if len(labels) == len(low) else ()
        return ActionLayout(ACTION, spec.shape, _dtype(spec), "continuous", low=low, high=high, labels=fitting)
    kind: Any = {spaces.Discrete: "discrete", spaces.MultiDiscrete: "multi_discrete"}.get(type(space), "multi_binary")
    first = tuple(np.broadcast_to(graph.first.numpy(), spec.shape).flatten().tolist())
    choices = tuple(graph.sections)
    fitting = labels if len(labels) in (sum(choices), len(choices)) else ()
    return ActionLayout(ACTION, spec.shape, "int64", kind, choices=choices, first=first, labels=fitting)


def _dtype(spec: TensorSpec) -> str:
    return str(spec.dtype).removeprefix("torch.")


def _size(spec: TensorSpec) -> int:
    return int(np.prod(spec.shape))


def write_metadata(folder: Path, metadata: Metadata) -> None:
    """Write metadata.json."""
    write_json_atomic(folder / METADATA, to_plain(metadata))


def read_metadata(folder: Path) -> Metadata:
    """Read and check metadata.json: every key known, every value of its type."""
    path = folder / METADATA
    try:
        data = read_json(path, _LARGEST_FILE)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from error
    except DocumentError as error:
        raise UserError(f"{path} is damaged: {error}") from error
    if not isinstance(data, Mapping) or type(data.get("version")) is not int:
        raise UserError(f"{path}: is not of an exported policy (no version)")
    if data["version"] > VERSION:
        raise UserError(f"{path} was written by a newer Etude; upgrade Etude to read it")
    return Validator().build(Metadata, data, METADATA)
