"""What runs in worker processes: the nursery that forks them, and the service that each of them is.

`workers` has the other side, and says how they fit together.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import pickle
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import torch

from etude.environments.failures import failure
from etude.environments.gymnasium import GymnasiumVector
from etude.environments.spaces import action_spec, observation_specs
from etude.environments.step_buffers import BufferPair, StepBuffers
from etude.errors import EtudeError

CLOSE_S = 3.0
"""How long workers may take to close their environments before they are killed."""
NEWS = struct.Struct("<ii")
"""To the nursery: FORK, or a signal for a process. From it: FORK and the new process, or an exit code and its process."""
FORK = 1_000_000
STEP = b"s"
"""All of a request to step, and all of its answer; everything else is an object."""
OBJECT = b"="
_CACHE_LINE = 64


def nurse() -> None:
    """Fork workers on request and watch over them, until the other end of the control socket is gone."""
    control = socket.socket(fileno=int(sys.argv[2]))
    control.set_inheritable(False)
    torch.set_num_threads(1)
    # Not SIG_IGN, which the programs that an environment starts would inherit.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    woken, wake = socket.socketpair()
    woken.setblocking(False)
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    children: set[int] = set()

    def tell(what: int, pid: int) -> None:
        with suppress(ConnectionError):  # nobody is left to hear it, which the next request will show
            control.sendall(NEWS.pack(what, pid))

    def reap() -> None:
        with suppress(BlockingIOError):
            woken.recv(4096)
        for pid in [pid for pid in children if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)]:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # programs that its environments started and left
            children.remove(pid)
            tell(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), pid)

    while True:
        ready, _, _ = select.select([control, woken], [], [])
        reap()
        if control not in ready:
            continue
        try:
            request, descriptors, _, _ = socket.recv_fds(control, NEWS.size, 3)
        except ConnectionError:
            break
        if not request:
            break
        number, pid = NEWS.unpack(request)
        if number == FORK:
            pid = os.fork()
            if pid == 0:
                for end in (control, woken, wake):
                    end.close()
                _be_worker(*descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
            children.add(pid)
            tell(FORK, pid)
        elif pid in children:
            os.kill(pid, number)
    # The sockets of the workers have closed with this one: they are closing their environments.
    deadline = time.monotonic() + CLOSE_S
    while children:
        if time.monotonic() > deadline:
            for pid in children:
                os.kill(pid, signal.SIGKILL)
        select.select([woken], [], [], 0.1)
        reap()
    os._exit(0)  # the interpreter's own end takes long with PyTorch in it


def _be_worker(connection: int, memory: int, stack: int) -> None:
    """Serve one vector, then leave without a way back into the nursery's code."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setpgid(0, 0)
        faulthandler.enable(stack)
        faulthandler.register(signal.SIGUSR1, stack)
        # Forks begin with the same global generators, but for Python's own.
        np.random.seed()  # noqa: NPY002 # the global one is meant
        torch.seed()
        with socket.socket(fileno=connection) as link:
            _Service(link, memory).run()
        code = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


class _Service:
    """What a worker does for its vector: the methods are the requests."""

    def __init__(self, link: socket.socket, memory: int) -> None:
        self._link, self._memory = link, memory
        self._copies = range(0)
        self._vector: Any = None
        self._action: Any = None

    def run(self) -> None:
        """Answer requests until the vector closes its end; what goes wrong is reported before it ends this process."""
        try:
            while True:
                try:
                    request = receive(self._link)
                except EOFError:
                    break
                if request is STEP:
                    self._vector.step(self._action)
                    self._link.send(STEP)
                else:
                    name, *arguments = request
                    self._link.sendall(packed(getattr(self, name)(*arguments)))
            if self._vector is not None:
                self._vector.close()
        except BaseException as error:
            ours = isinstance(error, EtudeError) and type(error).__module__.startswith("etude.")
            self._link.sendall(packed(Raised(error if ours else failure(error, copy=None, doing="its worker"))))
            raise

    def build(self, make: bytes, registrations: dict[str, bytes], surroundings: Any, copies: range) -> tuple[Any, ...]:
        folder, sys.path[:], variables = surroundings
        os.chdir(folder)
        os.environ.update(variables)
        for name in registrations.keys() - gymnasium.registry.keys():
            with suppress(ImportError, AttributeError):  # most likely not the one that is wanted; if it is, making it says so
                gymnasium.registry[name] = pickle.loads(registrations[name])
        make_one = pickle.loads(make)
        self._copies = copies
        self._vector = vector = GymnasiumVector(make_one, len(copies), first_copy=copies.start)
        spaces = vector.single_observation_space, vector.single_action_space
        return *spaces, vector.return_threshold, vector.action_repeat, vector.has_raw_reward

    def share(self, num_envs: int) -> None:
        vector, rows = self._vector, slice(self._copies.start, self._copies.stop)
        shared = SharedMemory(self._memory, num_envs, vector.single_observation_space, vector.single_action_space, rows)
        self._action, vector.buffers = shared.action, shared.buffers

    def reset(self, seeds: list[int]) -> str:
        self._vector.reset(seeds)
        return self._vector.snapshot

    def state_dict(self) -> tuple[dict[str, Any], str]:
        return self._vector.state_dict(), self._vector.snapshot

    def load_copy(self, index: int, kind: str, saved: Any) -> str:
        self._vector.load_copy(index, kind, saved)
        return self._vector.snapshot

    def render(self) -> Any:
        return self._vector.render()


@dataclass(frozen=True)
class Raised:
    """What a worker answers when it raised."""

    error: BaseException
    """One of ours, which says all there is to say."""


class SharedMemory:
    """Two sets of step buffers and the actions, in a file without a name; a worker sees its own rows of them."""

    def __init__(self, file: int, num_envs: int, observations: Any, actions: Any, rows: slice = slice(None)) -> None:
        specs, action = observation_specs(observations), action_spec(actions)
        parts = [(spec.shape, spec.numpy_dtype) for spec in specs.values()]
        one_set = [*parts, *parts, ((), np.float32), ((), np.float32), ((), np.bool_), ((), np.bool_)]
        wanted = [
            ((num_envs, *shape), np.dtype(dtype)) for shape, dtype in (*one_set, *one_set, (action.shape, action.numpy_dtype))
        ]
        lines = [-(-int(np.prod(shape)) * dtype.itemsize // _CACHE_LINE) for shape, dtype in wanted]
        offsets = np.cumsum([0, *lines]) * _CACHE_LINE
        os.ftruncate(file, int(offsets[-1]))
        memory = mmap.mmap(file, int(offsets[-1]))
        arrays = [
            np.ndarray(shape, dtype, memory, int(offset))[rows]
            for (shape, dtype), offset in zip(wanted, offsets[:-1], strict=True)
        ]
        size = len(one_set)
        self.buffers = BufferPair(*(_over(arrays[first : first + size], [*specs]) for first in (0, size)))
        self.action = torch.from_numpy(arrays[-1])


def _over(arrays: Sequence[np.ndarray], names: list[str]) -> StepBuffers:
    count = len(names)
    observations, finals = arrays[:count], arrays[count : 2 * count]
    return StepBuffers(dict(zip(names, observations, strict=True)), dict(zip(names, finals, strict=True)), *arrays[2 * count :])


def packed(value: Any) -> bytes:
    """Return the message that brings an object."""
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return OBJECT + struct.pack("<Q", len(data)) + data


def receive(link: socket.socket) -> Any:
    """Return the next message, STEP or an object; raises EOFError when the other side is gone."""
    try:
        kind = link.recv(1)
        if kind == STEP:
            return STEP
        if not kind:
            raise EOFError
        (size,) = struct.unpack("<Q", _exactly(link, 8))
        return pickle.loads(_exactly(link, size))
    except ConnectionError:
        raise EOFError from None


def _exactly(link: socket.socket, size: int) -> bytearray:
    """Return this many bytes, in however many parts they come."""
    data = bytearray(size)
    rest = memoryview(data)
    while rest:
        count = link.recv_into(rest)
        if not count:
            raise EOFError
        rest = rest[count:]
    return data
