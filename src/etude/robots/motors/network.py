"""A motor as a small network: from how far it is off its target and how fast it turns, now and before, to its torque.

After Hwangbo et al., Learning agile and dynamic motor skills for legged robots, 2019: three layers of 32 softsigns, and of
position errors and velocities those of now, one and two steps ago. One network stands for every motor of a kind.

    NAME.json           what it is made of, what it was learnt from and how well
    NAME.safetensors    its weights
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.nn.functional import linear, softsign

from etude.config.constraints import Bounds, PositiveFloat, PositiveInt
from etude.config.validate import Validator, to_plain
from etude.errors import ConfigError, UserError
from etude.files.atomic import write_bytes_atomic, write_json_atomic
from etude.files.documents import DocumentError, parse_json
from etude.files.regular import read_own_bytes

VERSION = 1
SUFFIXES = (".json", ".safetensors")
LARGEST = 2**26
LONGEST_S = 2.0
"""Of history: all of it is kept for every robot, physics step by physics step."""
_ACTIVATIONS = {"softsign": softsign, "tanh": torch.tanh, "elu": torch.nn.functional.elu}


@dataclass(frozen=True)
class MotorLayout:
    """What NAME.json says."""

    version: int
    step: PositiveFloat
    """Seconds between two samples of the history."""
    history: tuple[Annotated[int, Bounds(0, 1000)], ...]
    """How many steps ago what the network sees was so: 0 is now."""
    hidden: tuple[Annotated[int, Bounds(1, 4096)], ...]
    activation: Literal["softsign", "tanh", "elu"]
    error_scale: PositiveFloat
    """Radians that are 1 to the network."""
    velocity_scale: PositiveFloat
    """rad/s that are 1 to it."""
    torque_scale: PositiveFloat
    """N·m that its 1 means."""
    largest_torque: PositiveFloat
    """In the logs, N·m: what the network knows nothing beyond."""
    sha256: str
    """Of NAME.safetensors."""
    updates: PositiveInt = 1
    joints: tuple[str, ...] = ()
    """Whose logs it was learnt from."""
    measured: dict[str, float] = field(default_factory=dict)
    """Errors on samples that it was not shown, N·m."""


class MotorNetwork:
    """Evaluates one; weights are alternately of (out, in) and (out,)."""

    def __init__(self, layout: MotorLayout, weights: Mapping[str, Tensor], name: str = "") -> None:
        self.layout, self.name = layout, name
        self.weights = dict(weights)
        self._layers = [(self.weights[f"{i}.weight"], self.weights[f"{i}.bias"]) for i in range(len(layout.hidden) + 1)]
        self._activation = _ACTIVATIONS[layout.activation]

    def to(self, device: torch.device) -> MotorNetwork:
        """Return the same on a device."""
        return MotorNetwork(self.layout, {key: value.to(device) for key, value in self.weights.items()}, self.name)

    def torque(self, errors: Tensor, velocities: Tensor) -> Tensor:
        """Position errors and velocities by the layout's history, (..., H) each, rad and rad/s → N·m (...)"""
        layout = self.layout
        value = torch.cat([errors / layout.error_scale, velocities / layout.velocity_scale], -1)
        for weight, bias in self._layers[:-1]:
            value = self._activation(linear(value, weight, bias))
        return linear(value, *self._layers[-1])[..., 0] * layout.torque_scale


def shapes_of(layout: MotorLayout) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight."""
    sizes = [2 * len(layout.history), *layout.hidden, 1]
    shapes: dict[str, tuple[int, ...]] = {}
    for i, (before, after) in enumerate(pairwise(sizes)):
        shapes |= {f"{i}.weight": (after, before), f"{i}.bias": (after,)}
    return shapes


def bare(path: Path) -> Path:
    """Return a network's path without the suffix of either of its files."""
    return path.with_suffix("") if path.suffix in SUFFIXES else path


def files_of_network(path: Path) -> tuple[Path, Path]:
    """Return its two files."""
    first, second = (bare(path).with_name(bare(path).name + suffix) for suffix in SUFFIXES)
    return first, second


def save_network(path: Path, layout: Mapping[str, Any], weights: Mapping[str, Tensor]) -> MotorLayout:
    """Write both files; `layout` has everything but the version and the hash."""
    content = safetensors.torch.save({name: value.detach().cpu().contiguous() for name, value in weights.items()})
    complete = MotorLayout(version=VERSION, sha256=hashlib.sha256(content).hexdigest(), **layout)
    described, tensors = files_of_network(path)
    write_bytes_atomic(tensors, content)
    write_json_atomic(described, to_plain(complete))
    return complete


def load_network(path: Path, where: str) -> MotorNetwork:
    """Read a network from its two files: they may be a stranger's. `where` is the key that names it."""
    described, tensors = files_of_network(path)
    for file in (described, tensors):
        if not file.is_file():
            raise UserError(
                f"{where}={bare(path)}: there is no {file.name} (`etude robots actuator` makes both files from logs)"
            )
    try:
        data = parse_json(read_own_bytes(described, LARGEST))
        if not isinstance(data, Mapping):
            raise DocumentError("must be a mapping")
        layout = Validator().build(MotorLayout, data, described.name)
    except (DocumentError, ConfigError) as error:
        raise UserError(f"{where}: {described}: is no motor's network: {error}") from error
    if layout.version > VERSION:
        raise UserError(f"{where}: {described} was written by a newer Etude; upgrade Etude to read it")
    content = read_own_bytes(tensors, LARGEST)
    if hashlib.sha256(content).hexdigest() != layout.sha256:
        raise UserError(f"{where}: {tensors}: is not the file that {described.name} was written with: make both anew")
    try:
        weights = safetensors.torch.load(content)
    except (SafetensorError, ValueError) as error:
        raise UserError(f"{where}: {tensors}: is damaged: {error}") from error
    found = {name: (tuple(value.shape), value.dtype) for name, value in weights.items()}
    expected = {name: (shape, torch.float32) for name, shape in shapes_of(layout).items()}
    if layout.history and max(layout.history) * layout.step > LONGEST_S:
        raise UserError(f"{where}: {described}: looks back further than {LONGEST_S:g} s, which no motor does")
    if not layout.history or found != expected:
        raise UserError(f"{where}: {tensors}: does not have the weights that {described.name} says")
    if not all(bool(torch.isfinite(value).all()) for value in weights.values()):
        raise UserError(f"{where}: {tensors}: has weights that are no numbers")
    return MotorNetwork(layout, weights, bare(path).name)
