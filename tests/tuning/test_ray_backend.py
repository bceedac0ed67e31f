"""Trials on a Ray cluster: what Ray is asked for, and what becomes of runs whose worker or node is gone."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from etude.cli import run as etude
from etude.errors import MissingPackageError, UserError
from etude.runs.lock import exclusive_lock
from etude.runs.run import Run
from etude.tuning import ray_worker
from etude.tuning.backend import Job, JobState, Needs
from etude.tuning.ray_backend import KILLED, RayBackend, check_address
from tests.tuning import ray_double
from tests.tuning.ray_double import Ray

JOB = Job("s/0000", 1, ("CartPole-v1:ppo",))


class Child:
    """Stands in for a process: it runs until it is told to end."""

    started: ClassVar[list[Child]] = []

    def __init__(self, arguments: Sequence[str], errors: Path, environment: Mapping[str, str] | None = None) -> None:
        self.arguments, self.environment, self.code = list(arguments), dict(environment or {}), None
        self.complaint, self.signals = "what it said", 0
        Child.started.append(self)

    def poll(self) -> int | None:
        return self.code

    def send(self, number: int) -> None:
        self.code = 130


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    Child.started = []
    monkeypatch.setattr(ray_worker, "ChildRun", Child)
    return ray_double.install(monkeypatch, [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 3.0}])


@pytest.fixture
def backend(ray: Ray, tmp_path: Path) -> RayBackend:
    logs = tmp_path / "sweeps" / "s" / "logs"
    logs.parent.mkdir(parents=True)
    (logs.parent / "journal.jsonl").touch()
    return RayBackend(tmp_path, logs)


def state(backend: RayBackend) -> JobState:
    return backend.poll([JOB])[JOB.key]


def run_in(root: Path, status: str, host: str | None = None) -> Run:
    run = Run.create(root, name="r", config_yaml="{}", resolved_yaml="{}", group="s/0000", facts={"seed": 1})
    run.update_status(status=status)
    if host is not None:
        run.update_status(host=host)
    return run


def test_a_run_has_its_cpus_and_gpus_and_ray_never_retries_it(backend: RayBackend, ray: Ray) -> None:
    backend.start(Job("s/0000", 1, ("CartPole-v1:ppo",), Needs(cpus=2, gpus=0.5), pause_at=100))
    assert state(backend).state == "running"
    expected = {"num_cpus": 2, "num_gpus": 0.5, "max_restarts": 0, "max_task_retries": 0}
    assert ray.actors[0].options == {**ray.actors[0].options, **expected}
    (child,) = Child.started
    assert child.environment["CUDA_VISIBLE_DEVICES"] == "3"
    assert child.environment["OMP_NUM_THREADS"] == "2"
    assert child.arguments[:2] == ["train", "CartPole-v1:ppo"]
    assert {f"--runs={backend.root}", "--group=s/0000", "--seed=1", "--pause-at=100"} <= set(child.arguments)


def test_as_many_are_handed_over_as_nodes_have_room_for(backend: RayBackend, tmp_path: Path) -> None:
    def fill(given: RayBackend, needs: Needs) -> int:
        started = 0
        while given.has_room(needs):
            given.start(Job(f"s/{started:04d}", 1, (), needs))
            started += 1
        return started

    assert fill(backend, Needs(cpus=2)) == 2 + 1
    logs = tmp_path / "sweeps" / "s" / "logs"
    assert fill(RayBackend(tmp_path, logs), Needs()) == 7
    assert fill(RayBackend(tmp_path, logs), Needs(gpus=0.5)) == 2
    assert fill(RayBackend(tmp_path, logs, parallel=9), Needs(gpus=1)) == 9  # which Ray lets wait, and may grow for


def test_a_run_that_ends_says_how(backend: RayBackend, ray: Ray) -> None:
    backend.start(JOB)
    state(backend)
    Child.started[0].code = 2
    found = [state(backend), state(backend)][-1]
    assert (found.state, found.code, found.complaint) == ("ended", 2, "what it said")
    assert ray.actors[0].is_killed  # its room is free


def test_a_run_whose_worker_is_gone_is_left_alone_until_it_has_saved_itself(backend: RayBackend, ray: Ray) -> None:
    run = run_in(backend.root, "running")
    backend.start(JOB)
    state(backend)
    ray.actors[0].error = ray_double.RayActorError("the worker died")
    with exclusive_lock(run.path / ".lock", "run"):
        assert state(backend).state == "running"
    run.update_status(status="interrupted")
    found = state(backend)
    assert (found.state, found.code) == ("ended", KILLED)
    assert found.run is not None
    assert found.run.status == "interrupted"


def test_a_run_on_a_node_that_died_is_no_longer_running_whatever_its_record_says(backend: RayBackend) -> None:
    run = run_in(backend.root, "running", host="a-node-that-is-gone")
    found = state(backend)
    assert found.run is not None
    assert (found.state, found.run.status) == ("unknown", "crashed")
    with exclusive_lock(run.path / ".lock", "run"):
        assert state(backend).state == "running"


def test_a_network_that_fails_for_a_moment_is_no_end(backend: RayBackend, ray: Ray) -> None:
    backend.start(JOB)
    state(backend)
    ray.actors[0].error = ray_double.ActorUnavailableError("try again")
    assert state(backend).state == "running"
    ray.actors[0].error = None
    assert state(backend).state == "running"


def test_a_node_that_does_not_see_the_runs_is_a_failure_in_one_line(backend: RayBackend, tmp_path: Path) -> None:
    (tmp_path / "sweeps" / "s" / "journal.jsonl").unlink()
    backend.start(JOB)
    found = state(backend)
    assert found.code == 1
    assert "share" in found.complaint
    assert "\n" not in found.complaint
    assert "UserError" not in found.complaint


def test_one_that_waits_for_room_is_taken_back_and_one_that_runs_is_told(backend: RayBackend, ray: Ray) -> None:
    ray.room = 1
    waiting = Job("s/0001", 1, ())
    backend.start(JOB)
    backend.start(waiting)
    backend.poll([JOB, waiting])
    backend.stop(waiting)
    assert ray.actors[1].is_killed
    assert backend.poll([waiting])[waiting.key].code == 130
    backend.close()
    assert Child.started[0].code == 130
    assert not ray.is_up


def test_what_no_node_has_is_refused(backend: RayBackend) -> None:
    with pytest.raises(UserError, match="--cpus 5: no node of the cluster has as much; the largest have 4 CPUs and 1 GPUs"):
        backend.check(Needs(cpus=5))
    with pytest.raises(UserError, match="--gpus 2"):
        backend.check(Needs(gpus=2))
    backend.check(Needs(cpus=4, gpus=1))


@pytest.mark.parametrize("address", ["http://h:8265", "ray://h:10001", "h", "h:port", "$(id):1"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="HEAD:6379"):
        check_address(address)


@pytest.mark.parametrize("address", [None, "auto", "local", "10.0.0.1:6379", "head:6379", "[::1]:6379"])
def test_addresses_of_clusters_are_taken(address: str | None) -> None:
    check_address(address)


def test_a_cluster_that_does_not_answer_is_one_line(ray: Ray, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--ray-address nowhere:1: no cluster answers: no cluster there$"):
        RayBackend(tmp_path, tmp_path, address="nowhere:1")


def test_without_ray_it_says_which_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingPackageError, match=r"^--on ray needs Ray: pip install 'etude\[ray\]'$"):
        RayBackend(tmp_path, tmp_path)


def test_an_address_goes_with_ray_and_a_dry_run_needs_no_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    file = tmp_path / "g.yaml"
    file.write_text("base: CartPole-v1:ppo\nsweep: {algorithm.gamma: [0.9, 0.99]}\n")
    assert etude(["sweep", str(file), "--ray-address", "h:1"]) == 2
    assert capsys.readouterr().err.strip() == "etude: --ray-address h:1: goes with --on ray"
    assert etude(["sweep", str(file), "--on", "ray", "--dry", "--runs", str(tmp_path / "runs")]) == 0
    assert "2 trials: grid" in capsys.readouterr().out
    assert etude(["sweep", str(file), "--on", "ray", "--runs", str(tmp_path / "runs")]) == 2
    assert capsys.readouterr().err.strip().splitlines()[-1] == "etude: --on ray needs Ray: pip install 'etude[ray]'"
