"""What is seen of a MuJoCo model: which of its geoms and sites, and in which colours."""

from __future__ import annotations

from typing import Any

import numpy as np

SHOWN_GROUPS = 3
"""MuJoCo draws shapes of the groups 0 to 2; models keep collision shapes and the like in others."""


def shown(groups: np.ndarray, colours: np.ndarray) -> np.ndarray:
    """Return the numbers of those that are drawn, by their groups (n,) and colours (n, 4)."""
    return np.flatnonzero((groups < SHOWN_GROUPS) & (colours[:, 3] > 0))


def colours_of(model: Any, what: str) -> np.ndarray:
    """Return the colour of every geom or site, (n, 4); of a texture its mean, for surfaces here have one colour."""
    own, materials = getattr(model, f"{what}_rgba"), getattr(model, f"{what}_matid")
    if not model.nmat:
        return own
    of_materials = model.mat_rgba.copy()
    for material, textures in enumerate(np.reshape(model.mat_texid, (model.nmat, -1))):
        texture = next((int(each) for each in textures if each >= 0), None)
        if texture is not None:
            of_materials[material, :3] *= _mean_colour(model, texture)
    return np.where((materials >= 0)[:, None], of_materials[materials], own)


def _mean_colour(model: Any, texture: int) -> np.ndarray:
    channels, start = int(model.tex_nchannel[texture]), int(model.tex_adr[texture])
    pixels = int(model.tex_width[texture]) * int(model.tex_height[texture])
    colours = model.tex_data[start : start + pixels * channels].reshape(-1, channels)
    return colours[:, :3].mean(0) / 255 if channels >= 3 else np.full(3, colours.mean() / 255)
