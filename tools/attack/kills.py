"""SIGKILL at every moment: however often a run is killed and resumed, it ends bit for bit as the run that never was.

Each victim is trained once in this process, which imports what its forks need. Then it is killed: once before each place in
the code that changes the disk (between a checkpoint's parts, its manifest, its name and its links; amid rows; between the last
save and the last word), and at random calls of Etude's code (amid steps, updates, evaluations, roll-backs). Some are killed
again while they are resumed, some resume from an older checkpoint and are killed before their next save, and some lose a part
of the rows that were not yet synced, as in a power cut.
"""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from etude.runs.run import Run
from tests.faults.tiny_run import assert_whole_to_the_last_row
from tests.runs_compared import assert_same_run
from tools.attack.moments import Moment, Watch, watching
from tools.attack.report import Report
from tools.attack.victims import VICTIMS, Victim
from tools.attack.workshop import Ended, apart, etude, prepare, workshop

MOST_RESUMES = 4
_GROUP_SEEDS = "1,2"


@dataclass
class Attacked:
    """A victim, the run that was never killed, and the moments that it has."""

    name: str
    victim: Victim
    root: Path
    whole: Run = field(init=False)
    places: list[str] = field(init=False)
    calls: int = field(init=False)
    within: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        # Here, so that no fork has anything left to import.
        prepare(self.training(self.root / "whole"))
        (self.whole,) = Run.list(self.root / "whole")
        notes = self.root / "moments.json"

        def count() -> int:
            with watching(Watch()) as watch:
                code = etude(self.training(self.root / "counted"))
            notes.write_text(json.dumps([watch.places, watch.calls, watch.within]))
            return code

        counted = apart(count, cpu_limit_s=60)
        assert counted.code == 0, f"ended with {counted.code}{' (hung)' * counted.hung}: {counted.err}"
        self.places, self.calls, self.within = json.loads(notes.read_text())

    def training(self, root: Path) -> list[str]:
        """The command that starts it."""
        return ["train", self.victim.spec, *self.victim.settings, "-q", "--runs", str(root)]

    def once_each_place(self) -> list[Moment]:
        """A moment before each line that changes the disk."""
        return [Moment("disk", self.places.index(place)) for place in dict.fromkeys(self.places)]

    def anywhere(self, dice: random.Random) -> Moment:
        """A random moment: half of them amid computing, or amid an evaluation, half before a change of the disk."""
        kind = dice.choice(("disk", "disk", "code", "evaluator"))
        if kind == "disk":
            return Moment("disk", dice.randrange(len(self.places)))
        if kind == "evaluator" and self.within.get("evaluator.py"):
            return Moment("code", dice.randrange(1, self.within["evaluator.py"]), "evaluator.py")
        return Moment("code", dice.randrange(1, self.calls))


class Killer:
    """Kills runs of victims and compares what becomes of them."""

    def __init__(self, folder: Path, seed: int, report: Report) -> None:
        self.folder, self.dice, self.report = folder, random.Random(seed), report
        self.kills = self.trials = 0
        self.stages: dict[str, int] = {}

    def attack(self, target: Attacked, first: Moment, *, older: bool = False) -> None:
        """Kill one run at `first`, perhaps again while it is resumed, let it end and compare."""
        place = self.folder / f"trial-{self.trials}"
        self.trials += 1
        case = [str(first)]
        try:
            outcome, detail = self._trial(target, place, first, older, case)
        except AssertionError as error:
            outcome, detail = "DIFFERS", _said(error)
        self.report.add(target.name, outcome, ", then ".join(case), detail)
        shutil.rmtree(place, ignore_errors=True)

    def _trial(self, target: Attacked, place: Path, first: Moment, older: bool, case: list[str]) -> tuple[str, str]:
        ended = self._sitting(target.training(place), None if older else first)
        if ended.fault and ended.code != -signal.SIGKILL:
            return ended.fault, ended.err
        run = next(iter(Run.list(place)), None) if place.exists() else None
        if run is None:
            return "no run yet", ""
        for _ in range(MOST_RESUMES):
            moment, words = self._next(target, run, first, older, case)
            if moment is None:
                break
            older = False
            ended = self._sitting(["resume", str(run.path), "-q", *words], moment)
            if ended.code != -signal.SIGKILL:
                if ended.code:
                    return ended.fault or "REFUSED", ended.err
                break
        twin = None
        if not target.victim.is_exact:
            twin = Run.open(Path(shutil.copytree(run.path, place / "twin" / run.id, symlinks=True)))
        for each in (run, *([] if twin is None else [twin])):
            ended = self._sitting(["resume", str(each.path), "-q"], None)
            if ended.code and not (ended.code == 2 and "is finished" in ended.err):
                return ended.fault or "REFUSED", ended.err
        assert run.status == "finished"
        assert_whole_to_the_last_row(run)
        assert_same_run(run, target.whole if twin is None else twin)
        left = [path.name for path in run.path.rglob(".*") if path.name.endswith(".tmp") or path.name.startswith(".saving")]
        # One that was killed before a sitting began is still finished, and what it left is removed by the next one.
        return ("LEFT BEHIND", str(left)) if left and not ended.code else ("same", "")

    def _next(self, target: Attacked, run: Run, first: Moment, older: bool, case: list[str]) -> tuple[Moment | None, list[str]]:
        """What is done to the run next: killed again, from an older checkpoint perhaps, or nothing more."""
        if older:
            saved = [each for each in run.checkpoints().list() if each.kind == "full"]
            if len(saved) > 1:
                case.append(f"resumed from {saved[-2].name}")
                return first, ["--checkpoint", saved[-2].name]
        if self.dice.random() < 0.3 and self._tear(run):
            case.append("rows torn")
        if self.dice.random() < 0.35 and run.status != "finished":
            case.append(str(moment := target.anywhere(self.dice)))
            return Moment(moment.kind, 1 + moment.number // 3, moment.of), []
        return None, []

    def _tear(self, run: Run) -> bool:
        """Cut off some of the rows that nothing has synced."""
        saved = [each for each in run.checkpoints().list() if each.kind == "full"]
        if not saved or not run.metrics_path.exists():
            return False
        synced, size = int(saved[-1].metadata["metrics_offset"]), run.metrics_path.stat().st_size  # type: ignore[arg-type]
        if size <= synced:
            return False
        os.truncate(run.metrics_path, self.dice.randrange(synced, size))
        return True

    def _sitting(self, arguments: list[str], death: Moment | None) -> Ended:
        stage = self.folder / "stage"
        stage.unlink(missing_ok=True)

        def sit() -> int:
            if death is None:
                return etude(arguments)
            with watching(Watch(death, before_dying=stage.write_text)):
                return etude(arguments)

        ended = apart(sit, cpu_limit_s=60)
        if ended.code == -signal.SIGKILL and not ended.hung:
            self.kills += 1
            where = stage.read_text().partition(" < ")[0].rpartition(":")[0] if stage.exists() else "?"
            self.stages[where] = self.stages.get(where, 0) + 1
        return ended

    def attack_group(self, root: Path, delay: float) -> None:
        """Kill a group of seeds, its parent and one of its runs, start it again and compare with runs that are alone."""
        victim = VICTIMS["ppo"]
        words = [
            victim.spec,
            *victim.settings,
            "--seed",
            _GROUP_SEEDS,
            "--group",
            "g",
            "--auto-resume",
            "-q",
            "--runs",
            str(root),
        ]
        call = [sys.executable, "-m", "etude", "train", *words]
        group = subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while (not root.exists() or not Run.list(root)) and time.monotonic() < deadline and group.poll() is None:
            time.sleep(0.02)
        time.sleep(delay)
        members = Run.list(root) if root.exists() else []
        for process in (group.pid, *(run.record["pid"] for run in members[:1] if run.status == "running")):
            try:
                os.kill(process, signal.SIGKILL)
                self.kills += 1
            except ProcessLookupError:
                pass
        group.wait()
        while any(run.status == "running" for run in Run.list(root)) and time.monotonic() < deadline:
            time.sleep(0.05)  # the others were given no signal, and end by themselves
        done = subprocess.run(call, capture_output=True, text=True, timeout=300, check=False)
        outcome, detail = "same", ""
        if done.returncode:
            outcome, detail = "REFUSED", done.stderr
        try:
            for seed in _GROUP_SEEDS.split(","):
                alone = root / f"alone-{seed}"
                prepare(["train", victim.spec, *victim.settings, "--seed", seed, "--runs", str(alone)])
                whole, others = Run.list(alone)[0], [run for run in Run.list(root) if str(run.record.get("seed")) == seed]
                assert [run.status for run in others].count("finished") == 1, f"seed {seed}: {[run.status for run in others]}"
                assert_same_run(whole, next(run for run in others if run.status == "finished"))
        except AssertionError as error:
            outcome, detail = "DIFFERS", _said(error)
        self.report.add("group of seeds", outcome, f"killed {delay:.1f} s after its first run began", detail)
        shutil.rmtree(root, ignore_errors=True)


def kill(
    names: list[str] | None = None, *, every_place: tuple[str, ...] = ("ppo", "dqn", "rolled-back"), random_each: int = 5,
    older_each: int = 2, groups: int = 4, seed: int = 1, share: float = 1.0, quiet: bool = False
) -> Report:  # fmt: skip
    """Kill the victims of these names (all of them by default), each at `random_each` moments, and return what came of it."""
    report = Report("kills", is_quiet=quiet)
    with workshop() as folder:
        killer = Killer(folder, seed, report)
        for name in VICTIMS if names is None else names:
            try:
                target = Attacked(name, VICTIMS[name], folder / name)
            except AssertionError as error:
                report.add(name, "UNTRAINED", detail=_said(error))
                continue
            plan = list(_plan(target, killer.dice, name in every_place, random_each, older_each))
            for trial in killer.dice.sample(plan, math.ceil(share * len(plan))):
                trial(killer)
            shutil.rmtree(target.root, ignore_errors=True)
        for number in range(groups):
            killer.attack_group(folder / f"group-{number}", killer.dice.uniform(0, 1.5))
        report.facts = {"kills": killer.kills, "trials": report.outcomes.total(), "places killed at": len(killer.stages)}
    return report


def _said(error: AssertionError) -> str:
    """What an assertion says, or the line that it stands in."""
    return str(error).partition("\n")[0] or str(traceback.extract_tb(error.__traceback__)[-1].line)


def _plan(target: Attacked, dice: random.Random, everywhere: bool, random_each: int, older_each: int) -> Iterator[Callable]:
    moments = [target.anywhere(dice) for _ in range(random_each)] + (target.once_each_place() if everywhere else [])
    for moment in moments:
        yield lambda killer, moment=moment: killer.attack(target, moment)
    for _ in range(older_each if target.victim.is_exact else 0):
        # Early ones: before its first save the run is at an older place than its newest checkpoint.
        yield lambda killer: killer.attack(target, Moment("disk", killer.dice.randrange(40)), older=True)
        yield lambda killer: killer.attack(
            target, Moment("code", killer.dice.randrange(1, max(2, target.calls // 4))), older=True
        )
