"""Reports of runs that were written in a moment."""

from __future__ import annotations

import itertools
import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from etude.cli import run as etude
from etude.errors import EtudeError
from etude.reporting.html import to_html
from etude.reporting.markdown import to_markdown
from etude.reporting.run_material import read_material
from etude.reporting.run_report import run_report
from etude.reporting.writing import ReportError, write_run_report
from etude.telemetry import sampled_rows as sampling
from etude.telemetry.sampled_rows import sampled_rows
from tests.comparison.synthetic import two_setups, write_run

NOW = datetime(2026, 3, 1, 13, tzinfo=UTC)


def text_of(path: Path) -> str:
    return to_markdown(run_report(read_material(path), folder=path, now=NOW))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    metrics = {"train/loss": (4.0, 3.0, 2.0, 1.0), "time/share/update": (0.7,) * 4, "collect/return_mean": (5.0, 6.0, 7.0, 8.0)}
    path = write_run(tmp_path, "demo", returns=(10.0, 480.0, 30.0, 40.0), metrics=metrics, group="seeds")
    (path / "config.yaml").write_text(yaml.safe_dump({"algorithm": {"gamma": 0.98}}))
    (path / "videos").mkdir()
    (path / "logs").mkdir()
    record = {"argv": ["etude", "train", "CartPole-v1:ppo", "a b"], "cwd": "x", "started": "2026-03-01T12:00:00+00:00"}
    (path / "provenance" / "command.json").write_text(json.dumps(record))
    return path


def test_a_report_has_everything_that_is_promised(run: Path) -> None:
    (run / "videos" / "steps-0000001000.mp4").write_bytes(b"x")
    alert = {"id": "kl_high", "metric": "train/approx_kl", "message": "KL is high", "tip": "lower it", "state": "raised"}
    counters = {"env_steps": 2000, "updates": 200, "decisions": 2000, "time": "2026-03-01T12:00:00+00:00"}
    (run / "logs" / "alerts.jsonl").write_text(json.dumps({**alert, **counters}) + "\n")
    evaluation = {"version": 1, "created": "2026-03-01T12:00:00+00:00", "checkpoint": "000001-0-0", "return_mean": 77.0}
    (run / "logs" / "evaluations.jsonl").write_text(json.dumps({**evaluation, "episodes": 20, "mode": "greedy"}) + "\n")
    text = text_of(run)
    for part in (
        "# CartPole-v1 · ppo · seed 1", run.name, str(run), "finished", "2026-03-01", "**environment steps**: 4,000 of 4,000",
        "**speed**",
        "475.0 (eval/return\\_mean): reached after 2,000 steps", "**last evaluation**: return 40.00 at 4,000 steps",
        "**videos and pictures**: 1 and 0", "steps-0000001000.mp4](<./videos/steps-0000001000.mp4>)", "train/loss", "gamma",
        "resolved.yaml", "update | 70.0%", "kl_high", "KL is high; lower it", "77.00", "| 20 | greedy |", "commit aaaaaaaaaaaa",
        "etude train CartPole-v1:ppo 'a b'", "etude verify", "etude runs checkout", "group**: seeds",
    ):  # fmt: skip
        assert part in text, part
    (run / "provenance" / "git.json").write_text("null")  # made outside a repository: there is no code to restore
    assert "etude runs checkout" not in text_of(run)


def test_the_page_stands_alone(run: Path) -> None:
    page = to_html(run_report(read_material(run), folder=run, now=NOW))
    assert page.count("<svg") >= 3
    assert "<script" not in page
    assert "http://" not in page
    assert "https://" not in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_only_regular_files_of_the_run_are_shown(run: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"x")
    (run / "videos" / "linked.png").symlink_to(secret)
    (run / "videos" / ".half.mp4").write_bytes(b"x")
    os.mkfifo(run / "videos" / "pipe.mp4")
    (run / "videos" / "true.png").write_bytes(b"x")
    assert [path.name for path in read_material(run).media] == ["true.png"]
    (run / "report.html").symlink_to(secret)
    write_run_report(run)
    assert secret.read_bytes() == b"x"
    assert not (run / "report.html").is_symlink()


def test_what_is_missing_or_damaged_is_left_out_and_said(run: Path) -> None:
    (run / "metrics.jsonl").write_text('{"env_steps": 1}\nnot a row\n')
    (run / "summary.json").write_text("{")
    os.mkfifo(run / "logs" / "evaluations.jsonl")
    (run / "resolved.yaml").unlink()
    text = text_of(run)
    assert "What could not be read" in text
    assert "evaluations.jsonl is left out" in text


def test_a_run_that_is_a_bare_record_has_a_report(tmp_path: Path) -> None:
    path = tmp_path / "20260301-120000-old-s1"
    path.mkdir()
    (path / "run.json").write_text(json.dumps({"version": 1, "id": path.name, "name": "old", "status": "failed"}))
    assert "The run has no metrics yet" in text_of(path)


def test_whatever_goes_wrong_is_one_line(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from etude.reporting import writing

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("nobody\nknows")

    monkeypatch.setattr(writing, "run_report", broken)
    with pytest.raises(ReportError, match="could not be written: ZeroDivisionError"):
        write_run_report(run)


def test_a_large_metrics_file_is_sampled_evenly_with_its_evaluations_first_and_last_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.jsonl"
    with path.open("w") as file:
        for step in range(20_000):
            row = {"env_steps": step, "train/loss": 1.0, **({"eval/return_mean": 2.0} if step % 1000 == 7 else {})}
            file.write(json.dumps(row) + "\n")
    sample = sampled_rows(path, most=500)
    steps = [row["env_steps"] for row in sample.rows]
    assert not sample.is_whole
    assert len(steps) == 520
    assert steps == sorted(steps)
    assert (steps[0], steps[-1]) == (0, 19_999)
    assert sum("eval/return_mean" in row for row in sample.rows) == 20
    monkeypatch.setattr(sampling, "_MOST_BYTES", 2**18)
    windows = sampled_rows(path, most=500)
    steps = [row["env_steps"] for row in windows.rows]
    assert (steps[0], steps[-1]) == (0, 19_999)
    assert steps == sorted(steps)
    assert max(b - a for a, b in itertools.pairwise(steps)) < 1_000


def test_etude_report_writes_both_files_of_a_run_and_one_pair_of_a_group(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = two_setups(tmp_path / "runs", group="both")
    root = ["--runs", str(tmp_path / "runs")]
    assert etude(["report", paths[0].name, *root]) == 0
    assert capsys.readouterr().out.split() == [str(paths[0] / "report.md"), str(paths[0] / "report.html")]
    assert etude(["report", "--group", "both", "--out", str(tmp_path / "out"), *root]) == 0
    text = (tmp_path / "out" / "report-both.md").read_text()
    assert "gamma=0.98" in text
    assert "110.0" in text  # the mean of 100, 110 and 120
    assert f"[{paths[0].name}](<../runs/{paths[0].name}/report.html>)" in text
    page = (tmp_path / "out" / "report-both.html").read_text()
    assert 'class="band c1"' in page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "which run?"),
        (["nothing"], "nothing"),
        (["--group", "none"], "no run in"),
        (["one", "two", "--out", "x"], "one"),
    ],
)
def test_a_wrong_request_is_one_line(words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path, "one")
    assert etude(["report", *words, "--runs", str(tmp_path)]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EtudeError, match=r"run\.json"):
        write_run_report(tmp_path)
