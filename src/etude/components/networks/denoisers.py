"""Networks that find the noise in a chunk of actions, given what was seen (Chi et al. 2023).

    actions (B, H, A), step (B, 1) in [0, 1], condition (B, T, F)   →   noise (B, H · A)

The U-Net goes over time by convolutions, coarser and finer again; what was seen and the step scale and shift each block (Perez
et al. 2018). The transformer attends from each action to those before it, and to what was seen and the step as tokens.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import gymnasium
import torch
from gymnasium import spaces
from torch import Generator, Tensor, nn
from torch.nn import functional

from etude.config.constraints import PositiveInt
from etude.errors import UserError

ACTIONS, STEP, CONDITION = "actions", "step", "condition"
STEPS_APART = 1000.0
"""By how much the first and the last step differ for the sinusoids that tell them apart."""
FEW_CHUNKS = 4
"""Up to how many chunks at a time a processor is faster with a product for each step in time."""


def denoiser_space(horizon: int, actions: int, seen: int, features: int) -> spaces.Dict:
    """Return what a denoiser reads."""

    def box(*shape: int) -> spaces.Box:
        return spaces.Box(-math.inf, math.inf, shape)

    return spaces.Dict({ACTIONS: box(horizon, actions), STEP: box(1), CONDITION: box(seen, features)})


@dataclass(frozen=True)
class DenoisingUNetConfig:
    """A U-Net over time."""

    type: str = "denoising_unet"
    """The registered name of the network."""
    widths: tuple[PositiveInt, ...] = (64, 128, 256)
    """Channels at each level; each but the last halves the steps in time, so the horizon is a multiple of 2 to their number."""
    kernel: PositiveInt = 5
    """Steps in time that a convolution sees; odd."""
    step_features: PositiveInt = 64
    """Numbers that say how much noise there is."""

    def __post_init__(self) -> None:
        if self.kernel % 2 == 0:
            raise ValueError(f"kernel={self.kernel}: must be odd")


class DenoisingUNet(nn.Module):
    """Convolutions over time, coarser and finer again."""

    Config = DenoisingUNetConfig

    def __init__(
        self,
        config: DenoisingUNetConfig,
        observation_space: gymnasium.Space[Any],
        output_size: int,
        *,
        generator: Generator,
        output_gain: float = 1.0,
    ) -> None:
        super().__init__()
        horizon, actions, seen, features = _sizes(observation_space, output_size, config.type)
        widths = config.widths
        if horizon % 2 ** (len(widths) - 1):
            raise UserError(
                f"a denoising_unet of {len(widths)} widths needs a horizon that is a multiple of {2 ** (len(widths) - 1)}, "
                f"not {horizon}; change algorithm.horizon or network.denoiser.widths"
            )
        self.step = _StepFeatures(config.step_features)
        known = config.step_features + seen * features

        def block(inputs: int, outputs: int) -> _Block:
            return _Block(inputs, outputs, known, config.kernel)

        levels = [*pairwise([actions, *widths])]
        self.down = nn.ModuleList(nn.ModuleList([block(i, o), block(o, o)]) for i, o in levels)
        self.coarsen = nn.ModuleList(_Convolution(width, width, 3, 2, 1) for width in widths[:-1])
        self.middle = nn.ModuleList([block(widths[-1], widths[-1]), block(widths[-1], widths[-1])])
        ups = [*zip(reversed(widths), [*reversed(widths[:-1]), widths[0]], strict=True)]
        self.up = nn.ModuleList(nn.ModuleList([block(2 * i, o), block(o, o)]) for i, o in ups)
        self.refine = nn.ModuleList(nn.ConvTranspose1d(width, width, 4, 2, 1) for width in reversed(widths[:-1]))
        self.last = nn.Sequential(_normed(widths[0], widths[0], config.kernel), _Convolution(widths[0], actions, 1))
        _scale(self.last[-1], output_gain)

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        """(B, H, A) → (B, H · A)"""
        known = torch.cat([self.step(observation[STEP]), observation[CONDITION].flatten(1)], -1)
        value, skipped = observation[ACTIONS].transpose(1, 2), []
        for level, (one, other) in enumerate(self.down):  # type: ignore[misc] # pairs, as they were made
            value = other(one(value, known), known)
            skipped.append(value)
            value = self.coarsen[level](value) if level < len(self.coarsen) else value
        for block in self.middle:
            value = block(value, known)
        for level, (one, other) in enumerate(self.up):  # type: ignore[misc] # as above
            value = other(one(torch.cat([value, skipped.pop()], 1), known), known)
            value = self.refine[level](value) if level < len(self.refine) else value
        return self.last(value).transpose(1, 2).flatten(1)


class _Block(nn.Module):
    """Two convolutions; what is known scales and shifts what lies between them."""

    def __init__(self, inputs: int, outputs: int, known: int, kernel: int) -> None:
        super().__init__()
        self.first, self.second = _normed(inputs, outputs, kernel), _normed(outputs, outputs, kernel)
        self.known = nn.Sequential(nn.Mish(), nn.Linear(known, 2 * outputs))
        self.past = _Convolution(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, value: Tensor, known: Tensor) -> Tensor:
        scale, shift = self.known(known).unsqueeze(-1).chunk(2, 1)
        return self.second((1 + scale) * self.first(value) + shift) + self.past(value)


class _Convolution(nn.Conv1d):
    """A convolution over time; for few chunks on a processor, who only acts, in a fifth of the time: weights are read once."""

    def forward(self, input: Tensor) -> Tensor:
        is_acting = input.device.type == "cpu" and len(input) <= FEW_CHUNKS and not torch.is_grad_enabled()
        is_drawn = torch.compiler.is_compiling() or torch.jit.is_tracing()  # type: ignore[reportPrivateImportUsage] # it is public
        if is_drawn or not is_acting:
            return super().forward(input)
        (size,), (stride,), padding = self.kernel_size, self.stride, int(self.padding[0])
        seen = functional.pad(input, (padding, padding)).unfold(2, size, stride).transpose(1, 2)  # (B, L, C, size)
        return functional.linear(seen.flatten(2), self.weight.flatten(1), self.bias).transpose(1, 2)


def _normed(inputs: int, outputs: int, kernel: int) -> nn.Sequential:
    groups = math.gcd(8, outputs)
    return nn.Sequential(_Convolution(inputs, outputs, kernel, padding=kernel // 2), nn.GroupNorm(groups, outputs), nn.Mish())


@dataclass(frozen=True)
class DenoisingTransformerConfig:
    """A transformer over actions."""

    type: str = "denoising_transformer"
    """The registered name of the network."""
    width: PositiveInt = 128
    """Numbers that describe each action. A multiple of heads."""
    heads: PositiveInt = 4
    """Questions that each layer can ask at a time."""
    layers: PositiveInt = 4
    """Layers, each fed by the one before."""

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width={self.width} can't be shared among heads={self.heads}: it must be a multiple")
        if self.width % 2:
            raise ValueError(f"width={self.width}: must be even")


class DenoisingTransformer(nn.Module):
    """Each action attends to itself, to those before it, and to what was seen."""

    Config = DenoisingTransformerConfig

    def __init__(
        self,
        config: DenoisingTransformerConfig,
        observation_space: gymnasium.Space[Any],
        output_size: int,
        *,
        generator: Generator,
        output_gain: float = 1.0,
    ) -> None:
        super().__init__()
        horizon, actions, seen, features = _sizes(observation_space, output_size, config.type)
        width = config.width
        self.action, self.condition, self.step = nn.Linear(actions, width), nn.Linear(features, width), _StepFeatures(width)
        self.place = nn.Parameter(0.02 * torch.randn(horizon, width, generator=generator))
        self.seen_place = nn.Parameter(0.02 * torch.randn(seen + 1, width, generator=generator))
        self.layers = nn.ModuleList(_Layer(width, config.heads) for _ in range(config.layers))
        self.norm, self.last = nn.LayerNorm(width), nn.Linear(width, actions)
        _scale(self.last, output_gain)

    def forward(self, observation: dict[str, Tensor]) -> Tensor:
        """(B, H, A) → (B, H · A)"""
        value = self.action(observation[ACTIONS]) + self.place
        known = torch.cat([self.step(observation[STEP]).unsqueeze(1), self.condition(observation[CONDITION])], 1)
        known = known + self.seen_place
        for layer in self.layers:
            value = layer(value, known)
        return self.last(self.norm(value)).flatten(1)


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.own, self.other = _Attention(width, heads), _Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, value: Tensor, known: Tensor) -> Tensor:
        seen = self.norms[0](value)
        value = value + self.own(seen, seen, causal=True)
        value = value + self.other(self.norms[1](value), known, causal=False)
        return value + self.mlp(self.norms[2](value))


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self._heads = heads
        self.ask, self.tell, self.out = nn.Linear(width, width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, value: Tensor, known: Tensor, *, causal: bool) -> Tensor:
        def apart(part: Tensor) -> Tensor:
            return part.unflatten(-1, (self._heads, -1)).transpose(1, 2)

        keys, values = self.tell(known).chunk(2, -1)
        found = functional.scaled_dot_product_attention(apart(self.ask(value)), apart(keys), apart(values), is_causal=causal)
        return self.out(found.transpose(1, 2).flatten(2))


class _StepFeatures(nn.Module):
    """How much noise there is: sinusoids, and two layers on them."""

    rates: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        count = max(1, size // 2)
        rates = torch.exp(-math.log(10_000.0) * torch.arange(count) / max(1, count - 1))
        self.register_buffer("rates", STEPS_APART * rates, persistent=False)
        self.layers = nn.Sequential(nn.Linear(2 * count, 4 * size), nn.Mish(), nn.Linear(4 * size, size))

    def forward(self, step: Tensor) -> Tensor:
        """(B, 1) → (B, size)"""
        angles = step * self.rates
        return self.layers(torch.cat([angles.sin(), angles.cos()], -1))


@torch.no_grad()
def _scale(layer: nn.Module, gain: float) -> None:
    for parameter in layer.parameters():
        parameter.mul_(gain)


def _sizes(space: gymnasium.Space[Any], output_size: int, kind: str) -> tuple[int, int, int, int]:
    """Return horizon, actions, steps seen and features of each."""
    if not isinstance(space, spaces.Dict) or set(space.spaces) != {ACTIONS, STEP, CONDITION}:
        raise UserError(f"a {kind} denoises chunks of actions, for diffusion_policy; choose another network type")
    (horizon, actions), (seen, features) = (space[name].shape or (0, 0) for name in (ACTIONS, CONDITION))
    if output_size != horizon * actions:
        raise UserError(f"a {kind} puts out the noise of {horizon} × {actions} numbers, not {output_size}")
    return horizon, actions, seen, features
