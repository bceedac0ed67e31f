from __future__ import annotations

import os
from pathlib import Path

import pytest

from etude.errors import UserError
from etude.runs.cleanup import Verdict, clean_up, plan_cleanup, remove_leftovers, size_of
from etude.runs.index import RunIndex
from etude.runs.run import Run
from tests.runs.other_process import holding
from tests.runs.run_trees import make_run

FILES = 3500


def plan(root: Path, **options) -> dict[str, str | None]:
    verdicts = plan_cleanup(RunIndex(root).read().runs, **options)
    return {verdict.run.name or "": verdict.kept_because for verdict in verdicts}


def verdict(root: Path, name: str, **options) -> Verdict:
    return next(each for each in plan_cleanup(RunIndex(root).read().runs, **options) if each.run.name == name)


def test_what_is_kept_and_why(tmp_path: Path) -> None:
    make_run(tmp_path, "best", best=500.0, age_days=30, with_files=True)
    make_run(tmp_path, "second", best=400.0, age_days=30, with_files=True)
    make_run(tmp_path, "third", best=300.0, age_days=30, with_files=True)
    make_run(tmp_path, "pendulum", best=-100.0, environment="Pendulum-v1", age_days=30, with_files=True)
    make_run(tmp_path, "recent", best=1.0, age_days=2, with_files=True)
    make_run(tmp_path, "tagged", best=1.0, age_days=30, tags=["paper"], with_files=True)
    make_run(tmp_path, "running", best=1.0, age_days=30, status="running", with_files=True)
    make_run(tmp_path, "without result", best=None, age_days=30, with_files=True)
    make_run(tmp_path, "empty", best=1.0, age_days=30)
    assert plan(tmp_path, keep_best=2, keep_recent_days=7) == {
        "best": "best",
        "second": "best",
        "third": None,
        "pendulum": "best",
        "recent": "recent",
        "tagged": "tagged",
        "running": "running",
        "without result": None,
        "empty": "nothing to remove",
    }
    assert verdict(tmp_path, "third").size == FILES


def test_another_metric_decides_what_is_best(tmp_path: Path) -> None:
    make_run(tmp_path, "a", best=5.0, metrics={"eval/success": 0.1}, with_files=True)
    make_run(tmp_path, "b", best=1.0, metrics={"eval/success": 0.9}, with_files=True)
    assert plan(tmp_path, keep_best=1) == {"a": "best", "b": None}
    assert plan(tmp_path, keep_best=1, metric="eval/success") == {"a": None, "b": "best"}
    with pytest.raises(UserError, match="did you mean 'eval/success'"):
        plan(tmp_path, keep_best=1, metric="eval/sucess")


def test_a_long_run_that_ended_today_is_recent(tmp_path: Path) -> None:
    run = make_run(tmp_path, "x", age_days=30, with_files=True)
    assert plan(tmp_path, keep_recent_days=7) == {"x": None}
    run.edit_tags(add=["a"])
    run.edit_tags(remove=["a"])
    assert plan(tmp_path, keep_recent_days=7) == {"x": None}
    os.utime(run.metrics_path)
    assert plan(tmp_path, keep_recent_days=7) == {"x": "recent"}


@pytest.mark.parametrize("options", [{"keep_best": -1}, {"keep_recent_days": -0.5}, {"keep_recent_days": float("nan")}])
def test_negative_wishes_are_refused(tmp_path: Path, options: dict[str, float]) -> None:
    with pytest.raises(UserError, match="must be at least 0"):
        plan_cleanup([], **options)  # type: ignore[arg-type] # what a user may type


def test_cleaning_keeps_all_but_checkpoints_and_videos(tmp_path: Path) -> None:
    run = make_run(tmp_path, "x", best=7.0, with_files=True)
    kept = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file() and not _goes(path)}
    del kept[run.record_path]
    assert clean_up(run.id, tmp_path) == FILES
    assert {path: path.read_bytes() for path in kept} == kept
    assert os.listdir(run.checkpoints_path) == os.listdir(run.videos) == []
    assert not [name for name in os.listdir(run.path) if name.startswith(".deleting")]
    (row,) = RunIndex(tmp_path).read().runs
    assert (row.best, row.status) == (7.0, "finished")
    assert row.cleaned == run.record["cleaned"]["at"]
    assert plan(tmp_path) == {"x": "nothing to remove"}


def _goes(path: Path) -> bool:
    return bool({"checkpoints", "videos"} & set(path.parts))


def test_a_cleaned_run_says_so_when_a_checkpoint_is_wanted(tmp_path: Path) -> None:
    run = make_run(tmp_path, "x", with_files=True)
    clean_up(run.id, tmp_path)
    day = run.record["cleaned"]["at"][:10]
    with pytest.raises(UserError, match=f"its checkpoints were cleaned up on {day}"):
        run.checkpoints().find("best")
    with pytest.raises(UserError, match=f"no checkpoint to continue from: its checkpoints were cleaned up on {day}"):
        run.checkpoints().newest_whole()


def test_the_whole_run_goes_when_asked(tmp_path: Path) -> None:
    run = make_run(tmp_path, "x", with_files=True)
    other = make_run(tmp_path, "y")
    expected = verdict(tmp_path, "x", whole=True).size
    assert clean_up(run.id, tmp_path, whole=True) == expected > FILES
    assert not run.path.exists()
    assert [row.id for row in RunIndex(tmp_path).read().runs] == [other.id]
    assert Run.resolve("@last", tmp_path).id == other.id


def test_what_changed_since_the_plan_is_respected(tmp_path: Path) -> None:
    run = make_run(tmp_path, "x", with_files=True)
    assert plan(tmp_path) == {"x": None}
    run.edit_tags(add=["kept"])
    with pytest.raises(UserError, match="is tagged"):
        clean_up(run.id, tmp_path)
    run.edit_tags(remove=["kept"])
    run.update_status(status="running")
    with pytest.raises(UserError, match="is running"):
        clean_up(run.id, tmp_path, whole=True)
    assert size_of(run.checkpoints_path) == 3000


def test_a_run_that_another_process_holds_is_left_alone(tmp_path: Path) -> None:
    run = make_run(tmp_path, "x", with_files=True)
    with holding(run.path) as child:
        assert plan(tmp_path) == {"x": "in use"}
        with pytest.raises(UserError, match=f"in use by process {child.pid}"):
            clean_up(run.id, tmp_path)
        child.kill()
    assert plan(tmp_path) == {"x": None}


def test_a_removal_that_was_cut_short_is_finished(tmp_path: Path) -> None:
    run = make_run(tmp_path, "x", with_files=True)
    os.rename(run.checkpoints_path, run.path / ".deleting-checkpoints")
    run.checkpoints_path.mkdir()
    assert verdict(tmp_path, "x").size == FILES
    assert clean_up(run.id, tmp_path) == FILES
    assert size_of(run.path) < FILES
    os.rename(run.path, tmp_path / f".deleting-{run.id}")
    assert RunIndex(tmp_path).read().runs == Run.list(tmp_path) == []
    remove_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if "deleting" in path.name] == []


def test_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_bytes(b"x" * 10_000)
    run = make_run(tmp_path / "runs", "x", with_files=True)
    (run.videos / "link").symlink_to(elsewhere / "precious")
    (run.videos / "folder").symlink_to(elsewhere)
    linked = make_run(tmp_path / "runs", "linked")
    linked.checkpoints_path.rmdir()
    linked.checkpoints_path.symlink_to(elsewhere)
    assert plan(tmp_path / "runs") == {"x": None, "linked": "nothing to remove"}
    assert clean_up(run.id, tmp_path / "runs") == FILES
    assert (elsewhere / "precious").stat().st_size == 10_000
