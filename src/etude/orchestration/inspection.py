"""Looking closely at a run: a profile of a few cycles, where the time goes, and whether anything is learnt."""

from __future__ import annotations

import os
from pathlib import Path

import torch

from etude.config.hooks import hooks_of
from etude.orchestration.callbacks import Callback, Progress
from etude.orchestration.orchestrator import Orchestrator


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
