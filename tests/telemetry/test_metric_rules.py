"""The file of rules: what is wrong with it is one clear line, and a user's file says only what differs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from etude.errors import ConfigError, UserError
from etude.telemetry.metric_rules import default_rules, parse_rules, read_rules


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("metrics: {train/loss: {mx: 3}}", "f.yaml: metrics.train/loss.mx: there is no such key; did you mean 'max'?"),
        ("metric: {}", "metric: there is no such key; did you mean 'metrics'?"),
        ("alerts: {stalled: {}}", "alerts.stalled: there is no such key; did you mean 'stalled_return'?"),
        ("alerts: {nan: {rows: 1}}", "alerts.nan.rows=1: must be from 2 to 10000"),
        ("table: {step_key: steps}", "did you mean 'env_steps'?"),
        ("table: {key_priority: train/loss}", "must be a list of metrics"),
        ("metrics: [1]", "metrics: [1] is no mapping"),
        ("- 1", "the file: [1] is no mapping"),
        ("metrics: {a: 3}", "metrics.a: 3 is no mapping"),
        ("metrics: {a: {min: 3, max: 0}}", "min=3 is above max=0"),
        ("metrics: {a: {precision: 1.5}}", "must be a whole number"),
        ("metrics: {a: {precision: true}}", "must be a number"),
        ("metrics: {a: {max: .nan}}", "must be a number"),
        ("metrics: {a: {max: '3'}}", "must be a number"),
        ("metrics: {a: {smooth: 0}}", "must be from 1 to 1000"),
        ("metrics: {a: {nan: alrt}}", "must be alert or ignore; did you mean 'alert'?"),
        ("metrics: {a: {delta: '>'}}", "must be >= or <="),
        ("metrics: {a: {bold: 3}}", "must be true or false"),
        ("metrics: {a: {tip: 3}}", "must be text"),
        ("version: 2", "this Etude reads version 1"),
        ("a: [", "f.yaml:2: "),
        ("a: " + "[" * 1000, "f.yaml"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(problem)):
        parse_rules(text, "f.yaml")


def test_a_file_says_only_what_differs() -> None:
    ours = default_rules()
    rules = parse_rules("metrics: {train/approx_kl: {max: 0.02}}\nalerts: {stalled_return: {enabled: false}}", "f.yaml")
    assert rules.of("train/approx_kl").max == 0.02
    assert rules.of("train/approx_kl").tip_high == ours.of("train/approx_kl").tip_high
    assert not rules.alerts["stalled_return"].enabled
    assert rules.alerts["stalled_return"].rows == ours.alerts["stalled_return"].rows
    assert rules.table == ours.table
    assert parse_rules("metrics: {train/approx_kl: {max: null}}", "f.yaml").of("train/approx_kl").max is None
    assert parse_rules("", "f.yaml").metrics == ours.metrics


def test_a_name_goes_before_a_pattern_and_the_users_pattern_before_ours() -> None:
    rules = parse_rules('metrics: {"train/*": {precision: 2}, train/loss: {precision: 5}}', "f.yaml")
    assert rules.of("train/loss").precision == 5
    assert rules.of("train/actor_grad_norm").precision == 2
    assert rules.of("eval/success_rate").better == "higher"
    assert rules.of("nobody/knows").min is None


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such file"):
        read_rules(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="folder"):
        read_rules(tmp_path)
