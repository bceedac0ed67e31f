"""Trains a run and kills it, again and again: `python -m tests.faults.kill_driver ROOT KILLS SEED`.

Everything is imported once; each sitting is a fork that is killed with SIGKILL at a random moment, or at a random call that
changes the disk, those within a save included. Prints one JSON object.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import torch

from etude.runs import provenance
from etude.runs.index import find_runs
from etude.runs.run import Run
from tests.faults.failing_disk import Call, FailingDisk, failing
from tests.faults.tiny_run import assert_ends_as, assert_whole_to_the_last_row, resume, train


class Victims:
    """Runs that are killed; `whole` is the run that never was."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.random = root, random.Random(seed)
        self.stages: Counter[str] = Counter()
        # Here, so that no fork has anything left to import.
        with failing(FailingDisk(root / "whole")) as disk:
            assert train(root / "whole") == 0
        self.calls = len(disk.calls)
        (self.whole,) = Run.list(root / "whole")
        began = time.monotonic()
        assert self._sitting(root / "timed", None, 0.0) == 0
        self.seconds = time.monotonic() - began

    def _sitting(self, root: Path, run: Run | None, delay: float, call: int = -1) -> int:
        """Train in a fork and kill it after `delay` seconds (0: never), or just before disk call number `call`."""
        child = os.fork()
        if child == 0:
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 2)

            def dies(number: int, _: Call) -> bool:
                if number == call:
                    os.kill(os.getpid(), signal.SIGKILL)
                return False

            with failing(FailingDisk(root, dies)):
                os._exit(train(root) if run is None else resume(run))
        if delay:
            time.sleep(delay)
            os.kill(child, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def kill(self, root: Path) -> bool:
        """One sitting that is killed; False if it was at its end before that."""
        run = next(iter(Run.list(root)), None) if root.exists() else None
        if self.random.random() < 0.5:
            code = self._sitting(root, run, self.random.uniform(0.01, 1.1 * self.seconds))
        else:
            # A resumed sitting has fewer calls left.
            code = self._sitting(root, run, 0.0, self.random.randrange(self.calls if run is None else self.calls // 2))
        assert code in (0, -signal.SIGKILL), code
        run = next(iter(Run.list(root)), None) if root.exists() else None
        if run is None:
            self.stages["before there was a run"] += 1
            return True
        (found,) = find_runs(root)
        if code == 0:
            assert found.status == "finished"
            return False
        assert found.status == run.status, (found.status, run.status)
        # "finished" when it was killed after its last word.
        assert found.status in ("crashed", "finished"), found.status
        self.stages[_stage(run)] += 1
        assert_whole_to_the_last_row(run)
        return True

    def finish(self, root: Path) -> None:
        """Let the run go on to its end, and compare it with the one that was never killed."""
        run = next(iter(Run.list(root)), None)
        if run is None or run.status != "finished":
            assert self._sitting(root, run, 0.0) == 0
        (found,) = find_runs(root)
        assert found.status == "finished"
        run = Run.open(found.path)
        assert_ends_as(self.whole, run)
        left = [path.name for path in run.path.rglob(".*") if path.name.endswith(".tmp") or path.name.startswith(".saving")]
        assert left == [], left


def _stage(run: Run) -> str:
    saved = [each for each in run.checkpoints().list() if each.kind == "full"]
    if any(path.name.startswith(".saving") for path in run.checkpoints_path.iterdir()):
        return "during a save"
    if not saved:
        return "before the first save"
    return "after the last save" if saved[-1].counters["env_steps"] == 320 else "between saves"


def main(root: Path, kills: int, seed: int) -> None:
    torch.set_num_threads(1)
    provenance.installed_packages = dict  # type: ignore[assignment] # many runs are made here
    os.chdir(root)
    victims = Victims(root, seed)
    done = chains = 0
    while done < kills:
        # Some runs are killed once, some over and over.
        place, chain = root / f"victim-{chains}", victims.random.choice((1, 1, 2, 5))
        for _ in range(min(chain, kills - done)):
            done += victims.kill(place)
            if place.exists() and any(run.status == "finished" for run in Run.list(place)):
                break
        if place.exists() and Run.list(place):
            victims.finish(place)
        chains += 1
        shutil.rmtree(place, ignore_errors=True)
    print(json.dumps({"kills": done, "runs": chains, "stages": victims.stages}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
