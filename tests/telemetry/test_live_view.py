from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from etude.telemetry.history import History
from etude.telemetry.live_view import draw
from etude.telemetry.metric_rules import parse_rules
from etude.telemetry.monitor import Monitor

GOLDEN = Path(__file__).parent / "golden"


def history_of(rows):
    history = History()
    for row in rows:
        history.record(row)
    return history


def text_of(lines):
    return "".join(line.plain.rstrip() + "\n" for line in lines)


@pytest.mark.parametrize(("width", "height"), [(60, 14), (80, 24), (120, 40)])
def test_the_view_at_sixty_percent_looks_as_it_did(header, rows, width, height):
    drawn = text_of(draw(header, history_of(rows[:59]), width, height))
    golden = GOLDEN / f"live_view_{width}x{height}.txt"
    assert drawn == golden.read_text(encoding="utf-8"), f"if this is better, write it to {golden}:\n{drawn}"


@pytest.mark.parametrize("width", [20, 40, 60, 61, 79, 80, 100, 110, 200])
@pytest.mark.parametrize("height", [1, 2, 3, 5, 8, 13, 40])
@pytest.mark.parametrize("count", [0, 1, 97])
def test_it_always_fits_the_terminal(header, rows, width, height, count):
    long_name = {"a_namespace/with_a_very_long_metric_name_that_never_ends": -1.23456e-7, "collect/x": math.nan}
    lines = draw(header, history_of([{**row, **long_name} for row in rows[:count]]), width, height)
    assert len(lines) <= height
    assert all(line.cell_len <= width for line in lines)


def test_a_short_terminal_keeps_the_most_important_metrics(header, rows):
    lines = text_of(draw(header, history_of(rows), 80, 6)).splitlines()
    assert lines[3].startswith("collect return_mean")
    assert lines[4].startswith("eval    return_mean")
    assert lines[5].startswith("+14 more")


def test_only_returns_are_coloured_by_direction(header):
    history = history_of([{"collect/return_mean": 1.0, "train/policy_loss": 1.0, "eval/return_std": 1.0}])
    history.record({"collect/return_mean": 2.0, "train/policy_loss": 2.0, "eval/return_std": 2.0})
    history.record({"collect/return_mean": 1.5, "train/policy_loss": 2.0, "eval/return_std": 1.0})
    by_name = {line.plain.split()[1]: line for line in draw(header, history, 80, 40)[3:]}
    arrows = {
        name: next((line.plain[span.start], str(span.style)) for span in line.spans if line.plain[span.start] in "↑↓→")
        for name, line in by_name.items()
    }
    assert arrows == {
        "return_mean": ("↓", "red"),
        "policy_loss": ("→", "bright_black"),
        "return_std": ("↓", "bright_black"),
    }


def test_a_best_return_is_starred_beside_its_mean_and_has_no_line_of_its_own(header):
    history = history_of([{"eval/return_mean": 5.0, "eval/return_best": 5.0}])
    view = text_of(draw(header, history, 110, 40))
    assert "★ best 5.000" in view
    assert "return_best" not in view
    history.record({"eval/return_mean": 4.0, "eval/return_best": 5.0})
    view = text_of(draw(header, history, 110, 40))
    assert "best 5.000" in view
    assert "★" not in view


def test_an_offline_run_counts_updates(header, rows):
    offline = dataclasses.replace(header, total_steps=None, total_updates=10_000)
    progress = draw(offline, history_of(rows[:50]), 80, 40)[1].plain
    assert " 40%  4,000 / 10,000 updates" in progress


def test_without_a_budget_there_is_no_bar(header, rows):
    endless = dataclasses.replace(header, total_steps=None)
    progress = draw(endless, history_of(rows[:50]), 80, 40)[1].plain
    assert progress.startswith("51,200 steps")


RULES = """
table: {key_priority: [train/entropy, collect/return_mean]}
metrics:
  train/entropy: {precision: 2, highlight: true, bold: true}
  train/grad_norm: {show_in_table: false, max: 0.001, name: grad_norm}
  train/approx_kl: {max: 0.001, smooth: 1, quiet_while_good: false, name: kl}
  train/value_loss: {better: lower}
  time/steps_per_second: {show_in_table: true}
"""


def watched(rows):
    monitor = Monitor(parse_rules(RULES, "rules.yaml"))
    monitor.write(rows)
    return monitor


@pytest.mark.parametrize(("width", "height"), [(60, 9), (100, 30)])
def test_the_view_with_rules_and_alerts_looks_as_it_did(header, rows, width, height):
    monitor = watched(rows[:59])
    drawn = text_of(draw(header, history_of(rows[:59]), width, height, rules=monitor.rules, active=monitor.active))
    golden = GOLDEN / f"live_view_alerts_{width}x{height}.txt"
    assert drawn == golden.read_text(encoding="utf-8"), f"if this is better, write it to {golden}:\n{drawn}"
    assert "! kl_high · grad_norm_high" in drawn


def test_rules_style_the_table_and_alerts_are_marked(header, rows):
    monitor = watched(rows[:59])
    lines = draw(header, history_of(rows[:59]), 110, 40, rules=monitor.rules, active=monitor.active)
    by_name = {line.plain.replace("train ", "").split()[0].rstrip("!"): line for line in lines[4:] if line.plain.strip()}
    styles = {name: " ".join(str(span.style) for span in line.spans) for name, line in by_name.items()}
    assert "on blue" in styles["entropy"]
    assert "green" in styles["value_loss"] or "red" in styles["value_loss"]
    assert "on blue" not in styles["value_loss"]
    assert "yellow" in styles["approx_kl"]
    assert "grad_norm" not in by_name
