"""What of a run is worth keeping elsewhere when a sitting ends: its report, its best policy, its last full checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from etude.errors import EtudeError, UserError
from etude.runs.checkpoint_selection import CheckpointOutline, choose_checkpoint, outline_checkpoints
from etude.runs.manifest import MANIFEST_NAME, Manifest, inside, read_manifest
from etude.runs.run import Run
from etude.telemetry.results import Kind, Result

_OF_THE_RUN = ("run.json", "config.yaml", "resolved.yaml", "summary.json")


def run_results(run: Run) -> list[Result]:
    """Return the results of a run, by their files. Each policy or checkpoint is a run directory in small: put elsewhere,
    it is evaluated, initialised from and, where it is full, resumed like the run itself."""
    return [*_report(run), *_checkpoint(run, "policy", "best", "last"), *_checkpoint(run, "checkpoint", "last")]


def _report(run: Run) -> Iterator[Result]:
    files = {path.name: path for path in (run.report_path, run.report_page_path) if _is_regular(path)}
    if files:
        yield Result("report", run.id, dict(files), {"run": run.id})


def _checkpoint(run: Run, kind: Kind, *wanted: str) -> Iterator[Result]:
    found = _first(run, wanted)
    if found is None:
        return
    manifest = read_manifest(found.path)
    files: dict[str, Path | bytes] = {name: run.path / name for name in _OF_THE_RUN if _is_regular(run.path / name)}
    if kind == "policy":
        # A full checkpoint without all that acting needs not is a checkpoint of the policy, and says so.
        acting = {name: record for name, record in manifest.files.items() if name.startswith("policy/")}
        manifest = replace(manifest, kind="policy", files=acting, segments={})
        files[f"checkpoints/{found.name}/{MANIFEST_NAME}"] = manifest.to_bytes()
    else:
        files |= {"metrics.jsonl": run.metrics_path} if _is_regular(run.metrics_path) else {}
        files[f"checkpoints/{found.name}/{MANIFEST_NAME}"] = found.path / MANIFEST_NAME
        files |= {f"checkpoints/{name}": inside(found.path, name, root=run.checkpoints_path) for name in manifest.segments}
    files |= {f"checkpoints/{found.name}/{name}": inside(found.path, name) for name in manifest.files}
    yield Result(kind, run.id, files, _facts(run, manifest), is_best=found.is_best)


def _first(run: Run, wanted: tuple[str, ...]) -> CheckpointOutline | None:
    known = outline_checkpoints(run.checkpoints_path)
    for word in wanted:
        try:
            return choose_checkpoint(word, known, run.checkpoints_path)
        except (UserError, EtudeError):
            continue
    return None


def _facts(run: Run, manifest: Manifest) -> dict[str, Any]:
    record = run.record
    told = {key: record.get(key) for key in ("environment", "algorithm", "seed", "group", "config_hash")}
    return {"run": run.id, "checkpoint": manifest.name, **manifest.counters, **told}


def _is_regular(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()
