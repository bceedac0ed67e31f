"""The state of a workflow's parts: modules, optimisers, tensors, anything with a state_dict."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from etude.learning.optimizers import load_optimizer_state, optimizer_state


def has_state(value: Any) -> bool:
    """Whether a part belongs into a checkpoint."""
    return isinstance(value, Tensor) or (hasattr(value, "state_dict") and hasattr(value, "load_state_dict"))


def state_of(part: Any) -> Any:
    """Return a part's state."""
    if isinstance(part, Optimizer):
        return optimizer_state(part)
    return part if isinstance(part, Tensor) else part.state_dict()


def load_state(part: Any, saved: Any) -> None:
    """Restore a part in place."""
    if isinstance(part, Optimizer):
        load_optimizer_state(part, saved)
    elif isinstance(part, Tensor):
        with torch.no_grad():
            part.copy_(saved)
    elif isinstance(part, nn.Module):
        part.load_state_dict(saved, strict=True)
    else:
        part.load_state_dict(saved)
