"""Scans: weights get the gradients of the plain loop, from all steps at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from etude.compute import scan as scanning
from etude.compute.accelerate import has_compiler
from etude.compute.frozen import frozen
from etude.compute.regions import compiled_regions, region
from etude.compute.scan import scan

T, B = 6, 4


class Cell(nn.Module):
    """A recurrence with two parts of a state, and an output besides."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.mixing = nn.Parameter(torch.randn(5, 3, generator=generator) / 2)
        self.gate = nn.Parameter(torch.randn(3, 2, generator=generator) / 2)
        self.unread = nn.Parameter(torch.ones(3))

    @region
    def step(self, memory: Tensor, drawn: Tensor, keep: Tensor, given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Take one step."""
        memory = torch.tanh(torch.cat([memory * keep, drawn * keep], -1) @ self.mixing + given)
        return memory, torch.sigmoid(memory @ self.gate), memory.square().sum(-1)


def numbers(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def everything(cell: Cell) -> tuple[Tensor, ...]:
    """Values, and the gradients of weights, inputs and the first state."""
    given, start = numbers(T, B, 3, seed=2).requires_grad_(), numbers(B, 3, seed=3).requires_grad_()
    keep = (numbers(T, B, 1, seed=4) > -1).float()
    made = scan(cell, Cell.step, (start, torch.zeros(B, 2)), (keep, given))
    total = sum((part.square().mul(numbers(*part.shape, seed=5)).sum() for part in made), torch.zeros(()))
    return (*(part.detach() for part in made), *torch.autograd.grad(total, [given, start, cell.mixing, cell.gate]))


def plain_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the way of compiled regions without compiling any."""
    monkeypatch.setattr(scanning, "are_compiled", lambda: True)


def test_steps_by_autograd_have_the_gradients_of_the_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell()
    plain = everything(cell)
    plain_regions(monkeypatch)
    monkeypatch.setattr(scanning, "_StepsOnHost", scanning._StepsOnDevice)
    torch.testing.assert_close(everything(cell), plain)


@pytest.mark.skipif(not has_compiler(), reason="compiling for the CPU needs a C++ compiler")
def test_compiled_steps_have_the_gradients_of_the_plain_loop() -> None:
    cell = Cell()
    plain = everything(cell)
    with compiled_regions():
        torch.testing.assert_close(everything(cell), plain)


def test_weights_take_part_once_for_all_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is saved: the products of a step's backward pass hold no gradients of weights."""
    cell, asked = Cell(), list[int]()
    plain_regions(monkeypatch)
    monkeypatch.setattr(scanning, "_StepsOnHost", scanning._StepsOnDevice)
    gradient: Callable[..., Any] = torch.autograd.grad

    def noted(outputs: Any, inputs: Any, *others: Any) -> Any:
        asked.append(len(inputs))
        return gradient(outputs, inputs, *others)

    monkeypatch.setattr(torch.autograd, "grad", noted)
    everything(cell)
    assert asked == [4, *[2] * T]
    assert all(not parameter.requires_grad for parameter in frozen(cell).parameters())


def test_a_twin_follows_its_module_in_the_same_memory() -> None:
    cell = Cell()
    twin = frozen(cell)
    assert twin is frozen(cell)
    with torch.no_grad():
        cell.mixing.mul_(2)
    assert torch.equal(twin.mixing, cell.mixing)
    assert "_frozen_twins" not in cell.state_dict()


def test_within_autocast_a_twin_has_weights_that_are_rounded_already() -> None:
    cell = Cell()
    with torch.autocast("cpu", torch.bfloat16):
        twin = frozen(cell)
        assert twin.mixing.dtype is torch.bfloat16
        with torch.no_grad():
            cell.mixing.mul_(2)
        assert torch.equal(frozen(cell).mixing, cell.mixing.to(torch.bfloat16))
    assert frozen(cell).mixing.dtype is torch.float32
