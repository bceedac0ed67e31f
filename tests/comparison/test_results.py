"""The numbers of a comparison, and that it says what makes them less than they seem."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from etude.comparison.notes import notes
from etude.comparison.report import curve_rows, report, table_rows
from etude.comparison.results import compare
from etude.comparison.text import terminal
from etude.errors import UserError
from tests.comparison.synthetic import two_setups, write_run


def said(*paths: Path, **options) -> str:
    return "\n".join(notes(compare(paths, **options)))


def test_each_group_has_its_mean_iqm_and_range_over_seeds(tmp_path: Path) -> None:
    first, second = compare(two_setups(tmp_path)).of("eval/return_mean")
    assert first.summary is not None
    assert second.summary is not None
    assert (first.summary.mean.value, first.summary.low, first.summary.high, first.summary.count) == (110, 100, 120, 3)
    assert first.summary.mean.interval == pytest.approx((100, 120), abs=4)
    assert second.summary.mean.value == 50
    assert first.best == 120
    assert first.summary.optimality_gap is not None
    assert first.summary.optimality_gap.value == 475 - 110


def test_the_better_group_is_higher_with_probability_one(tmp_path: Path) -> None:
    (chance,) = compare(two_setups(tmp_path)).improvements
    assert (chance.first, chance.second, chance.probability.value) == ("gamma=0.98", "gamma=0.9", 1.0)


def test_methods_are_compared_on_the_environments_they_share(tmp_path: Path) -> None:
    paths = []
    for environment, (ppo, sac) in {"A-v0": (1.0, 2.0), "B-v0": (5.0, 4.0), "C-v0": (0.0, None)}.items():
        for seed in (1, 2):
            options = {"seed": seed, "environment": environment}
            paths.append(write_run(tmp_path, f"ppo-{environment}", returns=[ppo] * 4, **options))
            if sac is not None:
                paths.append(write_run(tmp_path, f"sac-{environment}", returns=[sac] * 4, algorithm="sac", **options))
    (chance,) = compare(paths, by="algorithm").improvements
    assert chance.environments == ("A-v0", "B-v0")
    assert chance.probability.value == 0.5  # always higher on one, never on the other


def test_the_order_of_runs_changes_no_number(tmp_path: Path) -> None:
    paths = two_setups(tmp_path)
    first, second = (report(compare(order)) for order in (paths, [*paths[2::-1], *paths[:2:-1]]))
    assert first == second


def test_unequal_lengths_are_said_and_can_be_cut_to_the_common_part(tmp_path: Path) -> None:
    paths = [write_run(tmp_path, "long"), write_run(tmp_path, "short", seed=2, returns=[1.0, 2.0], steps=[1000, 2000])]
    assert "unequal lengths (2,000 to 4,000 environment steps)" in said(*paths)
    (result,) = compare(paths, at="common").results
    assert sorted(result.values.values()) == [2.0, 20.0]
    assert "unequal" not in said(*paths, at="common")
    (result,) = compare(paths, at="3500").results
    assert sorted(result.values.values()) == [2.0, 30.0]
    assert "ended before 3,500" in said(*paths, at="3500")
    (result,) = compare(paths, at="common", axis="updates").results
    assert sorted(result.values.values()) == [2.0, 20.0]


@pytest.mark.parametrize("at", ["soon", "-5", "nan"])
def test_a_position_that_is_none_is_an_error(tmp_path: Path, at: str) -> None:
    with pytest.raises(UserError, match=f"--at {at}: must be last, common or a number"):
        compare([write_run(tmp_path, "a")], at=at)


def test_a_run_that_ended_at_nan_is_counted_and_left_out(tmp_path: Path) -> None:
    paths = [write_run(tmp_path, "a"), write_run(tmp_path, "a", seed=2, returns=[10, 20, 30, math.nan])]
    (result,) = compare(paths).results
    assert result.summary is not None
    assert (result.summary.count, result.summary.mean.value, result.not_finite) == (1, 40, 1)
    assert "1 of 2 runs of A ended at NaN" in said(*paths)
    assert json.loads(json.dumps(report(compare(paths)), allow_nan=False))["results"][0]["not_finite"] == 1


def test_runs_that_all_ended_at_nan_have_no_summary(tmp_path: Path) -> None:
    (result,) = compare([write_run(tmp_path, "a", returns=[math.nan] * 4)]).results
    assert result.summary is None
    assert result.best is None


def test_one_run_alone_has_values_and_no_interval(tmp_path: Path) -> None:
    comparison = compare([write_run(tmp_path, "a")])
    assert comparison.results[0].summary is not None
    assert comparison.results[0].summary.mean == (40.0, None)
    assert comparison.improvements == []
    assert "no interval: A" in notes(comparison)[-1]


def test_the_same_run_twice_counts_once(tmp_path: Path) -> None:
    path = write_run(tmp_path, "a")
    assert len(compare([path, path / ".." / path.name]).members) == 1


def test_a_metric_that_some_runs_lack_is_said(tmp_path: Path) -> None:
    paths = [write_run(tmp_path, "a"), write_run(tmp_path, "a", seed=2, metrics={"train/kl": [1, 2, 3, 4]})]
    assert "train/kl: no value in 1 of 2 runs of A" in said(*paths, metrics=["train/kl"])


def test_metrics_may_be_patterns_and_an_unknown_one_is_an_error(tmp_path: Path) -> None:
    paths = two_setups(tmp_path)
    assert compare(paths, metrics=["train/*", "eval/return_mean"]).metrics == ["train/entropy", "eval/return_mean"]
    with pytest.raises(UserError, match=r"--metrics train/entrpy: .*did you mean 'train/entropy'"):
        compare(paths, metrics=["train/entrpy"])


def test_without_evaluations_the_collected_return_is_compared(tmp_path: Path) -> None:
    path = write_run(tmp_path, "a", returns=(), metrics={"collect/return_mean": [1, 2, 3, 4], "train/loss": [1, 1, 1, 1]})
    assert compare([path]).metrics == ["collect/return_mean"]


def test_crashed_runs_take_part_and_are_named(tmp_path: Path) -> None:
    paths = [write_run(tmp_path, "a"), write_run(tmp_path, "a", seed=2, status="running")]
    assert f"not finished: {paths[1].name} (crashed)" in said(*paths)
    assert len(compare(paths).results[0].values) == 2


def test_a_run_without_metrics_is_named_and_the_others_are_compared(tmp_path: Path) -> None:
    whole, empty, damaged = (write_run(tmp_path, "a", seed=seed) for seed in (1, 2, 3))
    (empty / "metrics.jsonl").unlink()
    (damaged / "metrics.jsonl").write_text("no json\n{}\n")
    lines = said(whole, empty, damaged)
    assert f"{empty.name} has no metrics yet" in lines
    assert f"{damaged.name}: its metrics are left out" in lines
    with pytest.raises(UserError, match="the run has no metrics yet"):
        compare([empty])


def test_a_torn_last_line_is_said(tmp_path: Path) -> None:
    path = write_run(tmp_path, "a")
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"env_steps": 50')
    assert "the last line is incomplete" in said(path)


def test_a_folder_that_is_no_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a run directory"):
        compare([tmp_path])


def test_other_environments_code_and_versions_are_said_in_a_line_each(tmp_path: Path) -> None:
    paths = [
        write_run(tmp_path, "a"),
        write_run(tmp_path, "b", environment="Pendulum-v1", commit="b" * 40, packages={"torch": "2.12", "rich": "9"}),
    ]
    lines = said(*paths)
    assert "different environments (CartPole-v1, Pendulum-v1)" in lines
    assert "different code: A aaaaaaaaa, B bbbbbbbbb" in lines
    assert "different versions: torch A 2.13, B 2.12" in lines
    assert "rich differ in version too" in lines


def test_the_same_seed_again_is_no_new_evidence(tmp_path: Path) -> None:
    paths = [write_run(tmp_path, name, seed=1) for name in ("a", "b")]
    assert "A has several runs of seed 1" in said(*paths)


def test_rows_for_other_programs_are_flat_and_exact(tmp_path: Path) -> None:
    third = 1 / 3
    paths = [write_run(tmp_path, "a", seed=seed, returns=[0, 0, 0, third * seed]) for seed in (1, 2)]
    comparison = compare(paths)
    (row,) = table_rows(comparison)
    assert row["mean"] == (third + 2 * third) / 2
    assert row["seeds"] == "1 2"
    rows = curve_rows(comparison)
    assert [row["env_steps"] for row in rows] == [1000, 2000, 3000, 4000]
    assert rows[-1]["mean"] == pytest.approx(0.5)
    assert rows[-1]["runs"] == 2


def test_smoothing_is_only_done_when_asked(tmp_path: Path) -> None:
    path = write_run(tmp_path, "a", returns=[0, 10, 0, 10])
    plain, smooth = compare([path]), compare([path], smooth=0.5)
    assert plain.band(plain.groups[0], "eval/return_mean").value.tolist() == [0, 10, 0, 10]
    assert smooth.band(smooth.groups[0], "eval/return_mean").value == pytest.approx([0, 10 / 3, 20 / 3, 10])


def test_the_best_loss_is_the_lowest(tmp_path: Path) -> None:
    # Defect 24: BEST was the highest, of losses too.
    metrics = {"train/critic_loss": [4.0, 1.0, 2.0, 3.0], "train/entropy": [1.0, 2.0, 1.5, 1.0]}
    path = write_run(tmp_path, "a", metrics=metrics)
    comparison = compare([path], metrics=["eval/return_mean", "train/critic_loss", "train/entropy"])
    assert [(result.best, result.lowest_is_best) for result in comparison.results] == [(40.0, False), (1.0, True), (2.0, False)]
    assert [result["best_is"] for result in report(comparison)["results"]] == ["max", "min", "max"]
    text = terminal(comparison)
    assert "train/critic_loss: the last value of each run; BEST: the lowest of any run at any time" in text
    assert "eval/return_mean: the last value of each run; BEST: the highest of any run at any time" in text


def test_what_a_run_monitors_says_which_is_best(tmp_path: Path) -> None:
    monitor = {"checkpoint.monitor": "eval/length_mean", "checkpoint.monitor_mode": "min"}
    path = write_run(tmp_path, "a", settings=monitor, metrics={"eval/length_mean": [7.0, 5.0, 6.0, 8.0]})
    comparison = compare([path])
    assert comparison.metrics == ["eval/length_mean"], "what they monitor is what is compared if nothing is asked"
    assert comparison.results[0].best == 5.0
