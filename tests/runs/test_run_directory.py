from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from etude.errors import UserError
from etude.runs.run import Run
from tests.runs.other_process import holding, running


def create(root: Path, name: str = "CartPole-v1:ppo") -> Run:
    return Run.create(root, name=name, config_yaml="a: 1\n", resolved_yaml="a: 1\nb: 2\n")


def test_the_layout_of_a_run_directory(tmp_path: Path) -> None:
    run = create(tmp_path / "runs")
    assert sorted(os.listdir(run.path)) == ["checkpoints", "config.yaml", "logs", "resolved.yaml", "run.json", "videos"]
    assert run.config_path.read_text() == "a: 1\n"
    assert run.resolved_path.read_text() == "a: 1\nb: 2\n"
    relative = {
        name: str(getattr(run, name).relative_to(run.path))
        for name in (
            *("record_path", "config_path", "resolved_path", "metrics_path", "csv_path", "summary_path", "log_path"),
            *("report_path", "report_page_path"),
            *("checkpoints_path", "logs", "videos", "status_path"),
        )
    }
    assert relative == {
        "record_path": "run.json",
        "config_path": "config.yaml",
        "resolved_path": "resolved.yaml",
        "metrics_path": "metrics.jsonl",
        "csv_path": "metrics.csv",
        "summary_path": "summary.json",
        "log_path": "run.log",
        "report_path": "report.md",
        "report_page_path": "report.html",
        "checkpoints_path": "checkpoints",
        "logs": "logs",
        "videos": "videos",
        "status_path": "run_status.json",
    }
    record = json.loads(run.record_path.read_text())
    assert record["version"] == 2
    assert record["id"] == run.id == run.path.name
    assert (record["name"], record["status"], record["pid"]) == ("CartPole-v1:ppo", "running", os.getpid())
    assert (record["group"], record["tags"]) == (None, [])
    assert os.readlink(tmp_path / "runs" / "@last") == run.id


def test_an_id_is_time_and_name_and_safe_to_type(tmp_path: Path) -> None:
    assert re.fullmatch(r"\d{8}-\d{6}-CartPole-v1-ppo", create(tmp_path).id)
    assert create(tmp_path, "../../é x").id.endswith("-x")
    assert create(tmp_path, "///").id.endswith("-run")
    assert len(create(tmp_path, "n" * 500).id) < 120


def test_runs_that_start_in_the_same_second_get_their_own_directory(tmp_path: Path) -> None:
    runs = [create(tmp_path) for _ in range(12)]
    assert len({run.id for run in runs}) == 12
    assert [run.id for run in Run.list(tmp_path)] == [run.id for run in reversed(runs)]


def test_processes_that_start_together_get_their_own_directory(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from etude.runs.run import Run\n"
        "assert 'torch' not in sys.modules\n"
        "for _ in range(5): Run.create(Path(sys.argv[1]), name='x', config_yaml='', resolved_yaml='')"
    )
    children = [subprocess.Popen([sys.executable, "-c", script, str(tmp_path)]) for _ in range(4)]
    assert [child.wait(timeout=240) for child in children] == [0] * 4
    assert len(Run.list(tmp_path)) == 20


def test_a_root_that_can_t_be_written_is_the_user_s_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="can't create a run in"):
        create(tmp_path / "file" / "runs")


def test_status_and_fields_are_kept(tmp_path: Path) -> None:
    run = create(tmp_path)
    run.update_status(status="finished", tags=["good"], ended="now")
    again = Run.open(run.path)
    assert again.status == "finished"
    assert again.record["tags"] == ["good"]
    assert again.record["name"] == "CartPole-v1:ppo"
    with pytest.raises(ValueError, match="status='done': one of created, running"):
        run.update_status(status="done")


def test_a_run_whose_process_is_gone_has_crashed(tmp_path: Path) -> None:
    with running(tmp_path) as (child, path):
        run = Run.open(path)
        assert run.status == "running"
        child.kill()
        while run.status == "running":
            pass  # dead and not yet waited for: a zombie, which is no owner either
    assert run.status == "crashed"
    run.update_status(status="running")
    assert run.status == "running"


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="start times come from /proc")
def test_a_reused_pid_is_not_the_owner(tmp_path: Path) -> None:
    run = create(tmp_path)
    run.update_status(pid_started="1")
    assert run.status == "crashed"


def test_of_another_machine_s_process_nothing_is_claimed(tmp_path: Path) -> None:
    run = create(tmp_path)
    run.update_status(pid=2**22 + 1, host="elsewhere")
    assert run.status == "running"


def test_foreign_and_damaged_folders_are_not_listed(tmp_path: Path) -> None:
    run = create(tmp_path)
    for name, content in {"a": None, "b": "{", "c": "[]", "d": '{"version": 99}', "e": "[" * 9999, "f": "{}"}.items():
        (tmp_path / name).mkdir()
        if content is not None:
            (tmp_path / name / "run.json").write_text(content)
        with pytest.raises(UserError):
            Run.open(tmp_path / name)
    (tmp_path / "notes.txt").write_text("")
    assert [found.id for found in Run.list(tmp_path)] == [run.id]
    with pytest.raises(UserError, match="newer Etude"):
        Run.open(tmp_path / "d")


def test_a_summary_is_replaced_whole(tmp_path: Path) -> None:
    run = create(tmp_path)
    assert run.summary == {}
    run.write_summary({"best": {"value": 1.0}, "loss": float("nan")})
    run.write_summary({"best": {"value": 2.0}})
    assert run.summary == {"best": {"value": 2.0}}


def test_a_locked_run_names_its_owner(tmp_path: Path) -> None:
    run = create(tmp_path)
    with holding(run.path) as child:
        with pytest.raises(UserError, match=f"run {run.id} is in use by process {child.pid}"), run.lock():
            pass
        child.kill()
    with run.lock():
        assert (run.path / ".lock").read_text() == f"{os.getpid()}\n"
        with pytest.raises(UserError, match=f"process {os.getpid()}"), run.lock():
            pass
    with run.lock():
        pass


def test_checkpoints_live_in_the_run(tmp_path: Path) -> None:
    run = create(tmp_path)
    saved = run.checkpoints(keep=2).save({"policy": {}}, counters={"env_steps": 0, "updates": 0}, metadata={})
    assert saved.path == run.path / "checkpoints" / "000000-0-0"


def test_what_a_killed_sitting_left_is_removed_by_the_next_but_never_through_a_link(tmp_path: Path) -> None:
    run = Run.create(tmp_path / "runs", name="x", config_yaml="", resolved_yaml="")
    left = [
        run.checkpoints_path / ".best.1a2b.tmp",
        run.checkpoints_path / ".last.1a2b.tmp",
        run.logs / ".superseded.jsonl.tmp",
    ]
    for path in left:
        path.touch()
    left.append(run.checkpoints_path / ".saving-000006-144-8")
    left[-1].mkdir()
    run.videos.rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / ".steps-1.mp4.tmp").touch()
    run.videos.symlink_to(tmp_path / "elsewhere")
    run.remove_leftovers()
    assert [path for path in left if path.exists()] == []
    assert (tmp_path / "elsewhere" / ".steps-1.mp4.tmp").exists()
