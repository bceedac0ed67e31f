from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from etude.errors import UserError
from etude.runs import index as index_module
from etude.runs import index_file
from etude.runs.index import FILE_NAME, IndexedRun, RunIndex, find_runs
from etude.runs.records import write_record
from etude.runs.run import Run
from tests.runs.other_process import running
from tests.runs.run_trees import COMMIT, make_run, settle


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The folders that were read from the disk."""
    seen: list[str] = []
    original = index_module.read_entry

    def counted(path: Path, stamp: str):
        seen.append(path.name)
        return original(path, stamp)

    monkeypatch.setattr(index_module, "read_entry", counted)
    return seen


def ids(root: Path) -> list[str]:
    return [run.id for run in RunIndex(root).read().runs]


def stored(root: Path) -> list[str]:
    with closing(sqlite3.connect(root / FILE_NAME)) as connection:
        return sorted(row[0] for row in connection.execute("SELECT folder FROM runs"))


def test_a_row_says_what_the_files_say(tmp_path: Path) -> None:
    run = make_run(tmp_path, "first", best=50.0, seed=3, tags=["a", "b"], group="g")
    settle()
    fresh, cached = RunIndex(tmp_path).read().runs, RunIndex(tmp_path).read().runs
    assert fresh == cached
    (row,) = cached
    assert row == IndexedRun(
        id=run.id,
        path=run.path,
        name="first",
        group="g",
        tags=("a", "b"),
        environment="CartPole-v1",
        algorithm="ppo",
        seed=3,
        status="finished",
        created=run.record["created"],
        env_steps=1000,
        updates=10,
        episodes=5,
        total_steps=1000,
        elapsed_s=12.5,
        best=50.0,
        best_metric="eval/return_mean",
        metrics={"eval/return_mean": 40.0, "eval/return_std": 1.0, "train/loss": 0.5, "time/elapsed_s": 12.0},
        config={
            "experiment.seed": 3,
            "environment.id": "CartPole-v1",
            "algorithm.name": "ppo",
            "algorithm.gamma": 0.99,
            "network.actor.hidden_dims": [64, 64],
            "training.total_steps": 1000,
        },
        config_hash="c3",
        setup_hash="s",
        commit=COMMIT,
    )


def test_only_what_changed_is_read_again(tmp_path: Path, reads: list[str]) -> None:
    runs = [make_run(tmp_path, f"r{number}") for number in range(4)]
    settle()
    assert len(ids(tmp_path)) == len(reads) == 4
    reads.clear()
    assert ids(tmp_path) == ids(tmp_path)
    assert reads == []
    runs[1].edit_tags(add=["new"])
    runs[2].write_summary({"best": {"metric": "eval/return_mean", "value": 7.0}})
    shutil.rmtree(runs[3].path)
    settle()
    rows = {row.id: row for row in RunIndex(tmp_path).read().runs}
    assert sorted(reads) == sorted([runs[1].id, runs[2].id])
    assert rows[runs[1].id].tags == ("new",)
    assert rows[runs[2].id].best == 7.0
    assert stored(tmp_path) == sorted(run.id for run in runs[:3])


def test_two_changes_within_a_tick_of_the_clock_are_both_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_TICK_NS", 10**12)  # however slow this machine is, both come within one
    run = make_run(tmp_path, "x", tags=["a"])
    assert RunIndex(tmp_path).read().runs[0].tags == ("a",)
    before = os.stat(run.record_path)
    # As if written in place, at the same moment, with the same length.
    write_record(tmp_path / "other.json", {**run.record, "tags": ["b"]})
    run.record_path.write_bytes((tmp_path / "other.json").read_bytes())
    os.utime(run.record_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert RunIndex(tmp_path).read().runs[0].tags == ("b",)


def test_a_run_that_trains_shows_how_far_it_is(tmp_path: Path) -> None:
    run = make_run(tmp_path, "x", best=None, status="running")
    rows = [{"env_steps": 100, "eval/return_mean": 5.0, "eval/return_best": 6.0}]
    rows += [{"env_steps": 100 + step, "train/loss": 1 / step} for step in range(1, 50)]
    run.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"env_steps": 999')
    (row,) = RunIndex(tmp_path).read().runs
    assert (row.status, row.env_steps, row.best, row.last) == ("running", 149, 6.0, 5.0)
    with run.metrics_path.open("a") as file:
        file.write(', "train/loss": "NaN"}\n')
    (row,) = RunIndex(tmp_path).read().runs
    assert row.env_steps == 999
    assert row.metrics["train/loss"] != row.metrics["train/loss"]


def test_liveness_is_looked_up_never_remembered(tmp_path: Path) -> None:
    with running(tmp_path) as (child, _):
        settle()
        assert [row.status for row in RunIndex(tmp_path).read().runs] == ["running"]
        child.kill()
        child.wait()
    assert [row.status for row in RunIndex(tmp_path).read().runs] == ["crashed"]
    assert [row.status for row in RunIndex(tmp_path).read().runs] == [Run.list(tmp_path)[0].status]


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_a_deleted_or_damaged_index_loses_nothing(tmp_path: Path, content: bytes) -> None:
    expected = [make_run(tmp_path, f"r{number}", tags=["t"]).id for number in range(3)]
    settle()
    ids(tmp_path)
    (tmp_path / FILE_NAME).unlink()
    assert sorted(ids(tmp_path)) == expected
    (tmp_path / FILE_NAME).write_bytes(content)
    assert sorted(ids(tmp_path)) == expected
    assert sorted(ids(tmp_path)) == stored(tmp_path) == expected


def test_an_index_damaged_in_the_middle_is_rebuilt(tmp_path: Path, reads: list[str]) -> None:
    expected = [make_run(tmp_path, f"r{number:02}").id for number in range(30)]
    settle()
    ids(tmp_path)
    path = tmp_path / FILE_NAME
    size = path.stat().st_size
    for start in range(100, size, 4096):
        with path.open("r+b") as file:
            file.seek(start)
            file.write(b"\x5a" * 2000)
    assert sorted(ids(tmp_path)) == expected
    reads.clear()
    assert sorted(ids(tmp_path)) == stored(tmp_path) == expected
    assert reads == []


def test_an_index_of_another_version_is_filled_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[str]) -> None:
    run = make_run(tmp_path, "x")
    settle()
    ids(tmp_path)
    monkeypatch.setattr(index_file, "VERSION", 99)
    reads.clear()
    assert ids(tmp_path) == [run.id]
    assert ids(tmp_path) == [run.id]
    assert reads == [run.id]


def test_without_a_usable_file_the_directories_answer(tmp_path: Path) -> None:
    run = make_run(tmp_path, "x")
    (tmp_path / FILE_NAME).mkdir()
    assert ids(tmp_path) == ids(tmp_path) == [run.id]


def test_a_locked_index_is_not_waited_for_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path, "x")
    settle()
    ids(tmp_path)
    monkeypatch.setattr(index_file, "_WAIT_S", 0.05)
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        run.edit_tags(add=["late"])
        assert RunIndex(tmp_path).read().runs[0].tags == ("late",)


@pytest.mark.parametrize("has_index", [True, False])
def test_a_read_only_folder_is_listed(tmp_path: Path, has_index: bool) -> None:
    run = make_run(tmp_path, "x")
    settle()
    if has_index:
        ids(tmp_path)
    # Imported before it gives up root, and by a relative path: the folders above are root's alone.
    script = (
        "import os, sys, yaml, sqlite3; from pathlib import Path; from etude.runs.index import RunIndex\n"
        "if os.geteuid() == 0: os.setuid(65534)\n"
        "print(*(row.id for row in RunIndex(Path('.')).read().runs), os.access('.', os.W_OK))"
    )
    tmp_path.chmod(0o555)
    try:
        done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    finally:
        tmp_path.chmod(0o755)
    assert done.stdout.split() == [run.id, "False"]
    assert (tmp_path / FILE_NAME).exists() == has_index


def test_a_missing_root_is_the_user_s_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="runs directory"):
        find_runs(tmp_path / "nowhere")


def test_damaged_runs_are_named_and_the_others_listed(tmp_path: Path, reads: list[str]) -> None:
    good = make_run(tmp_path, "good")
    half = make_run(tmp_path, "half")
    half.summary_path.write_text("{")
    half.resolved_path.write_text("a: [")
    broken = make_run(tmp_path, "broken")
    broken.record_path.write_text("{")
    newer = make_run(tmp_path, "newer")
    newer.update_status(version=99)
    (tmp_path / "not-a-run").mkdir()
    (tmp_path / ".worktrees").mkdir()
    settle()
    listing = RunIndex(tmp_path).rebuild()
    assert {row.id for row in listing.runs} == {good.id, half.id}
    assert sorted(problem.split(":")[0].split("/")[-1].split()[0] for problem in listing.problems) == [
        "resolved.yaml",
        "run",
        "run.json",
        "summary.json",
    ]
    reads.clear()
    assert RunIndex(tmp_path).read() == listing
    assert reads == []


def test_a_config_that_grows_without_end_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path, "bomb")
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    run.resolved_path.write_text("\n".join(levels))
    run.edit_tags(add=["touched"])
    listing = RunIndex(tmp_path).read()
    assert listing.runs[0].config == {}
    assert "more than 20,000 values" in listing.problems[0]


def test_strange_names_and_half_characters_are_listed(tmp_path: Path) -> None:
    run = make_run(tmp_path, "x", tags=["t"])
    run.update_status(name="half \ud800", group="\x1b[31m", seed=2**66, tags=["ok", 3, "\udfff"])
    run.resolved_path.write_text("")
    settle()
    fresh, cached = RunIndex(tmp_path).read().runs, RunIndex(tmp_path).read().runs
    assert fresh == cached
    assert (cached[0].name, cached[0].group, cached[0].seed, cached[0].tags) == ("half ?", "\x1b[31m", None, ("ok", "?"))
    strange = os.fsencode(tmp_path) + b"/not-\xff-utf8"
    os.rename(os.fsencode(run.path), strange)
    assert [os.fsencode(row.path) for row in RunIndex(tmp_path).read().runs] == [strange]
    assert stored(tmp_path) == []


def test_eight_processes_that_create_and_list_at_once_lose_nothing(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from etude.runs.run import Run; from etude.runs.index import RunIndex\n"
        "root = Path(sys.argv[1]); own = set()\n"
        "for number in range(25):\n"
        "    own.add(Run.create(root, name=f'p{sys.argv[2]}-{number}', config_yaml='', resolved_yaml='').id)\n"
        "    if number % 4 == 0:\n"
        "        seen = {row.id for row in RunIndex(root).read().runs}\n"
        "        assert own <= seen, own - seen\n"
        "assert 'torch' not in sys.modules"
    )
    root = tmp_path / "runs"
    children = [subprocess.Popen([sys.executable, "-c", script, str(root), str(number)]) for number in range(8)]
    assert [child.wait(timeout=240) for child in children] == [0] * 8
    expected = sorted(path.name for path in root.iterdir() if path.is_dir() and not path.is_symlink())
    assert len(expected) == 200
    assert sorted(ids(root)) == stored(root) == expected


def test_a_thousand_runs_are_read_once_and_then_only_looked_at(
    tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_run(tmp_path, "model")
    record = model.record
    for number in range(1000):
        folder = tmp_path / f"20260101-{number:06}-x"
        folder.mkdir()
        (folder / "run.json").write_text(json.dumps({**record, "seed": number}))
        for name in ("summary.json", "resolved.yaml", "metrics.jsonl"):
            shutil.copy(model.path / name, folder / name)
    settle()
    assert len(find_runs(tmp_path)) == len(reads) == 1001
    reads.clear()
    looks: list[object] = []
    monkeypatch.setattr(index_module.os, "stat", lambda *place, stat=os.stat, **how: looks.append(place) or stat(*place, **how))
    assert len(find_runs(tmp_path, "eval/return>50", sort="best")) == 1001
    assert reads == []
    assert len(looks) < 4 * 1001
