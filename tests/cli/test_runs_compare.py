"""`etude runs compare` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etude.cli import run as etude
from tests.comparison.synthetic import two_setups, write_run


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def test_the_tables_show_groups_values_chances_and_settings(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_setups(runs)
    assert etude(["runs", "compare", "--filter", "algorithm=ppo"]) == 0
    output = capsys.readouterr()
    groups, values, chances, settings = output.out.strip("\n").split("\n\n")
    assert groups.splitlines()[1].split() == ["A", "gamma=0.98", "3", "1-3", "4,000", "0:02"]
    row = values.splitlines()[2].split()
    assert row[:3] == ["A", "3", "110.0"]
    assert row[-1] == "365.0"  # the gap to 475
    assert chances.splitlines()[-1].split() == ["A", ">", "B", "1.00", "[1.00,", "1.00]"]
    assert settings.splitlines()[-1].split() == ["algorithm.gamma", "0.98", "0.9"]
    assert "--plot FILE.html" in output.err
    assert sorted(path.name for path in runs.parent.iterdir()) == ["runs"]  # nothing is written unasked


def test_runs_are_named_by_id_prefix_path_and_filter(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = two_setups(runs)
    words = [paths[0].name, paths[1].name[:-1] + "2", f"runs/{paths[2].name}", "--filter", "algorithm.gamma=0.9"]
    assert etude(["runs", "compare", *words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [len(group["runs"]) for group in report["groups"]] == [3, 3]
    assert report["results"][0]["mean"] == 110
    assert report["improvements"][0]["probability"] == 1
    assert report["settings"] == {"algorithm.gamma": {"A": "0.98", "B": "0.9"}}


def test_a_group_of_runs_is_compared_by_its_name(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_setups(runs, group="sweep=1")
    write_run(runs, "other", seed=9)
    assert etude(["runs", "compare", "--group", "sweep=1", "--json"]) == 0
    assert sum(len(group["runs"]) for group in json.loads(capsys.readouterr().out)["groups"]) == 6


def test_plots_are_written_where_asked(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = two_setups(runs)
    plots = ["--plot", "out/all.html", "--plot", "all.svg"]
    assert etude(["runs", "compare", *(path.name for path in paths), *plots, "--x", "time", "--aggregate", "iqm"]) == 0
    assert "wrote out/all.html" in capsys.readouterr().err
    assert Path("out/all.html").read_text().startswith("<!doctype html>")
    assert "training time in seconds" in Path("all.svg").read_text()


def test_notes_go_to_stderr_and_into_the_json(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [write_run(runs, "a"), write_run(runs, "b", environment="Pendulum-v1", status="failed")]
    words = ["runs", "compare", *(path.name for path in paths)]
    assert etude(words) == 0
    output = capsys.readouterr()
    assert "note: different environments (CartPole-v1, Pendulum-v1)" in output.err
    assert f"note: not finished: {paths[1].name} (failed)" in output.err
    assert "note" not in output.out
    assert etude([*words, "--json"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    assert len(json.loads(output.out)["notes"]) == 3


def test_many_pairs_are_cut_short_on_the_terminal(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in range(8):
        write_run(runs, "a", seed=seed)
    assert etude(["runs", "compare", "--filter", "seed<100", "--by", "run"]) == 0
    assert "... and 13 more pairs" in capsys.readouterr().out


WRONG = [
    (["compare"], "which runs? name them"),
    (["compare", "nothing"], "run 'nothing' not found"),
    (["compare", "--filter", "algorithm=sac"], "meets algorithm=sac"),
    (["compare", "--filter", "gama=1"], "key 'gama'"),
    (["compare", "--group", "none-such"], "meets group=none-such"),
    (["compare", "20260301", "--metrics", "eval/retrn_mean"], "did you mean 'eval/return_mean'"),
    (["compare", "20260301", "--by", "gama"], "--by gama"),
    (["compare", "20260301", "--at", "later"], "--at later: must be last, common or a number"),
    (["compare", "20260301", "--smooth", "2"], "--smooth 2: must be at least 0 and at most 0.5"),
    (["compare", "20260301", "--plot", "picture.jpg"], "--plot picture.jpg: must end in .html"),
    (["compare", "20260301", "--plot", "runs/20260301-120000-only-s1/run.json/x.svg"], "--plot runs/"),
    (["compare", "20260301", "--x", "epochs"], "--x"),
    (["export", "20260301", "--curves", "--format", "latex"], "curves are exported as csv or json"),
    (["export", "20260301", "--format", "word"], "--format"),
    (["export", "20260301", "--out", "runs/20260301-120000-only-s1/run.json/x"], "--out runs/"),
]


@pytest.mark.parametrize(("words", "expected"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
def test_a_slip_is_one_clear_line(words: list[str], expected: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(runs, "only")
    assert etude(["runs", *words]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("etude: ")]
    assert len(errors) == 1
    assert expected in errors[0]


def test_real_runs_can_be_compared(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = ("training.total_steps=1024", "evaluation.episodes=2")
    for epochs in (1, 2):
        for seed in (1, 2):
            words = ["CartPole-v1:ppo", *tiny, f"algorithm.epochs={epochs}", "--seed", str(seed), "--group", "real", "-q"]
            assert etude(["train", *words]) == 0
    capsys.readouterr()
    words = ["--group", "real", "--metrics", "eval/return_mean,train/entropy", "--plot", "real.html", "--json"]
    assert etude(["runs", "compare", *words]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [group["label"] for group in report["groups"]] == ["epochs=1", "epochs=2"]
    assert report["settings"] == {"algorithm.epochs": {"A": "1", "B": "2"}}
    assert all(
        result["count"] == 2 and result["mean_low"] <= result["mean"] <= result["mean_high"] for result in report["results"]
    )
    assert report["notes"] == []
