"""`etude runs show`, `path`, `tag`, `cleanup` and `rebuild`, as a user meets them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from etude.cli import run as etude
from etude.runs.index import FILE_NAME, find_runs
from etude.runs.run import Run
from tests.runs.run_trees import make_run

TINY = ("training.total_steps=600", "algorithm.epochs=1", "evaluation.episodes=2", "-q")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def test_a_run_is_shown_located_and_cleaned_up(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        etude(["train", "CartPole-v1:ppo", *TINY, "--group", "g", "experiment.tags=[x]", "--name", "{algorithm}-{seed}"]) == 0
    )
    assert etude(["resume", "@last", "training.total_steps=1200", "-q"]) == 0
    capsys.readouterr()
    assert etude(["runs", "show", "@last"]) == 0
    shown = capsys.readouterr().out
    run = Run.resolve("@last", root)
    assert run.id.endswith("-ppo-1")
    for expected in (
        *("status       finished", "group        g", "tags         x", "task         CartPole-v1, ppo, seed 1"),
        *("of 1,200 environment steps", "algorithm.epochs             1", "training.total_steps: 600 → 1200"),
        *(f"config       {run.summary['config_hash']}", "KiB", "eval/return_mean", "  best", "  last"),
    ):
        assert expected in shown, expected
    assert etude(["runs", "show", "@last", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [each["last"] for each in report["checkpoints"]][-1] is True
    assert report["summary"]["counters"]["env_steps"] == report["env_steps"]
    assert report["size"] > sum(each["size"] for each in report["checkpoints"]) > 0
    for mark in ("last", "best"):
        assert etude(["runs", "path", "@last", "--checkpoint", mark]) == 0
        path = Path(capsys.readouterr().out.strip())
        assert path.samefile(run.checkpoints_path / mark)
        assert etude(["evaluate", str(path), "--episodes", "1"]) == 0
        capsys.readouterr()
    assert etude(["runs", "tag", "@last", "--remove", "x"]) == 0
    assert etude(["runs", "cleanup", "--keep-best", "0", "--yes"]) == 0
    for words in (["resume", "@last", "training.total_steps=2000"], ["evaluate", "@last"]):
        assert etude(words) == 2
        assert "its checkpoints were cleaned up on" in capsys.readouterr().err


def test_path_prints_the_path_alone(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(root, "x")
    run.checkpoints().save({"policy": {}, "shared": {}}, counters={"env_steps": 1000, "updates": 10}, metadata={})
    assert etude(["runs", "path", "@last"]) == 0
    assert capsys.readouterr().out == f"{run.path.resolve()}\n"
    assert etude(["runs", "path", run.id, "--checkpoint", "last"]) == 0
    assert capsys.readouterr().out == f"{run.path.resolve()}/checkpoints/000000-1000-10\n"
    assert etude(["runs", "path", run.id, "--checkpoint", "bets"]) == 2
    assert "did you mean 'best'" in capsys.readouterr().err


def test_tags_are_edited_and_found_again(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(root, "x", tags=["old"])
    assert etude(["runs", "tag", "@last", "good", "for the paper", "--remove", "old"]) == 0
    assert capsys.readouterr().out.endswith("x: good, for the paper\n")
    assert [run.name for run in find_runs(root, tag="for the paper")] == ["x"]
    assert etude(["runs", "tag", "@last", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tags"] == ["good", "for the paper"]
    assert etude(["runs", "tag", "@last", "--remove", "god"]) == 2
    assert "has no tag 'god'; it has good, for the paper; did you mean 'good'?" in capsys.readouterr().err
    assert etude(["runs", "tag", "@last", "a,b"]) == 2
    assert Run.resolve("@last", root).record["tags"] == ["good", "for the paper"]


def test_cleanup_is_dry_until_told_otherwise(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best = make_run(root, "best", best=500.0, age_days=9, with_files=True)
    poor = make_run(root, "poor", best=5.0, age_days=9, with_files=True)
    kept = make_run(root, "kept", best=1.0, age_days=9, tags=["paper"], with_files=True)
    words = ["runs", "cleanup", "--keep-best", "1", "--keep-recent", "7"]
    assert etude(words) == 0
    out, err = capsys.readouterr()
    assert poor.id in out
    assert best.id not in out
    assert out.endswith("would remove 3.4 KiB in 1 run; kept 1 best, 1 tagged\n")
    assert "nothing was removed; add --yes" in err
    assert os.listdir(poor.checkpoints_path) != []
    assert etude([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["removed"] == [{"id": poor.id, "bytes": 3500}]
    assert (report["done"], report["bytes"], report["kept"]) == (False, 3500, {best.id: "best", kept.id: "tagged"})
    assert etude([*words, "--yes"]) == 0
    assert "removed 3.4 KiB in 1 run" in capsys.readouterr().out
    assert os.listdir(poor.checkpoints_path) == os.listdir(poor.videos) == []
    assert all(os.listdir(run.checkpoints_path) for run in (best, kept))
    assert etude(["runs", "list", "--json", "-f", "cleaned!="]) == 0
    assert [row["id"] for row in json.loads(capsys.readouterr().out)] == [poor.id]
    assert etude(["runs", "show", poor.id]) == 0
    assert "its checkpoints were cleaned up on" in capsys.readouterr().out


def test_cleanup_looks_only_at_what_the_filter_names(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "b"):
        make_run(root, name, with_files=True)
    assert etude(["runs", "cleanup", "--keep-best", "0", "-f", "name=a", "--whole", "--yes"]) == 0
    assert [run.name for run in find_runs(root)] == ["b"]


def test_cleanup_wants_to_know_what_to_keep(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(root, "a", with_files=True)
    assert etude(["runs", "cleanup", "--yes"]) == 2
    assert "say what to keep" in capsys.readouterr().err
    assert etude(["runs", "cleanup", "--keep-best", "-1"]) == 2
    assert etude(["runs", "cleanup", "--keep-best", "1", "--runs", "nowhere"]) == 2


def test_rebuild_counts_and_names_what_is_unreadable(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_run(root, "a")
    broken = make_run(root, "b")
    broken.record_path.write_text("{")
    assert etude(["runs", "rebuild"]) == 0
    out, err = capsys.readouterr()
    assert out == "1 runs in runs\n"
    assert f"{broken.id}/run.json is damaged" in err
    assert (root / FILE_NAME).is_file()
    assert etude(["runs", "rebuild", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["problems"]) == 1
    assert etude(["runs", "rebuild", "--runs", "nowhere"]) == 2
