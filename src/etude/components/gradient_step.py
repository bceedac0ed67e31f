"""One gradient step on a minibatch, loss and optimiser together: eager, compiled, or captured as a CUDA graph.

All three take the same step from the same state. Parameters, moments and rates are changed in place, so a step can be
taken one way now and another way after a resume.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value
from torch.optim import Adam, AdamW, Optimizer

from etude.buffers.rollout import take
from etude.components.optimizers import clipped_step, or_non_finite
from etude.compute.accelerate import Mode, compile_apart

Metrics = Mapping[str, Tensor]
WARM_UP_CALLS = 3
STEPS_PER_CALL = 4
"""How many steps are worth unrolling into one compiled call: fewer trips through Python, for a longer compilation."""


class GradientStep:
    """Minimises what an objective returns: `objective(rows) -> (loss, metrics)`, one minibatch at a time.

    `decide(metrics)` runs between loss and step and may write to tensors on the device: to `skip` (1 leaves everything as
    it is), or to a learning rate. `skip_non_finite` leaves out steps whose gradient is NaN or infinite, and counts them.
    """

    def __init__(
        self,
        objective: nn.Module,
        optimizer: Optimizer,
        *,
        max_grad_norm: float | None,
        decide: Callable[[Metrics], None] | None = None,
        skip: Tensor | None = None,
        skip_non_finite: bool = False,
        mode: Mode = "eager",
    ) -> None:
        self.objective, self.optimizer = objective, optimizer
        self.max_grad_norm, self.skip, self._decide = max_grad_norm, skip, decide
        self._skip_non_finite = skip_non_finite
        self.mode: Mode = mode if mode != "compiled" or _is_adam(optimizer) else "eager"
        self.steps_per_call = 1 if self.mode == "eager" else STEPS_PER_CALL
        self.keys: tuple[str, ...] = ()
        self._run = {"eager": self._eager, "compiled": self._compiled, "graph": self._replay}[self.mode]
        self._compiled_steps: dict[tuple[torch.Size, ...], Callable[..., Tensor]] = {}
        self._graph: torch.cuda.CUDAGraph | None = None
        self._static: dict[str, Any] = {}

    def __call__(self, batch: Mapping[str, Any], indices: Tensor) -> Tensor:
        """Take K steps, on the rows of `batch` that each of `indices` (K, B) names; returns metrics (K, len(keys))."""
        return self._run(batch, indices)

    def eager(self, rows: Mapping[str, Any]) -> dict[str, Tensor]:
        """Step on rows as they are and return the metrics by name."""
        loss, metrics = self.objective(rows)
        if self._decide is not None:
            with torch.no_grad():
                self._decide(metrics)
        self.optimizer.zero_grad(set_to_none=False)
        loss.backward()
        norm = clipped_step(self.optimizer, self.max_grad_norm, self.skip, skip_non_finite=self._skip_non_finite)
        return self._named(loss.detach(), {k: v.detach() for k, v in metrics.items()}, norm)

    def _named(self, loss: Tensor, metrics: Metrics, norm: Tensor) -> dict[str, Tensor]:
        named = {"train/loss": loss, **metrics, "train/grad_norm": norm}
        return {**named, "train/skipped": or_non_finite(None, norm)} if self._skip_non_finite else named

    def _eager(self, batch: Mapping[str, Any], indices: Tensor) -> Tensor:
        steps = [self.eager(take(batch, index)) for index in indices]
        self.keys = tuple(steps[0])
        return torch.stack([value for metrics in steps for value in metrics.values()]).view(len(steps), -1)

    # ---- compiled: loss, gradient, clipping and Adam in one function of tensors ------------------------------------------

    def _compiled(self, batch: Mapping[str, Any], indices: Tensor) -> Tensor:
        shapes = (*_shapes(batch), indices.shape)
        if shapes not in self._compiled_steps:
            self._state = _adam_state(self.objective, self.optimizer)
            self._compiled_steps[shapes] = compile_apart(self._pure_steps)
        with torch.no_grad():
            return self._compiled_steps[shapes](self._state, batch, indices)

    def _pure_steps(self, state: dict[str, Any], batch: Mapping[str, Any], indices: Tensor) -> Tensor:
        return torch.stack([self._pure_step(state, take(batch, index)) for index in indices.unbind()])

    def _pure_step(self, state: dict[str, Any], rows: Mapping[str, Any]) -> Tensor:
        def loss_of(parameters: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            return functional_call(self.objective, parameters, (rows,))

        gradients, (loss, metrics) = grad_and_value(loss_of, has_aux=True)(state["parameters"])
        if self._decide is not None:
            self._decide(metrics)
        norm = torch.stack([gradient.square().sum() for gradient in gradients.values()]).sum().sqrt()
        skip = or_non_finite(self.skip, norm) if self._skip_non_finite else self.skip
        scale = 1.0 if self.max_grad_norm is None else (self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        for name, gradient in gradients.items():
            _adam_(state, name, gradient * scale, skip)
        named = self._named(loss, metrics, norm)
        self.keys = tuple(named)
        return torch.stack([*named.values()])

    # ---- captured: the eager step, recorded once and replayed ------------------------------------------------------------

    def _replay(self, batch: Mapping[str, Any], indices: Tensor) -> Tensor:
        if self._graph is None:
            self._capture(batch, indices)
        assert self._graph is not None
        if self._static["source"] is not batch:
            _copy_tree(self._static["batch"], batch)
            self._static["source"] = batch
        self._static["indices"].copy_(indices)
        self._graph.replay()
        return self._static["rows"].clone()

    def _capture(self, batch: Mapping[str, Any], indices: Tensor) -> None:
        """Warm up and record; what that touches is put back, so that a captured run is the eager run."""
        static = self._static = {"batch": _clone_tree(batch), "indices": indices.clone(), "source": batch}
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            touched = self._touched()
            before = [tensor.clone() for tensor in touched]
            fresh = not self.optimizer.state
            for _ in range(WARM_UP_CALLS):
                self._eager(static["batch"], static["indices"])
            for tensor, value in zip(touched, before, strict=True):
                tensor.copy_(value)
            if fresh:  # moments that the warm-up made: back to nothing, in place
                for state in self.optimizer.state.values():
                    for value in state.values():
                        value.zero_()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            static["rows"] = self._eager(static["batch"], static["indices"])

    def _touched(self) -> list[Tensor]:
        tensors: list[Tensor] = [p.data for p in self.objective.parameters()]
        tensors += [v for state in self.optimizer.state.values() for v in state.values() if isinstance(v, Tensor)]
        tensors += [group["lr"] for group in self.optimizer.param_groups if isinstance(group["lr"], Tensor)]
        return [*tensors, self.skip] if self.skip is not None else tensors


def _shapes(tree: Mapping[str, Any]) -> Iterator[torch.Size]:
    for value in tree.values():
        if isinstance(value, Mapping):
            yield from _shapes(value)
        else:
            yield value.shape


def _is_adam(optimizer: Optimizer) -> bool:
    return type(optimizer) in (Adam, AdamW) and not any(
        group["amsgrad"] or group["maximize"] or (group["weight_decay"] and type(optimizer) is Adam)
        for group in optimizer.param_groups
    )


def _adam_state(objective: nn.Module, optimizer: Optimizer) -> dict[str, Any]:
    """Return parameters, moments and settings by parameter name, sharing memory with the optimiser's own."""
    names = {parameter: name for name, parameter in objective.named_parameters()}
    state: dict[str, Any] = {key: {} for key in ("parameters", "first", "second", "step", "rate", "options")}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if not parameter.requires_grad:
                continue
            own = optimizer.state[parameter]
            if not own:
                own["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                own["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
                own["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            name = names[parameter]
            state["parameters"][name] = parameter.detach()
            state["first"][name], state["second"][name], state["step"][name] = own["exp_avg"], own["exp_avg_sq"], own["step"]
            state["rate"][name] = group["lr"]
            state["options"][name] = (*group["betas"], group["eps"], group["weight_decay"])
    return state


def _adam_(state: dict[str, Any], name: str, gradient: Tensor, skip: Tensor | None) -> None:
    """AdamW (Loshchilov and Hutter 2019) on one parameter, in place; the arithmetic of torch's own, in its order."""
    parameter, first, second = state["parameters"][name], state["first"][name], state["second"][name]
    step, rate = state["step"][name], state["rate"][name]
    beta1, beta2, eps, weight_decay = state["options"][name]
    count = step + 1
    mean = first + (gradient - first) * (1 - beta1)
    square = second * beta2 + gradient * gradient * (1 - beta2)
    denominator = square.sqrt() / (1 - beta2**count).sqrt() + eps
    moved = parameter * (1 - rate * weight_decay) - (rate / (1 - beta1**count)) * (mean / denominator)
    updates = ((parameter, moved), (first, mean), (second, square), (step, count))
    for old, new in updates:
        old.copy_(new if skip is None else torch.where(skip > 0, old, new))


def _clone_tree(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _clone_tree(value) if isinstance(value, Mapping) else value.clone() for key, value in tree.items()}


def _copy_tree(target: Mapping[str, Any], source: Mapping[str, Any]) -> None:
    for key, value in target.items():
        if isinstance(value, Mapping):
            _copy_tree(value, source[key])
        else:
            value.copy_(source[key])
