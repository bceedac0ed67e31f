from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import runner
import tasks
from benches import BENCHES, Bench, Side, choose

from tests.bench.conftest import BENCH


def answer(rate: float, **more: Any) -> dict[str, Any]:
    timings = {"units": 1, "seconds": 1.0, "gradient_steps_per_unit": 0.0, "setup_s": 1.0, "warmup_extra_s": 0.0}
    return {"status": "ok", "rate": rate, **timings, "resolved": {}, "versions": {}, "variables": {}, **more}


@pytest.fixture
def machine(tmp_path: Path) -> runner.Machine:
    return runner.Machine(cpus=2, peers=None, scratch=tmp_path)


def bench(*sides: Side) -> Bench:
    return Bench("some", "envs", "env steps/s", tasks.STEP_CARTPOLE, sides)


def test_sides_take_turns_and_the_best_counts(machine: runner.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[str] = []
    rates = {"etude-a": iter([10.0, 30.0]), "b": iter([5.0, 4.0])}

    def once(bench: Bench, side: Side, threads: int, on: runner.Machine) -> dict[str, Any]:
        turns.append(side.name)
        return answer(next(rates[side.name]))

    monkeypatch.setattr(runner, "measure_once", once)
    found = runner.measure(bench(Side("etude-a", "A", "x"), Side("b", "B", "x")), machine, repeats=2)
    assert turns == ["etude-a", "b", "etude-a", "b"]
    assert [side["rate"] for side in found["sides"]] == [30.0, 5.0]
    assert found["ratios"] == {"etude-a / b": 6.0}


def test_the_faster_thread_count_of_a_peer_counts(machine: runner.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def once(bench: Bench, side: Side, threads: int, on: runner.Machine) -> dict[str, Any]:
        calls.append(threads)
        return answer(100.0 if threads == 1 else 20.0)

    monkeypatch.setattr(runner, "measure_once", once)
    (side,) = runner.measure(bench(Side("b", "B", "x", threads="better")), machine, repeats=3)["sides"]
    assert (side["threads"], side["rate"]) == (1, 100.0)
    assert side["rates_by_threads"] == {"1": [100.0] * 3, "2": [20.0]}
    assert calls == [1, 2, 1, 1], "a thread count of a fifth of the speed is not worth repeating"


def test_a_cold_compilation_is_told_from_a_cached_one(machine: runner.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = iter([40.0, 6.0, 5.0])
    monkeypatch.setattr(runner, "measure_once", lambda *_: answer(1.0, warmup_extra_s=next(seconds)))
    (side,) = runner.measure(bench(Side("etude", "E", "x")), machine, repeats=3)["sides"]
    assert (side["compile_first_s"], side["compile_again_s"]) == (40.0, 5.0)


def test_missing_peers_say_how_to_get_them(machine: runner.Machine) -> None:
    (side,) = runner.measure(bench(Side("b", "B", "x", peers=True)), machine, repeats=2)["sides"]
    assert side["status"] == "not installed"
    assert side["reason"] == "not installed: bench/install_peers.sh"
    assert side["rate"] is None


def test_a_side_that_dies_is_reported_and_not_repeated(machine: runner.Machine) -> None:
    (side,) = runner.measure(bench(Side("b", "B", "no_such_module")), machine, repeats=2)["sides"]
    assert side["status"] == "failed"
    assert "no_such_module" in side["reason"]


def test_peers_are_found_by_environment_or_by_python(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    for place in (tmp_path, python):
        with runner.machine(place, cpus=1) as found:
            assert (found.peers, found.cpus) == (python, 1)
    with runner.machine(tmp_path / "nothing") as found:
        assert found.peers is None


def test_names_choose_benches_and_groups() -> None:
    assert [b.name for b in choose([], quick=False)] == [b.name for b in BENCHES]
    assert {b.group for b in choose(["ppo"], quick=False)} == {"ppo"}
    assert [b.name for b in choose(["loaders"], quick=True)] == ["loaders"]
    with pytest.raises(ValueError, match="no bench or group 'pong'"):
        choose(["pong"], quick=False)


def test_every_side_is_a_module_and_every_bench_has_one_of_etude() -> None:
    for some in BENCHES:
        assert any(side.ours for side in some.sides)
        assert all((BENCH / "sides" / f"{side.module}.py").is_file() for side in some.sides)


def test_peers_are_pinned_by_name_and_version_alone() -> None:
    lines = [line for line in (BENCH / "peers.txt").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "torch==2.13.0"
    assert all(line.count("==") == 1 and not set(line) & set("/:@+ ") for line in lines)
