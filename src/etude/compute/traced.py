"""A function of tensors that somebody else wrote, compiled by what it does: few kernels in place of hundreds.

    1st call ─→ the function itself; what it asks random streams for is noted
    2nd call ─→ its operations are written down without computing anything, and compiled; the code runs
    further  ─→ draw what was asked for, in the same order ─→ the code

What it does to tensors counts, not how it is written: it may go through objects, caches and functions of a user's. It must
do the same at every call, and ask the device for no number. Tensors that it reads or changes in place stay where they are.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Generator, Tensor, fx
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from etude.compute.accelerate import kernels_up_to
from etude.compute.kept_code import use_own_cache
from etude.compute.lazy_compiler import let_compiler_in

LARGEST_KERNELS = (64, 8)
"""How many operations may be joined, tried in this order: fewer kernels, or those that can be compiled for sure."""


class CantBeTracedError(RuntimeError):
    """The function does what compiled code can't."""


class Traced:
    """Compiles a function by tracing it; one that can't be had that way runs as it is, and says so."""

    def __init__(self, function: Callable[..., Any], what: str, *, forget: Callable[[], None] = lambda: None) -> None:
        """`what` is how a user calls it; `forget` drops what the function has put aside while it was traced."""
        self._function: Callable[..., Any] | None = function
        self._what, self._forget = what, forget
        self._draws: list[_Draw] | None = None
        self._code: Callable[..., Any] | None = None
        self._tensors: list[Tensor] = []
        self._form: Any = None
        self.gave_up = False

    @property
    def is_compiled(self) -> bool:
        """Whether code runs in the function's place."""
        return self._code is not None

    @torch.no_grad()
    def __call__(self, *inputs: Any) -> Any:
        """Return what the function returns."""
        if self._code is not None:
            return self._run(inputs)
        assert self._function is not None
        if self.gave_up:
            return self._function(*inputs)
        if self._draws is None:
            with _Noting(_tensors_of(inputs)) as noting:
                result = self._function(*inputs)
            noting.hold(result)
            self._draws, self._tensors = noting.draws, noting.held
            return result
        return self._begin(inputs)

    def _begin(self, inputs: tuple[Any, ...]) -> Any:
        """Compile and run for the first time; where that fails nothing has happened, and the function itself runs."""
        assert self._function is not None
        try:
            self._compile(inputs)
        except Exception as error:  # noqa: BLE001 # code of a user's, and a compiler's: the function can do without
            return self._as_it_is(inputs, error)
        finally:
            self._forget()
        before = [tensor.clone() for tensor in self._tensors]
        try:
            result = self._run(inputs)
        except Exception as error:  # noqa: BLE001 # as above
            for tensor, value in zip(self._tensors, before, strict=True):
                tensor.copy_(value)
            return self._as_it_is(inputs, error)
        self._function = None  # the code has what it needs of it
        return result

    def _as_it_is(self, inputs: tuple[Any, ...], error: Exception) -> Any:
        said = str(error).strip().partition("\n")[0]
        warnings.warn(f"{self._what} is not compiled: {type(error).__name__}: {said}", stacklevel=4)
        self._code, self.gave_up = None, True
        assert self._function is not None
        return self._function(*inputs)

    def _run(self, inputs: tuple[Any, ...]) -> Any:
        assert self._code is not None
        assert self._draws is not None
        numbers = [draw() for draw in self._draws]
        returned = self._code(*pytree.tree_leaves(inputs), *numbers, *self._tensors)
        return pytree.tree_unflatten(list(returned), self._form)

    def _compile(self, inputs: tuple[Any, ...]) -> None:
        use_own_cache()
        let_compiler_in()
        from torch._inductor.compile_fx import compile_fx  # takes two seconds, and only those who compile wait for it
        from torch.fx.experimental.proxy_tensor import make_fx

        given, form = pytree.tree_flatten(inputs)
        assert self._draws is not None
        examples = [*given, *(draw.like() for draw in self._draws), *self._tensors]
        first, last = len(given), len(given) + len(self._draws)

        def flat(*tensors: Tensor) -> list[Tensor]:
            assert self._function is not None
            with _Handing(tensors[first:last], tensors[last:], self._tensors) as handing:
                result = self._function(*pytree.tree_unflatten(list(tensors[:first]), form))
            leaves, self._form = pytree.tree_flatten(handing.given(result))
            return leaves

        graph = make_fx(flat, tracing_mode="fake")(*examples)
        _check_apart(graph, examples)
        for size in LARGEST_KERNELS:
            try:
                own = copy.deepcopy(graph)
                code: Any = compile_fx(own, examples, config_patches=kernels_up_to(size, examples[-1].device))
                self._code = code
                return
            except Exception:  # large kernels may be beyond what a compiler can lay out
                if size == LARGEST_KERNELS[-1]:
                    raise


class _Draw:
    """One tensor of random numbers, as a function has asked for it."""

    def __init__(self, function: Any, arguments: tuple[Any, ...], options: dict[str, Any], drawn: Tensor) -> None:
        self._function, self._arguments, self._options = function, arguments, options
        self._shape, self._dtype, self._device = drawn.shape, drawn.dtype, drawn.device

    def __call__(self) -> Tensor:
        return self._function(*self._arguments, **self._options)

    def like(self) -> Tensor:
        """Return a tensor of its kind, drawn from nothing."""
        return torch.zeros(self._shape, dtype=self._dtype, device=self._device)


class _Noting(TorchDispatchMode):
    """Notes what generators are asked for, and which tensors are read or changed that were there before."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        super().__init__()
        self.draws: list[_Draw] = []
        self.held: list[Tensor] = []
        # Kept until the end, so that none takes the place of another.
        self._known = {id(tensor): tensor for tensor in inputs}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.hold((args, kwargs))
        result = func(*args, **(kwargs or {}))
        if _asks_a_generator(args, kwargs or {}):
            self.draws.append(_Draw(func, args, kwargs or {}, result))
        self._known |= {id(tensor): tensor for tensor in _tensors_of(result)}
        return result

    def hold(self, tree: Any) -> None:
        """Note those tensors of a tree that nothing here has made."""
        for tensor in _tensors_of(tree):
            if id(tensor) not in self._known:
                self.held.append(tensor)
                self._known[id(tensor)] = tensor


class _Handing(TorchDispatchMode):
    """Puts inputs of a graph in the place of tensors that were there before, and of numbers that will be drawn."""

    def __init__(self, numbers: Sequence[Tensor], inputs: Sequence[Tensor], held: Sequence[Tensor]) -> None:
        super().__init__()
        self._numbers = iter(numbers)
        self._inputs = {id(tensor): given for tensor, given in zip(held, inputs, strict=True)}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if _asks_a_generator(args, kwargs or {}):
            if _tensors_of((args, kwargs)):
                raise CantBeTracedError(f"{func} draws into a tensor that is there already; use torch.rand or torch.randint")
            return next(self._numbers)
        args, kwargs = self.given((args, kwargs or {}))
        return func(*args, **kwargs)

    def given(self, tree: Any) -> Any:
        """Return a tree with inputs of the graph in it."""
        return pytree.tree_map_only(Tensor, lambda tensor: self._inputs.get(id(tensor), tensor), tree)


def _tensors_of(tree: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, Tensor)]


def _asks_a_generator(arguments: tuple[Any, ...], options: dict[str, Any]) -> bool:
    return any(isinstance(each, Generator) for each in (*arguments, *options.values()))


def _check_apart(graph: fx.GraphModule, tensors: list[Tensor]) -> None:
    """Refuse inputs that lie in each other's memory where one of them is written to: code would not see it in the other."""
    nodes = [node for node in graph.graph.nodes if node.op == "placeholder"]
    by_memory: dict[int, list[fx.Node]] = {}
    for node, tensor in zip(nodes, tensors, strict=True):
        if tensor.numel():
            by_memory.setdefault(tensor.untyped_storage().data_ptr(), []).append(node)
    shared = [each for group in by_memory.values() if len(group) > 1 for each in group]
    for node in shared:
        if any(_writes_to(user, node) for user in node.users):
            raise CantBeTracedError("two tensors that it reads lie in the same memory, and it writes to one of them")


def _writes_to(user: fx.Node, node: fx.Node) -> bool:
    """Whether a node writes to a tensor, or makes a view by which one might."""
    schema = getattr(user.target, "_schema", None)
    if schema is None:
        return False
    given = [*user.args, *user.kwargs.values()]
    written = [argument.alias_info is not None and argument.alias_info.is_write for argument in schema.arguments]
    if any(is_written and value is node for is_written, value in zip(written, given, strict=False)):
        return True
    is_view = any(argument.alias_info is not None for argument in schema.arguments)
    return is_view and any(_writes_to(next_user, user) for next_user in user.users)
