"""Parts of an update that are compiled by themselves: the cell of a recurrence is compiled once and called T times.

Compiling a loop of 64 steps whole would unroll it. A method marked as a region is the plain method, unless what runs now was
asked to compile its regions:

    @region
    def cell(self, state, action, noise): ...      # of tensors, to a tuple of tensors; with gradients, of a module

    with compiled_regions():                       # the executor of updates says so
        loss = update(batch)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any, Generic, ParamSpec, TypeVar, overload

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp

from etude.compute.accelerate import compile_apart, heed_no_advice

Inputs = ParamSpec("Inputs")
Result = TypeVar("Result")
_depth = 0


class region(Generic[Inputs, Result]):  # noqa: N801 # used as a decorator
    """Marks a method that is compiled by itself, for each object and each shape of its tensors, where regions are."""

    def __init__(self, method: Callable[Inputs, Result]) -> None:
        self._method: Any = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, owner: None, kind: type) -> region[Inputs, Result]: ...
    @overload
    def __get__(self, owner: object, kind: type) -> Callable[..., Result]: ...
    def __get__(self, owner: Any, kind: type) -> Any:
        if owner is None:
            return self
        if not are_compiled():
            return self._method.__get__(owner, kind)
        kept = f"_{self._method.__name__}_compiled"
        if kept not in vars(owner):
            vars(owner)[kept] = _Compiled(self._method, owner)
        return vars(owner)[kept]


@contextmanager
def compiled_regions(wanted: bool = True) -> Iterator[None]:
    """Have the regions of everything within compiled."""
    global _depth  # one for the process, as torch's own mark of compiling is
    _depth += wanted
    try:
        yield
    finally:
        _depth -= wanted


def are_compiled() -> bool:
    """Whether regions are compiled now."""
    return _depth > 0


class _Compiled:
    """One object's region.

    On a GPU it is what `torch.compile` makes of it: the time that a call takes through its front end is gone once the update is
    captured. On the CPU that would be most of the time, so it is compiled apart: forwards without gradients, and backwards as
    a function of its own, which computes what it needs of the forward pass again.
    """

    def __init__(self, method: Any, owner: Any) -> None:
        self._method, self._owner = method, owner
        # The compiler keeps its results with the code object, and gives up after a few: one of its own for every object.
        own = FunctionType(
            method.__code__.replace(), method.__globals__, method.__name__, method.__defaults__, method.__closure__
        )
        self._by_front_end = torch.compile(own, dynamic=False, fullgraph=True)
        self._forward: dict[Any, Callable[..., Any]] = {}
        self._backward: dict[Any, Callable[..., Any]] = {}
        self._calls: _Calls | None = None

    def __call__(self, *inputs: Tensor) -> Any:
        """Return what the method returns."""
        if inputs[0].device.type != "cpu":
            heed_no_advice(inputs[0].device)
            return self._by_front_end(self._owner, *inputs)
        inputs = tuple([tensor.contiguous() for tensor in inputs])
        if not torch.is_grad_enabled():
            return self.forward(inputs)
        if self._calls is None:
            self._calls = _Calls(self._method, self._owner, inputs)
        return _WithGradients.apply(self, len(inputs), *inputs, *self._calls.parameters_read)

    def forward(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return what the method returns, without gradients."""
        key = tuple([tensor.shape for tensor in inputs])
        if key not in self._forward:
            self._forward[key] = compile_apart(self._method.__get__(self._owner), inputs[0].device)
            inputs = tuple([tensor.detach() for tensor in inputs])  # the compiler looks for gradients of what it is shown
        return self._forward[key](*inputs)

    def backward(self, inputs: tuple[Tensor, ...], gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the gradients of inputs, and of the parameters that it reads."""
        key = tuple([tensor.shape for tensor in inputs])
        if key not in self._backward:
            assert self._calls is not None
            self._backward[key] = compile_apart(self._calls.gradients, inputs[0].device)
            inputs = tuple([tensor.detach() for tensor in inputs])
        return self._backward[key](inputs, gradients)


class _Calls(nn.Module):
    """A method as a function of its inputs and of the parameters that it reads."""

    def __init__(self, method: Any, owner: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        super().__init__()
        self._method, self.owner = method, owner
        named = dict(self.named_parameters())
        outputs = self(*(tensor.detach() for tensor in inputs))
        total = torch.stack([output.sum() for output in outputs if output.requires_grad]).sum()
        found = torch.autograd.grad(total, [*named.values()], allow_unused=True)
        read = {name: p for (name, p), gradient in zip(named.items(), found, strict=True) if gradient is not None}
        self.parameters_read = tuple(read.values())
        self._weights = {name: parameter.detach() for name, parameter in read.items()}

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Return what the method returns."""
        return self._method(self.owner, *inputs)

    def gradients(self, inputs: tuple[Tensor, ...], gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the gradients of inputs and parameters, from those of what the method returns."""

        def outputs(weights: dict[str, Tensor], *given: Tensor) -> tuple[Tensor, ...]:
            return functional_call(self, weights, given)

        back: Any = vjp(outputs, self._weights, *inputs)[1]
        of_weights, *of_inputs = back(gradients)
        return (*of_inputs, *of_weights.values())


class _WithGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, compiled: _Compiled, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override] # torch's own takes anything
        ctx.compiled = compiled
        ctx.save_for_backward(*tensors[:count])
        return compiled.forward(tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # type: ignore[override] # as above
        contiguous = tuple([gradient.contiguous() for gradient in gradients])
        return (None, None, *ctx.compiled.backward(ctx.saved_tensors, contiguous))
