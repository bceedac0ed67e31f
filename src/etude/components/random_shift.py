"""Pictures moved by a few pixels at random, so that networks learn what is on them and not where (DrQ, Yarats et al. 2021).

    shifted[y, x] = picture[y + dy, x + dx],   dy and dx whole numbers between −pad and pad, one pair for each picture

What moves in from outside repeats the pixels at the edge. Frames that are stacked in one picture move together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import gymnasium
import torch
from torch import Tensor

from etude.components.networks.conv_encoder import image_sizes, is_channels_last, suits_convolution
from etude.environments.spaces import leaf_spaces
from etude.environments.vector import Observation

SHARE = 3 / 64
"""Of the shorter side, unless told otherwise: 3 pixels of 64, 4 of 84."""
Draw = Callable[[str, tuple[int, ...]], Tensor]
"""From a name and a shape to numbers that are uniform in [0, 1)."""


class _Picture(NamedTuple):
    rank: int
    rows: int
    """The dimension of its rows, counted from the end; that of its columns follows."""
    pad: int


class RandomShift:
    """Moves the pictures in observations of a space, each by itself; whatever else is in them passes."""

    def __init__(self, space: gymnasium.Space[Any], pad: int | None = None) -> None:
        self.pictures: dict[str, _Picture] = {}
        for name, part in leaf_spaces(space).items():
            if suits_convolution(part):
                shape = tuple(part.shape or ())
                channels_last = is_channels_last(shape[-3:], "auto")
                side = min(image_sizes(shape, channels_last)[:2])
                by = round(SHARE * side) if pad is None else pad
                self.pictures |= {name: _Picture(len(shape), -3 if channels_last else -2, by)} if by else {}

    def __call__(self, observation: Observation, draw: Draw) -> Observation:
        """Return observations (*batch, ...) with their pictures moved."""
        if not self.pictures:
            return observation
        if not isinstance(observation, dict):
            return self._shifted(observation, "", draw)
        return {
            name: self._shifted(value, name, draw) if name in self.pictures else value for name, value in observation.items()
        }

    def _shifted(self, pictures: Tensor, name: str, draw: Draw) -> Tensor:
        rank, rows, pad = self.pictures[name]
        batch = tuple(pictures.shape[: pictures.ndim - rank])
        offsets = (draw(name, (*batch, 2)) * (2 * pad + 1)).long().clamp(
            max=2 * pad
        ) - pad  # a product may round up to 2 pad + 1
        return shifted(pictures.flatten(0, len(batch) - 1), offsets.flatten(0, -2), rows).view_as(pictures)


def shifted(pictures: Tensor, offsets: Tensor, rows: int = -2) -> Tensor:
    """Return pictures (B, ..., H, W, ...) moved by offsets (B, 2) of rows and columns; `rows` is the first's dimension."""
    by_place = pictures.movedim((rows, rows + 1), (1, 2))  # (B, H, W, ...)
    height, width = by_place.shape[1:3]
    y, x = (
        (torch.arange(size, device=pictures.device) + offsets[:, axis : axis + 1]).clamp(0, size - 1)
        for axis, size in enumerate((height, width))
    )
    which = torch.arange(len(pictures), device=pictures.device)[:, None, None]
    return by_place[which, y[:, :, None], x[:, None, :]].movedim((1, 2), (rows, rows + 1)).contiguous()
