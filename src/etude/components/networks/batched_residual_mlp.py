"""Several residual networks with batch norms as one: a single product and a single batch norm a layer, whatever their number.

Rows come last within, (E, units, B): so one batch norm of E · units channels takes the statistics of all networks at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from etude.components.networks.residual_mlp import (
    LEAST,
    BatchBlock,
    BatchNorm,
    ResidualMLP,
    RMSNorm,
    normalised,
    to_length_1_,
)
from etude.environments.vector import Observation


class BatchedResidualMLP(nn.Module):
    """Networks of one shape: (B, ...) → (E, B, outputs)."""

    def __init__(self, members: Sequence[ResidualMLP]) -> None:
        super().__init__()
        self.encoder, self.count = members[0].encoder, len(members)
        layers: list[tuple[Any, ...]] = list(zip(*(member.layers for member in members), strict=True))
        begin, first, *blocks, end, head = layers
        self.begin, self.first = _Norms(begin), _Weights(first)
        self.blocks = nn.ModuleList(_Block(block) for block in blocks)
        self.end, self.head = _Scales(end), _Weights(head)
        self.bias = nn.Parameter(torch.stack([layer.bias.detach()[None] for layer in head]))

    @staticmethod
    def fits(members: Sequence[nn.Module]) -> bool:
        """Whether networks can be computed so: with batch norms, and without encoders that learn."""
        return len(members) > 1 and all(
            type(member) is ResidualMLP and isinstance(member.layers[0], BatchNorm) and not list(member.encoder.parameters())
            for member in members
        )

    def forward(self, observation: Observation) -> Tensor:
        """(B, ...) → (E, B, outputs)"""
        seen = self.encoder(observation)
        values = self.first(self.begin.of(seen.T.expand(self.count, -1, -1)))
        for block in self.blocks:
            values = block(values)
        return torch.baddbmm(self.bias, self.end(values).mT, self.head.weight.mT)


class _Weights(nn.Module):
    """Matrices (E, outputs, inputs)."""

    def __init__(self, alike: Sequence[Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach() for layer in alike]))
        self.is_unit = alike[0].is_unit

    def forward(self, values: Tensor) -> Tensor:
        """(E, inputs, B) → (E, outputs, B)"""
        return torch.bmm(self.weight, values)

    @torch.no_grad()
    def project_(self) -> None:
        """Bring the rows back to length 1."""
        if self.is_unit:
            to_length_1_(self.weight)


class _Norms(nn.BatchNorm1d):
    """Batch norms, whose channels lie one network after the other."""

    def __init__(self, alike: Sequence[BatchNorm]) -> None:
        one = alike[0]
        super().__init__(len(alike) * one.num_features, eps=one.eps, momentum=one.momentum)
        for name in ("weight", "bias", "running_mean", "running_var"):
            getattr(self, name).data.copy_(torch.cat([getattr(norm, name).detach() for norm in alike]))
        self.is_unit, self.several = one.is_unit, (len(alike), one.num_features)

    def of(self, values: Tensor) -> Tensor:
        """(E, units, B) → the same"""
        return self(values.reshape(1, self.num_features, -1)).view(values.shape)

    def forward(self, input: Tensor) -> Tensor:
        """(1, E · units, B) → the same"""
        return normalised(self, input)

    @torch.no_grad()
    def project_(self) -> None:
        """Bring the scales and shifts of each network back to the length √units."""
        if self.is_unit:
            both = torch.stack([self.weight.view(self.several), self.bias.view(self.several)], 1)  # (E, 2, units)
            length = torch.linalg.vector_norm(both, dim=(1, 2)).clamp_(min=LEAST)
            factor = (math.sqrt(self.several[1]) / length)[:, None]
            self.weight.view(self.several).mul_(factor)
            self.bias.view(self.several).mul_(factor)


class _Scales(nn.Module):
    """RMSNorms over units."""

    def __init__(self, alike: Sequence[RMSNorm]) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.stack([norm.weight.detach() for norm in alike]).unsqueeze(-1))  # (E, units, 1)
        self.eps, self.is_unit = alike[0].eps or 0.0, alike[0].is_unit

    def forward(self, values: Tensor) -> Tensor:
        """(E, units, B) → the same"""
        return values * (values.square().mean(1, keepdim=True) + self.eps).rsqrt() * self.scale

    @torch.no_grad()
    def project_(self) -> None:
        """Bring the scale of each network back to the length √units."""
        if self.is_unit:
            length = torch.linalg.vector_norm(self.scale, dim=1, keepdim=True).clamp_(min=LEAST)
            self.scale.mul_(math.sqrt(self.scale.shape[1]) / length)


class _Block(nn.Module):
    def __init__(self, alike: Sequence[BatchBlock]) -> None:
        super().__init__()
        self.out, self.back = _Weights([each.out for each in alike]), _Weights([each.back for each in alike])
        self.norm_out, self.norm_back = _Norms([each.norm_out for each in alike]), _Norms([each.norm_back for each in alike])

    def forward(self, values: Tensor) -> Tensor:
        inner = self.norm_out.of(self.out(values)).relu()
        return values + self.norm_back.of(self.back(inner)).relu()
