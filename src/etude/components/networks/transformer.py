"""A transformer that looks back over a window of the episode.

Each layer attends from an observation to itself and to those before it, `window` at most, in the same episode:

    remembered (window - 1)      the sequence (T)
    k k k k k k k            │   k k k k k k        keys of one layer
          └──────────────────────────┘ query t: the window that ends at t; nothing from before a reset, nothing later

The state is what each layer was given for the last window - 1 observations, oldest first, and which of these are of the
episode at hand. Deeper layers see further back than one window, through what their inputs have seen (Dai et al. 2019).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import gymnasium
import torch
from torch import Generator, Tensor, nn

from etude.components.networks.keyed_encoder import make_encoder
from etude.components.networks.layers import HIDDEN_GAIN, linear
from etude.components.networks.memory import Memory, MemoryNetwork
from etude.components.networks.recurrent import image_default
from etude.compute.trees import at
from etude.config.constraints import Component, PositiveInt, at_least
from etude.environments.vector import Observation


@dataclass(frozen=True)
class TransformerConfig:
    """Causal self-attention over the last observations of the episode (Vaswani et al. 2017)."""

    type: str = "transformer"
    """The registered name of the network."""
    window: Annotated[int, at_least(2)] = 32
    """How many observations a layer looks at, the present one included. Longer remembers longer and costs time."""
    width: PositiveInt = 64
    """Numbers that describe each observation. A multiple of heads."""
    heads: PositiveInt = 4
    """Questions that each layer can ask at a time."""
    layers: PositiveInt = 1
    """Layers, each fed by the one before."""
    encoders: dict[str, Annotated[Any, Component("encoder")]] = field(default_factory=dict)
    """What reads each part of a Dict observation, by its key: {pixels: {type: cnn}, state: {type: mlp}}. A single observation
    has the key `observation`. Default: cnn for images, flat for all else."""

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width={self.width} can't be shared among heads={self.heads}: it must be a multiple")


class Transformer(MemoryNetwork):
    """An observation, and what came before it in the episode, to `output_size` numbers."""

    Config = TransformerConfig
    capturable = True

    def __init__(
        self,
        config: TransformerConfig,
        observation_space: gymnasium.Space[Any],
        output_size: int,
        *,
        generator: Generator,
        output_gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.width, self.remembered = config.width, config.window - 1
        self.encoder = make_encoder(observation_space, config.encoders, image_default, generator)
        self.embedding = linear(self.encoder.size, config.width, 1.0, generator)
        blocks = [_Block(config.width, config.heads, config.window, generator) for _ in range(config.layers)]
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(config.width)
        self.head = linear(config.width, output_size, output_gain, generator)

    def initial_state(self, n: int) -> Memory:
        """An empty window. features (n, layers, window - 1, width), valid (n, window - 1)"""
        weight = self.head.weight
        return {
            "features": weight.new_zeros(n, len(self.blocks), self.remembered, self.width),
            "valid": torch.zeros(n, self.remembered, dtype=torch.bool, device=weight.device),
        }

    def forward(self, observation: Observation, state: Memory, is_first: Tensor) -> tuple[Tensor, Memory]:
        """Take one step; a sequence of one."""
        outputs, state = self.unroll(at(observation, None), state, is_first.unsqueeze(0))
        return outputs[0], state

    def unroll(self, observation: Observation, state: Memory, is_first: Tensor) -> tuple[Tensor, Memory]:
        """Take T steps at once."""
        x = self.embedding(self.encoder(observation)).transpose(0, 1)  # (N, T, width)
        visible, valid = visibility(state["valid"], is_first.T)
        kept = []
        for index, block in enumerate(self.blocks):
            context = torch.cat([state["features"][:, index], x], dim=1)  # (N, window - 1 + T, width)
            kept.append(context[:, -self.remembered :])
            x = block(x, context, visible)
        outputs = self.head(self.norm(x)).transpose(0, 1)
        return outputs, {"features": torch.stack(kept, dim=1), "valid": valid}


class _Block(nn.Module):
    """Attention and a fully connected layer, each added to what goes in, which is normalised first (Xiong et al. 2020)."""

    def __init__(self, width: int, heads: int, window: int, generator: Generator) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.norm, self.second_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query = linear(width, width, 1.0, generator)
        self.key_value = linear(width, 2 * width, 1.0, generator)
        self.mixed = linear(width, width, 1.0, generator)
        self.expand = linear(width, 2 * width, HIDDEN_GAIN, generator)
        self.contract = linear(2 * width, width, 1.0, generator)
        # How much each head cares for an observation so many steps ago: positions are distances, so nothing depends on time.
        self.by_distance = nn.Parameter(torch.zeros(heads, window))

    def forward(self, x: Tensor, context: Tensor, visible: Tensor) -> Tensor:
        """x (N, T, width), context (N, window - 1 + T, width), visible (N, T, window - 1 + T) → (N, T, width)"""
        N, T, width = x.shape
        context = self.norm(context)
        query = self._split(self.query(context[:, -T:]))  # (N, heads, T, size)
        key, value = (self._split(part) for part in self.key_value(context).chunk(2, dim=-1))
        scores = query @ key.transpose(-1, -2) * (width // self.heads) ** -0.5
        distance = _distances(T, context.shape[1], x.device).clamp(0, self.window - 1)
        scores = (scores + self.by_distance[:, distance]).masked_fill(~visible.unsqueeze(1), -torch.inf)
        seen = (scores.softmax(-1) @ value).transpose(1, 2).reshape(N, T, width)
        x = x + self.mixed(seen)
        return x + self.contract(nn.functional.gelu(self.expand(self.second_norm(x))))

    def _split(self, x: Tensor) -> Tensor:
        """(N, T, width) → (N, heads, T, width / heads)"""
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def visibility(valid: Tensor, is_first: Tensor) -> tuple[Tensor, Tensor]:
    """Return what each step of a sequence may look at (N, T, M + T), and which of the last M are worth keeping (N, M).

    `valid` (N, M) says which remembered observations are of the episode at hand, `is_first` (N, T) where new ones begin.
    """
    T, M = is_first.shape[1], valid.shape[1]
    episode = is_first.long().cumsum(1)  # 0: the one that was going on
    of_key = torch.cat([torch.where(valid, 0, -1), episode], dim=1)  # (N, M + T)
    distance = _distances(T, M + T, valid.device)
    in_window = (distance >= 0) & (distance <= M)
    visible = in_window & (of_key.unsqueeze(1) == episode.unsqueeze(2))
    return visible, of_key[:, -M:] == episode[:, -1:]


def _distances(queries: int, keys: int, device: torch.device) -> Tensor:
    """How many steps before query t key k is: negative if it comes later. (queries, keys)"""
    positions = torch.arange(keys, device=device)
    return positions[keys - queries :].unsqueeze(1) - positions.unsqueeze(0)
