"""What a world model predicts without looking, beside what really came: films of pictures, charts of vectors.

film     truth │ model │ error, one above the other, for several windows side by side; the model's row has a green
         frame while it sees, and a red one once it predicts from the actions alone
chart    a strip for each number: truth in grey; the model in green while it sees, then in red
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor
from torch.nn import functional

from etude.components.networks.world_encoder import PictureShape, is_picture, parts_of
from etude.components.two_hot import symexp
from etude.environments.vector import Observation

SEES, PREDICTS, TRUTH = (60, 160, 75), (205, 55, 45), (150, 150, 150)
FRAME = 2
"""Pixels around each picture."""
LARGEST_CHART = 8
"""Strips: the first numbers of a vector."""
STEP_WIDTH, STRIP_HEIGHT = 12, 64


def open_loop_media(
    observed: Observation, reconstructed: Observation, predicted: Observation, space: gymnasium.Space[Any]
) -> dict[str, Tensor]:
    """Return films (T, H, W, 3) and charts (H, W, 3), of bytes, by name.

    Observed (T, B, ...) as in the environment; reconstructed (C, B, ...) and predicted (T - C, B, ...) as a decoder has them:
    pictures from 0 to 1, vectors in symlog.
    """
    truth, seen, dreamt = ({"": part} if isinstance(part, Tensor) else part for part in (observed, reconstructed, predicted))
    media: dict[str, Tensor] = {}
    for name, part in parts_of(space).items():
        model, context = torch.cat([seen[name], dreamt[name]]).float(), len(seen[name])
        label = f"open_loop-{name}".rstrip("-").replace("/", "-")
        if is_picture(part):
            media[label] = film(truth[name], model, context, part)
        elif isinstance(part, spaces.Box):
            media[label] = chart(truth[name][:, 0].float(), symexp(model[:, 0]), context)
    return media


def dream_media(made: Observation, space: gymnasium.Space[Any]) -> dict[str, Tensor]:
    """Return films (T, H, W, 3) of dreamt pictures (T, B, *picture) from 0 to 1, side by side, by name."""
    parts = {"": made} if isinstance(made, Tensor) else made
    media: dict[str, Tensor] = {}
    for name, part in parts_of(space).items():
        if is_picture(part):
            pictures = _framed(_colours(PictureShape(part, "auto"), parts[name].float()), 0, PREDICTS, PREDICTS)
            media[f"dream-{name}".rstrip("-").replace("/", "-")] = _beside(pictures)
    return media


def film(truth: Tensor, model: Tensor, context: int, space: gymnasium.Space[Any]) -> Tensor:
    """(T, B, *picture) each, the first `context` steps of the model's with a look → (T, H, W, 3) of bytes"""
    shape = PictureShape(space, "auto")
    real, made = (_colours(shape, pictures) for pictures in (truth, model))  # (T, B, 3, h, w), from 0 to 1
    rows = [
        _framed(real, context, TRUTH, TRUTH),
        _framed(made, context, SEES, PREDICTS),
        _framed((made - real + 1) / 2, context, TRUTH, TRUTH),
    ]
    return torch.cat([_beside(row) for row in rows], 1)


def _beside(pictures: Tensor) -> Tensor:
    """(T, B, 3, h, w) → (T, h, B · w, 3)"""
    return pictures.permute(0, 3, 1, 4, 2).flatten(2, 3)


def _colours(shape: PictureShape, pictures: Tensor) -> Tensor:
    first, batch = shape.channels_first(pictures)
    first = first[:, -3:] if shape.channels % 3 == 0 else first[:, -1:].expand(-1, 3, -1, -1)  # the newest of a stack
    return first.clamp(0, 1).unflatten(0, batch)


def _framed(pictures: Tensor, context: int, before: tuple[int, ...], after: tuple[int, ...]) -> Tensor:
    """(T, B, 3, h, w) from 0 to 1 → bytes, with a coloured frame around each"""
    pixels = functional.pad((255 * pictures).round().to(torch.uint8), (FRAME,) * 4)
    inside = functional.pad(torch.ones(pictures.shape[-2:], dtype=torch.bool, device=pixels.device), (FRAME,) * 4)
    colours = torch.tensor([before] * context + [after] * (len(pictures) - context), device=pixels.device, dtype=torch.uint8)
    return torch.where(inside, pixels, colours[:, None, :, None, None])


def chart(truth: Tensor, model: Tensor, context: int) -> Tensor:
    """(T, ...) each, the first `context` steps of the model's with a look → (H, W, 3) of bytes"""
    real, made = (values.flatten(1)[:, :LARGEST_CHART].cpu().numpy() for values in (truth, model))
    strips = [_strip(real[:, k], made[:, k], context) for k in range(real.shape[1])]
    return torch.from_numpy(np.concatenate(strips))


def _strip(real: np.ndarray, made: np.ndarray, context: int) -> np.ndarray:
    strip = np.full((STRIP_HEIGHT, (len(real) - 1) * STEP_WIDTH + 1, 3), 255, np.uint8)
    strip[-1] = 225
    low, high = float(real.min()), float(real.max())
    margin = 0.25 * max(high - low, 1e-3)
    _draw(strip, real, (low - margin, high + margin), [TRUTH] * len(real))
    _draw(strip, made, (low - margin, high + margin), [SEES] * (context - 1) + [PREDICTS] * (len(made) - context + 1))
    return strip


def _draw(strip: np.ndarray, values: np.ndarray, limits: tuple[float, float], colours: list[tuple[int, ...]]) -> None:
    """Draw a line through values (T,); `colours` are those of the pieces after each."""
    width, height = strip.shape[1], STRIP_HEIGHT - 3
    curve = np.interp(np.arange(width) / STEP_WIDTH, np.arange(len(values)), np.nan_to_num(values))
    share = (np.clip(curve, *limits) - limits[0]) / (limits[1] - limits[0])
    y = (height * (1 - share)).round().astype(int)
    for x in range(width):
        low, high = sorted((y[x], y[min(x + 1, width - 1)]))
        strip[low : high + 2, x] = colours[min(x // STEP_WIDTH, len(colours) - 1)]
