"""Training metrics, summed on the device and read only when a row is logged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

Metrics = Mapping[str, Tensor | float]
"""Names and 0-dim values of one unit of work, such as one gradient step; the keys are the same every time."""


class MetricSums:
    """A running sum and weight for each metric.

    Every unit of work is added on its own, in order, so the sums do not depend on how the work was cut into calls. One value
    that is NaN or infinite makes its mean so; with `skips_non_finite` such values are left out, and of a metric that has no
    other the mean is NaN.
    """

    def __init__(self, *, skips_non_finite: bool = False) -> None:
        self.skips_non_finite = skips_non_finite
        self._keys: dict[str, tuple[str, ...]] = {}
        self._sums: dict[str, Tensor] = {}
        self._weights: dict[str, int] = {}

    def add(self, metrics: Metrics, group: str = "update") -> None:
        """Add one unit of work under a group, such as a hook's name."""
        if not metrics:
            return
        keys = tuple(metrics)
        if self._keys.setdefault(group, keys) != keys:
            changed = sorted(set(keys) ^ set(self._keys[group])) or ["(their order)"]
            raise ValueError(f"'{group}' reported other metrics than before: {', '.join(changed)}; keep the set fixed")
        values = list(metrics.values())
        device = next((value.device for value in values if isinstance(value, Tensor)), torch.device("cpu"))
        # Counts and half-precision losses are summed in single precision too: a sum must not round its terms.
        row = self._counted(torch.stack([torch.as_tensor(v, dtype=torch.float32, device=device).detach() for v in values]))
        if group in self._sums:
            self._sums[group] = self._sums[group].to(device).add_(row)
        else:
            self._sums[group] = row
        self._weights[group] = self._weights.get(group, 0) + 1

    def add_row(self, row: Tensor, keys: tuple[str, ...], group: str = "update") -> None:
        """Add one unit of work whose values are one tensor already."""
        row = self._counted(row)
        if self._keys.get(group) == keys and group in self._sums:
            self._sums[group] = self._sums[group].to(row.device).add_(row)
        else:  # the first one, or the first since sums that an earlier version saved under other names
            self._keys[group] = keys
            self._sums[group] = row.clone()
            self._weights[group] = 0
        self._weights[group] += 1

    def add_rows(self, table: Tensor, keys: tuple[str, ...], group: str = "update") -> None:
        """Add several units of work, (units, len(keys)), one after the other."""
        sums = self._sums.get(group)
        on_gpu = sums is not None and sums.device.type == table.device.type == "cuda"
        if on_gpu and self._keys.get(group) == keys and not torch.are_deterministic_algorithms_enabled():
            assert sums is not None
            # Along a dimension that is not the last, a GPU sums one after the other: two launches for all.
            sums.copy_(torch.cat([sums[None], self._counted(table.detach())]).cumsum(0)[-1])
            self._weights[group] += len(table)
            return
        if sums is None or self._keys.get(group) != keys or sums.device.type != "cpu" or table.device.type != "cpu":
            for row in table:
                self.add_row(row, keys, group)
            return
        running = sums.numpy()  # the same sums in the same order; NumPy asks less for each
        for row in self._counted(table.detach()).numpy():
            running += row
        self._weights[group] += len(table)

    def put(self, metrics: Metrics, group: str) -> None:
        """Let a group say what is now, in place of what it has said since the last row: of a count the mean says nothing."""
        if group in self._sums:
            self._sums[group].zero_()
            self._weights[group] = 0
        self.add(metrics, group)

    def drain(self) -> dict[str, float]:
        """Return the mean of each metric since the last call, and begin again."""
        means: dict[str, float] = {}
        for group, sums in self._sums.items():
            if self._weights[group]:
                keys = self._keys[group]
                if self.skips_non_finite:
                    values = (sums[: len(keys)] / sums[len(keys) :]).to("cpu").tolist()
                else:
                    values = (sums / self._weights[group]).to("cpu").tolist()
                means.update(zip(keys, values, strict=True))
                sums.zero_()
                self._weights[group] = 0
        return means

    def _counted(self, values: Tensor) -> Tensor:
        """Return values (..., keys), where some may be left out followed by how often each counts."""
        if not self.skips_non_finite:
            return values
        finite = torch.isfinite(values)
        return torch.cat([torch.where(finite, values, 0.0), finite.to(values.dtype)], dim=-1)

    def state_dict(self) -> dict[str, Any]:
        """Return the sums so far."""
        return {
            group: {"keys": list(self._keys[group]), "sums": self._sums[group], "weight": self._weights[group]}
            for group in self._sums
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the sums that were saved."""
        for group in self._sums.keys() - state.keys():
            self._sums[group].zero_()
            self._weights[group] = 0
        for group, saved in state.items():
            self._keys[group] = tuple(saved["keys"])
            if len(saved["sums"]) != len(saved["keys"]) * (2 if self.skips_non_finite else 1):
                continue  # saved under the other policy: the next row's mean begins here
            self._weights[group] = saved["weight"]
            if group in self._sums:
                self._sums[group].copy_(saved["sums"])
            else:
                self._sums[group] = saved["sums"].clone()
