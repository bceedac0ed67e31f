"""Whether a re-run here can be expected to repeat a run bit for bit: the same versions, machine, threads and mode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from etude.compute.accelerate import has_compiler
from etude.files.documents import DocumentError, read_json
from etude.files.regular import read_bytes
from etude.runs import provenance
from etude.runs.run import Run
from etude.verification.subject import Subject, changes_of, merged

_CODE = "packages.etude"
_LARGEST_LOG = 2**30


def obstacles(subject: Subject, *, brings_etude: bool) -> list[str]:
    """Return why the run can't be compared here, one line each; none if it can.

    `brings_etude`: the stored code holds Etude itself, so the installed version does not matter.
    """
    found = (_other_fingerprint(subject, brings_etude), _other_device(subject), _resumed_inexactly(subject))
    return [reason for reasons in (*found, _trained_apart(subject)) for reason in reasons]


def late_obstacles(subject: Subject, facts: Mapping[str, Any]) -> list[str]:
    """Return what only a re-run itself could tell: its `facts`, before it trains and after."""
    reasons = []
    borrowed, mode = facts.get("borrowed"), subject.facts.get("mode")
    if borrowed:
        reasons.append(
            f"code: {', '.join(borrowed[:3])} came from your files instead of the stored code; "
            "is it installed from there? --current-code compares with it"
        )
    if mode is not None and facts.get("mode", mode) != mode:
        reasons.append(f"mode: the run was {mode}, here it is {facts['mode']}")
    if "run" in facts and not _changed_alike(subject.run.path, Path(facts["run"])):
        reasons.append("settings: the run was changed on the way (logs/changes.jsonl), and these changes can't be made again")
    if "run" in facts and subject.run.record.get("initial_weights") != Run.open(Path(facts["run"])).record.get(
        "initial_weights"
    ):
        reasons.append(f"weights: {subject.setting('experiment.init_from')}, which the run began with, is another one now")
    return reasons


def _changed_alike(stored: Path, again: Path) -> bool:
    """Whether each change so far was made at the same place, from the same values to the same values."""
    mine, theirs = (merged(changes_of(Run(run))) for run in (again, stored))
    return mine == theirs[: len(mine)]


def is_other_etude(subject: Subject) -> bool:
    """Whether Etude's own files have changed since, under whatever version."""
    then = _environment(subject).get("etude_code")
    return then is not None and then != provenance.etude_code()


def _environment(subject: Subject) -> dict[str, Any]:
    try:
        environment = read_json(subject.run.path / "provenance" / "environment.json")
    except (OSError, DocumentError):
        return {}
    return environment if isinstance(environment, dict) else {}


def other_packages(subject: Subject) -> list[str]:
    """Return the packages that have another version than when the run was made, and may or may not matter."""
    try:
        then = _environment(subject)["packages"]
        now = provenance.installed_packages()
        differing = [name for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
        return [f"{name} {then.get(name) or 'absent'} → {now.get(name) or 'absent'}" for name in differing]
    except (KeyError, TypeError, AttributeError):
        return []


def _other_fingerprint(subject: Subject, brings_etude: bool) -> Iterator[str]:
    now = _flat({**provenance.fingerprint(), "threads": subject.setting("experiment.threads", 1)})
    seen = set()
    for checkpoint in subject.run.checkpoints().list():
        stored = checkpoint.metadata.get("fingerprint")
        for field, then in _flat(stored if isinstance(stored, Mapping) else {}).items():
            if then == now.get(field) or (field, str(then)) in seen or (field == _CODE and brings_etude):
                continue
            seen.add((field, str(then)))
            name = field.removeprefix("packages.")
            if field.startswith("packages.") and name == "torch":
                continue  # said once, under its own name
            way_out = f"; pip install '{name}=={then}'" if field.startswith("packages.") or field == "torch" else ""
            yield f"{name}: the run had {then}, here it is {now.get(field)}{way_out}"


def _other_device(subject: Subject) -> Iterator[str]:
    device, mode = str(subject.setting("experiment.device", "cpu")), subject.facts.get("mode")
    if device.startswith("cuda") and not torch.cuda.is_available():
        yield f"device: the run used {device}, and there is no such device here"
    if device.startswith("cpu") and mode == "compiled" and not has_compiler():
        yield "mode: the run was compiled, and there is no C++ compiler here (c++, g++ or clang++)"


def _resumed_inexactly(subject: Subject) -> Iterator[str]:
    if subject.facts.get("snapshot") == "restart" and _was_resumed(subject):
        yield (
            "resume: the run was resumed, and its environment can't be saved in the middle of an episode "
            "(snapshot: restart), so that nothing can repeat it"
        )


def _trained_apart(subject: Subject) -> Iterator[str]:
    processes = subject.setting("experiment.processes", 1)
    if processes != 1:
        yield f"processes: the run was trained by {processes}, and verifying trains in one"
    if subject.setting("environment.samplers", 0) and subject.setting("environment.free_running", False):
        yield "samplers: they ran freely (environment.free_running), so that nothing can repeat it"


def _was_resumed(subject: Subject) -> bool:
    if subject.changes_within:
        return True
    try:
        return b"resumed from checkpoint" in read_bytes(subject.run.log_path, _LARGEST_LOG)
    except OSError:
        return False


def _flat(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in fingerprint.items():
        flat |= {f"{key}.{name}": each for name, each in value.items()} if isinstance(value, Mapping) else {key: value}
    return flat
