from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from etude.runs.index import find_runs
from etude.runs.run import Run
from tests.ui.asgi_client import Client


def ids(client: Client, filters: str = "", more: str = "") -> list[str]:
    answer = client.get(f"/api/runs?filter={quote(filters)}{more}")
    assert answer.status == 200, answer.text
    return [run["id"] for run in answer.json()["runs"]]


@pytest.mark.parametrize(
    "words", ["seed=1", "algorithm=ppo", "eval/return>100", "env=CartPole*", "tag=paper", "group=", "seed>=2"]
)
def test_filters_are_those_of_the_command_line(words: str, client: Client, root: Path) -> None:
    assert ids(client, words) == [run.id for run in find_runs(root, words)]


def test_several_filters_must_all_hold(client: Client, runs: list[str]) -> None:
    assert ids(client, "env=CartPole-v1 seed=2 status!=failed") == [run for run in runs if "CartPole" in run and "s2" in run]
    assert ids(client, "cartpole") == [run for run in runs if "CartPole" in run]
    assert ids(client, "'no such thing'") == []


def test_runs_are_sorted_by_any_key(client: Client, root: Path) -> None:
    assert ids(client, more="&sort=best") == [run.id for run in find_runs(root, sort="best")]
    assert ids(client, more="&sort=seed&reverse=1") == [run.id for run in find_runs(root, sort="seed", reverse=True)]


def test_a_wrong_filter_is_one_line(client: Client) -> None:
    for words in ("nothing=1", "seed>many", "date>tomorrow", "'", "=", "a=b=c" * 200):
        answer = client.get(f"/api/runs?filter={quote(words)}")
        assert answer.status == 400
        assert "\n" not in answer.json()["error"]
    assert "did you mean" in client.get("/api/runs?filter=algorthm=ppo").json()["error"]


def test_columns_are_metrics_and_settings(client: Client) -> None:
    first = client.get("/api/runs?column=algorithm.learning_rate&column=train/loss").json()["runs"][0]["more"]
    assert first["algorithm.learning_rate"] == 0.0003
    assert isinstance(first["train/loss"], float)
    assert client.get("/api/runs?column=nothing").status == 400


def test_nothing_is_sent_twice(client: Client, runs: list[str]) -> None:
    answer = client.get("/api/runs")
    same = client.get("/api/runs", {"if-none-match": answer.headers["etag"]})
    assert (same.status, same.body) == (304, b"")
    client.post(f"/api/run/{runs[0]}/tags", {"add": ["new"]})
    assert client.get("/api/runs", {"if-none-match": answer.headers["etag"]}).status == 200


def test_tags_and_groups_are_edited(client: Client, runs: list[str], root: Path) -> None:
    run = Run(root / runs[0])
    assert client.post(f"/api/run/{run.id}/tags", {"add": ["one", "<b>two</b>"]}).json()["tags"] == ["one", "<b>two</b>"]
    assert client.post(f"/api/run/{run.id}/tags", {"remove": ["one"]}).json()["tags"] == ["<b>two</b>"]
    assert client.post(f"/api/run/{run.id}/group", {"group": "a/b"}).json() == {"group": "a/b"}
    assert (run.record["tags"], run.record["group"]) == (["<b>two</b>"], "a/b")
    assert client.post(f"/api/run/{run.id}/group", {"group": None}).json() == {"group": None}


def test_wrong_tags_are_refused(client: Client, runs: list[str], root: Path) -> None:
    path = f"/api/run/{runs[0]}/tags"
    wrong = ({"add": [" "]}, {"add": ["a,b"]}, {"add": ["x" * 100]}, {"add": [1]}, {"add": "x"}, {"add": ["\x1b[2J"]})
    for value in (*wrong, {"add": [str(number) for number in range(51)]}):
        assert client.post(path, value).status == 400, value
    assert client.post(f"/api/run/{runs[0]}/group", {"group": "\x00"}).status == 400
    for body in (b"", b"[]", b"{", b"\xff", b"1", b"[" * 1000):
        assert client.ask("POST", path, {"content-type": "application/json"}, body).status == 400
    assert client.ask("POST", path, {"content-type": "text/plain"}, b"{}").status == 415
    assert Run(root / runs[0]).record["tags"] == []


def test_numbers_that_json_has_not_are_null(client: Client, runs: list[str], root: Path) -> None:
    with open(root / runs[0] / "metrics.jsonl", "a") as file:
        file.write(json.dumps({"env_steps": 10**6, "eval/return_mean": "NaN"}) + "\n")
    first = client.get("/api/runs").json()["runs"][0]
    assert first["last"] is None


def test_a_damaged_run_is_a_problem_and_not_the_end(client: Client, runs: list[str], root: Path) -> None:
    (root / runs[0] / "run.json").write_text("{")
    answer = client.get("/api/runs").json()
    assert len(answer["runs"]) == 5
    assert "damaged" in answer["problems"][0]
    assert client.get(f"/api/run/{runs[0]}").status == 400
