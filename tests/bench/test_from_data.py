"""The jobs of `bench/from_data.py`: in order, within limits, tried again, and told of as they go."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from bench.from_data import PARTS, Plan
from bench.from_data_jobs import Job, Jobs, Step, due


def options(folder: Path, **others: Any) -> argparse.Namespace:
    (folder / "results").mkdir(parents=True, exist_ok=True)
    usual = {"jobs": 4, "cores": 4, "deadline_s": 60.0, "reserve_s": 1.0, "out": None, "folder": folder, "rounds": 1}
    return argparse.Namespace(**{**usual, **others})


def python(code: str, limit_s: float = 30.0, *, stops: bool = False) -> Step:
    return Step([sys.executable, "-S", "-c", code], limit_s, stops=stops)


def told(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "from_data.json").read_text())["jobs"]


def test_jobs_wait_for_what_they_need_and_are_told_of(tmp_path: Path) -> None:
    sleeper = "import signal,sys,time\nsignal.signal(signal.SIGINT, lambda *_: sys.exit(130))\ntime.sleep(20)"
    again = python("raise SystemExit(3)")
    again.otherwise = python("print()").command
    jobs = [
        Job("fails", "a", [python("raise SystemExit(2)")]),
        Job("skipped", "a", [python("print()")], needs=("fails",)),
        Job("stopped", "b", [python(sleeper, 1.0, stops=True), python("open('results/stopped.json', 'w').write('[7]')")]),
        Job("after", "b", [python("print()")], needs=("stopped",)),
        Job("again", "c", [again], gpu=True),
    ]
    Jobs(jobs, options(tmp_path)).run()
    found = told(tmp_path)
    assert {name: each["state"] for name, each in found.items()} == {
        "fails": "failed", "skipped": "skipped", "stopped": "done", "after": "done", "again": "done",
    }  # fmt: skip
    assert found["stopped"]["stopped_early"]
    assert found["stopped"]["found"] == [7]


def test_nothing_outlives_the_deadline(tmp_path: Path) -> None:
    Jobs([Job("long", "a", [python("import time; time.sleep(30)")])], options(tmp_path, deadline_s=1.0, reserve_s=0.5)).run()
    assert told(tmp_path)["long"]["state"] == "failed"


def test_every_part_has_jobs_that_need_one_another(tmp_path: Path) -> None:
    jobs = [*plan(tmp_path).jobs()]
    names = {job.name for job in jobs}
    assert {job.part for job in jobs} == set(PARTS)
    assert len(names) == len(jobs)
    assert all(name in names for job in jobs for name in (*job.needs, *job.after))


def test_what_the_folder_has_is_not_made_again(tmp_path: Path) -> None:
    def chosen(only: str | None) -> dict[str, str]:
        return {job.name: job.state for job in due([*plan(tmp_path).jobs()], tmp_path, only)}

    wanted = "^hopper-dp-[12]"
    learners, demonstrators = {"hopper-dp-1", "hopper-dp-2"}, {"sac-hopper-1", "sac-hopper-2"}
    assert set(chosen(wanted)) == {*learners, *demonstrators, "hopper-data"}
    assert set(chosen("^medium-data$")) == {"medium-data", "sac-cheetah-1"}
    assert not chosen("nothing")
    (tmp_path / "results" / "hopper-data.json").write_text("{}")
    (tmp_path / "results" / "hopper-dp-2.json").write_text('{"unfinished": true}')
    assert set(chosen(wanted)) > demonstrators, "its dataset is missing"
    (tmp_path / "datasets" / "hopper").mkdir(parents=True)
    (tmp_path / "datasets" / "hopper" / "dataset.json").write_text("{}")
    assert chosen(wanted) == {"hopper-dp-1": "waiting", "hopper-dp-2": "waiting", "hopper-data": "done"}
    assert len(chosen(None)) == len([*plan(tmp_path).jobs()])
    (tmp_path / "results" / "hopper-dp-2.json").write_text("{}")
    assert chosen("^hopper-dp-2") == {"hopper-dp-2": "done"}


def test_jobs_that_were_done_before_are_told_of(tmp_path: Path) -> None:
    jobs = [Job("before", "a", [python("raise SystemExit(2)")], makes=("results/before.json",))]
    jobs.append(Job("now", "a", [python("print()")], needs=("before",)))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "before.json").write_text("[3]")
    Jobs(due(jobs, tmp_path), options(tmp_path)).run()
    found = told(tmp_path)
    assert found["before"]["state"] == found["now"]["state"] == "done"
    assert found["before"]["found"] == [3]


def plan(folder: Path) -> Plan:
    plain = {"quick": False, "seeds": 3, "sac_steps": 1000, "sac_s": 10, "device": "cuda", "compile": "capture", "threads": 1}
    plain |= {"word": [], "finetune_steps": 10, "offline_updates": 10, "offline_device": "cuda", "cpu_compile": "off"}
    return Plan(options(folder, parts=[*PARTS], **plain))
