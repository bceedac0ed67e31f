"""How tensor functions are run: eager, compiled, or captured as a CUDA graph."""

from __future__ import annotations

import importlib.util
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import FunctionType, MethodType
from typing import Any, Literal

import torch
from torch import Tensor

Mode = Literal["eager", "compiled", "graph", "compiled graph"]
REPAYS_COMPILING = 50_000
"""Gradient steps from which compiling (half a minute) is repaid on the CPU, for networks of the usual size."""
FEW_OUTPUTS = 6
"""Up to how many a linear layer is compiled for the CPU as sums of products."""
SETTINGS: dict[Mode, str] = {"eager": "off", "compiled": "on", "graph": "capture", "compiled graph": "on"}
"""What `experiment.compile` says to have each of them."""


def choose_mode(wanted: str, device: torch.device, gradient_steps: int) -> Mode:
    """Return how updates run: a pure function of the settings, the device and the length of the run."""
    if wanted == "off":
        return "eager"
    if device.type == "cuda":
        return "compiled graph" if wanted == "on" and has_gpu_compiler() else "graph"
    if device.type != "cpu" or not has_compiler() or wanted == "capture":
        return "eager"
    return "compiled" if wanted == "on" or gradient_steps >= REPAYS_COMPILING else "eager"


def has_compiler() -> bool:
    """Whether this machine has the C++ compiler that compiling for the CPU needs."""
    return any(shutil.which(name) for name in ("c++", "g++", "clang++"))


def has_gpu_compiler() -> bool:
    """Whether this machine has what compiling for a GPU needs: Triton, and a compiler for what calls its kernels."""
    return importlib.util.find_spec("triton") is not None and any(shutil.which(name) for name in ("cc", "gcc", "clang"))


def is_compiled(mode: Mode) -> bool:
    """Whether updates are compiled, recorded or not."""
    return mode in ("compiled", "compiled graph")


def is_recorded(mode: Mode) -> bool:
    """Whether updates, and acting with them, are replayed CUDA graphs."""
    return mode in ("graph", "compiled graph")


def compile_apart(function: Any, device: torch.device, *fixed: Any) -> Callable[..., tuple[Tensor, ...]]:
    """Compile a function or method for callers that always call it with tensors of the same shapes: see `_Apart`.

    `fixed` are arguments that come after the tensors and are always the same.
    """
    if device.type == "cuda":  # experiment.tf32 is the user's choice, and off for a reason: torch need not advise it
        warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores", category=UserWarning)
    return _Apart(function, fixed, _ON_CPU if device.type == "cpu" else _ON_GPU)


class _Apart:
    """A function of tensors, without gradients, compiled at its first call; further calls go straight to the compiled code.

    The way through the compiler's front end takes 120 µs at every call, a tenth of four updates of a small network: it asks
    whether the code still fits and looks up every tensor anew. Here tensors among the inputs take the places that those of the
    first call had, and all others that the function reads, such as weights, stay where they were: changed in place, never
    replaced. It returns tensors that it has computed, in a tuple.
    """

    def __init__(self, function: Any, fixed: tuple[Any, ...], options: dict[str, Any]) -> None:
        # The compiler keeps its results with the code object: one of its own for every shape.
        plain = getattr(function, "__func__", function)
        own = FunctionType(plain.__code__.replace(), plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__)
        self._function = MethodType(own, function.__self__) if hasattr(function, "__self__") else own
        self._fixed, self._options = fixed, options
        self._code: Callable[..., Sequence[Tensor]] | None = None
        self._tensors: list[Tensor | None] = []  # what the code is called with, less the inputs' own
        self._inputs: list[tuple[int, int]] = []  # its place there, and which of the inputs' tensors
        self._outputs: list[int] = []  # which of what the code returns

    def __call__(self, *inputs: Any) -> tuple[Tensor, ...]:
        """Return what the function returns."""
        if self._code is None:
            return self._compile(inputs)
        tensors, given = self._tensors.copy(), list(_tensors_of(inputs))
        for place, which in self._inputs:
            tensors[place] = given[which]
        with torch.no_grad():
            returned = self._code(*tensors)
        return tuple([returned[which] for which in self._outputs])

    def _compile(self, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
        from torch._inductor.compile_fx import compile_fx  # takes two seconds, and only those who compile wait for it

        called: list[tuple[tuple[Tensor, ...], Sequence[Tensor]]] = []

        def backend(graph: Any, examples: Any) -> Callable[..., Sequence[Tensor]]:
            if not any(example.is_cuda for example in examples):
                _sum_few_outputs(graph)
            code: Any = compile_fx(graph, examples, config_patches=self._options)
            self._code = code

            def first_call(*tensors: Tensor) -> Sequence[Tensor]:
                returned = code(*tensors)
                called.append((tensors, returned))
                return returned

            return first_call

        with torch.no_grad():
            result = torch.compile(self._function, backend=backend, dynamic=False, fullgraph=True)(*inputs, *self._fixed)
        ((tensors, returned),) = called
        which = {id(tensor): k for k, tensor in enumerate(_tensors_of(inputs))}
        self._inputs = [(place, which[id(tensor)]) for place, tensor in enumerate(tensors) if id(tensor) in which]
        self._tensors = [None if id(tensor) in which else tensor for tensor in tensors]
        places = {id(tensor): k for k, tensor in enumerate(returned)}
        self._outputs = [places[id(tensor)] for tensor in result]
        return result


def _sum_few_outputs(graph: torch.fx.GraphModule) -> None:
    """Write linear layers with few outputs as sums of products, which the compiler joins with what is around them.

    The matrix products of libraries are made for larger ones: on batches of 64 to 256 rows each such layer, forwards and
    backwards, takes 13 to 40 µs less so, the more the fewer outputs, and no less with eight of them.
    """
    for node in graph.graph.find_nodes(op="call_function", target=torch.nn.functional.linear):
        if node.kwargs:  # nn.Linear gives none
            continue
        rows, weight, *bias = node.args
        if len(weight.meta["example_value"]) > FEW_OUTPUTS:
            continue
        with graph.graph.inserting_before(node):
            products = graph.graph.call_function(torch.mul, (graph.graph.call_method("unsqueeze", (rows, -2)), weight))
            outputs = graph.graph.call_method("sum", (products, -1))
            if bias and bias[0] is not None:
                outputs = graph.graph.call_function(torch.add, (outputs, bias[0]))
        node.replace_all_uses_with(outputs)
        graph.graph.erase_node(node)
    graph.recompile()


def _tensors_of(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif tree is not None:
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from _tensors_of(part)


_ON_CPU = {
    "cpp_wrapper": True,
    # By exponentials: within 2e-7 of the library's tanh, and several times as fast.
    "cpp.use_decompose_tanh": True,
    # Moments and weights that a later step reads are written down, not computed again inside that step's loops.
    "realize_opcount_threshold": 4,
    "realize_reads_threshold": 2,
}
_ON_GPU = {
    # Trying other orders of loops fails on an assertion of its own in updates with several losses (torch 2.11).
    "loop_ordering_after_fusion": False,
    # Larger kernels are beyond what Triton can lay out there: SAC's would not compile with 64, the default.
    "max_fusion_size": 4,
}
