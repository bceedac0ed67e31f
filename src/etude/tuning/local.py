"""Trials as processes of this machine, within its CPUs and GPUs."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from etude.compute.processors import available_cpus
from etude.errors import UserError
from etude.runs.indexed_run import IndexedRun
from etude.training.child_run import ChildRun
from etude.tuning.backend import Job, JobState, Needs
from etude.tuning.run_commands import log_of, resume_command, runs_of, thread_variables, train_command

_ROUNDING = 1e-6


def visible_gpus() -> list[str]:
    """Return the GPUs of this machine as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


@dataclass
class _Running:
    child: ChildRun
    needs: Needs
    gpus: tuple[str, ...]


class LocalBackend:
    """As many runs at once as `parallel` and what each needs allow."""

    def __init__(self, root: Path, logs: Path, parallel: int | None = None, gpus: Sequence[str] | None = None) -> None:
        self.root, self._logs = root, logs
        self._cpus, self._gpus = available_cpus(), list(visible_gpus() if gpus is None else gpus)
        self._parallel = parallel
        self._children: dict[tuple[str, int], _Running] = {}

    def check(self, needs: Needs) -> None:
        """Refuse what this machine can't give even to a single run."""
        if needs.cpus is not None and needs.cpus > self._cpus:
            raise UserError(f"--cpus {needs.cpus}: this machine has {self._cpus}")
        if needs.gpus is not None and needs.gpus > len(self._gpus):
            raise UserError(f"--gpus {needs.gpus:g}: this machine has {len(self._gpus)}")
        if needs.gpus is not None and needs.gpus > 1 and not float(needs.gpus).is_integer():
            raise UserError(f"--gpus {needs.gpus:g}: a part of one GPU, or whole ones")

    @property
    def at_once(self) -> int:
        """The most that run side by side, whatever each needs."""
        return self._parallel or self._cpus

    def has_room(self, needs: Needs) -> bool:
        """Whether one more run would fit now."""
        alive = [each for each in self._children.values() if each.child.poll() is None]
        if len(alive) >= (self._parallel or (self._cpus if needs.cpus is None else self._cpus // needs.cpus)):
            return False
        if needs.cpus is not None and needs.cpus + sum(each.needs.cpus or 1 for each in alive) > self._cpus:
            return False
        return self._choose_gpus(needs) is not None

    def start(self, job: Job) -> None:
        """Begin a new run, as `etude train` would."""
        self._begin(job, train_command(job, self.root))

    def resume(self, job: Job, run: IndexedRun, words: Sequence[str] = ()) -> None:
        """Go on with a run, as `etude resume` would."""
        self._begin(job, resume_command(job, run, words, self.root))

    def poll(self, jobs: Sequence[Job]) -> dict[tuple[str, int], JobState]:
        """Look at processes and run directories, each once."""
        # The processes first: whatever one of them wrote before it ended is then read below.
        codes = {key: running.child.poll() for key, running in self._children.items()}
        found = runs_of(jobs, self.root)
        return {job.key: self._state(job.key, codes.get(job.key), found.get(job.key)) for job in jobs}

    def stop(self, job: Job) -> None:
        """Let a run save itself and stop; a second time at once."""
        if job.key in self._children:
            self._children[job.key].child.send(signal.SIGTERM)

    def close(self) -> None:
        """Stop whatever runs still, and wait for it."""
        for running in self._children.values():
            running.child.send(signal.SIGTERM)
        for running in self._children.values():
            running.child.wait()

    def _state(self, key: tuple[str, int], code: int | None, run: IndexedRun | None) -> JobState:
        running = self._children.get(key)
        if running is None:
            return JobState("unknown", run)
        if code is None:
            return JobState("running", run)
        return JobState("ended", run, code, running.child.complaint if code not in (0, 130) else "")

    def _begin(self, job: Job, arguments: list[str]) -> None:
        gpus = self._choose_gpus(job.needs) or ()
        environment = thread_variables(job.needs)
        if self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
        self._children[job.key] = _Running(ChildRun(arguments, log_of(job, self._logs), environment), job.needs, gpus)

    def _choose_gpus(self, needs: Needs) -> tuple[str, ...] | None:
        """The GPUs for one more run, those with the least on them; None where too little of them is free."""
        if not self._gpus or needs.gpus == 0:
            return ()
        load = dict.fromkeys(self._gpus, 0.0)
        for running in self._children.values():
            if running.child.code is None:
                for name in running.gpus:
                    load[name] += 1.0 if running.needs.gpus is None else min(1.0, running.needs.gpus)
        lightest = sorted(self._gpus, key=lambda name: load[name])
        if needs.gpus is None:
            return (lightest[0],)
        share = min(1.0, needs.gpus)
        free = [name for name in lightest if load[name] + share <= 1 + _ROUNDING]
        count = max(1, round(needs.gpus))
        return tuple(free[:count]) if len(free) >= count else None
