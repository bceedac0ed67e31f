"""Bits flipped, bytes changed, files cut off, blocks zeroed: damage is reported, or it changes nothing that is computed.

Every kind of file of a run is damaged and every verb that reads runs is tried on it. What a verb computes on the whole run is
known before, so that a wrong result is seen even where the exit code is 0.
"""

from __future__ import annotations

import os
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from tools.attack.report import Report
from tools.attack.subjects import Subject, computed, fingerprint, make_subjects, steady
from tools.attack.victims import VICTIMS
from tools.attack.workshop import Ended, command, workshop

INFORMATIONAL = {
    "run.log": "what was said; never read",
    "metrics.csv": "made anew from metrics.jsonl",
    "summary.json": "results in short, shown and made anew at the next save",
    "run.json": "name, group, tags and status, shown; the settings and the weights are elsewhere",
    "config.yaml": "what was asked, for people; what is trained is in resolved.yaml. Its signature is lost",
    "run_status.json": "how it stood, shown; never read by a resume",
    "logs/events.jsonl": "what was asked of it, shown",
    "logs/changes.jsonl": "what was changed when, shown",
    "logs/evaluations.jsonl": "results of evaluations, shown",
    "logs/superseded.jsonl": "rows that no longer count",
    "provenance/command.json": "where the run came from, shown",
    "provenance/environment.json": "where the run came from, shown",
    ".lock": "means nothing but that it is locked",
    ".record.lock": "means nothing but that it is locked",
}
"""Files that are for people: a changed letter in them is shown as it stands, and changes nothing that is trained."""
SHOWN = {
    "metrics.jsonl": "rows are shown as they stand; resume and verify compare them with the checkpoint's hash of them",
    "provenance/git.json": "the commit is shown as it stands; code is restored and run only under its signature",
}
"""Files that lists do not check, because it would mean to read all of every run."""
_LISTS = ("runs list", "runs show")


@dataclass(frozen=True)
class Verb:
    """A command on a run, and how to tell what it has computed."""

    words: Callable[[Subject, Path], list[str | Path]]
    result: Callable[[Subject, Path, Ended], object]
    each: int = 3
    """How often each kind of file is damaged for it."""
    of: re.Pattern[str] = re.compile(".*")
    """Which subjects and kinds of files it is tried on, as `subject/kind`; where it is slow, on what it reads."""
    cpu_limit_s: float = 10.0


def _exported(subject: Subject, out: Path, ended: Ended) -> object:
    return fingerprint(dict(torch.jit.load(out / "policy.pt").state_dict()))  # type: ignore[no-untyped-call]


def _initialised(subject: Subject, out: Path, ended: Ended) -> object:
    (run,) = [path for path in out.iterdir() if path.is_dir() and not path.is_symlink()]
    return computed(run)


def _init_words(subject: Subject, out: Path) -> list[str | Path]:
    victim = VICTIMS[subject.victim]
    return ["train", victim.spec, *victim.settings, "training.total_steps=24", "--init-from", subject.path, "-q", "--runs", out]


def _printed(subject: Subject, out: Path, ended: Ended) -> object:
    return steady(ended.out)


VERBS = {
    "resume": Verb(lambda subject, out: ["resume", subject.path, "-q"], lambda subject, out, ended: computed(subject.path)),
    "evaluate": Verb(lambda subject, out: ["evaluate", subject.path, "--episodes", "2", "--json"], _printed),
    "play": Verb(lambda subject, out: ["play", subject.path, "--episodes", "1", "--render", "none", "--json"], _printed),
    "export": Verb(lambda subject, out: ["export", subject.path, "--format", "torchscript", "--out", out], _exported),
    "train --init-from": Verb(_init_words, _initialised),
    "train --from-run": Verb(lambda subject, out: ["train", "--from-run", subject.path, "--print-config"],
                             lambda subject, out, ended: ended.out),
    "runs list": Verb(lambda subject, out: ["runs", "list", "--runs", subject.path.parent, "--json"], _printed),
    "runs show": Verb(lambda subject, out: ["runs", "show", subject.path, "--json"], _printed),
    "runs path": Verb(lambda subject, out: ["runs", "path", subject.path, "--checkpoint", "last"],
                      lambda subject, out, ended: ended.out),
    "verify": Verb(lambda subject, out: ["verify", subject.path, "--current-code", "--json"], _printed, each=1, cpu_limit_s=120,
                   of=re.compile("own/(checkpoints/newest.*|checkpoints/older/[^r].*|.*metrics.jsonl|.*yaml|run.json|provenance.*)")),
}  # fmt: skip


def _bit(data: bytearray, dice: random.Random) -> bytearray:
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    return data


def _digit(data: bytearray, dice: random.Random) -> bytearray:
    """Another digit where there is one: the change that a parser can't see."""
    places = [at for at, byte in enumerate(data) if 48 <= byte <= 57]
    at = dice.choice(places or range(len(data)))
    data[at] = 48 + (data[at] - 48 + dice.randrange(1, 10)) % 10
    return data


def _cut(data: bytearray, dice: random.Random) -> bytearray:
    return data[: dice.randrange(len(data))]


def _zeroed(data: bytearray, dice: random.Random) -> bytearray:
    at, length = dice.randrange(len(data)), dice.choice((1, 16, 512))
    data[at : at + length] = bytes(len(data[at : at + length]))
    return data


DAMAGE = {"bit": _bit, "digit": _digit, "cut off": _cut, "zeroed": _zeroed}


def damage(path: Path, how: str, dice: random.Random) -> None:
    """Damage a file or where a link points; what is empty gets a byte."""
    is_link = path.is_symlink()
    data = bytearray(os.readlink(path).encode() if is_link else path.read_bytes())
    changed = bytes(DAMAGE[how](data, dice) if data else b"\xff")
    if not is_link:
        path.write_bytes(changed)
        return
    path.unlink()
    name = changed.replace(b"\0", b"0").replace(b"/", b"_") or b"0"
    os.symlink(name, os.fsencode(path))


def flip(only: list[str] | None = None, *, seed: int = 1, share: float = 1.0, quiet: bool = False) -> Report:
    """Damage every kind of file for every verb (or those named) and return what came of it."""
    report, dice = Report("flips", is_quiet=quiet), random.Random(seed)
    with workshop() as folder:
        for subject in make_subjects(folder):
            known: dict[str, object] = {}
            cases = [
                (kind, name, number)
                for kind in subject.files()
                for name, verb in VERBS.items()
                if (only is None or name in only) and verb.of.fullmatch(f"{subject.name}/{kind}")
                for number in range(verb.each)
            ]
            for kind, name, number in cases:
                if dice.random() < share:
                    if name not in known:
                        known[name] = _known(subject, VERBS[name], folder / "out")
                    how = list(DAMAGE)[(number + dice.randrange(2)) % len(DAMAGE)]
                    _try(subject, name, kind, how, known[name], report, folder / "out", dice)
    return report


def _known(subject: Subject, verb: Verb, out: Path) -> object:
    """What the verb computes on the whole run."""
    ended = _do(subject, verb, out)
    assert ended.code == 0, ended.said
    return verb.result(subject, out, ended)


def _do(subject: Subject, verb: Verb, out: Path, damaged: Callable[[Path], None] = lambda run: None) -> Ended:
    shutil.rmtree(out, ignore_errors=True)
    damaged(subject.restore())
    return command(*verb.words(subject, out), cpu_limit_s=verb.cpu_limit_s)


def _try(
    subject: Subject, name: str, kind: str, how: str, known: object, report: Report, out: Path, dice: random.Random
) -> None:
    verb, relative = VERBS[name], subject.files()[kind]
    ended = _do(subject, verb, out, lambda run: damage(run / relative, how, dice))
    outcome, detail = ended.fault or ("detected" if ended.code else ""), ended.said
    if not outcome:
        try:
            result = verb.result(subject, out, ended)
        except Exception as error:  # noqa: BLE001 - whatever it left is not what it should have computed
            result, detail = None, f"{type(error).__name__}: {error}"
        if result == known:
            outcome = "no effect"
        elif Path(kind).name in ended.err or any(words in ended.said for words in ("damaged", "can't be read")):
            outcome = "reported"
        else:
            outcome = "shown" if kind in INFORMATIONAL or (kind in SHOWN and name in _LISTS) else "SILENT"
            detail = _difference(str(known), str(result))
    report.add(kind, outcome, f"{subject.name}, {how}, etude {name}", detail)


def _difference(one: str, other: str) -> str:
    """Where two texts part, with what is before and after."""
    at = next(
        (at for at, letters in enumerate(zip(one, other, strict=False)) if letters[0] != letters[1]), min(len(one), len(other))
    )
    return f"{one[max(0, at - 60) : at + 60]!r} became {other[max(0, at - 60) : at + 60]!r}"
