"""A recurrence over time whose weights get their gradients from all steps at once.

    state[t+1], output[t] = cell(state[t], input[t])

Autograd through a loop takes, for every weight and at every step, a product of few rows and a sum. Here the loop moves states
alone, forth and back:

    forth      states one after the other, by a twin of the cell whose weights have no gradients
               the cell itself on all steps side by side, from these states: what gradients of weights and inputs flow through
    back       the gradient of each state from that of the next one, by the twin
               then one pass through the cell for all steps

Rows must not know of each other. Values and gradients are those of the plain loop, which runs where regions are not compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from etude.compute.frozen import frozen
from etude.compute.regions import are_compiled, region

Tensors = tuple[Tensor, ...]


def scan(owner: nn.Module, cell: region[Any, Any], state: Tensors, inputs: Tensors) -> Tensors:
    """Take T steps of a module's cell from a state (B, ...) with inputs (T, B, ...).

    The cell takes the tensors of the state and of the inputs, and returns the next state's and any others. Returned is each
    of these for all steps: (T, B, ...).
    """
    if not (are_compiled() and torch.is_grad_enabled()):
        made, step = [], cell.of(owner)
        for each in zip(*inputs, strict=True):
            made.append(step(*state, *each))
            state = made[-1][: len(state)]
        return tuple(torch.stack(parts) for parts in zip(*made, strict=True))
    steps = (_StepsOnHost if state[0].device.type == "cpu" else _StepsOnDevice)(cell.of(frozen(owner)), len(state))
    values = steps.forth(tuple(part.detach() for part in state), tuple(part.detach() for part in inputs))
    entering = [torch.cat([first.unsqueeze(0), after[:-1]]) for first, after in zip(state, values, strict=False)]
    side_by_side = cell.of(owner)(*(part.flatten(0, 1) for part in (*entering, *inputs)))
    leading = inputs[0].shape[:2]
    return _Through.apply(steps, values, *(part.unflatten(0, leading) for part in side_by_side))


class _Through(torch.autograd.Function):
    """The values of the steps, with the gradients of the cell side by side."""

    @staticmethod
    def forward(ctx: Any, steps: Any, values: Tensors, *side_by_side: Tensor) -> Tensors:  # type: ignore[override] # torch's own takes anything
        ctx.steps = steps
        return tuple(value.view_as(value) for value in values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # type: ignore[override] # as above
        return (None, None, *ctx.steps.back(gradients))


class _StepsOnDevice:
    """Steps by autograd, which keeps what each needs: no launch is slower for it, once all are captured."""

    def __init__(self, cell: Any, parts: int) -> None:
        self._cell, self._parts = cell, parts
        self._taken: list[tuple[Tensors, Tensors]] = []

    def forth(self, state: Tensors, inputs: Tensors) -> Tensors:
        """Return what each step makes: (T, B, ...)"""
        with torch.enable_grad():
            for each in zip(*inputs, strict=True):
                state = tuple(part.detach().requires_grad_() for part in state)
                made = self._cell(*state, *each)
                self._taken.append((state, made))
                state = made[: self._parts]
        made = ([part.detach() for part in each] for _, each in self._taken)
        return tuple(torch.stack(parts) for parts in zip(*made, strict=True))

    def back(self, gradients: Tensors) -> Tensors:
        """Return the gradients of what each step makes, those by way of later steps included."""
        whole = list[Tensors]()
        later: Tensors | None = None
        for t in range(len(self._taken) - 1, -1, -1):
            state, made = self._taken[t]
            own = tuple(gradient[t] for gradient in gradients)
            whole.append(_with(own, later))
            later = torch.autograd.grad(made, state, whole[-1])
        self._taken.clear()
        return _stacked(whole)


class _StepsOnHost:
    """Steps by compiled functions, which compute what they need once more on the way back."""

    def __init__(self, cell: Any, parts: int) -> None:
        self._cell, self._parts = cell, parts
        self._given: list[Tensors] = []

    def forth(self, state: Tensors, inputs: Tensors) -> Tensors:
        """Return what each step makes: (T, B, ...)"""
        made = list[Tensors]()
        for each in zip(*inputs, strict=True):
            self._given.append((*state, *each))
            made.append(self._cell.values(self._given[-1]))
            state = made[-1][: self._parts]
        return tuple(torch.stack(parts) for parts in zip(*made, strict=True))

    def back(self, gradients: Tensors) -> Tensors:
        """Return the gradients of what each step makes, those by way of later steps included."""
        whole = list[Tensors]()
        later: Tensors | None = None
        for t in range(len(self._given) - 1, -1, -1):
            whole.append(_with(tuple(gradient[t] for gradient in gradients), later))
            later = self._cell.pulled_back(self._given[t], whole[-1], self._parts)
        self._given.clear()
        return _stacked(whole)


def _with(own: Tensors, later: Tensors | None) -> Tensors:
    if later is None:
        return own
    return (*(one + other for one, other in zip(own, later, strict=False)), *own[len(later) :])


def _stacked(backwards: Sequence[Tensors]) -> Tensors:
    return tuple(torch.stack(parts[::-1]) for parts in zip(*backwards, strict=True))
