"""Recurrent networks: an encoder, cells that remember, a head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any

import gymnasium
import torch
from torch import Generator, Tensor, nn

from etude.components.networks.conv_encoder import ConvEncoderConfig, suits_convolution
from etude.components.networks.keyed_encoder import make_encoder
from etude.components.networks.layers import Activation, hidden_layers, linear
from etude.components.networks.memory import Memory, MemoryNetwork, forget
from etude.compute.captured import asks_nothing
from etude.compute.trees import at, map_tree
from etude.config.constraints import Component, PositiveInt
from etude.environments.vector import Observation


@dataclass(frozen=True)
class GRUConfig:
    """Gated recurrent units (Cho et al. 2014)."""

    type: str = "gru"
    """The registered name of the network."""
    hidden_dims: tuple[PositiveInt, ...] = (64,)
    """Units per fully connected layer before the memory; [] for none."""
    activation: Activation = "tanh"
    """What follows each of these layers."""
    memory_size: PositiveInt = 64
    """Units of the memory. More can hold more, and costs time."""
    memory_layers: PositiveInt = 1
    """Recurrent layers, each fed by the one before."""
    encoders: dict[str, Annotated[Any, Component("encoder")]] = field(default_factory=dict)
    """What reads each part of a Dict observation, by its key: {pixels: {type: cnn}, state: {type: mlp}}. A single observation
    has the key `observation`. Default: cnn for images, flat for all else."""


@dataclass(frozen=True)
class LSTMConfig(GRUConfig):
    """Long short-term memory (Hochreiter and Schmidhuber 1997)."""

    type: str = "lstm"
    """The registered name of the network."""


class _Recurrent(MemoryNetwork):
    """What GRU and LSTM share; they differ in their cells and in what the state is called."""

    capturable = True
    cells: nn.RNNBase

    def __init__(
        self,
        config: GRUConfig,
        observation_space: gymnasium.Space[Any],
        output_size: int,
        *,
        generator: Generator,
        output_gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.encoder = make_encoder(observation_space, config.encoders, image_default, generator)
        sizes = [self.encoder.size, *config.hidden_dims]
        self.layers = nn.Sequential(*hidden_layers(sizes, config.activation, generator))
        self.cells = self._make_cells(sizes[-1], config.memory_size, config.memory_layers)
        self._initialize(generator)
        self.head = linear(config.memory_size, output_size, output_gain, generator)

    def _make_cells(self, inputs: int, size: int, layers: int) -> nn.RNNBase:
        raise NotImplementedError

    @torch.no_grad()
    def _initialize(self, generator: Generator) -> None:
        for name, values in self.cells.named_parameters():
            if "bias" in name:
                values.zero_()
            else:
                for gate in values.split(self.cells.hidden_size):
                    nn.init.orthogonal_(gate, generator=generator)

    def forward(self, observation: Observation, state: Memory, is_first: Tensor) -> tuple[Tensor, Memory]:
        """Take one step; a sequence of one."""
        features = self.layers(self.encoder(at(observation, None)))
        features, state = self._remember(features, state, is_first)
        return self.head(features[0]), state

    def unroll(self, observation: Observation, state: Memory, is_first: Tensor) -> tuple[Tensor, Memory]:
        """Take T steps, in as few stretches as the beginnings of episodes allow: within one the cells run in one call.

        What must not ask the device where episodes begin takes them one by one.
        """
        features = self.layers(self.encoder(observation))
        if asks_nothing():
            outputs = []
            for t, first in enumerate(is_first):
                output, state = self._remember(features[t : t + 1], state, first)
                outputs.append(output)
            return self.head(torch.cat(outputs)), state
        begins = (is_first[1:].any(1).nonzero().flatten() + 1).tolist()
        parts = []
        for begin, end in pairwise([0, *begins, len(is_first)]):
            part, state = self._remember(features[begin:end], state, is_first[begin])
            parts.append(part)
        return self.head(torch.cat(parts)), state

    def _remember(self, features: Tensor, state: Memory, is_first: Tensor) -> tuple[Tensor, Memory]:
        """features (T, N, F) of one stretch, whose first row may begin episodes → (T, N, memory_size)"""
        kept = map_tree(lambda value: forget(value, is_first), state)
        if asks_nothing():
            assert len(features) == 1
            return self._step(features[0], kept)
        outputs, after = self.cells(features, self._to_cells(map_tree(_layers_first, kept)))
        return outputs, map_tree(lambda value: value.transpose(0, 1), self._from_cells(after))

    def _step(self, features: Tensor, state: Memory) -> tuple[Tensor, Memory]:
        """One step, cell by cell: (N, F) → (1, N, memory_size). A GPU's libraries may do more than compute in a whole call."""
        states = []
        for layer, weights in enumerate(self.cells.all_weights):
            features, after = self._cell(features, map_tree(lambda value, k=layer: value[:, k], state), weights)
            states.append(after)
        return features.unsqueeze(0), map_tree(_joined_layers, *states)

    def _cell(self, features: Tensor, state: Memory, weights: Sequence[Tensor]) -> tuple[Tensor, Memory]:
        raise NotImplementedError

    def _to_cells(self, state: Memory) -> Any:
        return state

    def _from_cells(self, state: Any) -> Memory:
        return state

    def _zeros(self, n: int) -> Tensor:
        return self.head.weight.new_zeros(n, self.cells.num_layers, self.cells.hidden_size)


class GRU(_Recurrent):
    """An observation through fully connected layers and gated recurrent units to `output_size` numbers."""

    Config = GRUConfig

    def initial_state(self, n: int) -> Memory:
        """Nothing remembered. (n, layers, memory_size)"""
        return self._zeros(n)

    def _make_cells(self, inputs: int, size: int, layers: int) -> nn.RNNBase:
        return nn.GRU(inputs, size, layers, device="meta").to_empty(device="cpu")

    def _cell(self, features: Tensor, state: Memory, weights: Sequence[Tensor]) -> tuple[Tensor, Memory]:
        assert isinstance(state, Tensor)
        hidden = torch.gru_cell(features, state, *weights)
        return hidden, hidden


class LSTM(_Recurrent):
    """An observation through fully connected layers and long short-term memory to `output_size` numbers."""

    Config = LSTMConfig

    def initial_state(self, n: int) -> Memory:
        """Nothing remembered. Each (n, layers, memory_size)"""
        return {"hidden": self._zeros(n), "cell": self._zeros(n)}

    def _make_cells(self, inputs: int, size: int, layers: int) -> nn.RNNBase:
        return nn.LSTM(inputs, size, layers, device="meta").to_empty(device="cpu")

    def _cell(self, features: Tensor, state: Memory, weights: Sequence[Tensor]) -> tuple[Tensor, Memory]:
        hidden, cell = torch.lstm_cell(features, self._to_cells(state), *weights)
        return hidden, {"hidden": hidden, "cell": cell}

    @torch.no_grad()
    def _initialize(self, generator: Generator) -> None:
        super()._initialize(generator)
        size = self.cells.hidden_size
        for name, values in self.cells.named_parameters():
            if name.startswith("bias_ih"):
                values[size : 2 * size] = 1.0  # the forget gate begins open (Jozefowicz et al. 2015)

    def _to_cells(self, state: Memory) -> Any:
        return state["hidden"], state["cell"]

    def _from_cells(self, state: Any) -> Memory:
        hidden, cell = state
        return {"hidden": hidden, "cell": cell}


def _joined_layers(*each: Tensor) -> Tensor:
    return each[0].unsqueeze(1) if len(each) == 1 else torch.stack(each, 1)


def _layers_first(value: Tensor) -> Tensor:
    return value.transpose(0, 1).contiguous()


def image_default(key: str, space: gymnasium.Space[Any]) -> ConvEncoderConfig | None:
    """Images of a usual size through convolutions, all else as it is."""
    return ConvEncoderConfig() if suits_convolution(space) else None
