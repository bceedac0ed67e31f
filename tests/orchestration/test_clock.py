"""A run has a clock: it moves in every phase, whatever that counts, and everything that asks for the time reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etude.config.compose import compose
from etude.config.hooks import hooks_of
from etude.config.phases import parse_phases
from etude.orchestration.clock import Clock, Stopwatch
from etude.orchestration.orchestrator import Orchestrator
from etude.orchestration.phase_scheduler import PhaseScheduler
from etude.telemetry.jsonl import read_rows
from etude.training import assembly
from etude.workflows.base import HookResult
from etude.workflows.ppo import PPO
from tests.runs_compared import assert_same_run, resume, stopped_after, train

GATHER = {"name": "gather", "hooks": ["collect"], "duration_steps": 1000}
TRAIN = {"name": "train", "hooks": ["collect", "update"]}
LEARN = {"name": "learn", "type": "offline", "duration_updates": 3000}
LOOK = {"name": "look", "type": "eval_only"}


def clock_of(*phases: dict[str, Any], total: int = 10_000) -> Clock:
    return Clock(parse_phases(phases, hooks=["collect", "update"], marks=hooks_of(PPO)), total)


@pytest.mark.parametrize(
    ("phases", "shares"),
    [
        ((GATHER, LEARN), (0.25, 0.75)),
        ((GATHER, LOOK, LEARN), (0.25, 0.0, 0.75)),
        (({**GATHER, "share": 0.4}, LEARN), (0.4, 0.6)),
        (({**GATHER, "share": 0.1}, {**LEARN, "share": 0.3}), (0.25, 0.75)),
        ((GATHER, {**LEARN, "share": 0.2}, {**GATHER, "duration_steps": 3000}), (0.2, 0.2, 0.6)),
        ((GATHER, {**LEARN, "duration_updates": 10_000}, TRAIN), (0.05, 0.5, 0.45)),
        (({**GATHER, "duration_steps": 99_999}, LEARN), (10 / 13, 3 / 13)),
        (({"name": "learn", "hooks": [{"update": {"count": 50}}], "duration_cycles": 20}, TRAIN), (1 / 11, 10 / 11)),
    ],
    ids=["lengths", "looking takes no time", "one declares", "all declare", "the rest by length", "the rest of the budget",
         "no longer than the budget", "cycles"],
)  # fmt: skip
def test_a_phase_makes_of_a_run_what_it_declares_or_its_length(phases: Any, shares: tuple[float, ...]) -> None:
    clock = clock_of(*phases)
    assert clock.shares == pytest.approx(shares)
    assert not clock.by_budget


def test_the_budget_is_the_clock_where_only_collecting_takes_time() -> None:
    assert clock_of(GATHER, TRAIN).by_budget
    assert clock_of(GATHER, LOOK, TRAIN).by_budget
    assert not clock_of({**GATHER, "share": 0.5}, TRAIN).by_budget


def scheduler_of(*phases: dict[str, Any], total: int) -> PhaseScheduler:
    specs = parse_phases(phases, hooks=["collect", "update"], marks=hooks_of(PPO))
    return PhaseScheduler(specs, total_steps=total, steps_per_count=1)


@pytest.mark.parametrize("phases", [
    [GATHER, LEARN],
    [{**GATHER, "duration_steps": 50}, {"repeat": 3, "phases": [{**LEARN, "duration_updates": 7}, LOOK]}, TRAIN],
    [{**TRAIN, "duration_updates": 30}, {**LEARN, "duration_updates": 10}, {**TRAIN, "duration_cycles": 9}],
    [{**TRAIN, "duration_steps": 5000}, {**LEARN, "duration_updates": 10}],
])  # fmt: skip
def test_time_never_goes_back_and_ends_at_1(phases: list[Any]) -> None:
    scheduler, seen = scheduler_of(*phases, total=200), []
    while (action := scheduler.next_action()) is not None:
        seen.append(scheduler.reading().fraction)
        done = {"decisions": action.count, "env_steps": action.count} if action.hook == "collect" else {}
        scheduler.advance(action, HookResult(**(done or {"updates": action.count * (action.hook == "update")})))
    assert seen[0] == 0
    assert seen == sorted(seen)
    assert scheduler.reading().fraction == 1


DQN = ("CartPole-v1:dqn", "network.q.hidden_dims=[8]", "algorithm.learning_starts=40", "algorithm.batch_size=8",
       "algorithm.learning_rate=lin_1e-3", "evaluation.episodes=1", "training.total_steps=200", "experiment.compile=off",
       "environment.num_envs=1", "experiment.device=cpu")  # fmt: skip
GATHER_AND_LEARN = (
    "training.phases=[{name: gather, hooks: [collect], duration_steps: 200},"
    " {name: learn, type: offline, hooks: [update], duration_updates: 600}]"
)
EVENTS = ("logging.every_updates=50", "checkpoint.keep=20", "logging.every_steps=50", "checkpoint.every_minutes=null")


def test_in_a_phase_of_updates_rates_evaluations_rows_and_saves_go_on(tmp_path: Path) -> None:
    run = train(DQN[0], tmp_path, *DQN[1:], GATHER_AND_LEARN, *EVENTS)
    rows = read_rows(run.metrics_path)
    learning = [row for row in rows if row["env_steps"] == 200 and row["updates"]]
    evaluated = [row["updates"] for row in learning if "eval/return_mean" in row]
    assert evaluated == list(range(60, 601, 60)), "a tenth of the phase each"
    assert {row["updates"] for row in learning} >= {*range(50, 601, 50)}
    saved = [c.counters["updates"] for c in run.checkpoints().list() if c.kind == "full" and c.counters["env_steps"] == 200]
    assert sorted(saved)[-10:] == list(range(60, 601, 60))
    for row in learning:  # a quarter of the run was gathering; the value is that of the last update taken
        at = 0.25 + 0.75 * (row["updates"] - 1) / 600
        assert row["hp/learning_rate"] == pytest.approx(1e-3 * (1 - at))
        assert row["time/progress"] == pytest.approx(0.25 + 0.75 * row["updates"] / 600)
    best = max(row["eval/return_mean"] for row in rows if "eval/return_mean" in row)
    first = next(row for row in rows if row.get("eval/return_mean") == best)
    assert run.summary["best"]["updates"] == first["updates"]
    assert run.checkpoints().find("best").counters["updates"] == first["updates"]
    assert run.summary["progress"] == 1


def test_evaluations_that_are_off_are_off_in_phases_of_updates_too(tmp_path: Path) -> None:
    run = train(DQN[0], tmp_path, *DQN[1:], GATHER_AND_LEARN, "evaluation.every_steps=0")
    assert not any("eval/return_mean" in row for row in read_rows(run.metrics_path))


@pytest.mark.parametrize("cycles", [3, 9])
def test_a_phase_of_updates_resumes_exactly(cycles: int, tmp_path: Path) -> None:
    whole = train(DQN[0], tmp_path / "whole", *DQN[1:], GATHER_AND_LEARN, *EVENTS)
    with stopped_after(cycles):
        stopped = train(DQN[0], tmp_path / "stopped", *DQN[1:], GATHER_AND_LEARN, *EVENTS)
    assert stopped.status == "interrupted"
    resume(stopped)
    assert_same_run(whole, stopped)


def started(*words: str) -> Orchestrator:
    run = assembly.build(assembly.resolve(compose(DQN[0], words=[*DQN[1:], *words]).config))
    run.begin()
    # A machine that takes a second for an environment step and a tenth of one for an update, and nothing for the rest.
    run.stopwatch = Stopwatch(run.scheduler.clock, lambda: run.counters.env_steps + run.counters.updates / 10)
    return run


def test_the_time_left_is_right_in_each_phase_and_falls() -> None:
    rows = [*started(GATHER_AND_LEARN, *EVENTS).rows()]
    gathering = [row for row in rows if row["time/progress"] <= 0.25]
    learning = [row for row in rows if row["time/progress"] > 0.25]
    # Nothing is known yet of learning: its 600 updates are taken to last as long as 600 steps.
    assert [row["time/eta_s"] for row in gathering] == pytest.approx([800 - row["env_steps"] for row in gathering])
    assert [row["time/eta_s"] for row in learning] == pytest.approx([(600 - row["updates"]) / 10 for row in learning])
    assert len(learning) > 10
    assert all(row["time/updates_per_second"] == pytest.approx(10) for row in learning)
    left = [row["time/eta_s"] for row in rows]
    assert left == sorted(left, reverse=True)


def test_phases_that_come_again_are_known_by_their_speed() -> None:
    again = (
        "training.phases=[{repeat: 2, phases: [{name: gather, hooks: [collect], duration_steps: 100},"
        " {name: learn, type: offline, hooks: [update], duration_updates: 300}]}]"
    )
    rows = [*started(again, *EVENTS).rows()]
    second = [row for row in rows if row["env_steps"] > 100 or row["updates"] >= 300]
    expected = [200 - row["env_steps"] + (600 - row["updates"]) / 10 for row in second]
    assert [row["time/eta_s"] for row in second] == pytest.approx(expected)
