from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from etude.errors import UserError
from etude.runs.index import RunIndex, find_runs
from tests.runs.run_trees import make_run


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    make_run(root, "a", best=100.0, seed=1, tags=["good", "paper"], group="first", age_days=10)
    make_run(root, "b", best=450.0, seed=2, algorithm="dqn", age_days=3, settings={"gamma": 0.9, "double": True})
    make_run(root, "c", best=-5.0, seed=3, environment="Pendulum-v1", group="first/again", age_days=0.5)
    make_run(root, "d", best=None, seed=4, status="failed", settings={"gamma": None})
    return root


def names(root: Path, *conditions: str, **options) -> str:
    return "".join(run.name or "" for run in find_runs(root, *conditions, **options))


CONDITIONS = [
    ("algorithm=ppo", "dca"),
    ("algo=PPO", "dca"),
    ("algorithm!=ppo", "b"),
    ("environment=CartPole*", "dba"),
    ("env=*-v?", "dcba"),
    ("tag=good", "a"),
    ("tag=p*r", "a"),
    ("tag!=good", "dcb"),
    ("tag=", "dcb"),
    ("tag!=", "a"),
    ("group=first", "a"),
    ("group=first*", "ca"),
    ("group=", "db"),
    ("status=failed", "d"),
    ("status!=finished", "d"),
    ("name=b", "b"),
    ("seed>=2", "dcb"),
    ("seed=2", "b"),
    ("seed=2.0", "b"),
    ("eval/return_mean>400", "b"),
    ("eval/return>400", "b"),
    ("eval/return <= 90", "ca"),
    ("eval/return=", "d"),
    ("eval/return!=", "cba"),
    ("best<0", "c"),
    ("last>400", "b"),
    ("train/loss<1", "cba"),
    ("steps=1e3", "cba"),
    ("algorithm.gamma=0.9", "b"),
    ("algorithm.gamma!=0.9", "dca"),
    ("algorithm.gamma=", "d"),
    ("algorithm.double=true", "b"),
    ("network.actor.hidden_dims=[64, 64]", "dcba"),
    ("network.actor.hidden_dims=64", "dcba"),
    ("network.actor.hidden_dims=[64]", ""),
    ("commit=0123456", "dcba"),
    ("commit=123456", ""),
    ("config_hash=c2", "b"),
    ("age<1d", "dc"),
    ("age>=36h", "ba"),
    ("age<1w", "dcb"),
]


@pytest.mark.parametrize(("condition", "expected"), CONDITIONS, ids=[condition for condition, _ in CONDITIONS])
def test_a_condition_finds_the_runs_that_meet_it(root: Path, condition: str, expected: str) -> None:
    assert names(root, condition) == expected


def test_a_day_is_from_midnight_to_midnight_here(root: Path) -> None:
    created = datetime.fromisoformat(find_runs(root, name="b")[0].created or "").astimezone()
    day, next_day = f"{created:%Y-%m-%d}", f"{created + timedelta(days=1):%Y-%m-%d}"
    assert names(root, f"date={day}") == "b"
    assert names(root, f"date>={day}") == "dcb"
    assert names(root, f"date>{day}") == "dc"
    assert names(root, f"date<{day}") == "a"
    assert names(root, f"date<={day}") == "ba"
    assert names(root, f"created={created:%Y-%m-%dT%H:%M}") == "b"
    assert names(root, f"date>={day}", f"date<{next_day}") == "b"


def test_every_condition_must_hold_and_keywords_are_conditions(root: Path) -> None:
    assert names(root, "algorithm=ppo", "seed>1") == "dc"
    assert names(root, "seed>1", algorithm="ppo", environment="CartPole-v1") == "d"
    assert names(root, group=None) == "db"
    assert names(root, **{"algorithm.gamma": 0.9}) == "b"
    assert names(root) == "dcba"


SORTS = [
    ("best", "bacd"),
    ("eval/return", "bacd"),
    ("created", "dcba"),
    ("age", "dcba"),
    ("seed", "abcd"),
    ("environment", "dbac"),
    ("algorithm.gamma", "bcad"),
    ("tags", "adcb"),
]


@pytest.mark.parametrize(("key", "expected"), SORTS)
def test_results_sort_best_first_all_else_ascending_and_what_is_missing_last(root: Path, key: str, expected: str) -> None:
    assert names(root, sort=key) == expected


def test_reverse_and_limit(root: Path) -> None:
    assert names(root, sort="best", reverse=True) == "cabd"
    assert names(root, reverse=True) == "abcd"
    assert names(root, limit=2) == "dc"
    assert names(root, limit=0) == "dcba"
    with pytest.raises(UserError, match="limit -1: must be at least 0"):
        find_runs(root, limit=-1)


WRONG = [
    ("algoritm=ppo", "key 'algoritm': no run has it; did you mean 'algorithm'?"),
    ("gamma=1", "did you mean 'algorithm.gamma'?"),
    ("eval/retrun_mean>3", "did you mean 'eval/return_mean'?"),
    ("algorithm.gama=1", "did you mean 'algorithm.gamma'?"),
    ("ppo", "write key=value"),
    ("=ppo", "write key=value"),
    ("seed>many", "'many' is not a number"),
    ("date>7d", "'7d' is not a date; write 2026-11-01 or 2026-11-01T15:30; for runs younger than that, write age<7d"),
    ("date=2026-13-01", "is not a date"),
    ("age=7d", "write age<7d"),
    ("age<7", "write age<7d"),
]


@pytest.mark.parametrize(("condition", "message"), WRONG, ids=[condition for condition, _ in WRONG])
def test_a_slip_is_named_with_the_way_out(root: Path, condition: str, message: str) -> None:
    with pytest.raises(UserError) as raised:
        find_runs(root, condition)
    assert message in str(raised.value)


def test_an_unknown_key_to_sort_by_is_named(root: Path) -> None:
    with pytest.raises(UserError, match="did you mean 'best'"):
        find_runs(root, sort="bset")


def test_where_there_are_no_runs_nothing_is_found(tmp_path: Path) -> None:
    assert find_runs(tmp_path, "eval/return>4", "algorithm.gamma=0.9", sort="train/loss") == []
    assert RunIndex(tmp_path).read().runs == []
