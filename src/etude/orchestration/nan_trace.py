"""Finds where a NaN or an infinity begins: the first module whose output, parameter whose gradient, or weight it appears in.

Slow: every output and every gradient is looked at. For runs with --debug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from etude.errors import EtudeError, NonFiniteFoundError
from etude.files.tensor_dump import write_dump
from etude.orchestration.orchestrator import Orchestrator

_WAY_ON = "`etude debug` shows what it found"


def watch_for_nan(orchestrator: Orchestrator) -> None:
    """Fail at the first number that is not finite, naming tensor, module and step, and leave a dump in the run."""
    _Trace(orchestrator)


class _Trace:
    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator
        self._batch: Mapping[str, Any] = {}
        workflow = orchestrator.workflow
        self._parts = {name: part for name, part in workflow.stateful_parts().items() if isinstance(part, nn.Module)}
        for role, module in self._parts.items():
            for name, inner in module.named_modules():
                inner.register_forward_hook(self._output_check(f"{role}.{name}".rstrip(".")))
            for name, parameter in module.named_parameters():
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(self._gradient_check(f"{role}.{name}"))
        # What takes gradient steps: an algorithm's own `learn`, or executors of its updates.
        _remember_first_argument(workflow, "learn", self._begin_step, self._end_step)
        for part in vars(workflow).values():
            if hasattr(part, "once") and hasattr(part, "update"):
                _remember_first_argument(part, "once", self._begin_step, self._end_step)

    def _begin_step(self, batch: Any) -> None:
        self._batch = batch if isinstance(batch, Mapping) else {"batch": batch}

    def _end_step(self) -> None:
        for name, parameter in self._weights().items():
            if not _is_finite(parameter):
                self._fail(f"{_kind(parameter)} in the weight {name} after a gradient step", "weight", name, {})
        self._batch = {}

    def _output_check(self, name: str) -> Any:
        def check(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            for tensor in _tensors(output).values():
                if not _is_finite(tensor):
                    given = _tensors(inputs)
                    were_finite = all(_is_finite(each) for each in given.values())
                    told = f"{_kind(tensor)} in the output of {name} ({type(module).__name__}), its input was "
                    self._fail(told + ("not" if were_finite else "already"), "output", name, given, type(module).__name__)

        return check

    def _gradient_check(self, name: str) -> Any:
        def check(parameter: Tensor) -> None:
            if parameter.grad is not None and not _is_finite(parameter.grad):
                self._fail(f"{_kind(parameter.grad)} in the gradient of {name}", "gradient", name, {})

        return check

    def _fail(self, told: str, where: str, name: str, inputs: dict[str, Tensor], kind: str = "") -> None:
        counters = self._orchestrator.counters
        when = f"at {counters.env_steps:,} environment steps and {counters.updates:,} updates"
        report = {
            "message": told,
            "where": where,
            "tensor": name,
            "module": name if where == "output" else name.rpartition(".")[0],
            "type": kind,
            "counters": counters.as_dict(),
            "phase": self._orchestrator.scheduler.current_phase.name,
        }
        self._dump(report, inputs)
        raise NonFiniteFoundError(f"{told}; {when}; {_WAY_ON}")

    def _dump(self, report: dict[str, Any], inputs: dict[str, Tensor]) -> None:
        run_directory = self._orchestrator.run_dir
        if run_directory is None:
            return
        weights = self._weights()
        gradients = {name: weight.grad for name, weight in weights.items() if weight.grad is not None}
        groups = {"inputs": inputs, "batch": _tensors(self._batch), "gradients": gradients, "weights": weights}
        with suppress(OSError, EtudeError):  # the line itself is worth more than what goes with it
            write_dump(run_directory, report["counters"]["env_steps"], report, groups)

    def _weights(self) -> dict[str, Tensor]:
        return {f"{role}.{name}": weight for role, part in self._parts.items() for name, weight in part.named_parameters()}


def _remember_first_argument(owner: Any, method: str, begin: Callable[[Any], None], end: Callable[[], None]) -> None:
    original = getattr(owner, method)

    def wrapped(batch: Any, *arguments: Any, **options: Any) -> Any:
        begin(batch)
        result = original(batch, *arguments, **options)
        end()
        return result

    setattr(owner, method, wrapped)


def _tensors(tree: Any) -> dict[str, Tensor]:
    return dict(_named(tree, ""))


def _named(tree: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(tree, Tensor):
        yield path or "value", tree
        return
    items = tree.items() if isinstance(tree, Mapping) else enumerate(tree) if isinstance(tree, list | tuple) else ()
    for key, value in items:
        yield from _named(value, f"{path}.{key}" if path else str(key))


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def _kind(tensor: Tensor) -> str:
    return "NaN" if torch.isnan(tensor).any() else "infinity"
