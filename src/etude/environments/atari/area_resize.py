"""Shrinks pictures by averaging areas, to the last bit as OpenCV's INTER_AREA does it for bytes.

ALE's vector class resizes with OpenCV inside. To see the same pixels without that package, its arithmetic is repeated: single
precision, columns first, taps from left to right and from top to bottom, halves rounded to the even number. Factors that are
whole numbers in both directions go another way there (whole sums, then one product), and here.
"""

from __future__ import annotations

import math

import numpy as np

_NEGLIGIBLE = 1e-3  # a cell that is covered by less than this is left out


class AreaResize:
    """Pictures of one size, (H, W) or (H, W, C) bytes, to a smaller one."""

    def __init__(self, source: tuple[int, int], target: tuple[int, int]) -> None:
        self._source, self._target = source, target
        self._whole = all(large % small == 0 for large, small in zip(source, target, strict=True))
        self._rows = _taps(source[0], target[0])
        self._columns = _taps(source[1], target[1])

    def __call__(self, picture: np.ndarray) -> np.ndarray:
        """Return the small picture; the same one where there is nothing to do."""
        if self._source == self._target:
            return picture
        if self._whole:
            return self._by_whole_factors(picture)
        trailing = (1,) * (picture.ndim - 2)
        between = _weighted(picture, self._columns, axis=1, shape=(1, -1, *trailing))
        return _to_bytes(_weighted(between, self._rows, axis=0, shape=(-1, 1, *trailing)))

    def _by_whole_factors(self, picture: np.ndarray) -> np.ndarray:
        (height, width), factors = (
            self._target,
            [large // small for large, small in zip(self._source, self._target, strict=True)],
        )
        cells = picture.reshape(height, factors[0], width, factors[1], *picture.shape[2:])
        sums = cells.sum(axis=(1, 3), dtype=np.int32)
        if factors == [2, 2]:
            return ((sums + 2) >> 2).astype(np.uint8)
        return _to_bytes(sums.astype(np.float32) * np.float32(1.0 / (factors[0] * factors[1])))


def _weighted(values: np.ndarray, taps: list[tuple[np.ndarray, np.ndarray]], axis: int, shape: tuple[int, ...]) -> np.ndarray:
    total = None
    for sources, weights in taps:
        part = values.take(sources, axis=axis) * weights.reshape(shape)
        total = part if total is None else np.add(total, part, out=total)
    assert total is not None
    return total


def _to_bytes(values: np.ndarray) -> np.ndarray:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _taps(source: int, target: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the first, second, ... cell of each target cell and its weight; weight 0 where a target has fewer."""
    scale = 1.0 / (target / source)
    cells: list[list[tuple[int, float]]] = []
    for index in range(target):
        begin, end = index * scale, index * scale + scale
        width = min(scale, source - begin)
        last = min(math.floor(end), source - 1)
        first = min(math.ceil(begin), last)
        covered = [(first - 1, (first - begin) / width)] if first - begin > _NEGLIGIBLE else []
        covered += [(cell, 1.0 / width) for cell in range(first, last)]
        if end - last > _NEGLIGIBLE:
            covered.append((last, min(end - last, 1.0, width) / width))
        cells.append(covered)
    taps = []
    for number in range(max(map(len, cells))):
        chosen = [covered[number] if number < len(covered) else (covered[-1][0], 0.0) for covered in cells]
        taps.append((np.array([cell for cell, _ in chosen]), np.array([weight for _, weight in chosen], np.float32)))
    return taps
