"""Denoising: from noise to what the data is like, step by step (Ho et al. 2020; Song et al. 2021; Nichol and Dhariwal 2021).

noised     x_k = √ᾱ_k x + √(1 − ᾱ_k) ε                              ᾱ by the squared cosine
clean      x̂ = (x_k − √(1 − ᾱ_k) ε̂) / √ᾱ_k, kept in [-1, 1]
DDIM       x_j = √ᾱ_j x̂ + √(1 − ᾱ_j) ε̂                             any j < k: few steps, no chance but the first noise
DDPM       x_{k−1} ~ N(mean of x̂ and x_k, β̃_k)                      all steps, with noise in each
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

Predict = Callable[[Tensor, int], Tensor]
"""From what is noised (B, ...) and the step's number to the noise in it."""
LARGEST_BETA = 0.999


class Diffusion(nn.Module):
    """How much noise is in each of `steps` steps, and ways back from noise."""

    kept: Tensor

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps
        remaining = torch.cos((torch.linspace(0, 1, steps + 1, dtype=torch.float64) + 0.008) / 1.008 * math.pi / 2).square()
        beta = (1 - remaining[1:] / remaining[:-1]).clamp(max=LARGEST_BETA)
        self._kept = (1 - beta).cumprod(0).tolist()
        self.register_buffer("kept", torch.tensor(self._kept, dtype=torch.float32), persistent=False)

    def noised(self, clean: Tensor, noise: Tensor, step: Tensor) -> Tensor:
        """Return clean samples (B, ...) with the noise of their steps (B,)."""
        kept = self.kept[step].reshape(-1, *[1] * (clean.ndim - 1))
        return kept.sqrt() * clean + (1 - kept).sqrt() * noise

    def ddim(self, predict: Predict, noise: Tensor, count: int) -> Tensor:
        """Return samples in `count` steps from noise; a function of tensors."""
        steps = [round((self.steps - 1) * (1 - index / max(1, count - 1))) for index in range(count)]
        value = noise
        for step, following in zip(steps, [*steps[1:], None], strict=True):
            clean, left = self._clean(predict(value, step), value, step)
            if following is None:
                return clean
            kept = self._kept[following]
            value = math.sqrt(kept) * clean + math.sqrt(1 - kept) * left
        return value

    def ddpm(self, predict: Predict, noise: Tensor, more: Tensor) -> Tensor:
        """Return samples in all steps from noise, with `more` noise (steps − 1, B, ...) on the way; a function of tensors."""
        value = noise
        for step in reversed(range(self.steps)):
            clean, _ = self._clean(predict(value, step), value, step)
            if not step:
                return clean
            kept, before = self._kept[step], self._kept[step - 1]
            alpha = kept / before
            mean = (math.sqrt(before) * (1 - alpha) * clean + math.sqrt(alpha) * (1 - before) * value) / (1 - kept)
            value = mean + math.sqrt((1 - before) / (1 - kept) * (1 - alpha)) * more[step - 1]
        return value

    def _clean(self, noise: Tensor, value: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """Return what is left without the noise, within its bounds, and the noise that goes with that."""
        kept = self._kept[step]
        clean = ((value - math.sqrt(1 - kept) * noise) / math.sqrt(kept)).clamp(-1, 1)
        return clean, (value - math.sqrt(kept) * clean) / math.sqrt(1 - kept)
