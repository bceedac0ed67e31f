from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etude.telemetry.names import COUNTERS
from tests.ui.asgi_client import Answer, Client
from tests.ui.run_folders import metric_rows


def decoded(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.text
    length = int.from_bytes(answer.body[:4], "little")
    header = json.loads(answer.body[4 : 4 + length])
    numbers = np.frombuffer(answer.body, "<f8", offset=4 + length + -(4 + length) % 8)
    for line in header["lines"]:
        taken = numbers[: line["points"] * line["columns"]]
        line["values"] = taken.reshape(line["columns"], line["points"])
        numbers = numbers[len(taken) :]
    assert len(numbers) == 0
    return header


def lines(client: Client, query: str) -> list[dict[str, Any]]:
    return decoded(client.get(f"/api/curves?{query}"))["lines"]


def test_seeds_are_a_mean_and_a_range(client: Client, runs: list[str]) -> None:
    found = lines(client, "metric=train/loss")
    assert [line["runs"] for line in found] == [1, 5] or [line["runs"] for line in found] == [5, 1]
    band = next(line for line in found if line["runs"] == 5)
    x, mean, low, high = band["values"]
    single = [
        line["values"] for line in lines(client, "metric=train/loss&band=runs") if line["environment"] == band["environment"]
    ]
    first = np.array([values[1, 0] for values in single])
    assert mean[0] == pytest.approx(first.mean())
    assert (low[0], high[0]) == (pytest.approx(first.min()), pytest.approx(first.max()))
    assert np.all(low <= mean)
    assert np.all(mean <= high)
    assert np.all(np.diff(x) > 0)


def test_an_interval_lies_within_the_range(client: Client) -> None:
    ranged = next(line for line in lines(client, "metric=train/loss") if line["runs"] == 5)["values"]
    interval = next(line for line in lines(client, "metric=train/loss&band=interval") if line["runs"] == 5)["values"]
    assert np.all(interval[2] <= interval[1])
    assert np.all(interval[1] <= interval[3])
    assert interval[2].min() >= ranged[2].min() - 1e-9


@pytest.mark.parametrize("axis", [*COUNTERS, "time"])
def test_any_counter_and_time_are_an_axis(axis: str, client: Client, runs: list[str]) -> None:
    found = lines(client, f"metric=train/loss&axis={axis}&band=runs&run={runs[0]}")
    assert found[0]["points"] == 30
    assert found[0]["run"] == runs[0]


def test_smoothing_makes_a_line_smoother(client: Client, runs: list[str]) -> None:
    asked = f"metric=collect/return_mean&band=runs&run={runs[0]}"
    rough, smooth = lines(client, asked)[0]["values"][1], lines(client, f"{asked}&smooth=0.3")[0]["values"][1]
    assert np.abs(np.diff(smooth)).sum() < 0.5 * np.abs(np.diff(rough)).sum()


def test_a_part_of_the_axis_is_drawn_finer(client: Client, runs: list[str], root: Path) -> None:
    with open(root / runs[0] / "metrics.jsonl", "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in metric_rows(0, 2000, 100.0))
    asked = f"metric=train/loss&band=runs&run={runs[0]}&points=100"
    whole, part = lines(client, asked)[0], lines(client, f"{asked}&start=1000&end=4000")[0]
    assert whole["points"] <= 110
    inside = [x for x in part["values"][0] if 1000 <= x <= 4000]
    assert len(inside) == 16


def test_lines_grow_with_the_file(client: Client, runs: list[str], root: Path) -> None:
    asked = f"/api/curves?metric=train/loss&band=runs&run={runs[0]}"
    before = client.get(asked)
    assert client.get(asked, {"if-none-match": before.headers["etag"]}).status == 304
    with open(root / runs[0] / "metrics.jsonl", "a") as file:
        file.write('{"env_steps": 1000000, "train/loss": 0.25}\n')
    after = decoded(client.get(asked, {"if-none-match": before.headers["etag"]}))["lines"][0]
    assert after["values"][:, -1].tolist() == [1000000.0, 0.25]


def test_lines_are_made_by_any_setting(client: Client) -> None:
    assert {line["label"] for line in lines(client, "metric=train/loss&by=learning_rate")} == {"learning_rate=0.0003"}
    assert client.get("/api/curves?metric=train/loss&by=nothing").status == 400
    assert len(lines(client, "metric=train/loss&by=run")) == 6


def test_wrong_requests_are_one_line(client: Client) -> None:
    wrong = ("", "metric=", "metric=a&axis=b", "metric=a&band=b", "metric=a&smooth=2", "metric=a&start=x", "metric=a&end=nan")
    for query in (*wrong, "metric=a&points=-1", "metric=" + "a" * 400, "metric=a&filter=nothing=1", "metric=a&smooth=inf"):
        answer = client.get(f"/api/curves?{query}")
        assert answer.status == 400, query
        assert answer.json()["error"]
    assert lines(client, "metric=nothing") == []
    assert lines(client, "metric=train/loss&run=nothing&run=../x") == []


def test_metrics_are_those_of_the_chosen_runs(client: Client, runs: list[str]) -> None:
    found = client.get(f"/api/metrics?run={runs[0]}&run={runs[1]}").json()
    assert found["runs"] == 2
    assert found["metrics"][0] == {"name": "eval/return_mean", "runs": 2}
    assert found["environments"] == ["Acrobot-v1", "CartPole-v1"]
