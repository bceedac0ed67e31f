"""Looking closely at a run: checks for NaN and infinity, and a profile of a few cycles."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from etude.config.hooks import hooks_of
from etude.errors import EtudeError
from etude.orchestration.callbacks import Callback, Progress
from etude.orchestration.orchestrator import Orchestrator


def watch_for_nan(orchestrator: Orchestrator) -> None:
    """Fail at the first module output or gradient that is not finite, naming it and the step. Slow: for debugging."""
    parts = {name: part for name, part in orchestrator.workflow.stateful_parts().items() if isinstance(part, nn.Module)}
    for role, module in parts.items():
        for name, inner in module.named_modules():
            inner.register_forward_hook(_output_check(orchestrator, f"{role}.{name}".rstrip(".")))
        for name, parameter in module.named_parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(_gradient_check(orchestrator, f"{role}.{name}"))


def _output_check(orchestrator: Orchestrator, name: str) -> Any:
    def check(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        for tensor in _tensors(output):
            if not torch.isfinite(tensor).all():
                source = "its input was already" if any(not _finite(t) for t in _tensors(inputs)) else "its input was not"
                raise EtudeError(
                    f"{_kind(tensor)} in the output of {name} ({type(module).__name__}), {source}; {_when(orchestrator)}"
                )

    return check


def _gradient_check(orchestrator: Orchestrator, name: str) -> Any:
    def check(parameter: Tensor) -> None:
        if parameter.grad is not None and not _finite(parameter.grad):
            raise EtudeError(f"{_kind(parameter.grad)} in the gradient of {name}; {_when(orchestrator)}")

    return check


def _when(orchestrator: Orchestrator) -> str:
    counters = orchestrator.counters
    return f"at {counters.env_steps:,} environment steps and {counters.updates:,} updates"


def _finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


def _kind(tensor: Tensor) -> str:
    return "NaN" if torch.isnan(tensor).any() else "infinity"


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        if tree.is_floating_point():
            yield tree
    elif isinstance(tree, dict):
        for value in tree.values():
            yield from _tensors(value)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from _tensors(value)


class Profile(Callback):
    """Profiles some cycles once the first ones have warmed up; writes a trace and a table of the costliest operations."""

    WARM_UP = 2

    def __init__(self, cycles: int) -> None:
        # torch's tracer writes its stages straight to the terminal, errors at 4 and its own marks at 5; it looks once.
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
        self.cycles = cycles
        self._seen = 0
        self._profiler: torch.profiler.profile | None = None

    def on_cycle(self, progress: Progress) -> str | None:
        """Begin after the warm-up, end after `cycles` more."""
        self._seen += 1
        if self._seen == self.WARM_UP:
            self._profiler = torch.profiler.profile(record_shapes=True)
            self._profiler.start()
        elif self._profiler is not None and self._seen == self.WARM_UP + self.cycles:
            self._write(progress)
        return None

    def on_end(self, progress: Progress, reason: str) -> None:
        """Write what there is, if the run was shorter."""
        if self._profiler is not None:
            self._write(progress)

    def _write(self, progress: Progress) -> None:
        profiler, self._profiler = self._profiler, None
        assert profiler is not None
        profiler.stop()
        logs = (progress.run_dir or Path()) / "logs"
        profiler.export_chrome_trace(str(logs / "trace.json"))
        by = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        (logs / "profile.txt").write_text(profiler.key_averages().table(sort_by=by, row_limit=30), encoding="utf-8")


def no_update(orchestrator: Orchestrator) -> str | None:
    """Return one line about a run that learns nothing although it should, before it begins or after its end; None elsewhere."""
    scheduler, collector = orchestrator.scheduler, orchestrator.collector
    learns = any(hook.name.startswith("update") for phase in scheduler.phases for hook in phase.hooks)
    if not learns or orchestrator.counters.updates or collector is None:
        return None
    environment, total = collector.environment, scheduler.total_steps
    waits = [buffer.steps_to_ready(environment.num_envs) for buffer in orchestrator.buffers.values()]
    first = min(waits, default=0) * environment.num_envs * environment.action_repeat
    if total <= first - environment.num_envs * environment.action_repeat:
        verb = "was" if scheduler.is_finished else "will be"
        return (
            f"nothing {verb} learnt: training.total_steps={total} ends before the first update, which comes after {first:,} "
            "environment steps (algorithm.learning_starts or rollout_steps, times copies); raise the one or lower the other"
        )
    if scheduler.is_finished:
        return f"nothing was learnt: no update was taken in {orchestrator.counters.env_steps:,} environment steps"
    return None


def bottleneck(orchestrator: Orchestrator, mode: str) -> str | None:
    """Return one line about where the time went, and what would help."""
    times = orchestrator.stopwatch.spent
    total = sum(times.values())
    if total < 5:
        return None
    name, spent = max(times.items(), key=lambda item: item[1])
    share = f"{name} took {spent / total:.0%} of the time"
    if name == "evaluate":
        return f"{share}; evaluation.every_steps and evaluation.episodes set how much is measured"
    collector, hook = orchestrator.collector, hooks_of(type(orchestrator.workflow)).get(name)
    if hook is None:  # a save, or the log
        return share
    executor = getattr(orchestrator.workflow, "_executor", None)  # what learns without one is never compiled
    alone = orchestrator.world.size == 1  # several processes don't compile
    if alone and not hook.collects and mode == "eager" and executor is not None and executor.update.is_compilable:
        return f"{share}; --compile makes updates faster for about half a minute of compiling"
    if hook.collects and collector is not None and orchestrator.counters.decisions:
        microseconds = 1e6 * spent / orchestrator.counters.decisions
        if microseconds > 50 and type(collector.environment.base).__name__ == "GymnasiumVector":
            return f"{share}, {microseconds:.0f} µs a step; environment.workers=N steps copies in N processes"
    return share
