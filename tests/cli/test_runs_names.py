"""Runs are called by their names, and belong to groups that can be changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from etude.cli import run as etude
from etude.config.compose import compose
from etude.errors import UserError
from etude.runs.evaluations import append_evaluations
from etude.runs.index import find_runs
from etude.runs.naming import expand_name
from etude.runs.run import Run
from etude.training import session, stored_config
from tests.runs.run_trees import make_run
from tests.runs_compared import resume, stopped_after, train

TINY = (
    "training.total_steps=512",
    "algorithm.epochs=1",
    "algorithm.rollout_steps=32",
    "evaluation.every_steps=0",
    "logging.every_steps=256",
)


def test_a_run_is_found_by_its_name(tmp_path: Path) -> None:
    first = make_run(tmp_path, "mytask-s1", seed=1)
    make_run(tmp_path, "other-s1")
    sweep = make_run(tmp_path, "sweep/first-s1")
    for name in ("mytask", "mytask-s1"):
        assert Run.resolve(name, tmp_path).id == first.id
    assert Run.resolve("sweep/first", tmp_path).id == sweep.id
    with pytest.raises(UserError, match="did you mean 'mytask'"):
        Run.resolve("mytsk", tmp_path)


def test_the_name_as_it_was_asked_for_finds_it_too(tmp_path: Path) -> None:
    run = make_run(tmp_path, "CartPole-v1-ppo-s1")
    run.resolved_path.write_text("experiment: {name: '{environment}-{algorithm}', seed: 1}\n")
    run.edit_tags(add=["touched"])
    assert Run.resolve("CartPole-v1-ppo", tmp_path).id == Run.resolve("{environment}-{algorithm}", tmp_path).id == run.id


def test_a_name_of_several_runs_is_explained(tmp_path: Path) -> None:
    runs = [make_run(tmp_path, f"mytask-s{seed}", seed=seed, age_days=3 - seed) for seed in (1, 2, 3)]
    with pytest.raises(UserError) as raised:
        Run.resolve("mytask", tmp_path)
    first, *candidates = str(raised.value).splitlines()
    assert first == "run 'mytask' could be any of these, the newest first; name one by its id"
    assert [line.strip() for line in candidates] == [run.id for run in reversed(runs)]
    assert Run.resolve("mytask-s2", tmp_path).id == runs[1].id


def test_a_name_that_stands_for_a_run_already_is_refused() -> None:
    with pytest.raises(UserError, match=r"experiment\.name=@last: what begins with @"):
        expand_name("@last", {})


def test_a_group_is_changed_afterwards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, "x", group="old")
    place = ["--runs", str(tmp_path)]
    assert etude(["runs", "group", run.id, "new", *place]) == 0
    assert [row.id for row in find_runs(tmp_path, group="new")] == [run.id]
    assert etude(["runs", "group", run.id, *place, "--json"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"{run.id}: new"
    assert json.loads(said[1]) == {"id": run.id, "group": "new"}
    assert etude(["runs", "group", run.id, "--remove", *place]) == 0
    assert find_runs(tmp_path)[0].group is None
    assert etude(["runs", "group", run.id, "x", "--remove", *place]) == 2
    assert etude(["runs", "group", run.id, " ", *place]) == 2
    assert etude(["runs", "group", run.id, "two\nlines", *place]) == 2


def test_group_and_tags_changed_on_resuming_are_those_of_the_list(tmp_path: Path) -> None:
    # Defect 20: the resume said "changed", and the list went on with the old ones.
    with stopped_after(1):
        run = train("CartPole-v1:ppo", tmp_path, *TINY, "experiment.name=mytask", "experiment.group=a")
    with stopped_after(1):
        resume(run, "experiment.group=b", "experiment.tags=[t]")
    (row,) = find_runs(tmp_path)
    assert (row.group, row.tags, row.name) == ("b", ("t",), "mytask-s1")
    # And the other way round: what was changed in the list is what a resume and a new run go on with.
    run.edit_group("c")
    run.edit_tags(add=["u"])
    config = stored_config.load_config(run)
    assert (config.experiment.group, config.experiment.tags) == ("c", ("t", "u"))
    resume(run, "training.total_steps=768")
    (row,) = find_runs(tmp_path)
    assert (row.group, row.tags, row.config["experiment.group"]) == ("c", ("t", "u"), "c")


def test_show_tells_of_evaluations_on_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, "x")
    about = {"checkpoint": "000001-1000-10", "mode": "mode", "return_mean": 487.25, "return_std": 3.0, "episodes": 100.0}
    append_evaluations(run.logs, [{**about, "returns": [1.0] * 100, "timed_out": False}, {"checkpoint": 5, "mode": None}])
    assert etude(["runs", "show", run.id, "--runs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "000001-1000-10               return 487.2 ± 3, 100 episodes, mode actions" in out
    assert etude(["runs", "show", run.id, "--runs", str(tmp_path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["evaluations"]
    assert shown[0]["return_mean"] == 487.25
    assert "returns" not in shown[0]


def test_a_crashed_run_is_shown_from_one_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Defect 24: steps of the last row stood beside updates and episodes of the last save, and an earlier sitting's reason.
    run = make_run(tmp_path, "x", status="interrupted")
    best = {"metric": "eval/return_mean", "mode": "max", "value": 7.0, "env_steps": 400}
    run.write_summary({"counters": {"env_steps": 500, "updates": 5, "episodes": 50, "cycles": 5}, "best": best})
    row = {"env_steps": 700, "updates": 7, "episodes": 70, "cycles": 7, "train/loss": 1.0}
    run.metrics_path.write_text(json.dumps(row) + "\n")
    run.update_status(status="interrupted", stop_reason="SIGINT")
    run.update_status(status="running")
    run.update_status(pid=2**22 + 1)
    assert etude(["runs", "show", run.id, "--runs", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "status       crashed\n" in out
    assert "700 of 1,000 environment steps, 7 updates, 70 episodes" in out
    assert "best         7 at 400 steps (eval/return_mean)" in out


def test_a_video_of_an_unknown_kind_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    # Defect 24: it was refused only after everything had been imported.
    script = "import sys; from etude.cli import run; code = run(sys.argv[1:]); sys.exit(code + 10 * ('torch' in sys.modules))"
    words = ["play", "x", "--video", "x.avi"]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], cwd=tmp_path, capture_output=True, text=True, env=dict(os.environ)
    )
    assert (done.returncode, done.stderr.strip()) == (2, "etude: video x.avi: the name must end in .mp4 or .gif")


def test_the_composed_name_is_checked_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="begins with @"):
        session.start(compose("CartPole-v1:ppo", words=["experiment.name='@mine'"]), root=tmp_path, quiet=True)
    assert not list(tmp_path.iterdir())
