"""Against the real slurmctld and slurmd: pre-empted, cut off or cancelled, runs end as if nothing had happened."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etude.runs.index import find_runs
from etude.runs.run import Run
from tests.launching.slurm_cluster import Cluster, missing, slurm_cluster
from tests.runs_compared import assert_same_run, train

pytestmark = [
    pytest.mark.optional,
    pytest.mark.timeout(2400),
    pytest.mark.skipif(bool(missing()), reason=f"SLURM is not installed here: {', '.join(missing())}"),
]
ROOT = Path(__file__).parents[2]
WORDS = ("training.total_steps=20000", "algorithm.epochs=4", "evaluation.episodes=2", "evaluation.every_steps=5000")
LONG_S = 900.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm"), cpus=8) as cluster:
        yield cluster


@pytest.fixture
def etude(cluster: Cluster, tmp_path: Path, home: Path) -> Callable[..., str]:
    """The command, as on a login node."""
    environment = os.environ | cluster.environment | {"PYTHONPATH": f"{ROOT / 'src'}", "OMP_NUM_THREADS": "1"}
    environment |= {"XDG_DATA_HOME": str(home)}

    def run(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "etude", *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, f"{words}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    return run


def _wait(what: str, is_so: Callable[[], bool], cluster: Cluster) -> None:
    deadline = time.monotonic() + LONG_S
    while not is_so():
        assert time.monotonic() < deadline, f"{what}: {cluster.run('squeue', '-a')}\n{cluster.logs()}"
        time.sleep(0.25)


def _at_once(cluster: Cluster) -> None:
    """SLURM lets requeued jobs wait two minutes; who tests has no such time."""
    for line in cluster.run("squeue", "-h", "-a", "-r", "-t", "PENDING", "-o", "%i|%r").splitlines():
        identity, reason = line.split("|")
        if reason == "BeginTime":
            cluster.run("scontrol", "update", f"JobId={identity}", "StartTime=now", check=False)


def _in_queue(cluster: Cluster) -> list[str]:
    return cluster.run("squeue", "-h", "-a", "-r", "-o", "%i %T").splitlines()


def test_an_array_that_was_preempted_ends_as_if_never_touched(
    cluster: Cluster, etude: Callable[..., str], tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    said = etude("launch", "slurm", "--cpus", "1", "--partition", "low", "--memory", "200M", "train", "CartPole-v1:ppo", *WORDS,
                 "--seed", "1-8", "--group", "all")  # fmt: skip
    (launch,) = (runs / ".launch").iterdir()
    assert f"launched {launch.name}: 8 tasks" in said

    def under_way() -> bool:
        found = find_runs(runs, group="all") if runs.is_dir() else []
        return sum(1000 < (run.env_steps or _rows(run.path)) < 20000 for run in found) >= 6

    _wait("runs under way", under_way, cluster)
    cluster.run("sbatch", "--partition=high", "--cpus-per-task=8", "--output=/dev/null", "--wrap=sleep 3")
    _wait("pre-emption", lambda: any("high" in line for line in _partitions(cluster)), cluster)
    assert any("interrupted" in run.status for run in find_runs(runs, group="all"))

    def done() -> bool:
        _at_once(cluster)
        return not _in_queue(cluster)

    _wait("the end", done, cluster)
    states = re.findall(r"^ +(\d)  (\w+)", etude("launch", "status"), re.MULTILINE)
    assert states == [(str(number), "finished") for number in range(8)]
    found = {run.seed: run for run in find_runs(runs, group="all")}
    assert sorted(found) == list(range(1, 9)), "each seed is one run, not one for each sitting"
    assert len(find_runs(runs)) == 8
    cut = [launch / "logs" / f"{number}.log" for number in range(8)]
    assert sum("goes on with run" in path.read_text() for path in cut) >= 6
    for seed in range(1, 9):
        alone = train("CartPole-v1:ppo", tmp_path / "alone", *WORDS, f"experiment.seed={seed}", "experiment.group=all")
        assert_same_run(Run(found[seed].path), alone)


def _rows(path: Path) -> int:
    steps = re.findall(r'"env_steps":(\d+)', (path / "metrics.jsonl").read_text()) if (path / "metrics.jsonl").exists() else []
    return int(steps[-1]) if steps else 0


def _partitions(cluster: Cluster) -> list[str]:
    return cluster.run("squeue", "-h", "-t", "RUNNING", "-o", "%P").splitlines()


def test_tasks_of_several_processes_hear_of_their_preemption_once_and_save_themselves(
    cluster: Cluster, etude: Callable[..., str], tmp_path: Path
) -> None:
    runs, short = tmp_path / "runs", (*WORDS, "training.total_steps=12000")
    (tmp_path / "grid.yaml").write_text(
        f"base: CartPole-v1:ppo\nsweep: {{algorithm.gamma: [0.97, 0.98]}}\nwords: [{', '.join(short)}]\nparallel: 2\n"
    )
    asked = ("launch", "slurm", "--cpus", "2", "--partition", "low")
    etude(*asked, "train", "CartPole-v1:ppo", *short, "training.total_steps=30000", "--processes", "2")
    etude(*asked, "sweep", "grid.yaml")

    def under_way() -> bool:
        found = find_runs(runs) if runs.is_dir() else []
        return len(found) == 3 and all(_rows(run.path) > 500 for run in found)

    _wait("runs under way", under_way, cluster)
    cluster.run("sbatch", "--partition=high", "--cpus-per-task=8", "--output=/dev/null", "--wrap=sleep 3")
    _wait("pre-emption", lambda: any("high" in line for line in _partitions(cluster)), cluster)
    assert [run.status for run in find_runs(runs)] == ["interrupted"] * 3

    def done() -> bool:
        _at_once(cluster)
        return not _in_queue(cluster)

    _wait("the end", done, cluster)
    assert [run.status for run in find_runs(runs)] == ["finished"] * 3


def test_out_of_time_a_run_saves_itself_and_goes_on_later(cluster: Cluster, etude: Callable[..., str], tmp_path: Path) -> None:
    # The user's own line brings the warning forward: 50 s after the start instead of two minutes before the end.
    runs = tmp_path / "runs"
    etude("launch", "slurm", "--time", "4m", "--sbatch", "--signal=B:USR1@190", "train", "CartPole-v1:ppo", *WORDS,
          "training.total_steps=3000000", "--seed", "3", "--job-name", "long")  # fmt: skip
    log = runs / ".launch" / "long" / "logs" / "0.log"
    _wait("the warning", lambda: log.exists() and "back into the queue" in log.read_text(), cluster)
    _wait("the queue", lambda: any("PENDING" in line for line in _in_queue(cluster)), cluster)
    assert "waiting" in etude("launch", "status", "long")
    assert "was launched already" in etude(
        "launch", "slurm", "--time", "4m", "--sbatch", "--signal=B:USR1@190", "train", "CartPole-v1:ppo", *WORDS,
        "training.total_steps=3000000", "--seed", "3", "--job-name", "long", code=2,
    )  # fmt: skip
    (run,) = find_runs(runs)
    assert run.status == "interrupted"
    _at_once(cluster)
    _wait("the second sitting", lambda: log.read_text().count("goes on with run") >= 1, cluster)
    assert "--dry" not in etude("launch", "cancel", "long")
    _wait("the end", lambda: not _in_queue(cluster), cluster)
    assert [found.status for found in find_runs(runs)] == ["interrupted"], "cancelled, it saved itself again"
    assert "interrupted" in etude("launch", "status", "long")


def test_hostile_words_reach_the_training_as_they_are(cluster: Cluster, etude: Callable[..., str], tmp_path: Path) -> None:
    name = 'it\'s $(touch gone) `touch gone` "x"; touch gone\n#SBATCH --array=0-9 %j'
    folder = tmp_path / "a b$(touch gone)%j'"
    folder.mkdir()
    etude("launch", "slurm", "--runs", str(folder), "train", "CartPole-v1:ppo", "training.total_steps=600",
          "algorithm.epochs=1", "evaluation.episodes=1", "--name", name, "--seed", "1")  # fmt: skip
    _wait("the end", lambda: not _in_queue(cluster), cluster)
    (launch,) = (folder / ".launch").iterdir()
    assert "finished" in etude("launch", "status", "--runs", str(folder)), (launch / "logs" / "0.log").read_text()
    (run,) = find_runs(folder)
    assert run.name is not None
    assert "touch gone" in run.name
    assert not list(tmp_path.rglob("gone"))
