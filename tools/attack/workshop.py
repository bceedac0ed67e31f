"""Where attacks happen: a folder of its own, and commands in forks of this process, so that nothing is imported anew."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from etude.buffers import store_state
from etude.runs import provenance
from tools.attack.victims import OWN_MODULE, write_own_code

CPU_LIMIT_S = 10.0
"""A command that computes longer than this hangs: each is of a second or less."""
_TICKS = os.sysconf("SC_CLK_TCK")
_MEMORY = 3 * 2**30
"""What a command may take beyond what this process has: `/dev/zero` would take all there is."""


@dataclass(frozen=True)
class Ended:
    """How a command ended; a negative code is the signal that ended it."""

    code: int
    out: str
    err: str
    hung: bool = False

    @property
    def said(self) -> str:
        """Everything that it printed."""
        return self.out + self.err

    @property
    def fault(self) -> str | None:
        """What no input may cause: HANG, CRASH, TRACEBACK or MUTE; None if there is none of it."""
        if self.hung:
            return "HANG"
        if self.code < 0:
            return "CRASH"
        if "Traceback (most recent call last)" in self.said:
            return "TRACEBACK"
        is_told = any(word in self.said for word in ("etude: ", "damaged", "differs"))
        return None if self.code in (0, 130) or is_told else "MUTE"


@contextmanager
def workshop() -> Iterator[Path]:
    """Be in an empty folder outside any repository, with a key and an own algorithm of its own; put everything back after."""
    in_memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="etude-attack-", dir=in_memory if os.access(in_memory, os.W_OK) else None))
    place, variables, threads = Path.cwd(), dict(os.environ), torch.get_num_threads()
    packages, segment = provenance.installed_packages, store_state.SMALLEST_SEGMENT
    (folder / "home").mkdir()
    write_own_code(folder)
    os.environ["XDG_DATA_HOME"] = str(folder / "home")
    os.environ.pop("ETUDE_RUNS", None)
    os.environ["OMP_NUM_THREADS"] = "1"
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    provenance.installed_packages = dict  # type: ignore[assignment] # a second a run, and no part of what is attacked
    store_state.SMALLEST_SEGMENT = 512  # so that small buffers are saved in segments as large ones are
    torch.set_num_threads(1)
    try:
        yield folder
    finally:
        torch.set_num_threads(threads)
        provenance.installed_packages, store_state.SMALLEST_SEGMENT = packages, segment
        sys.path.remove(str(folder))
        sys.modules.pop(OWN_MODULE, None)
        os.chdir(place)
        os.environ.clear()
        os.environ.update(variables)
        shutil.rmtree(folder, ignore_errors=True)


def etude(arguments: Sequence[str]) -> int:
    """Run one `etude` command in this process."""
    from etude.cli import run

    return run(list(arguments))


def prepare(arguments: Sequence[str], code: int = 0) -> None:
    """Run one `etude` command in this process without a sound; it must end with this exit code."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        ended = etude(arguments)
    assert ended == code, f"{' '.join(arguments)}: {ended}: {said.getvalue()}"


def apart(action: Callable[[], int], *, cpu_limit_s: float = CPU_LIMIT_S) -> Ended:
    """Run `action` in a fork and return how it ended; one that hangs is killed."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            _live(action, out.fileno(), err.fileno())
        status, hung = _wait(child, cpu_limit_s)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="backslashreplace"))
    return Ended(os.waitstatus_to_exitcode(status), texts[0], texts[1], hung)


def command(*arguments: str | Path, **options: float) -> Ended:
    """Run one `etude` command in a fork."""
    return apart(lambda: etude([str(word) for word in arguments]), **options)


def _live(action: Callable[[], int], out: int, err: int) -> None:
    code = 70
    try:
        os.setsid()  # no terminal, and no signals but those meant for it
        for number, descriptor in ((0, os.open(os.devnull, os.O_RDONLY)), (1, out), (2, err)):
            os.dup2(descriptor, number)
        sys.stdin, sys.stdout, sys.stderr = (os.fdopen(number, mode, encoding="utf-8") for number, mode in enumerate("rww"))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        limit = _MEMORY + int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = action()
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _wait(child: int, cpu_limit_s: float) -> tuple[int, bool]:
    computed, since, looked = 0.0, time.monotonic(), time.monotonic()
    family: dict[int, float] = {}
    hung = False
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.003)
        if time.monotonic() - looked < 0.5:
            continue
        looked, before = time.monotonic(), computed
        family = _family(child)
        computed = sum(family.values())
        since = looked if computed > before else since
        # What waits for a pipe never goes on; what waits for a process to start does, on a busy machine late.
        if computed > cpu_limit_s or looked - since > 3 * cpu_limit_s:
            hung = True
            _end([child, *family])
    _end(set(family) - {child})  # what it left running
    return status, hung


def _family(process: int) -> dict[int, float]:
    """A process and everything that it started and that still lives, with the processor time of each."""
    parents, seconds = {}, {}
    for entry in os.listdir("/proc"):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split() if entry.isdigit() else []
        except OSError:
            continue
        if fields:
            parents[int(entry)] = int(fields[1])
            seconds[int(entry)] = sum(map(int, fields[11:15])) / _TICKS  # its own, and that of children it has waited for
    found = {process} & set(seconds)
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return {each: seconds[each] for each in found}


def _end(processes: Iterable[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
