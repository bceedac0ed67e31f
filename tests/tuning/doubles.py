"""A backend without processes: runs whose rows are written at once, a few steps at each look."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from etude.runs.indexed_run import IndexedRun
from etude.tuning.backend import Job, JobState, Needs

TOTAL, EVERY = 900, 100


class FakeBackend:
    """Runs are dictionaries; each look takes every run that is alive one evaluation further."""

    def __init__(self, root: Path, score: Callable[[Job, int], float], at_once: int = 2) -> None:
        self.root, self._score, self._at_once = root, score, at_once
        self.runs: dict[tuple[str, int], IndexedRun] = {}
        self.alive: dict[tuple[str, int], Job] = {}
        self.codes: dict[tuple[str, int], int] = {}
        self.calls: list[tuple[str, str, int]] = []
        self.most_at_once = 0
        self.kills: dict[tuple[str, int], list[int]] = {}
        """At which steps a run is killed, each once."""
        self.refused: dict[tuple[str, int], str] = {}

    def has_room(self, needs: Needs) -> bool:
        return len(self.alive) < self._at_once

    def start(self, job: Job) -> None:
        self._begin("start", job)
        path = self.root / job.group.replace("/", "-") / str(job.seed)
        path.mkdir(parents=True)
        self.runs[job.key] = IndexedRun(f"run-{job.group}-{job.seed}", path, group=job.group, seed=job.seed, total_steps=TOTAL)

    def resume(self, job: Job, run: IndexedRun, words: Sequence[str] = ()) -> None:
        assert run.status != "finished"
        self._begin("resume", job)

    def _begin(self, what: str, job: Job) -> None:
        assert job.key not in self.alive
        self.calls.append((what, job.group, job.seed))
        self.codes.pop(job.key, None)
        self.alive[job.key] = job
        self.most_at_once = max(self.most_at_once, len(self.alive))

    def poll(self, jobs: Sequence[Job]) -> dict[tuple[str, int], JobState]:
        for key, job in list(self.alive.items()):
            self._advance(key, job)
        states = {}
        for job in jobs:
            run = self.runs.get(job.key)
            if job.key in self.alive:
                states[job.key] = JobState("running", run)
            elif job.key in self.codes:
                states[job.key] = JobState("ended", run, self.codes[job.key], self.refused.get(job.key, ""))
            else:
                states[job.key] = JobState("unknown", run)
        return states

    def stop(self, job: Job) -> None:
        if job.key in self.alive:
            self._end(job.key, 130, "interrupted")

    def close(self) -> None:
        for key in list(self.alive):
            self._end(key, 130, "interrupted")

    def _advance(self, key: tuple[str, int], job: Job) -> None:
        run = self.runs[key]
        if key in self.refused:
            self._end(key, 2, "failed")
            return
        steps = (run.env_steps or 0) + EVERY
        if steps in self.kills.get(key, ()):
            self.kills[key].remove(steps)
            self._end(key, -9, "crashed")
            return
        score = self._score(job, steps)
        row = {"env_steps": steps, "eval/return_mean": score, "time/elapsed_s": steps / 100}
        with (run.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")
        self.runs[key] = replace(
            run, env_steps=steps, metrics={"eval/return_mean": score}, status="running", elapsed_s=steps / 100
        )
        if steps >= TOTAL:
            self._end(key, 0, "finished")
        elif job.pause_at is not None and steps >= job.pause_at:
            self._end(key, 130, "interrupted")

    def _end(self, key: tuple[str, int], code: int, status: str) -> None:
        del self.alive[key]
        self.codes[key] = code
        self.runs[key] = replace(self.runs[key], status=status)
