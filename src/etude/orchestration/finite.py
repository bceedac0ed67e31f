"""A run whose weights are no longer numbers is over; better said at once than after the night."""

from __future__ import annotations

import torch
from torch import nn

from etude.errors import NonFiniteError
from etude.orchestration.counters import Counters
from etude.workflows.base import Workflow


@torch.no_grad()
def check_finite(workflow: Workflow, counters: Counters) -> None:
    """Raise NonFiniteError naming the first weight that is NaN or infinite; one number is read from the device."""
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
            raise NonFiniteError(
                f"{name} is {kind} at {counters.env_steps:,} environment steps and {counters.updates:,} updates; --debug finds "
                "where it begins, a lower learning rate may prevent it, training.on_nan=skip or rollback goes on"
            )
