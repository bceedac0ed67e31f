"""A run whose weights are no longer numbers is over; better said at once than after the night, and of whom it came."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from etude.errors import NonFiniteError
from etude.orchestration.counters import Counters
from etude.workflows.base import Workflow
from etude.workflows.collector import Collector


@torch.no_grad()
def check_finite(
    workflow: Workflow, counters: Counters, collector: Collector | None = None, buffers: Iterable[Any] = ()
) -> None:
    """Raise NonFiniteError naming the first weight that is NaN or infinite; one number is read from the device.

    Where the environment gave such a number first, that is what is named, also before any weight has learnt from it.
    """
    when = f"at {counters.env_steps:,} environment steps and {counters.updates:,} updates"
    paid = None if collector is None else collector.episodes.non_finite()
    if paid is not None and not _skips(workflow):
        copy, value = paid
        raise NonFiniteError(f"the environment paid copy {copy} a return of {value:g} {when}; {_WAY_OUT}")
    weights = {
        f"{role}.{name}": parameter
        for role, module in workflow.stateful_parts().items()
        if isinstance(module, nn.Module) and not role.startswith("_")
        for name, parameter in module.named_parameters()
        if parameter.is_floating_point()
    }
    if not weights or bool(torch.isfinite(nn.utils.get_total_norm([*weights.values()]).to("cpu"))):
        return
    for name, weight in weights.items():
        if not torch.isfinite(weight.to("cpu")).all():
            kind = "NaN" if torch.isnan(weight.to("cpu")).any() else "infinite"
            given = next((found for buffer in buffers if (found := buffer.given_non_finite()) is not None), None)
            if given is not None:
                raise NonFiniteError(f"the environment gave {given}, and {name} is {kind} {when}; {_WAY_OUT}")
            raise NonFiniteError(
                f"{name} is {kind} {when}; --debug finds where it begins, a lower learning rate may prevent it, "
                "training.on_nan=skip or rollback goes on"
            )


_WAY_OUT = "`etude check` looks at an environment, training.on_nan=skip or rollback goes on"


def _skips(workflow: Workflow) -> bool:
    """Whether steps that such numbers lead to are left out, as the user wishes."""
    return workflow.context.config.training.on_nan == "skip"
