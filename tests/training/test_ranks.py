"""Runs that two processes train together are runs like others: logged, saved and resumed to the same end, to the last bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from etude.compute.joining import STORE
from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from tests.forked import ForkedProgram
from tests.runs_compared import assert_same_run, train
from tests.training.ranks_runs import RANKS, RUNS

PATIENCE = 400
"""Seconds after which ranks that wait for each other are ended."""
QUICK = ("ppo", "a2c", "reinforce", "dqn", "sac", "cma_es", "dreams")


def in_two_processes(folder: Path, *names: str) -> None:
    """Train runs by their names, whole and with a stop."""
    told = [
        {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS), STORE: str(folder / "store"), "GLOO_SOCKET_IFNAME": "lo"}
        for rank in range(RANKS)
    ]
    command = [sys.executable, "-c", f"from tests.training.ranks_runs import main; main(*{names})"]
    outputs = [folder / f"{rank}.txt" for rank in range(RANKS)]
    processes = []
    for env, output in zip(told, outputs, strict=True):
        with output.open("wb") as stream:
            processes.append(ForkedProgram(command, env=env, stdout=stream, stderr=stream))
    try:
        codes = [process.wait(PATIENCE) for process in processes]
    except subprocess.TimeoutExpired:
        pytest.fail(f"the ranks did not finish within {PATIENCE} seconds")
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert not any(codes), "\n".join(output.read_text() for output in outputs)


def only_run(folder: Path) -> Run:
    (path,) = [path for path in folder.iterdir() if path.name.startswith("2")]
    return Run.open(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    in_two_processes(folder, *QUICK)
    return folder


@pytest.mark.parametrize("name", QUICK)
def test_ranks_that_were_stopped_and_resumed_are_those_that_were_not(name: str, trained: Path) -> None:
    whole, stopped = only_run(trained / name / "whole"), only_run(trained / name / "stopped")
    assert whole.status == stopped.status == "finished"
    assert_same_run(whole, stopped)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RUNS if name not in QUICK])
def test_other_algorithms_too(name: str, tmp_path: Path) -> None:
    in_two_processes(tmp_path, name)
    assert_same_run(only_run(tmp_path / name / "whole"), only_run(tmp_path / name / "stopped"))


def test_steps_and_episodes_count_over_all_ranks(trained: Path) -> None:
    run = only_run(trained / "a2c" / "whole")
    rows = read_rows(run.metrics_path)
    last = rows[-1]
    assert last["env_steps"] == last["decisions"] == 256
    assert last["updates"] == last["cycles"] == 256 / (2 * RANKS * 8), "a rollout has the steps of both"
    assert last["episodes"] == sum(row.get("collect/episodes", 0) for row in rows) > 4


def test_a_warm_up_counts_the_steps_of_all_ranks(trained: Path) -> None:
    updates = {row["env_steps"]: row["updates"] for row in read_rows(only_run(trained / "sac" / "whole").metrics_path)}
    assert updates[32] == 0
    assert updates[64] == (64 - 48) / (2 * RANKS) + 1, "from the 48th step on, one with each vector step"


def test_candidates_are_judged_as_by_one_process_with_as_many_copies(trained: Path, tmp_path: Path) -> None:
    spec, words = RUNS["cma_es"]
    alone = train(spec, tmp_path, *words, "experiment.processes=1", f"environment.num_envs={2 * RANKS}")
    names = ("env_steps", "train/generation", "train/fitness_best", "train/fitness_mean", "train/sigma")
    together = only_run(trained / "cma_es" / "whole")
    found = [[[row.get(name) for name in names] for row in read_rows(run.metrics_path)] for run in (alone, together)]
    assert found[0] == found[1]
    assert any(row[1] for row in found[0])
