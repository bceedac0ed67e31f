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
    paid = None if collector is None or _skips(workflow) else collector.episodes.non_finite()
    broken = _broken_weight(workflow)
    given = (
        None if broken is None else next((found for each in buffers if (found := each.given_non_finite()) is not None), None)
    )
    if paid is not None:
        copy, value = paid
        told = f"the environment paid copy {copy} a return of {value:g}"
        if broken is None or given is not None:
            raise NonFiniteError(f"{told} {when}; {_WAY_OUT}")
        # Actions that are not numbers lead to such rewards too, and what came before them is no longer held.
        raise NonFiniteError(
            f"{told}, and {broken} {when}; if the weights came first, a lower learning rate may prevent it; if not, {_WAY_OUT}"
        )
    if broken is None:
        return
    if given is not None:
        raise NonFiniteError(f"the environment gave {given}, and {broken} {when}; {_WAY_OUT}")
    raise NonFiniteError(
        f"{broken} {when}; --debug finds where it begins, a lower learning rate may prevent it, "
        "training.on_nan=skip or rollback goes on"
    )


def _broken_weight(workflow: Workflow) -> str | None:
    weights = {
        f"{role}.{name}": parameter
        for role, module in workflow.stateful_parts().items()
        if isinstance(module, nn.Module) and not role.startswith("_")
        for name, parameter in module.named_parameters()
        if parameter.is_floating_point()
    }
    if not weights or bool(torch.isfinite(nn.utils.get_total_norm([*weights.values()]).to("cpu"))):
        return None
    for name, weight in weights.items():
        if not torch.isfinite(weight.to("cpu")).all():
            return f"{name} is {'NaN' if torch.isnan(weight.to('cpu')).any() else 'infinite'}"
    return None


_WAY_OUT = "`etude check` looks at an environment, training.on_nan=skip or rollback goes on"


def _skips(workflow: Workflow) -> bool:
    """Whether steps that such numbers lead to are left out, as the user wishes."""
    return workflow.context.config.training.on_nan == "skip"
