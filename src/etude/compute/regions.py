"""Parts of an update that are compiled by themselves: the cell of a recurrence is compiled once and called T times.

Compiling a loop of 64 steps whole would unroll it. A method marked as a region is the plain method, unless what runs now was
asked to compile its regions:

    @region
    def cell(self, state, action, noise): ...      # of tensors, or trees of them, to a tuple; with gradients, of a module

    with compiled_regions():                       # the executor of updates says so
        loss = update(batch)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any, Generic, ParamSpec, TypeVar, overload

import torch
from torch import Tensor, nn
from torch.func import functional_call, vjp
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from etude.compute.accelerate import compile_apart, heed_no_advice
from etude.compute.trees import Tree

Inputs = ParamSpec("Inputs")
Result = TypeVar("Result")
lists: Any = torch  # whose operations on lists of tensors have no public names
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
        if vars(owner).get(kept) is None:
            vars(owner)[kept] = _Compiled(self._method, owner)
        return vars(owner)[kept]

    def of(self, owner: Any) -> Callable[..., Any]:
        """Return an object's method, compiled where regions are."""
        return self.__get__(owner, type(owner))


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
    captured. On the CPU that would be most of the time, so it is compiled apart, for each shape of its inputs.
    """

    def __init__(self, method: Any, owner: Any) -> None:
        self._method, self._owner = method, owner
        # The compiler keeps its results with the code object, and gives up after a few: one of its own for every object.
        own = FunctionType(
            method.__code__.replace(), method.__globals__, method.__name__, method.__defaults__, method.__closure__
        )
        self._by_front_end = torch.compile(own, dynamic=False, fullgraph=True)
        self._kept: dict[Any, _OnHost] = {}

    def __call__(self, *inputs: Tree) -> Tree:
        """Return what the method returns."""
        tensors, form = tree_flatten(inputs)
        if tensors[0].device.type != "cpu":
            heed_no_advice(tensors[0].device)
            return self._by_front_end(self._owner, *inputs)
        learns = torch.is_grad_enabled()
        wanted = tuple([k for k, tensor in enumerate(tensors) if tensor.requires_grad]) if learns else ()
        found = self._on_host(tensors, form, wanted, learns)
        given = [tensor.detach().contiguous() for tensor in tensors]
        if not found.learns:
            return tree_unflatten(found.forward(given), found.returns)
        returned = _WithGradients.apply(found, given, *[tensors[k] for k in wanted], *found.parameters_read)
        return tree_unflatten(returned, found.returns)

    def values(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return what the method returns for tensors on the CPU, without gradients."""
        given = [tensor.contiguous() for tensor in tensors]
        return self._on_host(given, tree_flatten(tuple(given))[1], (), False).forward(given)

    def pulled_back(self, tensors: Sequence[Tensor], gradients: Sequence[Tensor], wanted: int) -> tuple[Tensor, ...]:
        """Return the gradients of the first `wanted` of some tensors on the CPU, from those of what the method returns."""
        given = [tensor.contiguous() for tensor in tensors]
        found = self._on_host(given, tree_flatten(tuple(given))[1], tuple(range(wanted)), True)
        return found.backward(given, [gradient.contiguous() for gradient in gradients])

    def _on_host(self, tensors: Sequence[Tensor], form: Any, wanted: tuple[int, ...], learns: bool) -> _OnHost:
        key = (wanted, learns, *[tensor.shape for tensor in tensors])
        if key not in self._kept:
            self._kept[key] = _OnHost(self._method, self._owner, tensors, form, wanted, learns)
        return self._kept[key]

    def __deepcopy__(self, memo: Any) -> None:
        """Leave it out: a copy of the object compiles its own."""


class _OnHost:
    """A region as functions of tensors of certain shapes: forwards, and backwards by computing once more what that needs.

    Where all that has a gradient is one number, a loss, both are one function.
    """

    def __init__(
        self, method: Any, owner: Any, tensors: Sequence[Tensor], form: Any, wanted: tuple[int, ...], learns: bool
    ) -> None:
        call, self._wanted = _Call(method, owner, form), wanted
        with torch.set_grad_enabled(learns):
            made, self.returns = tree_flatten(
                method(owner, *tree_unflatten([t.detach().requires_grad_(k in wanted) for k, t in enumerate(tensors)], form))
            )
        self.differentiable = tuple([k for k, tensor in enumerate(made) if tensor.requires_grad])
        self.learns = bool(self.differentiable)
        self.is_loss = len(self.differentiable) == 1 and made[self.differentiable[0]].ndim == 0
        read: dict[str, Tensor] = {}
        named = {name: parameter for name, parameter in call.named_parameters() if parameter.requires_grad}
        if named and self.learns:
            total = torch.stack([made[k].sum() for k in self.differentiable]).sum()
            found = torch.autograd.grad(total, [*named.values()], allow_unused=True)
            read = {name: p for (name, p), gradient in zip(named.items(), found, strict=True) if gradient is not None}
        self.parameters_read = tuple(read.values())
        weights, device = {name: parameter.detach() for name, parameter in read.items()}, tensors[0].device

        def pulled(given: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], Any]:
            def outputs(weights: dict[str, Tensor], *chosen: Tensor) -> tuple[Tensor, ...]:
                whole = list(given)
                for place, tensor in zip(wanted, chosen, strict=True):
                    whole[place] = tensor
                # A module that is reached by two ways has its weights swapped once: put back twice, they would stay swapped.
                return functional_call(call, weights, tuple(whole), tie_weights=False)

            made, back = vjp(outputs, weights, *[given[k] for k in wanted])  # type: ignore[misc] # two without has_aux
            return made, back

        def backward(given: tuple[Tensor, ...], gradients: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            _, back = pulled(given)
            of_weights, *of_wanted = back(gradients)
            return (*of_wanted, *of_weights.values())

        def both(given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            made, back = pulled(given)
            ones = tuple([torch.full_like(each, float(k in self.differentiable)) for k, each in enumerate(made)])
            of_weights, *of_wanted = back(ones)
            return (*of_wanted, *of_weights.values(), *made)

        self._forward = compile_apart(call.forward, device)
        self._backward, self._both = compile_apart(backward, device), compile_apart(both, device)

    def forward(self, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return what the method returns, flat and without gradients."""
        return self._forward(*given)

    def backward(self, given: Sequence[Tensor], gradients: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the gradients of the wanted inputs and of the parameters read, from those of what is returned."""
        return self._backward(tuple(given), tuple(gradients))

    def both(self, given: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Return what the method returns, a loss among it, and the gradients of that."""
        found, count = self._both(tuple(given)), len(self._wanted) + len(self.parameters_read)
        return found[count:], found[:count]


class _Call(nn.Module):
    """A method as a function of flat tensors, and of the parameters that it reads."""

    def __init__(self, method: Any, owner: Any, form: Any) -> None:
        super().__init__()
        self._method, self.owner, self._form = method, owner, form

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return what the method returns, flat."""
        return tuple(tree_leaves(self._method(self.owner, *tree_unflatten(list(tensors), self._form))))


class _WithGradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, found: _OnHost, given: list[Tensor], *learnt: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override] # torch's own takes anything
        ctx.found = found
        if found.is_loss:
            made, ctx.gradients = found.both(given)
        else:
            made, ctx.given = found.forward(given), given
        ctx.mark_non_differentiable(*[tensor for k, tensor in enumerate(made) if k not in found.differentiable])
        return made

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:  # type: ignore[override] # as above
        if ctx.found.is_loss:
            return (None, None, *lists._foreach_mul(ctx.gradients, gradients[ctx.found.differentiable[0]]))
        return (None, None, *ctx.found.backward(ctx.given, [gradient.contiguous() for gradient in gradients]))
