from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from etude.errors import UserError
from etude.runs.run import Run
from etude.runs.run_selection import select_run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def create(root: Path, run_id: str, best: object = None, metric: str = "eval/return_mean") -> Run:
    made = Run.create(root, name="x", config_yaml="", resolved_yaml="")
    run = Run(made.path.rename(root / run_id))
    run.update_status(id=run_id)
    if best is not None:
        run.write_summary({"best": {"metric": metric, "value": best}})
    return run


def test_last_is_the_newest(root: Path) -> None:
    create(root, "20260101-000000-a")
    newest = Run.create(root, name="b", config_yaml="", resolved_yaml="")
    assert Run.resolve("@last", root).id == newest.id
    shutil.rmtree(newest.path)
    assert Run.resolve("@last", root).id == "20260101-000000-a"


def test_best_is_the_highest_evaluated_return(root: Path) -> None:
    create(root, "a", best=10.0)
    create(root, "b", best=200)
    create(root, "c", best=float("nan"))
    create(root, "d", best=900.0, metric="train/return")
    create(root, "e", best="1000")
    create(root, "f")
    (create(root, "g").path / "summary.json").write_text("{")
    assert Run.resolve("@best", root).id == "b"


def test_without_results_there_is_no_best(root: Path) -> None:
    create(root, "a")
    with pytest.raises(UserError, match=r"no run in .* has a best eval/return_mean yet"):
        Run.resolve("@best", root)


def test_an_id_or_a_unique_prefix_names_a_run(root: Path) -> None:
    for run_id in ("20260101-000000-a", "20260101-000000-a-2", "20260102-000000-a"):
        create(root, run_id)
    assert Run.resolve("20260101-000000-a", root).id == "20260101-000000-a"
    assert Run.resolve("20260102", root).id == "20260102-000000-a"


def test_an_ambiguous_prefix_lists_at_most_eight(root: Path) -> None:
    for index in range(10):
        create(root, f"2026010{index}-a")
    with pytest.raises(UserError) as raised:
        Run.resolve("2026", root)
    lines = str(raised.value).splitlines()
    assert lines[0] == "run '2026' could be any of these, the newest first; name one by its id"
    assert len(lines) == 1 + 8 + 1
    assert lines[-1].strip() == "... and 2 more"


def test_nothing_found_says_where_it_looked_and_what_was_meant(root: Path) -> None:
    create(root, "20260101-000000-cartpole")
    with pytest.raises(UserError, match=r"not found in /.*runs \(1 runs\); did you mean '20260101-000000-cartpole'"):
        Run.resolve("20260101-000000-cratpole", root)
    with pytest.raises(UserError, match="did you mean '@last'"):
        Run.resolve("@lats", root)
    with pytest.raises(UserError, match="could be any of"):
        Run.resolve("", root)


@pytest.mark.parametrize("selector", ["@last", "@best", "2026", "x/y"])
def test_a_missing_root_is_the_user_s_error(root: Path, selector: str) -> None:
    with pytest.raises(UserError, match=r"no runs directory|no such directory"):
        Run.resolve(selector, root)
    if "@" in selector:
        root.mkdir()
        with pytest.raises(UserError, match=r"no runs? in"):
            Run.resolve(selector, root)


def test_a_path_names_a_run_from_anywhere(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create(root, "20260101-000000-a")
    elsewhere = tmp_path / "elsewhere"
    assert Run.resolve(str(run.path), elsewhere).path == run.path
    monkeypatch.chdir(root)
    assert Run.resolve("20260101-000000-a", elsewhere).path == run.path
    assert Run.resolve("./20260101-000000-a/", elsewhere).path == run.path
    monkeypatch.chdir(run.path)
    assert Run.resolve(".", elsewhere).id == run.id
    with pytest.raises(UserError, match="not a run directory"):
        Run.resolve(str(tmp_path), root)


def test_a_path_to_a_checkpoint_names_both(root: Path) -> None:
    run = create(root, "20260101-000000-a")
    counters = {"env_steps": 5, "updates": 1}
    saved = run.checkpoints(keep=1).save({"policy": {}, "shared": {}}, counters=counters, metadata={})
    selection = select_run(str(saved.path), root)
    assert (selection.run.id, selection.checkpoint) == (run.id, "000000-5-1")
    through_link = select_run(os.fspath(run.path / "checkpoints" / "last"), root)
    assert (through_link.run.id, through_link.checkpoint) == (run.id, "000000-5-1")
    assert select_run(run.id, root).checkpoint is None


def test_a_path_object_is_a_path(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Defect 38: the Python API refused it."""
    import etude

    made = create(root, "a")
    assert select_run(made.path, root).run.id == "a"
    monkeypatch.chdir(root)
    assert etude.open_run(Path("a")).path.resolve() == made.path.resolve(), "also one without a separator"
    with pytest.raises(UserError, match="no such directory"):
        etude.open_run(Path("b"))
