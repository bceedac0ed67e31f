"""`etude runs list`: filters, order, columns, and a table that fits."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from etude.cli import run as etude
from etude.cli.runs.columns import cell, default_columns
from etude.cli.runs.table import drawn_table
from etude.cli.runs.words import age, size
from etude.runs.index import find_runs
from etude.runs.run import Run
from tests.runs.run_trees import make_run


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ETUDE_RUNS", str(tmp_path))
    return tmp_path


@pytest.fixture
def listed(capsys: pytest.CaptureFixture[str]):
    """The names that `etude runs list` gives, in order."""

    def names(*words: str) -> str:
        assert etude(["runs", "list", "--json", *words]) == 0
        return "".join(row["name"] for row in json.loads(capsys.readouterr().out))

    return names


@pytest.fixture
def three(root: Path) -> Path:
    make_run(root, "a", best=100.0, age_days=20, tags=["good"])
    make_run(root, "b", best=450.0, age_days=2, group="wide")
    make_run(root, "c", best=300.0, environment="Pendulum-v1", status="failed")
    return root


def test_filters_sort_and_limit(three: Path, listed) -> None:
    assert listed() == "cba"
    assert listed("--filter", "env=CartPole-v1") == "ba"
    assert listed("-f", "eval/return>200", "-f", "status=finished") == "b"
    assert listed("--sort", "eval/return") == "bca"
    assert listed("--sort", "eval/return", "--reverse", "--limit", "1") == "a"
    assert listed("--limit", "0") == "cba"
    assert listed("--group", "wide") == "b"
    assert listed("--group", "w*", "-f", "env=Pendulum*") == ""


def test_metrics_may_be_named_as_other_systems_do(three: Path, listed) -> None:
    assert listed("--filter", "val/roll/ep_rew/mean>200", "--sort", "evaluation/episode-reward-mean") == "bc"


def test_the_command_finds_what_the_function_finds(three: Path, listed) -> None:
    for words in (["tag=good"], ["age<7d", "best>=300"], ["network.actor.hidden_dims=[64,64]"]):
        flags = [flag for word in words for flag in ("--filter", word)]
        assert listed(*flags) == "".join(run.name or "" for run in find_runs(three, *words))


def test_json_holds_everything_and_is_standard(three: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = find_runs(three, name="b")[0].path / "metrics.jsonl"
    path.write_text('{"env_steps": 1000, "train/loss": "NaN"}\n')
    assert etude(["runs", "list", "--json", "-f", "name=b"]) == 0
    (row,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert row["metrics"]["train/loss"] is None
    assert row["metrics"]["eval/return_mean"] == row["last"] == 440.0
    assert row["config"]["algorithm.gamma"] == 0.99
    assert (row["group"], row["tags"], row["best"], row["commit"][:4]) == ("wide", [], 450.0, "0123")
    assert etude(["runs", "list", "--json", "--columns", "id, eval/return ,algorithm.gamma", "--limit", "1"]) == 0
    assert set(json.loads(capsys.readouterr().out)[0]) == {"id", "eval/return_mean", "algorithm.gamma"}


def test_csv_has_a_row_for_each_run(three: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["runs", "list", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert sorted(row["name"] for row in rows) == ["a", "b", "c"]
    assert {row["name"]: row["best"] for row in rows}["b"] == "450.0"
    assert etude(["runs", "list", "--csv", "--columns", "name,algorithm.gamma", "--limit", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "name,algorithm.gamma"
    assert etude(["runs", "list", "--csv", "--json"]) == 2


def test_on_a_pipe_the_table_is_plain_and_whole(three: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = make_run(three, "n" * 70)
    assert etude(["runs", "list", "--sort", "train/loss"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert " ".join(lines[0].split()) == "RUN ENVIRONMENT ALGORITHM STATUS STEPS BEST LAST GROUP TAGS train/loss AGE"
    assert any(line.startswith(long.id + " ") for line in lines)
    assert "\x1b" not in out
    assert err == ""
    assert etude(["runs", "list", "--columns", "name,group,tags,commit"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == ["a", "-", "good", "0123456789ab"]


def test_what_is_left_out_is_said_beside_the_table(three: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["runs", "list", "--limit", "2"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 3
    assert err == "... and 1 more (--limit)\n"
    assert etude(["runs", "list", "-f", "seed=99"]) == 0
    assert "none of the 3 runs" in capsys.readouterr().err
    next(path for path in three.iterdir() if path.name.endswith("-a")).joinpath("summary.json").write_text("{")
    assert etude(["runs", "list"]) == 0
    assert "1 run files can't be read; `etude runs rebuild` says which" in capsys.readouterr().err


def draw(runs, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(drawn_table(runs, default_columns(runs, None), width=width, may_drop=True))
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.mark.parametrize("width", [200, 110, 80, 70])
def test_in_a_terminal_columns_give_way_and_ids_stay_whole(three: Path, width: int) -> None:
    runs = find_runs(three)
    lines = draw(runs, width)
    assert len(lines) == 1 + len(runs)
    assert max(map(len, lines)) <= width
    assert all(any(line.startswith(run.id) for line in lines) for run in runs)
    assert "BEST" in lines[0]
    assert ("AGE" in lines[0]) == (width >= 110)


def test_in_a_very_narrow_terminal_ids_are_folded_not_cut(three: Path) -> None:
    (run,) = find_runs(three, name="a")
    assert run.id in "".join(line.split(" ")[0] for line in draw([run], 40))


def test_columns_that_say_nothing_are_left_out(root: Path) -> None:
    make_run(root, "CartPole-v1-ppo")
    assert default_columns(find_runs(root), None) == ["id", "status", "env_steps", "best", "last", "age"]
    make_run(root, "named", tags=["x"])
    assert default_columns(find_runs(root), "seed") == [
        *("id", "environment", "algorithm", "status", "env_steps", "best", "last", "tags", "seed", "age"),
    ]


def test_an_unfinished_run_shows_how_far_it_is(root: Path) -> None:
    run = make_run(root, "x", best=None, status="interrupted")
    run.write_summary({"counters": {"env_steps": 250}})
    assert cell(find_runs(root)[0], "env_steps") == "250 (25%)"


def test_a_stranger_s_run_can_not_write_to_the_terminal(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(root, "x", tags=["[red]a", "b\x1b[2J"], group="two\nlines")
    run.update_status(stop_reason="\x1b]0;title\x07")
    for words in (["runs", "list"], ["runs", "show", run.id]):
        assert etude(words) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "[red]a" in out
        assert "two\\nlines" in out
    assert "[red]a" in "".join(draw(find_runs(root), 200))


def test_spans_and_sizes_are_short() -> None:
    assert [age(s) for s in (0.4, 59, 60, 7200, 86400, 10 * 86400, 21 * 86400)] == ["0s", "59s", "1m", "2h", "1d", "10d", "3w"]
    assert [size(n) for n in (0, 1023, 1024, 1536, 10 * 2**20, 3 * 2**30, 5000 * 2**40)] == [
        *("0 B", "1023 B", "1.0 KiB", "1.5 KiB", "10 MiB", "3.0 GiB", "5,000 TiB"),
    ]


WRONG = [
    (["runs", "list", "--filter", "algoritm=ppo"], "did you mean 'algorithm'?"),
    (["runs", "list", "--sort", "bset"], "did you mean 'best'?"),
    (["runs", "list", "--columns", "id,stauts"], "did you mean 'status'?"),
    (["runs", "list", "--filter", "ppo"], "write key=value"),
    (["runs", "list", "--limit", "-1"], "must be at least 0"),
]


@pytest.mark.parametrize(("arguments", "expected"), WRONG, ids=[arguments[-1] for arguments, _ in WRONG])
def test_a_slip_is_one_line(three: Path, arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(arguments) == 2
    out, err = capsys.readouterr()
    assert expected in err
    assert (out, len(err.splitlines())) == ("", 1)


def test_listing_does_not_wait_for_torch_nor_for_yaml(three: Path) -> None:
    code = (
        "import sys, time; from etude.cli import run; time.sleep(0.06); run(['runs', 'list']); run(['runs', 'list']);"
        "heavy = {'torch', 'numpy'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
    code = "import sys; from etude.cli import run; run(['runs', 'list', '-f', 'best>1']); assert 'yaml' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_the_step_of_the_best_is_a_column(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(root, "x")
    best = {"metric": "eval/return_mean", "mode": "max", "value": 7.0, "env_steps": 12_000}
    run.write_summary({"counters": {"env_steps": 20_000, "updates": 1_500}, "best": best})
    assert etude(["runs", "list", "--columns", "best,best_step,updates", "--runs", str(root)]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["BEST", "BEST", "AT", "STEP", "UPDATES"],
        ["7", "12,000", "1,500"],
    ]


def test_where_the_lowest_is_the_best_it_comes_first(root: Path) -> None:
    for value in (3.0, 1.0, 2.0):
        run = make_run(root, f"r{value:g}")
        run.write_summary({"best": {"metric": "eval/length_mean", "mode": "min", "value": value}})
    assert [row.best for row in find_runs(root, sort="best")] == [1.0, 2.0, 3.0]
    assert [row.best for row in find_runs(root, sort="best", reverse=True)] == [3.0, 2.0, 1.0]
    assert Run.resolve("@best", root).record["name"] == "r1"
    make_run(root, "usual", best=5.0)
    assert Run.resolve("@best", root).record["name"] == "usual", "the usual metric goes before any other"
