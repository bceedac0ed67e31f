"""A published policy as a folder: a run in small that Etude opens as any other, and what others read.

    README.md                          the card, with the evaluation as a model index
    run.json, config.yaml, resolved.yaml, checkpoints/NAME/…    the run, with the policy alone
    evaluation.json                    every episode
    onnx/                              the exported policy
    replay.mp4                         an episode

Secrets and this machine's folders are taken out of what is text, and the whole is looked through before anybody gets it.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import etude
from etude.config.validate import to_plain, to_yaml
from etude.deploy.export import export_policy
from etude.errors import EtudeError, UserError
from etude.files.atomic import standard_json, write_bytes_atomic, write_json_atomic, write_text_atomic
from etude.files.documents import parse_yaml, read_json
from etude.files.regular import read_bytes
from etude.publishing.card import Card, to_markdown
from etude.publishing.scrub import clean, refuse_leaks
from etude.runs.layout import RunLayout
from etude.runs.manifest import MANIFEST_NAME, inside, read_manifest
from etude.runs.records import write_record
from etude.runs.settings_files import HASH, settings_hash
from etude.using.evaluate import as_json, measure
from etude.using.play import play
from etude.using.stored_policy import StoredPolicy

Part = Literal["evaluation", "onnx", "replay"]
PARTS: tuple[Part, ...] = ("evaluation", "onnx", "replay")
VIDEO = "replay.mp4"
LONGEST_VIDEO = 1000
"""Frames."""
_OF_THIS_MACHINE = ("host", "pid", "pid_started")
_ROBOT = ("robot.json", "robot")


@dataclass
class Publication:
    """What was made."""

    folder: Path
    card: Card
    notes: list[str] = field(default_factory=list)
    """What it lacks, and why."""

    @property
    def files(self) -> dict[str, int]:
        """Every file's size, by its name."""
        paths = sorted(path for path in self.folder.rglob("*") if path.is_file())
        return {path.relative_to(self.folder).as_posix(): path.stat().st_size for path in paths}


def make_publication(
    stored: StoredPolicy,
    folder: Path,
    *,
    episodes: int = 100,
    leave_out: Collection[Part] = (),
    repository: str | None = None,
    license_name: str | None = None,
    trust: bool = False,
    tell: Callable[[str], object] = lambda doing: None,
) -> Publication:
    """Write a publication into `folder`, which must not be there yet; it appears when it is whole and holds no secret.

    `trust`: the policy was opened with it, and its video follows import paths too.
    """
    if folder.exists():
        raise UserError(f"{folder} is there already: name another folder with --out, or remove it")
    staging = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}.tmp")
    try:
        staging.mkdir(parents=True)
        made = _fill(stored, staging, episodes, leave_out, repository, license_name, trust, tell)
        refuse_leaks(staging)
        os.replace(staging, folder)
    except OSError as error:
        if isinstance(error, EtudeError):
            raise
        raise EtudeError(f"{folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return replace(made, folder=folder)


def _fill(
    stored: StoredPolicy,
    folder: Path,
    episodes: int,
    leave_out: Collection[Part],
    repository: str | None,
    license_name: str | None,
    trust: bool,
    tell: Callable[[str], object],
) -> Publication:
    config, notes = stored.config, []
    evaluation = None
    if "evaluation" not in leave_out:
        tell(f"evaluating {episodes} episodes")
        evaluation = _evaluate(stored, episodes)
        write_json_atomic(folder / "evaluation.json", evaluation)
    if "onnx" not in leave_out:
        tell("exporting")
        notes += _export(stored, folder / "onnx")
    if "replay" not in leave_out:
        tell("filming an episode")
        notes += _film(stored, folder / VIDEO, trust)
    _write_run(stored, folder)
    settings = clean({"algorithm": to_plain(config.algorithm), "network": to_plain(config.network)})
    card = Card(
        environment=config.environment.id,
        algorithm=config.algorithm.name,
        run=stored.run.id,
        seed=config.experiment.seed,
        env_steps=int(stored.checkpoint.counters["env_steps"]),
        checkpoint=stored.checkpoint.name,
        version=etude.__version__,
        settings=settings,
        evaluation=evaluation,
        repository=repository,
        license=license_name,
        has_video=(folder / VIDEO).is_file(),
        has_onnx=(folder / "onnx" / "policy.onnx").is_file(),
        notes=tuple(clean(notes)),
    )
    write_text_atomic(folder / "README.md", to_markdown(card))
    return Publication(folder, card, notes)


def _evaluate(stored: StoredPolicy, episodes: int) -> dict[str, Any]:
    mode, *_ = stored.modes("auto")
    found = measure(stored, episodes)[mode]
    about = {"run": stored.run.id, "checkpoint": stored.checkpoint.name, "mode": mode, "seed": 0}
    return standard_json({**about, **as_json(found)})  # type: ignore[return-value] # a mapping, as it was given one


def _export(stored: StoredPolicy, folder: Path) -> list[str]:
    """Write the ONNX file; returns why there is none, or what it differs in."""
    try:
        made = export_policy(stored, ["onnx"], folder)
    except EtudeError as problem:
        shutil.rmtree(folder, ignore_errors=True)
        return [f"no ONNX file: {problem}"]
    if "onnx" not in made.metadata.files:
        shutil.rmtree(folder)
        return [f"no ONNX file: {problem}" for problem in made.problems]
    return [*made.notes, *map(str, made.problems)]


def _film(stored: StoredPolicy, path: Path, trust: bool) -> list[str]:
    try:
        play(stored.run.path, 1, checkpoint=stored.checkpoint.name, video=path, max_steps=LONGEST_VIDEO, trust=trust)
    except EtudeError as problem:
        return [f"no video: {problem}"]
    return []


def _write_run(stored: StoredPolicy, folder: Path) -> None:
    """Write the run with the policy alone, without what only this machine knows."""
    run, made = stored.run, RunLayout(folder)
    # What was asked has the user's own comments; read and written anew it has none.
    asked, resolved = (to_yaml(clean(parse_yaml(read_bytes(path)))) for path in (run.config_path, run.resolved_path))
    write_text_atomic(made.config_path, asked)
    write_text_atomic(made.resolved_path, resolved)
    provenance = run.path / "provenance"
    for name in _ROBOT:
        if (provenance / name).is_dir():
            shutil.copytree(provenance / name, folder / "provenance" / name, symlinks=True)
        elif (provenance / name).is_file():
            (folder / "provenance").mkdir(exist_ok=True)
            write_json_atomic(folder / "provenance" / name, clean(read_json(provenance / name)))
    _write_checkpoint(stored, made.checkpoints_path / stored.checkpoint.name)
    record = {key: value for key, value in run.record.items() if key not in _OF_THIS_MACHINE}
    write_record(made.record_path, {**clean(record), HASH: settings_hash(resolved)})


def _write_checkpoint(stored: StoredPolicy, target: Path) -> None:
    source = stored.checkpoint.path
    manifest = read_manifest(source)
    acting = {name: record for name, record in manifest.files.items() if name.startswith("policy/")}
    for name in acting:
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(inside(source, name), path)
    policy = replace(manifest, kind="policy", files=acting, segments={}, metadata=clean(manifest.metadata))
    write_bytes_atomic(target / MANIFEST_NAME, policy.to_bytes())
