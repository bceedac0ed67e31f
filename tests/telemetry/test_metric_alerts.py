"""Alerts on synthetic histories: averaged over ten rows, said once, never the end of a run, and never in one that does well."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.config.schema import AlertsConfig
from etude.errors import ConfigError
from etude.telemetry.metric_alerts import RETURN, SPREAD, MetricAlerts
from etude.training.run_sinks import alert_rules
from tests.runs_compared import train

HEALTHY = {"train/approx_kl": 0.01, "train/clip_fraction": 0.1, "train/explained_variance": 0.5}
BOTH_SIDES = AlertsConfig(kl_below=0.001, clip_fraction_below=0.05)
Row = dict[str, float]


def history(metric: str, *values: float, **others: float) -> list[Row]:
    return [{**HEALTHY, **others, metric: value, "env_steps": 100.0 * (i + 1)} for i, value in enumerate(values)]


def said(rows: list[Row], options: AlertsConfig | None = None, past: list[Row] | None = None, not_before: int = 0) -> list[str]:
    lines: list[str] = []
    alerts = MetricAlerts(alert_rules(options or BOTH_SIDES), lines.append, past or [], not_before=not_before)
    for row in rows:
        alerts.write([row])
    return lines


@pytest.mark.parametrize(
    ("metric", "value", "side"),
    [
        ("train/approx_kl", 0.06, "above 0.05"),
        ("train/approx_kl", 0.0005, "below 0.001"),
        ("train/clip_fraction", 0.6, "above 0.5"),
        ("train/clip_fraction", 0.02, "below 0.05"),
        ("train/explained_variance", -0.3, "below -0.2"),
    ],
)
def test_a_metric_that_leaves_its_range_is_said_once_with_what_helps(metric: str, value: float, side: str) -> None:
    (line,) = said(history(metric, *[value] * 50))
    assert line.startswith(f"alert: {metric} is {value:.3g} on average over 10 rows, {side}: ")
    assert line.endswith("(at 1,000 environment steps)")
    assert said(history(metric, *[value] * 9)) == [], "ten rows it takes"


def test_a_healthy_history_says_nothing() -> None:
    assert said(history("train/approx_kl", *[0.01] * 50)) == []
    assert said([{"env_steps": 1.0}] * 50) == [], "nor does one without these metrics"


def test_one_bad_row_is_noise_and_ten_in_the_mean_are_not() -> None:
    assert said(history("train/approx_kl", *[0.01] * 5, 0.4, *[0.01] * 9)) == []
    (line,) = said(history("train/approx_kl", *[0.01] * 5, 0.47, *[0.01] * 4))
    assert "is 0.056 on average" in line


@pytest.mark.parametrize("metric", ["train/approx_kl", "train/clip_fraction", "train/explained_variance"])
def test_a_run_that_does_well_is_left_alone(metric: str) -> None:
    """A critic explains nothing of returns that are all alike: 500 at every episode of a solved CartPole."""
    sick = {"train/approx_kl": 0.2, "train/clip_fraction": 0.7, "train/explained_variance": -1.2}[metric]
    learned = [*range(20, 500, 20), *[500] * 60]
    rows = [{metric: sick, RETURN: float(value), "env_steps": 100.0 * i} for i, value in enumerate(learned, 1)]
    assert said(rows, not_before=840) == []
    collapsed = [{**row, RETURN: 30.0, "env_steps": 1e5} for row in rows]
    assert len(said([*rows, *collapsed])) == 1, "but one that falls is not"
    flat = [{**row, RETURN: 20.0} for row in rows]
    assert len(said(flat)) == 1, "nor is one that never learned"
    wandering = [{**row, RETURN: 20.0 + i / 40, SPREAD: 9.0} for i, row in enumerate(rows)]
    assert len(said(wandering)) == 1, "nor one whose returns rose by chance"


def test_nothing_is_said_at_the_beginning() -> None:
    rows = history("train/explained_variance", *[-1.0] * 50)
    (line,) = said(rows, not_before=3000)
    assert line.endswith("(at 3,000 environment steps)")


def test_both_sides_are_said_each_once() -> None:
    lines = said(history("train/approx_kl", *[0.06] * 10, *[0.0001] * 20, *[0.06] * 20))
    assert [line.split(":")[1].split(", ")[1] for line in lines] == ["above 0.05", "below 0.001"]


def test_a_resumed_run_goes_on_with_its_history_and_repeats_nothing() -> None:
    rows = history("train/approx_kl", *[0.06] * 15)
    assert said(rows[3:], past=rows[:3])[0].endswith("(at 1,000 environment steps)")
    assert said(rows[11:], past=rows[:11]) == []


def test_limits_are_settings_and_null_turns_one_off() -> None:
    for metric in ("train/approx_kl", "train/clip_fraction"):
        assert said(history(metric, *[1e-9] * 19), AlertsConfig()) == [], "a policy that has solved its task rests"
    assert "above 0.02" in said(history("train/approx_kl", *[0.03] * 19), AlertsConfig(kl_above=0.02))[0]
    assert said(history("train/approx_kl", *[9.0] * 19), AlertsConfig(kl_above=None)) == []


def test_in_a_run_the_alert_is_a_line_of_the_log_and_nothing_else(tmp_path: Path) -> None:
    limits = ("logging.alerts.explained_variance_below=0.99", "logging.alerts.kl_above=null")
    words = ("training.total_steps=5120", "evaluation.every_steps=0", "algorithm.learning_rate=1e-9", *limits)
    run = train("CartPole-v1:ppo", tmp_path, *words)
    assert run.status == "finished"
    lines = [line for line in run.log_path.read_text().splitlines() if "alert: " in line]
    assert len(lines) == 1
    assert "train/explained_variance" in lines[0]
    with pytest.raises(ConfigError, match=r"logging\.alerts\.kl_above"):
        train("CartPole-v1:ppo", tmp_path, "logging.alerts.kl_above=-1")
