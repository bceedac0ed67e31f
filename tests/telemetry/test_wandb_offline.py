"""W&B's own package, offline: what is in the files that `wandb sync` would upload."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etude.runs.run import Run
from etude.telemetry.wandb import WandbSink
from tests.faults.tiny_run import only_run, resume, train

pytestmark = pytest.mark.optional
wandb = pytest.importorskip("wandb", reason="pip install 'etude[wandb]'")

WANDB = ("logging.wandb.enabled=true", "experiment.group=seeds", "experiment.tags=[a]")


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for name in ("WANDB_DATA_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))


def records(run: Run) -> list[list[Any]]:
    """The records of each sitting, by the package's own messages; its other process may still write the last ones."""
    from wandb.proto import wandb_internal_pb2

    deadline = time.monotonic() + 60.0
    while True:
        found = [
            [wandb_internal_pb2.Record.FromString(data) for data in messages(path)]
            for path in sorted((run.path / "wandb").glob("offline-run-*/*.wandb"))
        ]
        if all(any(record.WhichOneof("record_type") == "exit" for record in sitting) for sitting in found):
            return found
        assert time.monotonic() < deadline, "a sitting was never finished"
        time.sleep(0.1)


BLOCK, HEADER, PIECE = 2**15, 7, struct.Struct("<IHB")
FULL, FIRST, LAST = 1, 2, 4


def messages(path: Path) -> Iterator[bytes]:
    """What is in a .wandb file: LevelDB's log, pieces in blocks. The class that reads it differs between versions."""
    data, place, message = path.read_bytes(), HEADER, b""
    while place + PIECE.size <= len(data):
        if BLOCK - place % BLOCK < PIECE.size:  # no room for another piece
            place += BLOCK - place % BLOCK
            continue
        _, length, kind = PIECE.unpack_from(data, place)
        place += PIECE.size
        message = (b"" if kind in (FULL, FIRST) else message) + data[place : place + length]
        place += length
        if kind in (FULL, LAST):
            yield message


def history(sitting: list[Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    for record in sitting:
        if record.WhichOneof("record_type") == "history":
            items = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
            yield record.history.step.num, items


@pytest.fixture
def trained(tmp_path: Path) -> Run:
    assert train(tmp_path / "runs", *WANDB, "logging.wandb.artifacts=checkpoint") == 0
    return only_run(tmp_path / "runs")


def test_a_run_and_its_resume_are_one_run_there_with_one_stream_of_rows(trained: Run) -> None:
    assert resume(trained, "training.total_steps=384") == 0
    first, second = records(trained)
    for sitting in (first, second):
        (about,) = [record.run for record in sitting if record.WhichOneof("record_type") == "run"]
        assert (about.run_id, about.run_group, list(about.tags)) == (trained.id, "seeds", ["a"])
    steps = [step for sitting in (first, second) for step, _ in history(sitting)]
    assert steps == sorted(set(steps))
    assert steps == list(range(len(steps)))
    env_steps = [row["env_steps"] for sitting in (first, second) for _, row in history(sitting)]
    assert env_steps == sorted(set(env_steps))
    defined = {record.metric.glob_name: record.metric for record in first if record.WhichOneof("record_type") == "metric"}
    assert defined["*"].step_metric == "env_steps"


def test_report_policy_and_checkpoint_are_artifacts_that_are_runs_in_small(trained: Run) -> None:
    (sitting,) = records(trained)
    kept = {}
    for record in sitting:
        if record.WhichOneof("record_type") == "request" and record.request.WhichOneof("request_type") == "log_artifact":
            artifact = record.request.log_artifact.artifact
            kept[artifact.type] = artifact
        elif record.WhichOneof("record_type") == "artifact":
            kept[record.artifact.type] = record.artifact
    assert set(kept) == {"report", "policy", "checkpoint"}
    names = {kind: {entry.path for entry in artifact.manifest.contents} for kind, artifact in kept.items()}
    assert names["report"] == {"report.md", "report.html"}
    assert {"run.json", "resolved.yaml"} <= names["policy"]
    assert not any("/rank/" in name for name in names["policy"])
    assert any("/rank/0/" in name for name in names["checkpoint"])
    assert "best" in kept["policy"].aliases


def test_a_video_is_uploaded_once_after_it_is_closed_also_over_a_resume(tmp_path: Path) -> None:
    run_dir = tmp_path / "run-1"
    (run_dir / "videos").mkdir(parents=True)
    (run_dir / "videos" / ".steps-0000000008.mp4.tmp").write_bytes(b"half")

    def sitting(rows: int, before: int) -> None:
        sink = WandbSink("p", None, [], "n", {}, run_dir, mode="offline", rows_before=before)
        for step in range(rows):
            sink.write([{"env_steps": float(before + step)}])
        sink.close()

    sitting(2, 0)
    (run_dir / "videos" / "steps-0000000008.mp4").write_bytes(b"\0" * 64)
    sitting(2, 2)
    sitting(2, 4)
    logged = [items for one in records(Run(run_dir)) for _, items in history(one) if "media/policy/_type" in items]
    assert [items["media/policy/_type"] for items in logged] == ["video-file"]
