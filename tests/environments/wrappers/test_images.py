"""Pictures, against computations of another kind."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from etude.config.registry import wrappers as registry
from etude.environments.wrappers.images import layout_of
from tests.environments.wrappers.tasks import around, parts


def transformed(value: np.ndarray, name: str, **options: Any) -> np.ndarray:
    """One transform of pictures (N, ...)."""
    cls = registry.resolve(name)
    transform = cls(cls.Config(**options))
    high = 255 if value.dtype == np.uint8 else 1
    space = spaces.Box(0, high, value.shape[1:], value.dtype)  # type: ignore[arg-type] # of the same type
    transform.bind(space, spaces.Discrete(2), len(value), torch.device("cpu"))
    seen = transform.observe(torch.from_numpy(value))
    assert seen.shape[1:] == transform.observation_space.shape
    return seen.numpy()


def exact_area(picture: np.ndarray, height: int, width: int) -> list[list[Fraction]]:
    """Each new pixel is an integral over the square it covers, in fractions."""
    rows, columns = picture.shape

    def overlaps(place: int, new: int, old: int) -> list[tuple[int, Fraction]]:
        begin, end = Fraction(place * old, new), Fraction((place + 1) * old, new)
        shares = ((pixel, min(end, pixel + 1) - max(begin, pixel)) for pixel in range(old))
        return [(pixel, Fraction(share)) for pixel, share in shares if share > 0]

    area = Fraction(rows * columns, height * width)
    return [
        [
            sum((Fraction(float(picture[y, x])) * v * u for y, v in overlaps(row, height, rows)
                 for x, u in overlaps(column, width, columns)), Fraction(0)) / area
            for column in range(width)
        ]
        for row in range(height)
    ]  # fmt: skip


@pytest.mark.parametrize("size", [(8, 8), (5, 7), (21, 16), (30, 3), (1, 1)])
def test_resized_bytes_are_exact_areas_and_halves_round_up(size: tuple[int, int]) -> None:
    pictures = np.random.default_rng(1).integers(0, 256, (2, 21, 16), np.uint8)
    new = transformed(pictures, "resize", size=size)
    for picture, result in zip(pictures, new, strict=True):
        wanted = [[int(value + Fraction(1, 2)) for value in row] for row in exact_area(picture, *size)]
        assert result.tolist() == wanted
    halves = np.array([[[0, 1], [1, 0]], [[254, 255], [255, 254]], [[0, 0], [1, 0]]], np.uint8)
    assert transformed(halves, "resize", size=1).ravel().tolist() == [1, 255, 0]


def test_resized_floats_are_areas_to_single_precision() -> None:
    pictures = np.random.default_rng(2).random((2, 9, 7), np.float32)
    new = transformed(pictures, "resize", size=(4, 5))
    wanted = [[[float(value) for value in row] for row in exact_area(picture, 4, 5)] for picture in pictures]
    np.testing.assert_allclose(new, wanted, rtol=2e-7)
    assert new.dtype == np.float32


def test_large_pictures_are_exact_too() -> None:
    bright = np.full((1, 700, 500), 255, np.uint8)
    bright[0, 350, 250] = 0
    new = transformed(bright, "resize", size=7)
    lost = 255 * (1 - Fraction(7 * 7, 700 * 500))
    assert new.max() == 255
    assert new.min() == int(lost + Fraction(1, 2))


@pytest.mark.parametrize(("shape", "layout"), [((21, 16), "hw"), ((21, 16, 3), "hwc"), ((3, 21, 16), "chw")])
def test_resizing_keeps_channels_where_they_are(shape: tuple[int, ...], layout: str) -> None:
    assert layout_of(shape) == layout
    pictures = np.random.default_rng(3).integers(0, 256, (2, *shape), np.uint8)
    new = transformed(pictures, "resize", size=(6, 5))
    planes = {"hw": pictures[..., None], "hwc": pictures, "chw": np.moveaxis(pictures, 1, -1)}[layout]
    results = {"hw": new[..., None], "hwc": new, "chw": np.moveaxis(new, 1, -1)}[layout]
    for channel in range(planes.shape[-1]):
        alone = transformed(np.ascontiguousarray(planes[..., channel]), "resize", size=(6, 5))
        np.testing.assert_array_equal(results[..., channel], alone)


def test_true_means_84_and_false_is_refused() -> None:
    assert transformed(np.zeros((1, 90, 100, 3), np.uint8), "resize", size=True).shape == (1, 84, 84, 3)
    with pytest.raises(ValueError, match="leave the wrapper out"):
        registry.resolve("resize").Config(size=False)


def test_gray_is_the_weighted_sum_with_halves_up() -> None:
    values = np.random.default_rng(4).integers(0, 256, (1, 64, 64, 3), np.uint8)
    red, green, blue = (values[..., channel].astype(np.int64) for channel in range(3))
    wanted = (299 * red + 587 * green + 114 * blue + 500) // 1000
    np.testing.assert_array_equal(transformed(values, "grayscale"), wanted)
    first = np.moveaxis(values, -1, 1).copy()
    np.testing.assert_array_equal(transformed(first, "grayscale", keep_channel=True), wanted[:, None])
    floats = (values / 255).astype(np.float32)
    np.testing.assert_allclose(transformed(floats, "grayscale"), wanted / 255, atol=0.6 / 255)


def test_cropping_leaves_the_middle() -> None:
    values = np.random.default_rng(5).integers(0, 256, (2, 9, 8, 3), np.uint8)
    np.testing.assert_array_equal(transformed(values, "crop", top=2, bottom=1, left=3, right=0), values[:, 2:8, 3:])
    first = np.moveaxis(values, -1, 1).copy()
    np.testing.assert_array_equal(transformed(first, "crop", bottom=4, right=1), first[:, :, :5, :7])
    with pytest.raises(Exception, match="nothing is left of a picture of 9×8 pixels"):
        transformed(values, "crop", left=4, right=4)


def test_channels_move_to_the_front() -> None:
    values = np.random.default_rng(6).integers(0, 256, (2, 9, 8, 3), np.uint8)
    np.testing.assert_array_equal(transformed(values, "channels_first"), np.moveaxis(values, -1, 1))


def test_the_usual_chain_is_four_gray_frames_as_channels() -> None:
    chain = [{"id": "grayscale"}, {"id": "resize", "size": True}, {"id": "stack", "count": 4}]
    environment = around("pictures", *chain)
    observation, _ = environment.reset([1, 2, 3])
    assert environment.single_observation_space.shape == (4, 84, 84)
    assert parts(observation)[""].dtype == torch.uint8


@pytest.mark.parametrize(
    ("task", "shape"), [("pictures", (21, 16, 9)), ("chw pictures", (9, 21, 16)), ("float pictures", (3, 7, 9))]
)
def test_stacked_frames_are_ordered_oldest_first_and_begin_with_the_first(task: str, shape: tuple[int, ...]) -> None:
    plain, stacked = around(task), around(task, {"id": "stack", "count": 3})
    assert stacked.single_observation_space.shape == shape
    first = parts(plain.reset([1, 2, 3])[0])[""].clone()
    seen = parts(stacked.reset([1, 2, 3])[0])[""]
    axis = -1 if task == "pictures" else 1
    frames = [first] * 3

    def joined(frames: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(frames, 1) if task == "float pictures" else torch.cat(frames, axis)

    assert torch.equal(seen, joined(frames))
    for _ in range(30):
        action = torch.zeros(3, dtype=torch.int64)
        step, other = plain.step(action), stacked.step(action)
        led_to = [*frames[1:], parts(step.final_observation)[""].clone()]
        assert torch.equal(parts(other.final_observation)[""], joined(led_to))
        now, ended = parts(step.observation)[""].clone(), step.terminated | step.truncated
        mask = ended.view(-1, *[1] * (now.ndim - 1))
        frames = [torch.where(mask, now, frame) for frame in led_to]
        assert torch.equal(parts(other.observation)[""], joined(frames))
