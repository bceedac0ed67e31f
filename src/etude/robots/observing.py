"""Groups of observation terms: each with noise, a range, a scale, a lag and a history, side by side in one tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from torch import Generator, Tensor

from etude.config.constraints import NonNegativeFloat, PositiveFloat, between
from etude.config.robots import Steps
from etude.config.validate import Validator
from etude.errors import UserError
from etude.robots.state import State, columns_of
from etude.robots.terms.observations import OBSERVATIONS
from etude.robots.terms.table import check_values, options_of


@dataclass(frozen=True)
class Look:
    """How a term is seen: value → noise → clip → scale → lag → history."""

    scale: float = 1.0
    """Multiplies the value."""
    clip: PositiveFloat | None = None
    """Keeps the value within ± this, before the scale."""
    noise: NonNegativeFloat = 0.0
    """Uniform noise to either side, before the scale; in training alone."""
    lag: Steps = (0.0, 0.0)
    """Steps by which the value is late, drawn at each reset; in training alone."""
    history: Annotated[int, between(1, 1000)] = 1
    """How many steps are seen, the oldest first."""

    def __post_init__(self) -> None:
        """Refuse what can't be seen."""
        if self.scale == 0:
            raise ValueError("scale=0: hides the term; take it out with false instead")


LOOK_KEYS = ("scale", "clip", "noise", "lag", "history")


class ObservationGroup:
    """What one network sees."""

    def __init__(
        self, name: str, terms: Mapping[str, Any], state: State, generator: Generator, *, training: bool, history: Any = 1
    ) -> None:
        self.name, self._generator = name, generator
        where = f"environment.robot.observations.{name}"
        if not terms:
            raise UserError(f"{where}: needs at least one term, such as gravity: {{}}")
        self.terms: list[tuple[str, Look, int]] = []
        """Each term with how it is seen and how many numbers it has."""
        self._computed = []
        for term, options in terms.items():
            given = options_of(options, f"{where}.{term}")
            look = {"history": history} | {key: given.pop(key) for key in LOOK_KEYS if key in given}
            bound = OBSERVATIONS.bind(term, given, where, feet=len(state.scene.feet))
            self._computed.append(bound)
            values = bound(state)
            check_values(values, (state.count, -1), f"{where}.{term}")
            self.terms.append((term, Validator().build(Look, look, f"{where}.{term}"), values.shape[1]))
        looks = [(look, size) for _, look, size in self.terms]

        def columns(values: list[float]) -> Tensor:
            repeated = [value for value, (_, size) in zip(values, looks, strict=True) for _ in range(size)]
            return torch.tensor(repeated, dtype=torch.float32, device=state.device)

        self._scale = columns([look.scale for look, _ in looks])
        self._clip = columns([look.clip or torch.inf for look, _ in looks])
        self._noise = columns([look.noise for look, _ in looks]) if training and any(look.noise for look, _ in looks) else None
        lags = [look.lag if training else (0.0, 0.0) for look, _ in looks]
        self._lag_range = (columns([low for low, _ in lags]), columns([high for _, high in lags]))
        deepest = int(max(high for _, high in lags))
        longest = max(look.history for look, _ in looks)
        width = sum(size for _, size in looks)
        self.size = sum(look.history * size for look, size in looks)
        self._frames = torch.zeros(deepest + longest, state.count, width, device=state.device)
        """What was seen, the newest first."""
        self._lags = torch.zeros(state.count, width, dtype=torch.int64, device=state.device) if deepest else None
        self._has_past = len(self._frames) > 1
        self._past = torch.arange(longest, device=state.device)
        self._order = columns_of(self._order_of_columns(width), state.device)
        """Which of (longest history, width), side by side, are seen, in the order of the observation."""

    def push(self, state: State) -> Tensor:
        """See the present and return the observation, (N, size)."""
        if self._has_past:
            self._frames[1:] = self._frames[:-1].clone()
        self._frames[0] = self._see(state)
        return self._read()

    def begin(self, state: State, which: Tensor) -> Tensor:
        """See the robots `which` (N,) at the start of an episode, as if it had always been so; others stay as they are."""
        seen = self._see(state)
        self._frames.copy_(torch.where(which[:, None], seen, self._frames))
        if self._lags is not None:
            low, high = self._lag_range
            u = torch.rand(self._lags.shape[0], 1, generator=self._generator, device=self._lags.device)
            drawn = (low + u * (high - low + 1)).floor().clamp(max=high).long()
            self._lags.copy_(torch.where(which[:, None], drawn, self._lags))
        return self._read()

    def _see(self, state: State) -> Tensor:
        value = torch.cat([term(state) for term in self._computed], 1)
        if self._noise is not None:
            draw = torch.rand(value.shape, generator=self._generator, device=value.device)
            value = value + (2 * draw - 1) * self._noise
        return value.clamp(-self._clip, self._clip) * self._scale

    def _read(self) -> Tensor:
        if not self._has_past:
            return self._frames[0].clone()
        past = len(self._past)
        recent = self._frames[:past] if self._lags is None else self._frames.gather(0, self._lags + self._past[:, None, None])
        side_by_side = recent.transpose(0, 1).flatten(1)  # (N, past · width)
        return side_by_side[:, self._order]

    def _order_of_columns(self, width: int) -> np.ndarray:
        """Each term's columns, the oldest step of its history first; step p of column c is at p · width + c."""
        order: list[int] = []
        first = 0
        for _, look, size in self.terms:
            for past in range(look.history - 1, -1, -1):
                order += range(past * width + first, past * width + first + size)
            first += size
        return np.array(order)

    def layout(self) -> list[dict[str, Any]]:
        """Return what stands where in the observation, for whoever rebuilds it elsewhere."""
        return [
            {"term": term, "size": size, "scale": look.scale, "clip": look.clip, "history": look.history}
            for term, look, size in self.terms
        ]

    def state_dict(self) -> dict[str, Any]:
        """Return what was seen and how late it is."""
        return {"frames": self._frames.clone(), "lags": None if self._lags is None else self._lags.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what was seen."""
        self._frames.copy_(state["frames"])
        if self._lags is not None:
            self._lags.copy_(state["lags"])
