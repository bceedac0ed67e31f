"""A sweep on a real Ray cluster of two nodes: what is killed, worker, node or sweep, goes on, and nothing is lost."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from etude.runs.index import find_runs
from etude.runs.run import Run
from etude.tuning.places import SweepFolder
from etude.tuning.plan import Plan
from etude.tuning.population import PopulationRunner
from etude.tuning.spec import read_sweep
from tests.runs_compared import assert_same_run, train
from tests.tuning.in_process import InProcessBackend
from tests.tuning.ray_cluster import cluster, patiently, settings

pytestmark = [
    pytest.mark.optional,
    pytest.mark.timeout(2400),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed here (extra ray)"),
]
LONG_S = 900.0
POPULATION = """
base: {spec: "CartPole-v1:ppo", words: [training.total_steps=768, algorithm.epochs=1, evaluation.episodes=2]}
method: pbt
n_trials: 3
pbt: {interval: 256}
sweep: {algorithm.learning_rate: {low: 1.0e-4, high: 0.1, log: true}}
"""
WORDS = ("training.total_steps=40000", "algorithm.epochs=4", "evaluation.episodes=2", "evaluation.every_steps=5000")
FILE = f"""
base: {{spec: "CartPole-v1:ppo", words: [{", ".join(WORDS)}]}}
sweep: {{algorithm.learning_rate: [0.0001, 0.001, 0.01]}}
retries: 5
"""


def test_killed_workers_nodes_and_sweeps_lose_nothing(tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(FILE)
    runs, home = tmp_path / "runs", tmp_path / "home"
    with cluster(home) as nodes:
        doomed = patiently(nodes.add_node, num_cpus=1, object_store_memory=100 * 2**20)
        nodes.wait_for_nodes()

        def begin(*words: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "etude", "sweep", *words, "--on", "ray", "--ray-address", nodes.address]
            with (tmp_path / "sweep.log").open("ab") as log:
                return subprocess.Popen(
                    [*command, "--runs", str(runs)], cwd=tmp_path, env=os.environ | settings(home), stdout=log, stderr=log
                )

        def wait(what: str, is_so: Callable[[], bool], sweep: subprocess.Popen[bytes]) -> None:
            deadline = time.monotonic() + LONG_S
            while not is_so():
                said = (tmp_path / "sweep.log").read_text()
                assert time.monotonic() < deadline, f"{what}\n{said}"
                assert sweep.poll() is None, f"{what}\n{said}"
                time.sleep(0.2)

        sweep = begin("g.yaml")
        wait("two runs at once", lambda: sum(steps > 2000 for steps in steps_of(runs)) >= 2, sweep)
        os.kill(parent_of(training_of(runs)[0]), signal.SIGKILL)  # a worker
        wait("it to go on", lambda: "killed, goes on" in (tmp_path / "sweep.log").read_text(), sweep)
        nodes.remove_node(doomed, allow_graceful=False)  # a node, with what runs on it
        wait("one run at a time", lambda: len(training_of(runs)) == 1, sweep)
        sweep.send_signal(signal.SIGINT)  # the sweep, with Ctrl-C
        assert sweep.wait(LONG_S) == 130
        assert not training_of(runs)
        patiently(nodes.add_node, num_cpus=1, object_store_memory=100 * 2**20)
        sweep = begin("resume", "g")
        wait("two runs at once again", lambda: len(training_of(runs)) == 2, sweep)
        sweep.kill()  # and without a word
        sweep.wait()
        sweep = begin("g.yaml")
        assert sweep.wait(LONG_S) == 0, (tmp_path / "sweep.log").read_text()
    found = find_runs(runs)
    assert [run.status for run in found] == ["finished"] * 3
    for run in found:
        rate = run.config["algorithm.learning_rate"]
        words = (
            f"algorithm.learning_rate={rate if not isinstance(rate, dict) else rate['start']}",
            f"experiment.group={run.group}",
        )
        assert_same_run(Run.open(run.path), train("CartPole-v1:ppo", tmp_path / "alone", *WORDS, *words))


def test_a_population_that_was_killed_on_ray_is_the_one_trained_here(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POPULATION)
    home = tmp_path / "home"
    with cluster(home, cpus=2) as nodes:
        command = [sys.executable, "-m", "etude", "sweep", "p.yaml", "--on", "ray", "--ray-address", nodes.address]

        def begin() -> subprocess.Popen[bytes]:
            with (tmp_path / "sweep.log").open("ab") as log:
                words = [*command, "--runs", str(tmp_path / "ray")]
                return subprocess.Popen(words, cwd=tmp_path, env=os.environ | settings(home), stdout=log, stderr=log)

        sweep = begin()
        deadline = time.monotonic() + LONG_S
        while not any("cloned_from" in path.read_text() for path in (tmp_path / "ray").glob("2*/run.json")):
            assert time.monotonic() < deadline, (tmp_path / "sweep.log").read_text()
            assert sweep.poll() is None, (tmp_path / "sweep.log").read_text()
            time.sleep(0.2)
        sweep.kill()
        sweep.wait()
        assert begin().wait(LONG_S) == 0, (tmp_path / "sweep.log").read_text()
    asked = read_sweep(tmp_path / "p.yaml")
    plan, backend = Plan(asked), InProcessBackend(tmp_path / "here")
    study = SweepFolder(tmp_path / "here", "p").open(asked, plan)
    PopulationRunner(plan, study, backend, n_trials=asked.n_trials, timeout_s=None).run()
    there = SweepFolder(tmp_path / "ray", "p").looked_at()[1]
    assert [(t.values, t.state, t.objective) for t in there.trials] == [(t.values, t.state, t.objective) for t in study.trials]
    for trial in study.trials:
        (one,), (other,) = (find_runs(tmp_path / place, group=f"p/{trial.number:04d}") for place in ("ray", "here"))
        assert_same_run(Run.open(one.path), Run.open(other.path))


def steps_of(runs: Path) -> list[int]:
    found = [re.findall(r'"env_steps":(\d+)', path.read_text()) for path in runs.glob("2*/metrics.jsonl")]
    return [int(rows[-1]) if rows else 0 for rows in found]


def training_of(runs: Path) -> list[int]:
    """The processes that train in this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"--runs={runs}".encode() in words:
            found.append(int(entry.name))
    return found


def parent_of(process: int) -> int:
    return int(re.findall(r"^PPid:\s+(\d+)", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)[0])
