"""Files and links of strangers: none hangs a command, ends it with a traceback, runs code or writes outside the run.

Every file of a run is replaced by links, pipes, folders and texts that are made to break parsers; every value by one of
another type, with hashes that fit; folders by links; names by shell code and escape sequences. The same texts are given as
config files, scripts of trials and events. Outside the run lies a canary: whatever a command does, it stays as it was, and no
escape sequence reaches the terminal raw.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tools.attack.plants import MARK, SHAPES, TEXTS, Case, Yard, cases
from tools.attack.report import Report
from tools.attack.subjects import Subject, make_subjects, tree_hash
from tools.attack.workshop import Ended, command, workshop

FOR_PROGRAMS = ("runs path", "runs path @best", "runs export")
"""What these print is for programs and is byte for byte what it names, unless stdout is a terminal."""
_RAW = ("\x1b", "\x07", "\x9b", "\u202e")

Words = list[str | Path]
WRITERS: dict[str, Callable[[Path, Yard], Words]] = {
    "resume": lambda run, yard: ["resume", f"./{run.name}", "-q"],
    "resume with a change": lambda run, yard: ["resume", f"./{run.name}", "training.total_steps=240", "-q"],
    "evaluate": lambda run, yard: ["evaluate", f"./{run.name}", "--episodes", "1"],
    "play": lambda run, yard: ["play", f"./{run.name}", "--episodes", "1", "--render", "none"],
    "runs tag": lambda run, yard: ["runs", "tag", f"./{run.name}", "seen"],
    "runs cleanup": lambda run, yard: ["runs", "cleanup", "--runs", ".", "--keep", "best", "--yes"],
}
READERS: dict[str, Callable[[Path, Yard], Words]] = {
    "runs list": lambda run, yard: ["runs", "list", "--runs", "."],
    "runs show": lambda run, yard: ["runs", "show", f"./{run.name}"],
    "runs compare": lambda run, yard: ["runs", "compare", "--runs", ".", "--group", "g"],
    "runs export": lambda run, yard: ["runs", "export", "--runs", ".", "--group", "g"],
    "runs path": lambda run, yard: ["runs", "path", f"./{run.name}", "--checkpoint", "last"],
    "runs path @best": lambda run, yard: ["runs", "path", "@best", "--runs", "."],
    "runs rebuild": lambda run, yard: ["runs", "rebuild", "--runs", "."],
    "export": lambda run, yard: ["export", f"./{run.name}", "--format", "torchscript", "--out", yard.out / "export"],
    "config": lambda run, yard: ["config", "--config", run / "resolved.yaml"],
    "train --from-run": lambda run, yard: ["train", "--from-run", f"./{run.name}", "--print-config"],
    "train --init-from": lambda run, yard: [*_TINY, "--init-from", f"./{run.name}", "--runs", yard.out / "runs"],
}
INPUTS: dict[str, Callable[[Path, Path, Yard], Words]] = {
    "train --config": lambda file, run, yard: [*_TINY, "--config", file, "--runs", yard.out / "runs"],
    "config --config": lambda file, run, yard: ["config", "CartPole-v1:ppo", "--config", file],
    "trials --scripts": lambda file, run, yard: ["trials", f"./{run.name}", "--scripts", file],
    "play --events": lambda file, run, yard: ["play", f"./{run.name}", "--events", file, "--render", "none"],
    "a robot": lambda file, run, yard: ["config", "ball-flat:ppo", f"environment.robot.robot={file}"],
}
_TINY = ("train", "CartPole-v1:ppo", "network.actor.hidden_dims=[8]", "training.total_steps=24", "-q")


def plant(
    only: list[str] | None = None, *, seed: int = 1, share: float = 0.5, values: int = 300, quiet: bool = False
) -> Report:
    """Plant every hostile thing (or those of the groups named), try two commands on each and return what came of it."""
    report, dice = Report("hostile files", is_quiet=quiet), random.Random(seed)
    with workshop() as folder:
        subjects = make_subjects(folder)
        attack = _Attack(report, _make_yard(folder), folder)
        for subject in subjects:
            for case in cases(subject, dice, values):
                if (only is None or case.group in only) and dice.random() < share:
                    attack.planted(subject, case, [dice.choice(list(WRITERS)), dice.choice(list(READERS))])
        if only is None or "inputs" in only:
            for name in INPUTS:
                for what in [*TEXTS, *SHAPES]:
                    if dice.random() < share:
                        attack.given(subjects[0], name, what)
        report.facts = {"files, links and names": attack.things}
    return report


def _make_yard(folder: Path) -> Yard:
    yard = Yard(folder / "canary", folder / "out")
    (yard.canary / "folder").mkdir(parents=True)
    (yard.canary / "letter.txt").write_text("the user's own\n")
    (yard.canary / "folder" / "diary.txt").write_text("the user's own\n")
    return yard


class _Attack:
    """Tries commands on hostile things and judges what happened."""

    def __init__(self, report: Report, yard: Yard, folder: Path) -> None:
        self.report, self.yard, self.folder = report, yard, folder
        self.things = 0

    def planted(self, subject: Subject, case: Case, verbs: list[str]) -> None:
        """Put one thing into a run and try commands on it."""
        self.things += 1
        for verb in verbs:
            self._clear()
            run = case.plant(subject.restore(), self.yard)
            words = (WRITERS | READERS)[verb](run, self.yard)
            self._try(case.group, f"{subject.name}: {case.name}: etude {verb}", run.parent, words)

    def given(self, subject: Subject, name: str, what: str) -> None:
        """Give one thing to a command that reads a file of the user's."""
        self.things += 1
        self._clear()
        file, run = self.yard.out / "given.yaml", subject.restore()
        if what in TEXTS:
            file.write_bytes(TEXTS[what])
        else:
            file.write_text("version: 1\n")
            SHAPES[what](file, self.yard)
        self._try("inputs", f"{name}: {what}", run.parent, INPUTS[name](file, run, self.yard))

    def _clear(self) -> None:
        for path in (self.yard.out, self.yard.canary):
            shutil.rmtree(path, ignore_errors=True)
        _make_yard(self.folder)
        self.yard.out.mkdir()

    def _try(self, group: str, case: str, place: Path, words: Words) -> None:
        before = tree_hash(self.yard.canary)
        os.chdir(place)
        ended = command(*words)
        os.chdir(self.folder)
        shown = ended.err if case.endswith(FOR_PROGRAMS) else ended.said
        outcome = self._fault(ended, before, shown) or ("refused" if ended.code else "done")
        self.report.add(group, outcome, case, ended.said)

    def _fault(self, ended: Ended, canary: str, shown: str) -> str | None:
        marks = [path for path in self.folder.rglob(MARK) if self.yard.canary not in path.parents]
        for mark in marks:
            mark.unlink()
        if marks:
            return "CODE RUN"
        if tree_hash(self.yard.canary) != canary:
            return "WROTE OUTSIDE"
        return "RAW ESCAPE" if any(letter in shown for letter in _RAW) else ended.fault
