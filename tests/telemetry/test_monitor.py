"""Alerts on synthetic histories: raised once, cleared when healthy again, the same after a resume; none in a healthy run."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from etude.telemetry.alert_log import Transition
from etude.telemetry.metric_rules import Rules, default_rules, parse_rules
from etude.telemetry.monitor import CLEARED_AFTER, Monitor, told
from etude.telemetry.trends import ThroughputDrop

Row = dict[str, float]
HEALTHY = {
    "train/approx_kl": 0.01,
    "train/clip_fraction": 0.1,
    "train/explained_variance": 0.5,
    "train/entropy": 0.6,
    "train/loss": 0.1,
    "time/steps_per_second": 1000.0,
    "system/memory_share": 0.4,
    "system/gpu_memory_share": 0.4,
    "system/disk_free_mib": 50_000.0,
    "collect/return_std": 5.0,
}
RECORDED = Path(__file__).parent / "recorded"


def row(number: int, of: int = 200, **values: Any) -> Row:
    return {
        "decisions": 100 * number,
        "env_steps": 100 * number,
        "updates": 10 * number,
        "episodes": 10 * number,
        "cycles": number,
        "time/progress": number / of,
        "collect/return_mean": 20.0 + 2.0 * number,  # a run that learns
        **HEALTHY,
        **values,
    }


def rows(count: int, first: int = 1, **values: Any) -> list[Row]:
    return [row(number, **values) for number in range(first, first + count)]


def watched(history: list[Row], rules: Rules | None = None, **options: Any) -> tuple[Monitor, list[Transition]]:
    lines: list[Transition] = []
    monitor = Monitor(rules, listeners=[lines.append], **options)
    for each in history:
        monitor.write([each])
    return monitor, lines


def ids(lines: list[Transition]) -> list[tuple[str, str]]:
    return [(line["id"], line["state"]) for line in lines]


FLAT = {"collect/return_mean": 20.0}
FAULTS: dict[str, tuple[list[Row], dict[str, Any]]] = {
    "nan_loss": ([*rows(50), row(51, **{"train/loss": float("nan")})], {}),
    "nan_train/entropy": ([*rows(50), row(51, **{"train/entropy": float("inf")})], {}),
    "entropy_collapse": ([*rows(30, **FLAT), *rows(10, 31, **FLAT, **{"train/entropy": 0.001})], {}),
    "kl_high": ([*rows(50, **FLAT), row(51, **FLAT, **{"train/approx_kl": 0.6})], {}),
    "clip_fraction_high": ([*rows(50, **FLAT), *rows(10, 51, **FLAT, **{"train/clip_fraction": 0.52})], {}),
    "explained_variance_low": ([*rows(50, **FLAT), *rows(10, 51, **FLAT, **{"train/explained_variance": -0.25})], {}),
    "stalled_return": (rows(60, **FLAT), {}),
    "falling_return": ([*rows(100), *rows(6, 101, **{"collect/return_mean": 20.0})], {}),
    "slow_progress": (rows(100, **FLAT), {"threshold": 475.0}),
    "memory_high": ([*rows(5), row(6, **{"system/memory_share": 0.96})], {}),
    "gpu_memory_high": ([*rows(5), row(6, **{"system/gpu_memory_share": 0.98})], {}),
    "disk_low": ([*rows(5), row(6, **{"system/disk_free_mib": 900.0})], {}),
    "throughput_drop": ([*rows(100), *rows(ThroughputDrop.SUSTAINED, 101, **{"time/steps_per_second": 200.0})], {}),
    "skipped_high": ([*rows(5), row(6, **{"train/skipped": 0.1})], {}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_an_alert_at_the_next_look_with_what_to_try(name: str) -> None:
    history, options = FAULTS[name]
    monitor, lines = watched(history[:-1], **options)
    assert name not in monitor.active
    monitor.write(history[-1:])
    assert name in monitor.active
    assert name in monitor.added
    line = next(line for line in lines if line["id"] == name)
    assert line["env_steps"] == history[-1]["env_steps"]
    assert line["tip"]
    assert line["message"]


def test_every_built_in_alert_has_a_planted_fault() -> None:
    rules = default_rules()
    bounds = {
        f"{rule.name}_{side}"
        for rule in rules.metrics.values()
        for side, limit in (("high", rule.max), ("low", rule.min))
        if rule.name and limit is not None
    }
    assert bounds | (set(rules.alerts) - {"nan", "non_finite"}) == set(FAULTS) - {"nan_loss", "nan_train/entropy"}


def test_a_healthy_run_has_none() -> None:
    assert ids(watched(rows(200), threshold=475.0)[1]) == []
    assert ids(watched([{"env_steps": 1.0}] * 50)[1]) == [], "nor has one without these metrics"


HEALTHY_RUNS = sorted(RECORDED.glob("*.jsonl*"))
THRESHOLDS = {"cartpole": 475.0, "acrobot": -100.0, "inverted_pendulum": 950.0, "half_cheetah": 4800.0, "hopper": 3800.0}


@pytest.mark.parametrize("path", HEALTHY_RUNS, ids=lambda path: path.name.partition(".")[0])
def test_recorded_healthy_runs_have_none(path: Path) -> None:
    """Rows of presets that learnt what they should, or were on their way, every column that an alert looks at."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    history = [json.loads(line) for line in text.splitlines()]
    assert len(history) >= 20
    assert ids(watched(history, threshold=THRESHOLDS.get(path.stem.partition("-")[0]))[1]) == []


def test_healthy_runs_of_many_presets_were_recorded() -> None:
    assert len(HEALTHY_RUNS) >= 20


def test_evaluations_that_are_good_are_good_whatever_training_returns() -> None:
    """A policy that improves fast is ahead of the mean over its last episodes, which lie far apart then."""
    negative = {"train/explained_variance": -0.5, "collect/return_mean": 20.0, "collect/return_std": 300.0}
    evaluated = [row(20, **negative, **{"eval/return_mean": 70.0, "eval/return_std": 10.0})]
    good = [row(number, **negative, **{"eval/return_mean": 1000.0, "eval/return_std": 0.0}) for number in range(21, 60)]
    assert ids(watched([*evaluated, *good])[1]) == []
    assert ("explained_variance_low", "raised") in ids(watched(rows(60, **negative))[1])


def test_a_few_episodes_say_nothing_of_returns() -> None:
    """One lucky episode at the beginning, or the same one told in many rows, is neither a fall nor a stall."""
    lucky = [row(number, episodes=1, **{"collect/return_mean": 67.7, "collect/return_std": 0.0}) for number in range(1, 80)]
    usual = {"collect/return_mean": 20.0, "collect/return_std": 30.0}
    assert ids(watched([*lucky, *rows(20, 80, episodes=2, **usual), *rows(20, 100, episodes=30, **usual)])[1]) == []


def test_an_alert_is_raised_once_and_cleared_once_healthy_again() -> None:
    sick = {"system/memory_share": 0.99}
    monitor, lines = watched([*rows(5), *rows(10, 6, **sick)])
    assert ids(lines) == [("memory_high", "raised")]
    monitor.write(rows(CLEARED_AFTER - 1, 16))
    assert "memory_high" in monitor.active, "a value about its limit is not news at every row"
    monitor.write(rows(1, 18))
    assert monitor.active == {}
    assert monitor.removed == ["memory_high"]
    monitor.write(rows(1, 19, **sick))
    assert ids(lines) == [("memory_high", state) for state in ("raised", "cleared", "raised")]


def test_the_recap_is_sorted_by_how_long_each_was_active() -> None:
    short, long = {"system/disk_free_mib": 1.0}, {"system/memory_share": 0.99}
    monitor, _ = watched([*rows(5, **short), *rows(20, 6, **long)])
    found = [(each.alert.id, each.rows, each.of, each.is_active) for each in monitor.recap()]
    assert found == [("memory_high", 20, 25, True), ("disk_low", 7, 25, False)]


def test_a_resumed_run_knows_what_it_knew_and_repeats_nothing() -> None:
    history = [*rows(5), *rows(10, 6, **{"system/memory_share": 0.99}), *rows(10, 16)]
    whole, uncut = watched(history)
    for cut in range(len(history) + 1):
        before, told_before = watched(history[:cut])
        told_after: list[Transition] = []
        monitor = Monitor(listeners=[told_after.append])
        monitor.go_on(history[:cut], told_before)
        assert list(monitor.active) == list(before.active)
        assert [alert.time for alert in monitor.active.values()] == [alert.time for alert in before.active.values()]
        monitor.write(history[cut:])
        assert ids([*told_before, *told_after]) == ids(uncut)
        assert [(each.alert.id, each.rows) for each in monitor.recap()] == [
            (each.alert.id, each.rows) for each in whole.recap()
        ]


def test_other_rules_after_a_resume_are_told_at_once() -> None:
    history = rows(20, **{"system/memory_share": 0.8})
    stricter = parse_rules("metrics: {system/memory_share: {max: 0.7}}", "rules.yaml")
    lines: list[Transition] = []
    monitor = Monitor(stricter, listeners=[lines.append])
    monitor.go_on(history, [])
    assert ids(lines) == [("memory_high", "raised")]
    again: list[Transition] = []
    Monitor(listeners=[again.append]).go_on(history, lines)
    assert ids(again) == [("memory_high", "cleared")]


def test_ones_own_alert_outlives_a_resume_and_is_cleared_by_who_sent_it() -> None:
    monitor, lines = watched(rows(3))
    monitor.send_alert("mine", "too \x1b[2J much", tip="less")
    monitor.send_alert("mine", "once more")
    assert ids(lines) == [("mine", "raised")]
    assert "\x1b" not in lines[0]["message"]
    resumed: list[Transition] = []
    other = Monitor(listeners=[resumed.append])
    other.go_on(rows(3), lines)
    other.write(rows(5, 4))
    assert "mine" in other.active
    other.clear_alert("mine")
    assert ids(resumed) == [("mine", "cleared")]
    assert resumed[0]["env_steps"] == 800


def test_a_listener_that_fails_is_heard_no_more_and_the_others_are() -> None:
    said: list[str] = []
    lines: list[Transition] = []

    def broken(line: Transition) -> None:
        raise RuntimeError("nobody home")

    monitor = Monitor(listeners=[broken, lines.append], on_failure=said.append)
    monitor.send_alert("a", "first")
    monitor.send_alert("b", "second")
    assert ids(lines) == [("a", "raised"), ("b", "raised")]
    assert len(said) == 1
    assert "nobody home" in said[0]


def test_strict_gives_a_reason_to_stop_and_else_there_is_none() -> None:
    sick = row(1, **{"system/memory_share": 0.99})
    assert watched([sick])[0].reason_to_stop is None
    reason = watched([sick], strict=True)[0].reason_to_stop
    assert reason == "alert memory_high: system/memory_share is 0.99, above 0.95"
    resumed = Monitor(strict=True)
    resumed.go_on([sick], [])
    assert resumed.reason_to_stop is None, "who resumed it knows"


def test_zero_is_a_bound_and_a_metric_may_be_told_not_to_fall() -> None:
    rules = parse_rules('metrics: {a/b: {min: 0, name: b}, "c/*": {delta: ">="}}', "rules.yaml")
    assert ids(watched([{"a/b": 0.0}, {"a/b": -0.1}], rules)[1]) == [("b_low", "raised")]
    assert ids(watched([{"c/d": 1.0}, {"c/d": 1.0}, {"c/d": 2.0}, {"c/d": 1.5}], rules)[1]) == [("c/d_fell", "raised")]


def test_values_that_are_nan_are_ignored_where_a_rule_says_so() -> None:
    history = [{"a/b": float("nan"), "time/eta_s": float("inf")}]
    assert ids(watched(history)[1]) == [("nan_a/b", "raised")]
    assert ids(watched(history, parse_rules("metrics: {a/b: {nan: ignore}}", "rules.yaml"))[1]) == []


@pytest.mark.parametrize("metric", ["train/approx_kl", "train/clip_fraction", "train/explained_variance"])
def test_a_run_that_does_well_is_left_alone(metric: str) -> None:
    """A critic explains nothing of returns that are all alike: 500 at every episode of a solved CartPole."""
    sick = {"train/approx_kl": 0.2, "train/clip_fraction": 0.7, "train/explained_variance": -1.2}[metric]
    learned = [*range(20, 500, 20), *[500] * 60]
    history = [row(i, len(learned), **{metric: sick, "collect/return_mean": float(v)}) for i, v in enumerate(learned, 1)]
    # The first rows have risen by less than the spread; from then on it does well.
    assert ids(watched(history[12:])[1]) == []
    flat = [{**each, "collect/return_mean": 20.0} for each in history]
    assert any(line["metric"] == metric for line in watched(flat)[1]), "one that never learned is not"
    wandering = [{**each, "collect/return_mean": 20.0 + i / 40, "collect/return_std": 9.0} for i, each in enumerate(history)]
    assert any(line["metric"] == metric for line in watched(wandering)[1]), "nor is one whose returns rose by chance"


def test_nothing_is_said_of_policies_at_the_beginning() -> None:
    (line,) = list(watched(rows(50, **FLAT, **{"train/explained_variance": -1.0}))[1])
    assert line["env_steps"] == 2000, "a tenth of the run"


def test_what_samples_at_a_temperature_may_lose_its_entropy() -> None:
    falling = [row(i, **FLAT, **{"train/entropy": 1.0 if i < 20 else -3.0, "train/alpha": 0.1}) for i in range(1, 50)]
    assert "entropy_collapse" not in dict(ids(watched(falling)[1]))


def test_steps_before_learning_are_no_measure_of_speed() -> None:
    """Random steps are fast; updates make them ten times as slow, and nothing is wrong."""
    fast = [row(i, **{"updates": 0, "time/steps_per_second": 20_000.0}) for i in range(1, 40)]
    mixed = [row(40 + i, **{"time/steps_per_second": 20_000.0 - 900 * i}) for i in range(21)]
    assert ids(watched([*fast, *mixed, *rows(100, 61)])[1]) == []


def test_an_alert_is_told_with_its_tip_and_the_counter_of_the_rules() -> None:
    _, lines = watched([row(7, **{"system/disk_free_mib": 1.0})])
    assert told(lines[0]).startswith("alert disk_low: system/disk_free_mib is 1, below 1024; a run that can't be saved stops")
    assert told(lines[0]).endswith("(at 700 environment steps)")
    assert told(lines[0], "updates").endswith("(at 70 updates)")
    assert told({**lines[0], "state": "cleared"}) == "alert disk_low cleared at 700 environment steps"
