"""Pictures: gray, smaller, cropped, channels first. Bytes stay bytes, and every rounding is exact."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from etude.config.constraints import NonNegativeInt, PositiveInt
from etude.environments.wrappers.options import PartConfig
from etude.environments.wrappers.transform import PartTransform
from etude.errors import UserError

Layout = Literal["hw", "hwc", "chw"]
_EXACT = 2**24  # whole numbers below this are exact in single precision, and so are their sums in any order


def layout_of(shape: tuple[int, ...]) -> Layout:
    """Return where a picture's channels are: whichever of the outer sizes is smaller, as networks assume too."""
    if len(shape) == 2:
        return "hw"
    return "hwc" if shape[-1] <= shape[0] else "chw"


class ImageTransform(PartTransform):
    """Changes one picture of an observation."""

    wants = "a picture (a box of 2 or 3 dimensions)"
    layout: Layout

    def suits(self, space: gymnasium.Space[Any]) -> bool:
        """Pictures have a height, a width and perhaps channels."""
        return isinstance(space, spaces.Box) and len(space.shape) in (2, 3)

    def prepare_part(self, space: Any) -> gymnasium.Space[Any]:
        """Find out where the channels are."""
        self.layout = layout_of(space.shape)
        return self.prepare_image(space)

    def prepare_image(self, space: spaces.Box) -> gymnasium.Space[Any]:
        """Return the space of the picture afterwards."""
        return space


def _box(space: spaces.Box, shape: tuple[int, ...]) -> spaces.Box:
    """A box of another shape; mixtures of pixels stay within the widest bounds."""
    return spaces.Box(space.low.min(), space.high.max(), shape, space.dtype)  # type: ignore[arg-type] # as the other box has it


@dataclass(frozen=True)
class GrayscaleConfig(PartConfig):
    """Colours to brightness."""

    id: str = "grayscale"
    keep_channel: bool = False
    """Keep a dimension of size 1 where the colours were."""


class Grayscale(ImageTransform):
    """Three colours to their brightness, 0.299 R + 0.587 G + 0.114 B; halves of a byte round up."""

    Config = GrayscaleConfig
    wants = "a picture with three colours"

    def __init__(self, config: GrayscaleConfig) -> None:
        super().__init__(config.key)
        self._keep = config.keep_channel

    def suits(self, space: gymnasium.Space[Any]) -> bool:
        """Colours are red, green and blue."""
        shape = space.shape if isinstance(space, spaces.Box) else ()
        return len(shape) == 3 and 3 in (shape[0], shape[-1])

    def prepare_image(self, space: spaces.Box) -> gymnasium.Space[Any]:
        """Drop the channels."""
        self._axis = -1 if self.layout == "hwc" else -3
        self._weights = torch.tensor([299.0, 587.0, 114.0], device=self.device)
        rows, columns = space.shape[:2] if self.layout == "hwc" else space.shape[1:]
        if not self._keep:
            return _box(space, (rows, columns))
        return _box(space, (rows, columns, 1) if self.layout == "hwc" else (1, rows, columns))

    def observe_part(self, value: Tensor) -> Tensor:
        """(N, H, W, 3) or (N, 3, H, W) → (N, H, W)"""
        if value.dtype.is_floating_point:
            red, green, blue = value.unbind(self._axis)
            gray = 0.299 * red + 0.587 * green + 0.114 * blue
        else:
            # In thousandths: whole numbers, whose sums are exact in single precision.
            sums = value.float().movedim(self._axis, -1) @ self._weights
            gray = sums.add_(500).div_(1000).to(value.dtype)
        return gray.unsqueeze(self._axis) if self._keep else gray


@dataclass(frozen=True)
class ResizeConfig(PartConfig):
    """Another size, by area."""

    id: str = "resize"
    size: PositiveInt | tuple[PositiveInt, PositiveInt] | bool = 84
    """Height and width in pixels, [height, width] or one number for both; true means 84."""

    def __post_init__(self) -> None:
        if self.size is False:
            raise ValueError("size must be a number of pixels; to keep the size, leave the wrapper out")


class Resize(ImageTransform):
    """Each new pixel is the mean of the area it covers; halves of a byte round up."""

    Config = ResizeConfig

    def __init__(self, config: ResizeConfig) -> None:
        super().__init__(config.key)
        size = 84 if isinstance(config.size, bool) else config.size
        self._size = (size, size) if isinstance(size, int) else size

    def prepare_image(self, space: spaces.Box) -> gymnasium.Space[Any]:
        """Find out which old rows and columns lie in which new ones, and how much of them."""
        self._axis = 2 if self.layout == "chw" else 1
        height, width = space.shape[self._axis - 1 : self._axis + 1]
        # Bytes: whole numbers of weight, whose sums are exact.
        exact = torch.float32 if 255 * height * width < _EXACT else torch.float64
        self._rows = _Areas(height, self._size[0], exact, self.device)
        self._columns = _Areas(width, self._size[1], exact, self.device)
        self._area = height * width
        channels = {"hw": (), "hwc": space.shape[-1:], "chw": space.shape[:1]}[self.layout]
        return _box(space, (*channels, *self._size) if self.layout == "chw" else (*self._size, *channels))

    def observe_part(self, value: Tensor) -> Tensor:
        """(N, H, W[, C]) → (N, h, w[, C]), or with channels first."""
        sums = self._columns.sums(self._rows.sums(value, self._axis), self._axis + 1)
        if value.dtype.is_floating_point:
            return sums.div_(self._area).to(value.dtype)
        return sums.double().mul_(2).add_(self._area).div_(2 * self._area).to(value.dtype)


class _Areas:
    """What a line of pixels becomes in another length: weighted sums of neighbours, one neighbour at a time.

    In units of which an old pixel has `new` and a new one `old`, all overlaps are whole numbers.
    """

    def __init__(self, old: int, new: int, dtype: torch.dtype, device: torch.device) -> None:
        begin = torch.arange(new) * old
        first, last = begin // new, (begin + old - 1) // new
        count = int((last - first).max()) + 1
        neighbours = first + torch.arange(count)[:, None]  # (count, new)
        overlap = torch.minimum(begin + old, (neighbours + 1) * new) - torch.maximum(begin, neighbours * new)
        self._weights = overlap.clamp(min=0).to(device, dtype)
        self._neighbours = neighbours.clamp(max=old - 1).to(device)

    def sums(self, value: Tensor, axis: int) -> Tensor:
        """(..., old, ...) → (..., new, ...), the same for a picture alone and in a batch: nothing is summed across pictures."""
        shape = (-1, *[1] * (value.ndim - axis - 1))
        total: Tensor | None = None
        for neighbour, weight in zip(self._neighbours, self._weights, strict=True):
            part = value.index_select(axis, neighbour).to(weight.dtype).mul_(weight.view(shape))
            total = part if total is None else total.add_(part)
        assert total is not None
        return total


@dataclass(frozen=True)
class CropConfig(PartConfig):
    """Less of a picture."""

    id: str = "crop"
    top: NonNegativeInt = 0
    """Rows to leave out above."""
    bottom: NonNegativeInt = 0
    """Rows to leave out below."""
    left: NonNegativeInt = 0
    """Columns to leave out on the left."""
    right: NonNegativeInt = 0
    """Columns to leave out on the right."""


class Crop(ImageTransform):
    """Leaves out rows and columns at the edges, such as the score."""

    Config = CropConfig

    def __init__(self, config: CropConfig) -> None:
        super().__init__(config.key)
        self._config = config

    def prepare_image(self, space: spaces.Box) -> gymnasium.Space[Any]:
        """Find the slices."""
        first = 1 if self.layout == "chw" else 0
        height, width = space.shape[first : first + 2]
        cut = self._config
        if cut.top + cut.bottom >= height or cut.left + cut.right >= width:
            raise UserError(f"nothing is left of a picture of {height}×{width} pixels")
        within = [slice(None)] * first + [slice(cut.top, height - cut.bottom), slice(cut.left, width - cut.right)]
        self._slices = (slice(None), *within)
        return spaces.Box(space.low[tuple(within)], space.high[tuple(within)], dtype=space.dtype)  # type: ignore[arg-type] # as the other box has it

    def observe_part(self, value: Tensor) -> Tensor:
        """(N, H, W[, C]) → a view of the middle"""
        return value[self._slices]


@dataclass(frozen=True)
class ChannelsFirstConfig(PartConfig):
    """Channels to the front."""

    id: str = "channels_first"


class ChannelsFirst(ImageTransform):
    """(H, W, C) to (C, H, W); a picture that is so already stays."""

    Config = ChannelsFirstConfig

    def __init__(self, config: ChannelsFirstConfig) -> None:
        super().__init__(config.key)

    def prepare_image(self, space: spaces.Box) -> gymnasium.Space[Any]:
        """Move the channels of the bounds."""
        if self.layout != "hwc":
            return space
        low, high = (np.moveaxis(bound, -1, 0) for bound in (space.low, space.high))
        return spaces.Box(low, high, dtype=space.dtype)  # type: ignore[arg-type] # as the other box has it

    def observe_part(self, value: Tensor) -> Tensor:
        """(N, H, W, C) → (N, C, H, W)"""
        return value.movedim(-1, 1).contiguous() if self.layout == "hwc" else value
