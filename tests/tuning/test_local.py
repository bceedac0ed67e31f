"""Trials as processes: CPUs and GPUs are counted, and each run sees only its own."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from etude.errors import UserError
from etude.tuning import local
from etude.tuning.backend import Job, Needs
from etude.tuning.local import LocalBackend, visible_gpus


class Child:
    """Stands in for a process: it runs until it is told to end."""

    started: ClassVar[list[Child]] = []

    def __init__(self, arguments: Sequence[str], errors: Path, environment: Mapping[str, str] | None = None) -> None:
        self.arguments, self.environment, self.code = list(arguments), dict(environment or {}), None
        self.complaint = ""
        Child.started.append(self)

    def poll(self) -> int | None:
        return self.code

    def send(self, number: int) -> None:
        self.code = 130

    def wait(self) -> int:
        return self.code or 0


@pytest.fixture(autouse=True)
def children(monkeypatch: pytest.MonkeyPatch) -> list[Child]:
    Child.started = []
    monkeypatch.setattr(local, "ChildRun", Child)
    monkeypatch.setattr(local, "available_cpus", lambda: 8)
    return Child.started


def fill(backend: LocalBackend, needs: Needs, numbers: itertools.count[int]) -> int:
    started = 0
    while backend.has_room(needs):
        backend.start(Job(f"s/{next(numbers):04d}", 1, ("CartPole-v1:ppo",), needs))
        started += 1
    return started


def test_four_trials_on_two_gpus_run_two_and_two(tmp_path: Path, children: list[Child]) -> None:
    backend, numbers = LocalBackend(tmp_path, tmp_path, gpus=["0", "1"]), itertools.count()
    assert fill(backend, Needs(gpus=1), numbers) == 2
    assert sorted(child.environment["CUDA_VISIBLE_DEVICES"] for child in children) == ["0", "1"]
    for child in children:
        child.code = 0
    assert fill(backend, Needs(gpus=1), numbers) == 2
    assert sorted(child.environment["CUDA_VISIBLE_DEVICES"] for child in children[2:]) == ["0", "1"]


def test_halves_of_gpus_are_shared_two_on_each(tmp_path: Path, children: list[Child]) -> None:
    backend = LocalBackend(tmp_path, tmp_path, gpus=["3", "5"])
    assert fill(backend, Needs(gpus=0.5), itertools.count()) == 4
    assert sorted(child.environment["CUDA_VISIBLE_DEVICES"] for child in children) == ["3", "3", "5", "5"]


def test_whole_gpus_are_given_together_and_zero_hides_them(tmp_path: Path, children: list[Child]) -> None:
    backend = LocalBackend(tmp_path, tmp_path, parallel=3, gpus=["0", "1"])
    assert fill(backend, Needs(gpus=2), itertools.count()) == 1
    assert children[0].environment["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert fill(backend, Needs(gpus=0), itertools.count(5)) == 2
    assert children[1].environment["CUDA_VISIBLE_DEVICES"] == ""


def test_without_a_word_gpus_are_dealt_out_in_turn(tmp_path: Path, children: list[Child]) -> None:
    backend = LocalBackend(tmp_path, tmp_path, parallel=4, gpus=["0", "1"])
    assert fill(backend, Needs(), itertools.count()) == 4
    assert [child.environment["CUDA_VISIBLE_DEVICES"] for child in children] == ["0", "1", "0", "1"]


def test_cpus_are_counted_and_become_threads(tmp_path: Path, children: list[Child]) -> None:
    backend = LocalBackend(tmp_path, tmp_path, gpus=[])
    assert fill(backend, Needs(cpus=3), itertools.count()) == 2
    assert {child.environment["OMP_NUM_THREADS"] for child in children} == {"3"}
    assert fill(LocalBackend(tmp_path, tmp_path, parallel=20, gpus=[]), Needs(), itertools.count()) == 20
    assert fill(LocalBackend(tmp_path, tmp_path, parallel=20, gpus=[]), Needs(cpus=1), itertools.count()) == 8


@pytest.mark.parametrize(
    ("needs", "problem"),
    [
        (Needs(gpus=3), "--gpus 3: this machine has 2"),
        (Needs(cpus=9), "--cpus 9: this machine has 8"),
        (Needs(gpus=1.5), "whole"),
    ],
)
def test_what_no_run_could_have_is_refused(tmp_path: Path, needs: Needs, problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        LocalBackend(tmp_path, tmp_path, gpus=["0", "1"]).check(needs)


def test_visible_gpus_are_those_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2, 3")
    assert visible_gpus() == ["2", "3"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert visible_gpus() == []
