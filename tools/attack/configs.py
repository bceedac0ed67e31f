"""Throws random configs at Etude: each must be refused in one clear message, or train, save, resume and evaluate.

    python -m tools.attack.configs --count 5000 --seed 0 --jobs 2

Every case lives in a forked child with limits on memory and time. What goes wrong is shown with the fewest words that still
show it. The same seed makes the same cases.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import faulthandler
import io
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from etude.errors import EnvironmentFailureError, EtudeError, NonFiniteError
from tools.attack.config_cases import Case, make_case

SECONDS = 60
MEMORY = 3 * 2**30
"""Bytes that a case may take besides what the parent has mapped."""
SHRINKING_RUNS = 40
GOOD = ("refused", "accepted", "nan", "idle", "memory", "environment")


@dataclass(frozen=True)
class Result:
    """How a case ended."""

    outcome: str
    """refused, accepted, nan (trained until its weights were NaN, and said so), idle (a phase had too little to learn from,
    and said so), memory (more than a case may take, and said so), environment (which its own arguments broke, and which is
    said), or failed."""
    problem: str = ""
    """What went wrong, or why it was refused."""
    place: str = ""
    """Where, so that failures of one cause are counted together."""

    @property
    def is_good(self) -> bool:
        """Whether this is one of the ways in which a case may end."""
        return self.outcome in GOOD


def main(arguments: list[str] | None = None) -> int:
    """Run the cases, print what failed, and return how it went: 0 if nothing failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--count", type=int, default=200, help="how many cases")
    parser.add_argument("--seed", type=int, default=0, help="which cases")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case, to go on or to look at one")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--no-shrink", action="store_true", help="show failures as they are")
    parser.add_argument("--list", action="store_true", help="also print each case's outcome")
    options = parser.parse_args(arguments)
    began = time.monotonic()
    cases = {number: make_case(options.seed, number) for number in range(options.first, options.first + options.count)}
    counts: Counter[str] = Counter()
    failures: dict[str, list[tuple[int, Result]]] = {}
    for number, result in run_all(cases, options.jobs):
        counts[result.outcome] += 1
        if options.list:
            print(f"{number}: {result.outcome}: {result.problem.splitlines()[0] if result.problem else ''}", flush=True)
        if not result.is_good:
            failures.setdefault(result.place, []).append((number, result))
    for place, found in sorted(failures.items(), key=lambda item: -len(item[1])):
        number, result = min(found, key=lambda pair: len(str(cases[pair[0]])))
        case = cases[number] if options.no_shrink else shrink(cases[number], result)
        print(f"\n{len(found)} × {place} (case {number})\n  {case}\n{result.problem}", flush=True)
    spent = time.monotonic() - began
    told = ", ".join(f"{counts[name]} {name}" for name in (*GOOD, "failed"))
    print(f"\n{options.count} configs of seed {options.seed}: {told}; {spent:.0f} s")
    return 0 if not failures else 1


def shrink(case: Case, result: Result) -> Case:
    """Return the case with every word and line left out that it fails without."""
    left = SHRINKING_RUNS
    is_smaller = True
    while is_smaller and left > 0:
        is_smaller = False
        for smaller in _smaller(case):
            left -= 1
            if left <= 0:
                break
            ((_, again),) = run_all({0: smaller}, 1)
            if (again.outcome, again.place) == (result.outcome, result.place):
                case, is_smaller = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    for place in range(len(case.words)):
        yield dataclasses.replace(case, words=case.words[:place] + case.words[place + 1 :])
    lines = [] if case.file is None else case.file.splitlines(keepends=True)
    for place in range(len(lines)):
        yield dataclasses.replace(case, file="".join(lines[:place] + lines[place + 1 :]))


# ---- children -------------------------------------------------------------------------------------------------------------


@dataclass
class _Child:
    number: int
    process: int
    pipe: int
    folder: Path
    deadline: float
    said: bytes = b""


def run_all(cases: dict[int, Case], jobs: int) -> Iterator[tuple[int, Result]]:
    """Run every case in its own child process, some at a time, and yield how each ended."""
    _warm_up()
    waiting = list(reversed(cases.items()))
    running: list[_Child] = []
    with tempfile.TemporaryDirectory(prefix="etude-configs-") as root:
        while waiting or running:
            while waiting and len(running) < jobs:
                number, case = waiting.pop()
                running.append(_fork(number, case, Path(root) / str(number)))
            for child in _ended(running):
                running.remove(child)
                yield child.number, _result_of(child, cases[child.number])
                shutil.rmtree(child.folder, ignore_errors=True)


@cache
def _warm_up() -> None:
    """Live through a sound case here, so that what every child needs is imported once."""
    import torch

    from etude.config.registry import REGISTRIES

    torch.set_num_threads(1)
    for registry in REGISTRIES.values():
        for name in registry.builtin_names():
            with contextlib.suppress(Exception):
                registry.resolve(name)
    words = ("algorithm.rollout_steps=8", "algorithm.batch_size=16", "environment.num_envs=2", "experiment.compile=off")
    with tempfile.TemporaryDirectory(prefix="etude-configs-") as folder, contextlib.redirect_stderr(io.StringIO()):
        live(Case("CartPole-v1:ppo", words), Path(folder))


def _fork(number: int, case: Case, folder: Path) -> _Child:
    folder.mkdir()
    reading, writing = os.pipe()
    process = os.fork()
    if process == 0:
        os.close(reading)
        _be_a_child(case, folder, writing)
    os.close(writing)
    return _Child(number, process, reading, folder, time.monotonic() + SECONDS)


def _be_a_child(case: Case, folder: Path, pipe: int) -> None:
    """Live through one case, say how it went, and end; never returns."""
    try:
        os.setsid()
        mapped = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MEMORY, mapped + MEMORY))
        quiet = os.open(folder / "said", os.O_WRONLY | os.O_CREAT)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        os.chdir(folder)
        with open(folder / "stuck", "w", encoding="utf-8") as stuck:
            faulthandler.enable(stuck)
            faulthandler.dump_traceback_later(SECONDS - 3, file=stuck)
            result = live(case, folder)
        os.write(pipe, json.dumps(dataclasses.asdict(result)).encode())
    finally:
        os._exit(0)


def _ended(running: Iterable[_Child]) -> list[_Child]:
    """Wait for children that have said all they will, or are out of time."""
    children = list(running)
    readable, _, _ = select.select([child.pipe for child in children], [], [], 0.5)
    ended = []
    for child in children:
        if child.pipe in readable:
            said = os.read(child.pipe, 2**16)
            child.said += said
            if not said:
                ended.append(child)
        elif time.monotonic() > child.deadline:
            ended.append(child)
    return ended


def _result_of(child: _Child, case: Case) -> Result:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.process, signal.SIGKILL)
    _, status = os.waitpid(child.process, 0)
    os.close(child.pipe)
    if child.said:
        return judge(case, Result(**json.loads(child.said)))
    stuck = (child.folder / "stuck").read_text("utf-8") if (child.folder / "stuck").exists() else ""
    ours = [line.strip() for line in stuck.splitlines() if "/etude/" in line]
    place = ours[0].rpartition("/etude/")[2] if ours else "unknown"
    kind = "died" if not os.WIFSIGNALED(status) else f"ended by signal {os.WTERMSIG(status)}"
    if time.monotonic() > child.deadline:
        kind = f"no end after {SECONDS} s"
    return Result("failed", f"{kind}\n" + "\n".join(ours[:12]), f"{kind} at {place}")


def judge(case: Case, result: Result) -> Result:
    """Hold a result to what the case asks for: nonsense is refused, and a refusal is one clear message."""
    if result.outcome == "accepted" and case.is_nonsense:
        return Result("failed", "accepted, though something in it is wrong", "accepted nonsense")
    if result.outcome != "refused":
        return result
    lines = result.problem.splitlines()
    if not lines or len(lines) > 6 or any(not line.strip() or len(line) > 700 for line in lines):
        return Result("failed", f"an unclear refusal: {result.problem[:2000]!r}", "unclear refusal")
    if any(mark in result.problem for mark in ("Traceback", " object at 0x", "\x1b", "_FAILED")):
        return Result("failed", f"a refusal in a machine's words: {result.problem[:2000]!r}", "unclear refusal")
    return result


# ---- inside a child -------------------------------------------------------------------------------------------------------


def live(case: Case, folder: Path) -> Result:
    """Do what `etude train`, `etude resume` and `etude evaluate` do with a case, and say how it went."""
    from etude.config.compose import compose

    stage = "compose"
    try:
        file = None
        if case.file is not None:
            file = folder / f"mine{case.suffix}"
            file.write_bytes(case.file.encode("latin-1", "replace") if _is_bytes(case.file) else case.file.encode())
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            composition = compose(case.spec, file=file, words=case.words)
            stage = "start"
            for following in _life(composition, folder):
                stage = following
    except EtudeError as error:
        if stage in ("compose", "start") and error.exit_code == 2:
            return Result("refused", str(error))
        if isinstance(error, NonFiniteError):
            return Result("nan", str(error))
        if "did nothing in a whole cycle" in str(error) or "too little to learn from" in str(error):
            return Result("idle", str(error))
        if "has no memory left" in str(error):
            return Result("memory", str(error))
        if isinstance(error, EnvironmentFailureError) and "kwargs" in str(case):
            return Result("environment", str(error))
        return Result("failed", f"{stage}: {type(error).__name__}: {error}", _signature(stage, error))
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what we are looking for
        told = "".join(traceback.format_exception(error)[-8:])
        return Result("failed", f"{stage}:\n{told[-3000:]}", _signature(stage, error))
    return Result("accepted")


def _life(composition: Any, folder: Path) -> Iterator[str]:
    """Train two cycles, stop, resume, train two more to a proper end, evaluate; yields the name of what comes next."""
    from etude.orchestration.callbacks import Callback, Progress
    from etude.runs import provenance
    from etude.training import session
    from etude.using.evaluate import measure
    from etude.using.stored_policy import open_policy

    class Stop(Callback):
        """Ends a sitting after two cycles: from outside, as a signal does, or as early stopping does."""

        def __init__(self, training: session.Training, *, from_outside: bool) -> None:
            self._training, self._from_outside, self._cycles = training, from_outside, 0

        def on_cycle(self, progress: Progress) -> str | None:
            self._cycles += 1
            if self._cycles < 2:
                return None
            if self._from_outside:
                self._training.stop("two cycles are enough")
                return None
            return "two more cycles are enough"

    # Neither where a run came from nor whether it outlives a power cut is in question, and both cost more than the rest.
    with patch.object(provenance, "capture", lambda *_, **__: None), patch.object(os, "fsync", lambda _: None):
        training = session.start(composition, root=folder / "runs", quiet=True)
        yield "train"
        training.orchestrator.add_callback(Stop(training, from_outside=True))
        run, outcome = training.run, training.finish()
        if outcome.status == "interrupted":
            yield "reopen"
            training = session.reopen(run, quiet=True)
            yield "resume"
            training.orchestrator.add_callback(Stop(training, from_outside=False))
            training.finish()
        yield "evaluate"
        measure(open_policy(run, "last"), 2, timeout_s=2)


def _is_bytes(text: str) -> bool:
    """Whether a text has characters that mutation put in for bytes of no encoding."""
    return any(127 < ord(letter) < 160 for letter in text)


def _signature(stage: str, error: BaseException) -> str:
    """What failures of one cause have in common: the innermost function of Etude's own that the error came through."""
    ours = [frame for frame in traceback.extract_tb(error.__traceback__) if "/etude/" in frame.filename]
    place = f"{ours[-1].filename.rpartition('/etude/')[2]}:{ours[-1].name}" if ours else "?"
    return f"{stage}: {type(error).__name__} at {place}"


if __name__ == "__main__":
    sys.exit(main())
