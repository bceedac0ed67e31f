"""How tensor functions are run: eager, in NumPy, compiled, or captured as a CUDA graph."""

from __future__ import annotations

import importlib.util
import shutil
import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from types import FunctionType, MethodType
from typing import Any, Literal

import torch
from torch import Tensor

from etude.compute.captured import Captured
from etude.compute.kept_code import KeptCode, Plan, use_own_cache
from etude.compute.lazy_compiler import let_compiler_in

Mode = Literal["eager", "numpy", "compiled", "captured", "compiled and captured"]
REPAYS_COMPILING = 50_000
"""Gradient steps from which compiling (half a minute) is repaid on the CPU, for networks of the usual size."""
WRITTEN_REPAYS_COMPILING = 200_000
"""The same where the alternative is NumPy, which takes half of eager's time or less and twice that of compiled code."""
FEW_INPUTS, FEW_OUTPUTS = 4, 6
"""Up to how many a linear layer is compiled for the CPU as sums of products."""
SETTINGS: dict[Mode, str] = {
    "eager": "off",
    "numpy": "numpy",
    "compiled": "on",
    "captured": "capture",
    "compiled and captured": "on",
}
"""What `experiment.compile` says to have each of them."""


def choose_mode(
    wanted: str,
    device: torch.device,
    gradient_steps: int,
    repays: int = REPAYS_COMPILING,
    *,
    compiles_on_gpu: bool = False,
    is_written: bool = False,
    is_kept: bool = False,
) -> Mode:
    """Return how updates run: a pure function of the settings, the device, the length of the run and what is compiled already.

    `repays` is from how many gradient steps on compiling gains time on a CPU, and with `compiles_on_gpu` there too. What
    `is_written` out in NumPy runs that way on a CPU where it is not compiled; what `is_kept` was compiled here before.
    """
    if wanted == "off":
        return "eager"
    if device.type == "cuda":
        compiles = wanted == "on" or (wanted == "auto" and compiles_on_gpu and gradient_steps >= repays)
        return "compiled and captured" if compiles and has_gpu_compiler() else "captured"
    plain: Mode = "numpy" if is_written and device.type == "cpu" else "eager"
    if wanted == "numpy":
        return plain
    if device.type != "cpu" or not has_compiler() or wanted == "capture":
        return plain if wanted == "auto" else "eager"
    return "compiled" if wanted == "on" or gradient_steps >= repays or is_kept else plain


def why(mode: Mode, device: torch.device, gradient_steps: int, repays: int, *, is_kept: bool = False) -> str:
    """Say why `auto` has chosen a mode."""
    if device.type == "cuda":
        return "a GPU waits for nobody where updates are captured"
    if mode == "compiled":
        kept = "this machine has compiled these settings before"
        return kept if is_kept else f"{gradient_steps:,} gradient steps repay compiling (from {repays:,} on)"
    short = f"{gradient_steps:,} gradient steps would not repay compiling (from {repays:,} on)"
    if not has_compiler():
        short = "this machine has no C++ compiler"
    return f"{short}, and the gradient is written out in NumPy" if mode == "numpy" else short


def has_compiler() -> bool:
    """Whether this machine has the C++ compiler that compiling for the CPU needs."""
    return any(shutil.which(name) for name in ("c++", "g++", "clang++"))


def has_gpu_compiler() -> bool:
    """Whether this machine has what compiling for a GPU needs: Triton, and a compiler for what calls its kernels."""
    return importlib.util.find_spec("triton") is not None and any(shutil.which(name) for name in ("cc", "gcc", "clang"))


def is_compiled(mode: Mode) -> bool:
    """Whether updates are compiled, captured or not."""
    return mode in ("compiled", "compiled and captured")


def is_captured(mode: Mode) -> bool:
    """Whether updates, and acting with them, are captured CUDA graphs."""
    return mode in ("captured", "compiled and captured")


def compile_apart(
    function: Any, device: torch.device, *fixed: Any, kept: KeptCode | None = None, small: bool = True
) -> CompiledApart:
    """Compile a function or method for callers that always call it with tensors of the same shapes: see `CompiledApart`.

    `fixed` are arguments that come after the tensors and are always the same; `kept` is where the code is kept for later runs.
    Kernels on a GPU stay small unless the function is known to be taken in larger ones.
    """
    heed_no_advice(device)
    options = (_ON_CPU if device.type == "cpu" else _ON_GPU) if small else kernels_up_to(64, device)
    return CompiledApart(function, fixed, options, kept)


def kernels_up_to(size: int, device: torch.device) -> dict[str, Any]:
    """Return how to compile for a device, on a GPU with at most so many operations joined in a kernel."""
    return _ON_CPU if device.type == "cpu" else {**_ON_GPU, "max_fusion_size": size}


def at_once(function: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """Return a function of tensors as it is best called on a device: on CUDA captured, where `Captured` says of what kind."""
    return Captured(function) if device.type == "cuda" else function


def heed_no_advice(device: torch.device) -> None:
    """Keep to ourselves what the compiler says of choices that are the user's, or that it makes itself."""
    if device.type != "cuda":
        return
    advice = (
        "TensorFloat32 tensor cores",  # experiment.tf32 is off for a reason
        r"\s*Online softmax is disabled",  # over few actions: said by torch 2.11's compiler of CartPole's two
        "The .grad attribute of a Tensor that is not a leaf",  # it looks at the gradients of what it is shown
    )
    for message in advice:
        warnings.filterwarnings("ignore", message=message, category=UserWarning)


class CompiledApart:
    """A function of tensors, without gradients, compiled at its first call; further calls go straight to the compiled code.

    The way through the compiler's front end takes 120 µs at every call, a tenth of four updates of a small network: it asks
    whether the code still fits and looks up every tensor anew. Here tensors among the inputs take the places that those of the
    first call had, and all others that the function reads, such as weights, stay where they were: changed in place, never
    replaced. It returns tensors that it has computed, in a tuple.
    """

    def __init__(self, function: Any, fixed: tuple[Any, ...], options: dict[str, Any], kept: KeptCode | None = None) -> None:
        # The compiler keeps its results with the code object: one of its own for every shape.
        plain = getattr(function, "__func__", function)
        own = FunctionType(plain.__code__.replace(), plain.__globals__, plain.__name__, plain.__defaults__, plain.__closure__)
        self._function: Any = MethodType(own, function.__self__) if hasattr(function, "__self__") else own
        self._fixed, self._options = fixed, options
        self._kept = kept if kept is not None and kept.can_be else None
        self.note: Any = None
        """What was kept with the code, where it was loaded."""
        self._code: Callable[..., Sequence[Tensor]] | None = None
        self._tensors: list[Tensor | None] = []  # what the code is called with, less the inputs' own
        self._inputs: list[tuple[int, int]] = []  # its place there, and which of the inputs' tensors
        self._outputs: list[int] = []  # which of what the code returns

    def __call__(self, *inputs: Any) -> tuple[Tensor, ...]:
        """Return what the function returns."""
        if self._code is None and not self._load():
            return self._compile(inputs)
        assert self._code is not None
        tensors, given = self._tensors.copy(), _tensors_of(inputs)
        for place, which in self._inputs:
            tensors[place] = given[which]
        with torch.no_grad():
            returned = self._code(*tensors)
        return tuple([returned[which] for which in self._outputs])

    def _load(self) -> bool:
        """Take code that was kept, if there is some for all of the tensors at hand."""
        found = None if self._kept is None else self._kept.load()
        if self._kept is None or found is None:
            return False
        code, plan = found
        known = self._kept.tensors()
        if any(isinstance(place, str) and place not in known for place in plan.places):
            return False
        self._inputs = [(place, which) for place, which in enumerate(plan.places) if isinstance(which, int)]
        self._tensors = [known[name] if isinstance(name, str) else None for name in plan.places]
        self._code, self._outputs, self.note = code, [*plan.outputs], plan.note
        return True

    def _keep(self, artifact: Any, tensors: Sequence[Tensor]) -> None:
        """Keep the code, where every tensor that it reads has a name or is given with the call."""
        if self._kept is None or artifact is None:
            return
        names = {_place(tensor): name for name, tensor in self._kept.tensors().items()}
        given = dict(self._inputs)
        places = [given[place] if place in given else names.get(_place(tensor)) for place, tensor in enumerate(tensors)]
        if None not in places:
            self._kept.keep(artifact, Plan([each for each in places if each is not None], self._outputs, self._kept.note()))

    def _compile(self, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
        use_own_cache()
        let_compiler_in()
        from torch._inductor.compile_fx import compile_fx  # takes two seconds, and only those who compile wait for it

        called: list[tuple[tuple[Tensor, ...], Sequence[Tensor]]] = []
        artifact: Any = None

        def backend(graph: Any, examples: Any) -> Callable[..., Sequence[Tensor]]:
            if not any(example.is_cuda for example in examples):
                _sum_small_products(graph)
            nonlocal artifact
            if self._kept is None:
                code: Any = compile_fx(graph, examples, config_patches=self._options)
            else:
                code, artifact = _that_can_be_kept(graph, examples, self._options)
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
        self._keep(artifact, tensors)
        self._function = None  # nor anything that it holds
        return result


def _that_can_be_kept(graph: torch.fx.GraphModule, examples: Any, options: dict[str, Any]) -> tuple[Any, Any]:
    """Compile a graph, and return the code and what of it can be saved; None where torch can't save it."""
    from torch._functorch import config
    from torch._inductor.compile_fx import compile_fx

    try:
        from torch._inductor.standalone_compile import AOTCompiledArtifact
    except ImportError:  # of some versions of torch
        return compile_fx(graph, examples, config_patches=options), None

    with config.patch(bundled_autograd_cache=True):
        code: Any = compile_fx(graph, examples, config_patches=options)
    return code, AOTCompiledArtifact(code) if getattr(code, "serialize", None) is not None else None


def _place(tensor: Tensor) -> tuple[Any, ...]:
    """What tells a tensor's memory from any other's."""
    return (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)


def _sum_small_products(graph: torch.fx.GraphModule) -> None:
    """Write linear layers with few inputs or outputs as sums of products, which the compiler joins with what is around them.

    The matrix products of libraries are made for larger ones: on batches of 64 to 256 rows a layer with up to six outputs,
    forwards and backwards, takes 13 to 40 µs less so, and one with eight about the same.
    """
    add = graph.graph
    for node in add.find_nodes(op="call_function", target=torch.nn.functional.linear):
        if node.kwargs:  # nn.Linear gives none
            continue
        rows, weight, *bias = node.args
        outputs, inputs = weight.meta["example_value"].shape
        terms = [part for part in bias if part is not None]
        with add.inserting_before(node):
            if outputs <= FEW_OUTPUTS:
                products = add.call_function(torch.mul, (add.call_function(torch.unsqueeze, (rows, -2)), weight))
                terms.append(add.call_function(torch.sum, (products, -1)))
            elif inputs <= FEW_INPUTS:
                columns = [
                    (add.call_function(torch.narrow, (rows, -1, k, 1)), add.call_function(torch.select, (weight, 1, k)))
                    for k in range(inputs)
                ]
                terms += [add.call_function(torch.mul, column) for column in columns]
            else:
                continue
            total = reduce(lambda one, other: add.call_function(torch.add, (one, other)), terms)
        total.meta = dict(node.meta)  # without which torch keeps nothing of the graph
        node.replace_all_uses_with(total)
        add.erase_node(node)
    graph.recompile()


def _tensors_of(parts: Iterable[Any]) -> list[Tensor]:
    """Return the tensors of nested dicts and tuples, in order."""
    found: list[Tensor] = []
    for part in parts:
        if isinstance(part, Tensor):
            found.append(part)
        elif part is not None:
            found += _tensors_of(part.values() if isinstance(part, dict) else part)
    return found


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
