"""Trials on a Ray cluster: every run is a process on the node that Ray finds room on, in a folder that all nodes see.

Ray knows resources and nodes; runs, retries and exact resume are the sweep's. A worker that was killed or a node that died is
a run that was killed: it goes on from its last save, wherever Ray has room for it.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from etude.errors import MissingPackageError, UserError
from etude.runs.indexed_run import IndexedRun
from etude.runs.lock import is_held
from etude.tuning.backend import Job, JobState, Needs
from etude.tuning.ray_worker import RayWorker
from etude.tuning.run_commands import log_of, resume_command, runs_of, thread_variables, train_command

KILLED = -9
_STOPPED = 130
_POLL_S = 0.2


@dataclass
class _Running:
    actor: Any
    needs: Needs
    begun: Any
    """Ray's promise that the run has been started; None once it has."""
    asked: Any = None
    """Ray's promise of how it stands."""
    code: int | None = None
    complaint: str = ""
    is_lost: bool = False
    """Whether its worker is gone: the run may still be saving itself."""


def require_ray() -> Any:
    """Return Ray; an error with the way out where it is missing."""
    # Ray would start its workers by `uv run` where this process was, in an environment that is not this one.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    try:
        import ray  # pyright: ignore[reportMissingImports] # of an extra
    except ImportError:
        raise MissingPackageError("--on ray needs Ray: pip install 'etude[ray]'") from None
    return ray


def check_address(address: str | None) -> None:
    """Refuse what is no address of a cluster's own, before Ray tries it for minutes."""
    if (
        address is None
        or address in ("auto", "local")
        or re.fullmatch(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):\d{1,5}", address, re.ASCII)
    ):
        return
    hint = ""
    if re.match(r"https?://", address):
        hint = "; that is the dashboard, which `etude launch ray` takes"
    elif address.startswith("ray://"):
        hint = "; Ray Client is not supported: start the sweep on a machine of the cluster"
    raise UserError(f"--ray-address {address}: such as HEAD:6379, auto (a cluster that runs here) or local (a new one){hint}")


class RayBackend:
    """As many runs at once as `parallel`, or as the cluster's nodes have room for."""

    def __init__(self, root: Path, logs: Path, parallel: int | None = None, address: str | None = None) -> None:
        check_address(address)
        self._ray = require_ray()
        self.root, self._logs = root.resolve(), logs.resolve()
        self._parallel = parallel
        self._children: dict[tuple[str, int], _Running] = {}
        self._is_ours = not self._ray.is_initialized()
        if self._is_ours:
            try:
                self._ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
            except Exception as error:  # noqa: BLE001 - Ray's own kinds differ, a bare Exception among them
                what = (
                    "no cluster could be started"
                    if address in (None, "local")
                    else f"--ray-address {address}: no cluster answers"
                )
                raise UserError(f"{what}: {str(error).strip().partition(chr(10))[0]}") from None
        self._actor = self._ray.remote(RayWorker)

    def check(self, needs: Needs) -> None:
        """Refuse what no node could give to a run."""
        nodes = self._nodes()
        if nodes and not any(_fit(node, needs) for node in nodes):
            cpus, gpus = (max(int(node.get(kind, 0)) for node in nodes) for kind in ("CPU", "GPU"))
            asked = " ".join([f"--cpus {needs.cpus or 1}", *([f"--gpus {needs.gpus:g}"] if needs.gpus else [])])
            raise UserError(f"{asked}: no node of the cluster has as much; the largest have {cpus} CPUs and {gpus} GPUs")
        if needs.gpus is not None and needs.gpus > 1 and not float(needs.gpus).is_integer():
            raise UserError(f"--gpus {needs.gpus:g}: a part of one GPU, or whole ones")

    def has_room(self, needs: Needs) -> bool:
        """Whether one more run should be handed to Ray, which may let it wait for room."""
        alive = sum(each.code is None for each in self._children.values())
        return alive < (self._parallel or max(1, sum(_fit(node, needs) for node in self._nodes())))

    def start(self, job: Job) -> None:
        """Begin a new run, as `etude train` would."""
        self._begin(job, train_command(job, self.root))

    def resume(self, job: Job, run: IndexedRun, words: Sequence[str] = ()) -> None:
        """Go on with a run, as `etude resume` would."""
        self._begin(job, resume_command(job, run, words, self.root))

    def poll(self, jobs: Sequence[Job]) -> dict[tuple[str, int], JobState]:
        """Look at the workers and at the run directories, each once."""
        self._look()
        found = runs_of(jobs, self.root)
        return {job.key: self._state(job.key, found.get(job.key)) for job in jobs}

    def stop(self, job: Job) -> None:
        """Let a run save itself and stop; a second time at once."""
        running = self._children.get(job.key)
        if running is None or running.code is not None or running.is_lost:
            return
        if running.begun is not None and not self._is_ready(running.begun):
            # It waits for room, or starts just now: a run that has begun is told by the system that its worker is gone.
            self._ray.kill(running.actor)
            running.code = _STOPPED
        else:
            running.actor.stop.remote()

    def close(self) -> None:
        """Stop whatever runs still, wait for it, and leave the cluster; one that was started here ends."""
        for key in self._children:
            self.stop(Job(*key, arguments=()))
        while any(each.code is None and not each.is_lost for each in self._children.values()):
            self._look()
            time.sleep(_POLL_S)
        if self._is_ours:
            self._ray.shutdown()

    # ---- workers ---

    def _begin(self, job: Job, arguments: list[str]) -> None:
        environment = {name: os.environ[name] for name in ("PYTHONPATH", "XDG_DATA_HOME") if name in os.environ}
        environment |= thread_variables(job.needs)
        log = log_of(job, self._logs)
        place = {"folder": os.getcwd(), "log": str(log), "seen": str(self._logs.parent / "journal.jsonl")}
        # Not restarted and not retried by Ray: what is to be done about a run that was killed is the sweep's to say.
        options = {"num_cpus": job.needs.cpus or 1, "num_gpus": job.needs.gpus or 0, "max_restarts": 0, "max_task_retries": 0}
        actor = self._actor.options(**options, name=None).remote()
        self._children[job.key] = _Running(actor, job.needs, actor.begin.remote(arguments, place, environment))

    def _look(self) -> None:
        for running in self._children.values():
            if running.code is None and not running.is_lost:
                self._ask(running)

    def _ask(self, running: _Running) -> None:
        """Take in what a worker has answered, and ask it again; nothing here waits for one."""
        waits_for = running.begun if running.begun is not None else running.asked
        if waits_for is not None:
            if not self._is_ready(waits_for):
                return
            answer = self._answer(running, waits_for)
            running.begun = running.asked = None
            if isinstance(answer, tuple):
                running.code, running.complaint = answer
                if running.code is not None:
                    self._ray.kill(running.actor)  # and gives its room to the next
        if running.code is None and not running.is_lost:
            running.asked = running.actor.poll.remote()

    def _answer(self, running: _Running, promise: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return self._ray.get(promise)
        except errors.ActorUnavailableError:
            return None  # the network, for a moment; it is asked again
        except errors.RayTaskError as error:
            # Its own complaint: a node that lacks the folder, say. The line of a UserError is its last one.
            return 1, str(error).strip().splitlines()[-1].partition("UserError: ")[2] or str(error).strip().splitlines()[-1]
        except errors.RayActorError as error:
            if "creation task" in str(error) or "failed to import" in str(error):
                return 1, f"Ray could not start a worker: {str(error).strip().splitlines()[-1]}"
            running.is_lost = True
            return None

    def _is_ready(self, promise: Any) -> bool:
        ready, _ = self._ray.wait([promise], timeout=0)
        return bool(ready)

    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    # ---- runs ---

    def _state(self, key: tuple[str, int], run: IndexedRun | None) -> JobState:
        running = self._children.get(key)
        if running is not None and running.code is None and not running.is_lost:
            return JobState("running", run)
        if run is not None and run.status == "running":
            # Nobody of ours runs it. Of a process on another machine nothing is known, but whether it holds its run.
            if is_held(run.path / ".lock"):
                return JobState("running", run)
            run = replace(run, status="crashed")
        if running is None:
            return JobState("unknown", run)
        if running.is_lost and running.code is None:
            running.code = KILLED
        return JobState("ended", run, running.code, running.complaint)


def _fit(node: dict[str, float], needs: Needs) -> int:
    """How many such runs a node has room for when nothing else runs on it."""
    count = int(node.get("CPU", 0) // (needs.cpus or 1))
    if needs.gpus:
        gpus = int(node.get("GPU", 0))
        share = gpus * int(1 / needs.gpus) if needs.gpus <= 1 else int(gpus // needs.gpus)
        count = min(count, share)
    return count
