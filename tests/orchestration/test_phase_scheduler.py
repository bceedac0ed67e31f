"""Phases end exactly where they say, whatever the hooks, and the scheduler's state says exactly where it stands."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etude.config.hooks import Hook, hooks_of
from etude.config.phases import parse_phases
from etude.errors import EtudeError
from etude.orchestration.phase_scheduler import Action, PhaseScheduler
from etude.workflows.base import HookResult
from etude.workflows.ppo import PPO

NUM_ENVS = 4


def _do(action: Action) -> HookResult:
    if action.hook == "collect":
        steps = action.count * NUM_ENVS
        return HookResult(decisions=steps, env_steps=steps)
    if action.hook == "evaluate":
        return HookResult()
    return HookResult(updates=action.count)


def _scheduler(phases: Any, total: int) -> PhaseScheduler:
    specs = parse_phases(phases, hooks=["collect", "update"], marks=hooks_of(PPO))
    return PhaseScheduler(specs, total_steps=total, steps_per_count=NUM_ENVS)


def _walk(scheduler: PhaseScheduler, most: int = 10_000) -> list[tuple[str, str, int]]:
    trace = []
    for _ in range(most):
        action = scheduler.next_action(0, 0)
        if action is None:
            return trace
        trace.append((scheduler.current_phase.name, action.hook, action.count))
        scheduler.advance(action, _do(action))
    raise AssertionError("it never ends")


@st.composite
def _curricula(draw: st.DrawFn) -> tuple[list[dict[str, Any]], int]:
    phases: list[dict[str, Any]] = []
    for index in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["online", "offline", "eval_only"]))
        phase: dict[str, Any] = {"name": f"p{index}", "type": kind}
        if kind == "online":
            every, count = draw(st.integers(1, 3)), draw(st.integers(1, 5))
            ratio = draw(st.sampled_from([None, 0.25, "1/3", 2]))
            update: Any = {"update": {"ratio": ratio}} if ratio else {"update": {"every": every}}
            phase["hooks"] = [{"collect": {"count": count}}, update]
            phase["duration_steps"] = draw(st.integers(1, 80))
        elif kind == "offline":
            phase["hooks"] = [{"update": {"count": draw(st.integers(1, 3))}}]
            phase["duration_updates"] = draw(st.integers(1, 20))
        phases.append(phase)
    return phases, draw(st.integers(20, 400))


@settings(max_examples=150, deadline=None)
@given(_curricula())
def test_every_phase_ends_at_its_duration_and_the_total_caps_them_all(case: tuple[list[dict[str, Any]], int]) -> None:
    phases, total = case
    trace = _walk(_scheduler(phases, total))
    left = total
    for phase in phases:
        name = phase["name"]
        steps = sum(units * NUM_ENVS for p, hook, units in trace if p == name and hook == "collect")
        updates = sum(units for p, hook, units in trace if p == name and hook == "update")
        if phase["type"] == "online":
            wanted = min(phase["duration_steps"], max(0, left))
            assert wanted <= steps < wanted + NUM_ENVS
            left -= steps
        elif phase["type"] == "offline":
            size = phase["hooks"][0]["update"]["count"]
            assert phase["duration_updates"] <= updates < phase["duration_updates"] + size
        else:
            assert [hook for p, hook, _ in trace if p == name] == ["evaluate"]


@settings(max_examples=60, deadline=None)
@given(_curricula(), st.integers(0, 40))
def test_state_saved_at_any_hook_continues_with_the_same_trace(case: tuple[list[dict[str, Any]], int], stop: int) -> None:
    phases, total = case
    expected = _walk(_scheduler(phases, total))
    first, trace = _scheduler(phases, total), []
    for _ in range(stop):
        action = first.next_action(0, 0)
        if action is None:
            break
        trace.append((first.current_phase.name, action.hook, action.count))
        first.advance(action, _do(action))
    second = _scheduler(phases, total)
    second.load_state_dict(first.state_dict())
    assert trace + _walk(second) == expected


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 200), st.integers(0, 50))
def test_merged_cycles_do_the_same_work_as_single_ones(count: int, duration: int, limit: int) -> None:
    phases = [{"name": "gather", "hooks": [{"collect": {"count": count}}], "duration_steps": duration}]
    single, merged = _scheduler(phases, 10**6), _scheduler(phases, 10**6)
    expected = sum(units for _, _, units in _walk(single))
    done = 0
    while (action := merged.next_action(limit, limit)) is not None:
        assert action.count * NUM_ENVS <= max(limit, count * NUM_ENVS)
        done += action.count
        merged.advance(action, _do(action))
    assert done == expected
    assert merged.counters.cycles == single.counters.cycles


@pytest.mark.parametrize("ratio", ["1/3", 0.5, 0.1, 1, 3, "7/5"])
def test_a_ratio_is_exact_over_the_phase(ratio: Any) -> None:
    phases = [{"name": "joint", "hooks": ["collect", {"update": {"ratio": ratio}}], "duration_steps": 4 * 997}]
    trace = _walk(_scheduler(phases, 10**6))
    updates = sum(units for _, hook, units in trace if hook == "update")
    assert updates == int(Fraction(str(ratio)) * 4 * 997)


def test_updates_missed_while_a_buffer_fills_are_forgiven() -> None:
    scheduler = _scheduler([{"name": "joint", "hooks": ["collect", {"update": {"ratio": 1}}], "duration_steps": 400}], 10**6)
    updates = 0
    while (action := scheduler.next_action()) is not None:
        ready = scheduler.view().steps_done > 200
        result = _do(action) if action.hook == "collect" or ready else HookResult()
        updates += result.updates
        scheduler.advance(action, result)
    assert updates == 200  # one for each decision since the buffer was ready; none of the 200 before are caught up on


def test_skipped_updates_do_not_count_towards_a_duration() -> None:
    scheduler = _scheduler([{"name": "x", "hooks": ["collect", "update"], "duration_updates": 5}], 10**6)
    calls = 0
    while (action := scheduler.next_action()) is not None:
        calls += action.hook == "update"
        skipped = action.hook == "update" and calls <= 10
        scheduler.advance(action, HookResult() if skipped else _do(action))
    assert calls == 15


def test_a_phase_ends_when_a_metric_passes_its_bound() -> None:
    phases = [{"name": "warm", "until": {"metric": "eval/return_mean", "above": 10}}, {"name": "rest", "duration_steps": 8}]
    scheduler = _scheduler(phases, 10**6)
    for value in (1.0, 9.9):
        scheduler.note_row({"eval/return_mean": value})
        assert scheduler.current_phase.name == "warm"
    scheduler.note_row({"eval/return_mean": 10.0})
    assert scheduler.current_phase.name == "rest"
    assert {phase for phase, _, _ in _walk(scheduler)} == {"rest"}


def test_a_cycle_that_does_nothing_is_an_error_not_an_endless_loop() -> None:
    scheduler = _scheduler([{"name": "stuck", "hooks": ["update"], "duration_steps": 10}], 100)
    action = scheduler.next_action()
    assert action is not None
    with pytest.raises(EtudeError, match="phase 'stuck' did nothing in a whole cycle"):
        scheduler.advance(action, HookResult())


def test_a_hook_that_takes_long_is_asked_for_one_at_a_time() -> None:
    marks = {"dream": Hook(takes_long=True)}
    for count, cycles in ((1, 6), (3, 2)):
        hooks = [{"dream": {"count": count}}]
        specs = parse_phases([{"name": "d", "type": "offline", "hooks": hooks, "duration_updates": 6}], hooks=[], marks=marks)
        scheduler = PhaseScheduler(specs, total_steps=100, steps_per_count=NUM_ENVS)
        while (action := scheduler.next_action(100, 100)) is not None:
            assert action == Action("dream", 1)
            scheduler.advance(action, HookResult(updates=1))
        assert (scheduler.counters.updates, scheduler.counters.cycles) == (6, cycles)


def test_a_hook_sees_its_phase() -> None:
    phases = [{"name": "joint", "hooks": ["collect", "update"], "duration_steps": 40, "extra": {"beta": 0.9}}]
    scheduler = _scheduler(phases, 80)
    for _ in range(10):
        action = scheduler.next_action()
        assert action is not None
        scheduler.advance(action, _do(action))
    view = scheduler.view()
    assert (view.name, view.type, view.extra) == ("joint", "online", {"beta": 0.9})
    assert (view.steps_done, view.updates_done, view.cycles_done) == (20, 5, 5)
    assert view.progress == pytest.approx(0.5)
    with pytest.raises(AttributeError):
        view.name = "other"  # type: ignore[misc]


def _cycles_began(phases: Any, total: int, limits: tuple[int | None, int | None]) -> dict[tuple[str, int], int]:
    """Where the cycle of each hook's every unit began, by the phase and the work done in it."""
    scheduler, began = _scheduler(phases, total), {}
    while (action := scheduler.next_action(*limits)) is not None:
        view = scheduler.view()
        result = _do(action)
        assert view.cycle_began is not None
        began |= {(view.name, view.steps_done + k): view.cycle_began for k in range(max(1, result.env_steps))}
        scheduler.advance(action, result)
    return began


def test_a_cycle_begins_where_the_one_before_ended() -> None:
    # Defect 32: schedules are read there.
    phases = [{"name": "both", "hooks": [{"collect": {"count": 2}}, "update"]}]
    scheduler, seen = _scheduler(phases, 24), []
    while (action := scheduler.next_action(0, 0)) is not None:
        seen.append((action.hook, scheduler.view().cycle_began))
        scheduler.advance(action, _do(action))
    assert seen == [("collect", 0), ("update", 0), ("collect", 8), ("update", 8), ("collect", 16), ("update", 16)]


def test_merged_cycles_begin_where_single_ones_do() -> None:
    phases = [
        {"name": "first", "hooks": [{"collect": {"count": 1}}], "duration_steps": 40},
        {"name": "then", "hooks": [{"collect": {"count": 2}}, "update"], "duration_steps": 40},
        {"name": "last", "hooks": [{"collect": {"count": 1}}]},
    ]
    assert _cycles_began(phases, 200, (None, None)) == _cycles_began(phases, 200, (0, 0))


def test_an_older_state_knows_where_its_cycle_began() -> None:
    scheduler = _scheduler([{"name": "both", "hooks": [{"collect": {"count": 4}}, "update"]}], 24)  # ends within a rollout
    _walk(scheduler)
    state = scheduler.state_dict()
    assert state["cycle_began"] == 16
    older = {key: value for key, value in state.items() if key not in ("cycle_began", "decisions_began", "count")}
    older["units"] = state["count"]  # as it was called
    again = _scheduler([{"name": "both", "hooks": [{"collect": {"count": 4}}, "update"]}], 64)
    again.load_state_dict(older)
    assert again.view().cycle_began == 16
    assert again.state_dict()["count"] == state["count"] == 2
