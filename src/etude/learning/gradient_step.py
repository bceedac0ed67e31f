"""One gradient step on a minibatch, with one loss and one optimiser."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from etude.compute.accelerate import Mode
from etude.learning.update_step import Metrics, Stage, UpdateStep


class GradientStep:
    """Minimises what an objective returns: `objective(rows) -> (loss, metrics)`, one minibatch at a time.

    It is an UpdateStep of a single stage; see there for `accumulate`, `decide`, `skip` and `skip_non_finite`.
    """

    def __init__(
        self,
        objective: nn.Module,
        optimizer: Optimizer,
        *,
        max_grad_norm: float | None,
        accumulate: int = 1,
        decide: Callable[[Metrics], None] | None = None,
        skip: Tensor | None = None,
        skip_non_finite: bool = False,
        mode: Mode = "eager",
    ) -> None:
        stage = Stage(objective, optimizer, max_grad_norm, accumulate=accumulate)
        self._update = UpdateStep([stage], decide=decide, skip=skip, skip_non_finite=skip_non_finite, mode=mode)
        self.mode, self.steps_per_call = self._update.mode, self._update.steps_per_call

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the metrics, once a step was taken."""
        return self._update.keys[""]

    def __call__(self, batch: Mapping[str, Any], indices: Tensor) -> Tensor:
        """Take K steps, on the rows of `batch` that each of `indices` (K, B) names; returns metrics (K, len(keys))."""
        return self._update(batch, indices)[""]

    def eager(self, rows: Mapping[str, Any]) -> dict[str, Tensor]:
        """Step on rows as they are and return the metrics by name."""
        (report,) = self._update.eager(rows)
        return report
