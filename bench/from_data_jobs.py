"""Runs processes that need one another, several at a time, within limits; and writes what they found as it grows."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

State = Literal["waiting", "running", "done", "failed", "skipped"]
ENDED = ("done", "failed", "skipped")
UNFINISHED = "unfinished"
"""What a result says until all of it was measured."""


@dataclass
class Step:
    """One command."""

    command: list[str]
    limit_s: float
    stops: bool = False
    """Whether it saves itself and stops when it is interrupted; what comes after it then goes on with that."""
    otherwise: list[str] | None = None
    """What is tried once if it fails."""


@dataclass
class Job:
    """Commands one after the other."""

    name: str
    part: str
    steps: list[Step]
    needs: tuple[str, ...] = ()
    """What must have ended well."""
    gpu: bool = False
    cores: int = 1
    alone: bool = False
    after: tuple[str, ...] = ()
    """What must have begun."""
    makes: tuple[str, ...] = ()
    """Files of the folder; where they all are there already, it is done."""
    state: State = "waiting"
    seconds: list[float] = field(default_factory=list)
    stopped_early: bool = False


def due(jobs: Sequence[Job], folder: Path, only: str | None = None) -> list[Job]:
    """Return the jobs whose names `only` finds, and what these need; all of them without it. Those made before are done."""
    for job in jobs:
        job.state = "done" if job.makes and all(_is_whole(folder / name) for name in job.makes) else "waiting"
    by_name, chosen = {job.name: job for job in jobs}, set[str]()
    waiting = [job for job in jobs if only is None or re.search(only, job.name)]
    while waiting:
        job = waiting.pop()
        chosen.add(job.name)
        if job.state != "done":
            waiting += [by_name[name] for name in (*job.needs, *job.after) if name in by_name and name not in chosen]
    return [job for job in jobs if job.name in chosen]


def _is_whole(path: Path) -> bool:
    """Whether a file is there, and, if it is a result, whether nothing more was to be measured."""
    return path.is_file() and not ("results" in path.parts and UNFINISHED in json.loads(path.read_text()))


@dataclass
class Process:
    """A step that runs."""

    job: Job
    child: subprocess.Popen[bytes]
    began: float
    asked: float | None = None
    """When it was asked to stop."""


class Jobs:
    """All of them, in an order that begins with the first."""

    def __init__(self, jobs: Sequence[Job], options: argparse.Namespace) -> None:
        self._jobs, self._options = {job.name: job for job in jobs}, options
        self._running: list[Process] = []
        self._began = time.monotonic()
        self._log = (options.folder / "from_data.log").open("ab")

    def run(self) -> None:
        """Run until everything has ended, or the deadline is there."""
        try:
            while any(job.state not in ENDED for job in self._jobs.values()):
                self._begin_what_can()
                time.sleep(0.2)
                for process in [*self._running]:
                    self._look_after(process)
                if self._elapsed() > self._options.deadline_s:
                    self._say("the deadline is there")
                    break
        finally:
            for process in self._running:
                process.child.kill()
                process.child.wait()
                process.job.state = "failed"
            self._write()
            self._log.close()

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _closing(self) -> bool:
        return self._elapsed() > self._options.deadline_s - self._options.reserve_s

    def _begin_what_can(self) -> None:
        for job in self._jobs.values():
            if job.state != "waiting":
                continue
            needed = [self._jobs[name].state for name in job.needs if name in self._jobs]
            if any(state in ("failed", "skipped") for state in needed) or (self._closing() and not self._running):
                job.state = "skipped"
                self._write()
            elif all(state == "done" for state in needed) and self._may_begin(job):
                self._begin(job)
                if job.alone:
                    return

    def _may_begin(self, job: Job) -> bool:
        begun = all(self._jobs[name].state != "waiting" for name in job.after if name in self._jobs)
        if self._closing() or not begun:
            return False
        running = [process.job for process in self._running]
        if any(other.alone for other in running) or (job.alone and running):
            return False
        cores = sum(other.cores for other in running) + job.cores <= max(self._options.cores, job.cores)
        return cores and (not job.gpu or sum(other.gpu for other in running) < self._options.jobs)

    def _begin(self, job: Job) -> None:
        step = job.steps[len(job.seconds)]
        job.state = "running"
        self._say(f"{job.name} begins: {' '.join(step.command[1:])}")
        threads = str(job.cores)
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "ETUDE_RUNS": str(self._options.folder / "runs"),
            "ETUDE_DATASETS": str(self._options.folder / "datasets"),
            "PYTHONUNBUFFERED": "1",
        }
        if not job.gpu:  # what goes wrong on a GPU that several share is then nothing to it
            environment["CUDA_VISIBLE_DEVICES"] = ""
        child = subprocess.Popen(
            step.command,
            stdout=self._log,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=self._options.folder,
        )
        self._running.append(Process(job, child, time.monotonic()))

    def _look_after(self, process: Process) -> None:
        job, now = process.job, time.monotonic()
        step = job.steps[len(job.seconds)]
        code = process.child.poll()
        if code is not None:
            self._running.remove(process)
            self._ended(process, code)
        elif process.asked is None and (now - process.began > step.limit_s or (step.stops and self._closing())):
            process.asked = now
            self._say(f"{job.name} is asked to stop")
            process.child.send_signal(signal.SIGINT if step.stops else signal.SIGTERM)
        elif process.asked is not None and now - process.asked > 60:
            process.child.kill()

    def _ended(self, process: Process, code: int) -> None:
        job = process.job
        step = job.steps[len(job.seconds)]
        job.seconds.append(round(time.monotonic() - process.began, 1))
        early = process.asked is not None and step.stops and code in (0, 130)
        job.stopped_early |= early
        self._say(f"{job.name} step {len(job.seconds)} ended with {code} after {job.seconds[-1]} s")
        if code and not early and step.otherwise is not None:
            job.seconds.pop()
            step.command, step.otherwise = step.otherwise, None
            self._begin(job)
        elif code and not early:
            job.state = "failed"
        elif len(job.seconds) == len(job.steps):
            job.state = "done"
        else:
            self._begin(job)
        self._write()

    def _say(self, line: str) -> None:
        text = f"[{self._elapsed():7.1f} s] {line}"
        print(text, flush=True)
        self._log.write(f"{text}\n".encode())
        self._log.flush()

    def _write(self) -> None:
        found = {
            "machine": machine(),
            "command": sys.argv[1:],
            "elapsed_s": round(self._elapsed(), 1),
            "jobs": {job.name: self._told(job) for job in self._jobs.values()},
        }
        text = json.dumps(found, indent=1)
        for path in (self._options.folder / "from_data.json", self._options.out):
            if path is not None:
                fresh = path.with_suffix(".new")
                fresh.write_text(text)
                fresh.replace(path)

    def _told(self, job: Job) -> dict[str, Any]:
        told: dict[str, Any] = {
            "part": job.part,
            "state": job.state,
            "seconds": job.seconds,
            "cores": job.cores,
            "gpu": job.gpu,
        }
        told["command"] = " ".join(job.steps[0].command[3:] if "-m" in job.steps[0].command else job.steps[0].command[2:])
        if job.stopped_early:
            told["stopped_early"] = True
        path: Path = self._options.folder / "results" / f"{job.name}.json"
        if path.exists():
            told["found"] = json.loads(path.read_text())
        return told


def machine() -> dict[str, Any]:
    """Return what this was measured on."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "gpu": gpu,
        "cores": os.cpu_count(),
        "processor": platform.processor() or platform.machine(),
    }
