"""Calls that may crash, hang or print: each in its own process, forked from one that has the imports behind it.

What a call finds out on its way it tells at once, so that a crash loses only what would have come after.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from typing import Any, Literal

from etude.errors import EtudeError, MissingPackageError

Status = Literal["done", "missing", "refused", "raised", "died", "hung"]
Tell = Callable[..., None]


@dataclass(frozen=True)
class Call:
    """A function of a module, called as `function(tell, *arguments)`."""

    name: str
    function: Callable[..., None]
    arguments: tuple[Any, ...] = ()


@dataclass
class Result:
    """How a call went."""

    name: str
    status: Status = "died"
    """done; missing: a package is not installed; refused: an EtudeError; raised: any other exception; died: by a signal."""
    detail: str = ""
    """What was said, in one line."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What the call reported."""
    seconds: float = 0.0
    output: str = ""
    """All it printed, a traceback included."""


def run_isolated(
    calls: Sequence[Call], *, jobs: int, timeout_s: float, preload: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> Iterator[Result]:
    """Yield the result of each call as it ends, `jobs` at a time; whoever stops asking ends those that still run."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    waiting, running = list(reversed(calls)), []
    with tempfile.TemporaryDirectory(prefix="etude-") as folder:
        try:
            while waiting or running:
                while waiting and len(running) < jobs:
                    number = len(calls) - len(waiting)
                    running.append(_Running(context, waiting.pop(), Path(folder) / f"{number}.txt", timeout_s, environ or {}))
                ready = [end for each in running for end in (each.process.sentinel, each.link)]
                connection.wait(ready, max(0.0, min(each.deadline for each in running) - time.monotonic()))
                for each in list(running):
                    if each.has_ended():
                        running.remove(each)
                        yield each.result()
        finally:
            for each in running:
                each.kill()


class _Running:
    """A call under way."""

    def __init__(self, context: Any, call: Call, output: Path, timeout_s: float, environ: Mapping[str, str]) -> None:
        self._call, self._output, self._timeout_s = call, output, timeout_s
        self._result = Result(call.name)
        self._began = time.monotonic()
        self.deadline = self._began + timeout_s
        self.link, theirs = context.Pipe(duplex=False)
        output.touch()
        arguments = (call.function, call.arguments, theirs, str(output), {**os.environ, **environ})
        self.process = context.Process(target=_child, args=arguments, daemon=True)
        self.process.start()
        theirs.close()

    def has_ended(self) -> bool:
        """Hear the news; whether there will be no more."""
        self._listen()
        if self.process.exitcode is None and time.monotonic() > self.deadline:
            self._result.status = "hung"
            self._result.detail = f"gave no answer for {self._timeout_s:g} s"
            self.kill()
            return True
        return self.process.exitcode is not None

    def result(self) -> Result:
        """Return how it went."""
        self._listen()
        found, code = self._result, self.process.exitcode
        found.seconds = time.monotonic() - self._began
        found.output = self._output.read_text(encoding="utf-8", errors="replace")
        lines = [line.strip() for line in found.output.splitlines() if line.strip()]
        if found.status == "died" and code is not None and code > 0:
            # The interpreter's own end is an exception; a library's is an exit, and its last line says why too.
            found.status = "raised"
            found.detail = lines[-1] if lines else f"ended with exit code {code}"
        elif found.status == "died":
            how = "in an unknown way" if not code else f"by {signal.Signals(-code).name}"
            found.detail = f"died {how}" + (f": {lines[-1]}" if lines else "")
        self.link.close()
        self.process.close()
        return found

    def kill(self) -> None:
        """End it, with everything it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.join()

    def _listen(self) -> None:
        with suppress(EOFError, OSError):
            while self.link.poll():
                kind, content = self.link.recv()
                if kind == "facts":
                    self._result.facts |= content
                else:
                    self._result.status, self._result.detail = kind, content


def _child(function: Callable[..., None], arguments: tuple[Any, ...], link: Any, output: str, environ: dict[str, str]) -> None:
    with suppress(OSError):
        os.setsid()
    os.environ.clear()
    os.environ.update(environ)
    descriptor = os.open(output, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)

    def tell(**facts: Any) -> None:
        link.send(("facts", facts))

    try:
        function(tell, *arguments)
        link.send(("done", ""))
    except MissingPackageError as problem:
        link.send(("missing", str(problem)))
    except EtudeError as problem:
        link.send(("refused", str(problem)))
