"""Pictures move by whole pixels, each by itself, and nothing else does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

from etude.components.random_shift import RandomShift

PAD = 3


def bytes_box(*shape: int) -> spaces.Box:
    return spaces.Box(0, 255, shape, np.uint8)


def uniform(seed: int = 1) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return lambda name, shape: torch.rand(shape, generator=generator)


def by_a_loop(picture: Tensor, dy: int, dx: int) -> Tensor:
    """(C, H, W), one pixel at a time."""
    moved, (_, height, width) = torch.zeros_like(picture), picture.shape
    for y in range(height):
        for x in range(width):
            moved[:, y, x] = picture[:, min(max(y + dy, 0), height - 1), min(max(x + dx, 0), width - 1)]
    return moved


@pytest.mark.parametrize(("shape", "to_chw"), [((9, 40, 48), (0, 1, 2)), ((40, 48, 3), (2, 0, 1))], ids=["chw", "hwc"])
def test_a_shift_is_that_of_a_loop_over_pixels(shape: tuple[int, ...], to_chw: tuple[int, ...]) -> None:
    pictures = torch.randint(0, 256, (2, 3, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    moved = RandomShift(bytes_box(*shape), PAD)(pictures, uniform())
    assert isinstance(moved, Tensor)
    assert moved.dtype == torch.uint8
    offsets = (uniform()("", (2, 3, 2)) * (2 * PAD + 1)).long() - PAD
    assert len({tuple(pair) for pair in offsets.flatten(0, 1).tolist()}) > 3, "each picture has a shift of its own"
    for b in range(2):
        for t in range(3):
            expected = by_a_loop(pictures[b, t].permute(to_chw), *offsets[b, t].tolist())
            assert torch.equal(moved[b, t].permute(to_chw), expected)


def test_stacked_frames_move_together() -> None:
    frame = torch.randint(0, 256, (1, 1, 3, 40, 40), dtype=torch.uint8)
    moved = RandomShift(bytes_box(4, 3, 40, 40), PAD)(frame.expand(5, 4, 3, 40, 40), uniform())
    assert isinstance(moved, Tensor)
    assert (moved == moved[:, :1]).all()
    assert not torch.equal(moved[0], moved[1])


def test_shifts_go_as_far_as_they_may_and_no_further() -> None:
    shift = RandomShift(bytes_box(1, 40, 48), PAD)
    ramp = torch.arange(48, dtype=torch.uint8).expand(1, 40, 48)
    seen = {
        int(shift(ramp[None], lambda name, shape, at=at: torch.full(shape, at))[0, 0, 0, 20]) - 20 for at in (0.0, 0.5, 1.0)
    }  # type: ignore[misc]
    assert seen == {-PAD, 0, PAD}


@pytest.mark.parametrize(("side", "pad"), [(64, 3), (84, 4), (36, 2)])
def test_the_usual_shift_is_in_proportion(side: int, pad: int) -> None:
    assert RandomShift(bytes_box(3, side, side)).pictures[""].pad == pad


def test_only_pictures_move() -> None:
    space = spaces.Dict(camera=bytes_box(3, 40, 40), touch=spaces.Box(-1, 1, (5,)))
    seen = {"camera": torch.randint(0, 256, (6, 3, 40, 40), dtype=torch.uint8), "touch": torch.randn(6, 5)}
    moved = RandomShift(space, PAD)(seen, uniform())
    assert isinstance(moved, dict)
    assert moved["touch"] is seen["touch"]
    assert not torch.equal(moved["camera"], seen["camera"])


def test_vectors_and_a_shift_of_0_ask_for_no_random_numbers() -> None:
    def never(name: str, shape: tuple[int, ...]) -> Tensor:
        raise AssertionError(name)

    for space, seen in ((spaces.Box(-1, 1, (3,)), torch.randn(2, 3)), (bytes_box(3, 40, 40), torch.zeros(2, 3, 40, 40))):
        assert RandomShift(space, 0)(seen, never) is seen
    assert RandomShift(spaces.Box(-1, 1, (3,)))(torch.zeros(1, 3), never) is not None
