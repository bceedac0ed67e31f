"""Gymnasium environments in worker processes, as one vector environment: for copies that take a millisecond and more.

    this process ───── control ─────▶ nursery      imports everything once, forks the workers, tells how each one ended
         ├────── a socket each ──────┬─ worker 0   copies 0 to 3
         └────── shared memory ──────┴─ worker 1   copies 4 to 7

A step is one byte to each worker and one byte back; actions, observations, rewards and ends lie in memory that all of them
see. Everything else (resets, states, pictures) is rare and travels as pickled objects, between these processes only.

The nursery is a fork server like that of multiprocessing, without its traps. It is a new interpreter: no thread, lock or CUDA
context of this process is forked. It never runs the user's script again: no script needs an `if __name__` around its code.
It learns of the end of this process by its socket, whatever the reason, and then ends all workers, hung ones too. It goes
with the last vector. It has its own session: a Ctrl-C in the terminal reaches this process alone, which can save.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

import cloudpickle
import gymnasium
import torch
from torch import Tensor

from etude.environments.goals import goal_functions, is_goal_space
from etude.environments.gymnasium import complete_finals
from etude.environments.vector import Observation, Step, VectorEnvironment
from etude.environments.workers.process import CLOSE_S, FORK, NEWS, STEP, Raised, SharedMemory, packed, receive
from etude.errors import EnvironmentFailureError, EtudeError

START_S = 120.0
"""How long the nursery may take to import PyTorch, from a slow disk too."""


class WorkerError(EnvironmentFailureError):
    """A worker raised, died or hung, in the middle of something that can't go on."""


class WorkerVector(VectorEnvironment):
    """Each worker steps a contiguous slice of the copies, with the code that steps them in-process and to the same bits.

    Copies are made by `make`, in the workers. One that gives no answer for `timeout_s` seconds is given up. After any
    failure the workers are gone and nothing but `close()` is left to do.
    """

    device = torch.device("cpu")

    def __init__(self, make: Callable[[], gymnasium.Env[Any, Any]], num_envs: int, *, workers: int, timeout_s: float) -> None:
        self.num_envs = num_envs
        self._timeout_s = timeout_s
        count = min(workers, num_envs)
        slices = [range(num_envs * index // count, num_envs * (index + 1) // count) for index in range(count)]
        surroundings = os.getcwd(), sys.path, dict(os.environ)  # which may have changed since the nursery began
        makers = cloudpickle.dumps(make), _registrations(), surroundings
        with _anonymous_file() as memory:
            crew = self._crew = _Crew(slices, memory.fileno(), timeout_s)
            # Whoever forgets to close, or can't, leaves nothing behind either.
            self._end = weakref.finalize(self, crew.end, CLOSE_S)
            self._ready = select.poll()
            # The nursery last: what a worker said is heard before what became of it.
            for end in (*(worker.link for worker in crew.workers), crew.nursery.control):
                self._ready.register(end, select.POLLIN)
            facts, *_ = self._ask([("build", *makers, worker.copies) for worker in crew.workers])
            self.single_observation_space, self.single_action_space, self.return_threshold, self.action_repeat = facts[:4]
            self._has_raw_reward: bool = facts[4]
            if is_goal_space(self.single_observation_space):
                # Its own copy: whole batches are judged here, where they are learnt from.
                self.compute_reward, self.compute_terminated = goal_functions(make())
            shared = SharedMemory(memory.fileno(), num_envs, self.single_observation_space, self.single_action_space)
            self._ask([("share", num_envs)] * count)
        # The workers change sides with us, once each reset and step.
        self._action, self._buffers = shared.action, shared.buffers
        self._steps = [STEP] * count

    def reset(self, seeds: Sequence[int]) -> tuple[Observation, dict[str, Tensor]]:
        """Begin new episodes, copy i with `seeds[i]`."""
        if len(seeds) != self.num_envs:
            raise ValueError(f"{len(seeds)} seeds for {self.num_envs} copies")
        requests = [("reset", [int(seeds[copy]) for copy in worker.copies]) for worker in self._crew.workers]
        self._note_kinds(self._ask(requests))
        return self._buffers.next().observation, {}

    def step(self, action: Tensor) -> Step:
        """Act in every copy; one that ends begins its next episode in the same step."""
        self._action.copy_(action)
        self._exchange(self._crew.workers, self._steps)
        buffers = self._buffers.next()
        return buffers.as_step(complete_finals(buffers), with_raw_reward=self._has_raw_reward)

    def render(self) -> Any:
        """Return a picture of the first copy."""
        return self._ask([("render",)])[0]

    def close(self) -> None:
        """Close every copy and end the workers."""
        self._end()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every copy, or nothing where it can't be known; the same as in-process."""
        answers = self._ask([("state_dict",)] * len(self._crew.workers))
        self._note_kinds([kind for _, kind in answers])
        states = [state for state, _ in answers]
        return {kind: [copy for state in states for copy in state[kind]] for kind in states[0]} if all(states) else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue every copy where it was."""
        (kind, copies), *_ = state.items()
        if len(copies) != self.num_envs:
            raise ValueError(f"a state of {len(copies)} copies for {self.num_envs}")
        # One copy of each worker at a time: a long rewinding is no hang.
        for place in range(max(len(worker.copies) for worker in self._crew.workers)):
            busy = [worker for worker in self._crew.workers if place < len(worker.copies)]
            requests = [("load_copy", place, kind, copies[worker.copies[place]]) for worker in busy]
            self._note_kinds(self._ask(requests, busy))

    def _note_kinds(self, kinds: Sequence[str]) -> None:
        self.snapshot = "restart" if "restart" in kinds else "rewind" if "rewind" in kinds else "exact"

    def _ask(self, requests: Sequence[tuple[Any, ...]], workers: Sequence[_Worker] | None = None) -> list[Any]:
        asked = (workers or self._crew.workers)[: len(requests)]
        return self._exchange(asked, [packed(request) for request in requests])

    def _exchange(self, workers: Sequence[_Worker], messages: Sequence[bytes]) -> list[Any]:
        """Send each worker its message and return their answers; what interrupts this leaves them out of step and ends them."""
        if not workers:
            raise EtudeError("this environment is closed")
        try:
            for worker, message in zip(workers, messages, strict=True):
                try:
                    worker.link.sendall(message)
                except TimeoutError:
                    raise self._crew.hung(worker) from None
                except ConnectionError:
                    raise self._crew.died(worker) from None
            return self._answers(workers)
        except BaseException:
            self._crew.end(0.0)
            raise

    def _answers(self, workers: Sequence[_Worker]) -> list[Any]:
        answers: dict[int, Any] = {}
        deadline = time.monotonic() + self._timeout_s
        while len(answers) < len(workers):
            ready = self._ready.poll(max(0.0, deadline - time.monotonic()) * 1_000)
            if not ready:
                raise self._crew.hung(next(worker for worker in workers if worker.index not in answers))
            for descriptor, _ in ready:
                worker = self._crew.at(descriptor)
                if worker is None:
                    self._crew.check()
                    continue
                try:
                    answer = answers[worker.index] = receive(worker.link)
                except TimeoutError:
                    raise self._crew.hung(worker) from None
                except EOFError:
                    raise self._crew.died(worker) from None
                if isinstance(answer, Raised):
                    raise self._crew.raised(worker, answer)
        return [answers[worker.index] for worker in workers]


@dataclass(frozen=True)
class _Worker:
    index: int
    copies: range
    link: socket.socket
    stack: IO[bytes]
    """Where it writes what it is doing when it crashes, or is asked to."""
    pid: int

    def __str__(self) -> str:
        first, last = self.copies[0], self.copies[-1]
        return f"worker {self.index} ({f'copies {first} to {last}' if last > first else f'copy {first}'}, process {self.pid})"


class _Crew:
    """The workers of one vector, from their fork to their end."""

    def __init__(self, slices: Sequence[range], memory: int, timeout_s: float) -> None:
        self._owner = os.getpid()
        self._timeout_s = timeout_s
        self._has_left = False
        self.workers: list[_Worker] = []
        self.nursery = _Nursery.enter()
        try:
            for index, copies in enumerate(slices):
                self.workers.append(self._fork(index, copies, memory))
        except BaseException:
            self.end(0.0)
            raise

    def _fork(self, index: int, copies: range, memory: int) -> _Worker:
        link, theirs = socket.socketpair()
        stack = _anonymous_file()
        link.settimeout(self._timeout_s)
        try:
            with theirs:
                pid = self.nursery.fork(theirs.fileno(), memory, stack.fileno())
        except BaseException:
            link.close()
            stack.close()
            raise
        return _Worker(index, copies, link, stack, pid)

    def at(self, descriptor: int) -> _Worker | None:
        """Return the worker at the other end of a descriptor; None is the nursery."""
        return next((worker for worker in self.workers if worker.link.fileno() == descriptor), None)

    def check(self) -> None:
        """Hear the nursery's news; raises if they are bad ones for these workers."""
        self.nursery.listen(0.0)
        for worker in self.workers:
            if worker.pid in self.nursery.exits:
                raise self.died(worker)
        if self.nursery.is_gone:
            raise WorkerError("the process that watches over the workers died; did the system kill it for its memory?")

    def raised(self, worker: _Worker, answer: Raised) -> BaseException:
        """Return the error that says what a worker raised."""
        if isinstance(answer.error, EnvironmentFailureError):
            return WorkerError(f"{worker}: {answer.error}", details=answer.error.details)
        return answer.error

    def died(self, worker: _Worker) -> WorkerError:
        """Return the error that says how a worker ended."""
        code = self.nursery.exit_code(worker.pid, CLOSE_S)
        how = "in an unknown way" if code is None else f"with exit code {code}"
        if code is not None and code < 0:
            how = f"by {signal.Signals(-code).name}"
            if code == -signal.SIGKILL:
                how += " (someone killed it, or the system did for its memory)"
        return WorkerError(f"{worker} died {how}{_stack(worker)}")

    def hung(self, worker: _Worker) -> WorkerError:
        """Return the error that says where a worker hangs."""
        self.nursery.signal(worker.pid, signal.SIGUSR1)  # it writes its stack, even from inside of C code
        time.sleep(0.2)
        return WorkerError(
            f"{worker} gave no answer for {self._timeout_s:g} s and was given up; if it only needs longer, raise "
            f"environment.worker_timeout_s{_stack(worker)}"
        )

    def end(self, grace_s: float) -> None:
        """End all workers; those that don't close their environments in time are killed."""
        if os.getpid() != self._owner:
            return  # a fork of this process, which the workers don't belong to
        ended, self.workers[:] = list(self.workers), []
        for worker in ended:
            worker.link.close()
            worker.stack.close()
        deadline = time.monotonic() + grace_s
        try:
            for worker in ended:
                self.nursery.exit_code(worker.pid, deadline - time.monotonic())
        finally:
            for worker in ended:
                if worker.pid not in self.nursery.exits:
                    self.nursery.signal(worker.pid, signal.SIGKILL)
            for worker in ended:
                self.nursery.exit_code(worker.pid, CLOSE_S)
            if not self._has_left:
                self._has_left = True
                self.nursery.leave()


class _Nursery:
    """This process's end of the nursery: one for all vectors, for as long as there are any."""

    _current: _Nursery | None = None
    _lock = threading.RLock()

    def __init__(self) -> None:
        self.exits: dict[int, int] = {}
        """How the processes that ended did so: an exit code, or the number of a signal below zero."""
        self.is_gone = False
        self._users = 0
        self._forked: int | None = None
        self.control, theirs = socket.socketpair()
        code = (
            "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
            "from etude.environments.workers.process import nurse; nurse()"
        )
        # Workers share the cores among them: one thread each, unless the user has said otherwise.
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, json.dumps(sys.path), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env={**threads, **os.environ},
            )

    @classmethod
    def enter(cls) -> _Nursery:
        """Return the nursery, started if there is none."""
        with cls._lock:
            if cls._current is None or cls._current.is_gone:
                cls._current = cls()
            cls._current._users += 1
            return cls._current

    def leave(self) -> None:
        """End the nursery with the last that leaves it."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
            if _Nursery._current is self:
                _Nursery._current = None
            self.control.close()
            try:
                self._process.wait(2 * CLOSE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def fork(self, *descriptors: int) -> int:
        """Return the process id of a new worker, which has these descriptors."""
        with self._lock:
            with suppress(ConnectionError):
                socket.send_fds(self.control, [NEWS.pack(FORK, 0)], descriptors)
            deadline = time.monotonic() + START_S
            self._forked = None
            while self._forked is None:
                if not self.listen(deadline - time.monotonic()):
                    raise EtudeError("the worker processes could not be started; the reason stands above")
            return self._forked

    def exit_code(self, pid: int, wait_s: float) -> int | None:
        """Return how a worker ended, waiting a while for the news."""
        deadline = time.monotonic() + wait_s
        while pid not in self.exits and self.listen(deadline - time.monotonic()):
            pass
        return self.exits.get(pid)

    def signal(self, pid: int, number: int) -> None:
        """Send a signal to a worker: through the nursery, which knows whether that process still is the worker."""
        try:
            self.control.sendall(NEWS.pack(number, pid))
        except OSError:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def listen(self, wait_s: float) -> bool:
        """Take in one piece of news, waiting a while for it; False if there is none."""
        with self._lock:
            if self.is_gone or not select.select([self.control], [], [], max(0.0, wait_s))[0]:
                return False
            try:
                news = self.control.recv(NEWS.size, socket.MSG_WAITALL)
            except ConnectionError:
                news = b""
            if not news:
                self.is_gone = True
                return False
            what, pid = NEWS.unpack(news)
            if what == FORK:
                self._forked = pid
                self.exits.pop(pid, None)  # of an earlier process with this number
            else:
                self.exits[pid] = what
            return True


def _stack(worker: _Worker) -> str:
    worker.stack.seek(0)
    text = worker.stack.read().decode(errors="replace").strip()
    return f"\n{text}" if text else ""


def _anonymous_file() -> IO[bytes]:
    """A file in memory that no folder lists: it is gone with the last process that holds it."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("etude"), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)


def _registrations() -> dict[str, bytes]:
    """Environments that a script registered itself: no module that a worker could import does."""
    found = {}
    for name, spec in gymnasium.registry.items():
        if not str(spec.entry_point).startswith("gymnasium."):
            with suppress(pickle.PicklingError, TypeError, AttributeError):
                found[name] = cloudpickle.dumps(spec)
    return found
