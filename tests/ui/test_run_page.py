from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.ui.asgi_client import Client

ALERT = {
    "id": "kl_high", "metric": "train/kl", "message": "KL is <b>high</b>", "tip": "lower the rate", "state": "raised",
    "env_steps": 10, "updates": 1, "decisions": 10, "time": "2026-01-31T12:00:00+00:00",
}  # fmt: skip


def test_a_page_has_what_the_run_has(client: Client, runs: list[str], root: Path) -> None:
    folder = root / runs[0]
    (folder / "logs" / "alerts.jsonl").write_text(json.dumps(ALERT) + "\n")
    (folder / "logs" / "evaluations.jsonl").write_text('{"version": 1, "return_mean": 3, "returns": [1, 2]}\n')
    (folder / "videos" / "steps-10.mp4").write_bytes(b"video")
    (folder / "videos" / "steps-10.png").write_bytes(b"picture")
    (folder / "videos" / "notes.txt").write_bytes(b"no")
    (folder / "report.html").write_text("<p>report</p>")
    (folder / "provenance" / "git.json").write_text('{"commit": "abc", "branch": "main"}')
    page = client.get(f"/api/run/{runs[0]}").json()
    assert (page["environment"], page["algorithm"], page["seed"]) == ("Acrobot-v1", "ppo", 0)
    assert page["config"]["algorithm.learning_rate"] == 0.0003
    assert page["shares"] == {"collect": 0.55, "update": 0.35}
    assert [alert["message"] for alert in page["alerts"]] == ["KL is <b>high</b>"]
    assert page["active_alerts"] == ["kl_high"]
    assert page["evaluations"] == [{"return_mean": 3}]
    assert [medium["name"] for medium in page["media"]] == ["steps-10.png", "steps-10.mp4"]
    assert page["report"] is True
    assert page["provenance"]["git"]["commit"] == "abc"
    assert page["problems"] == []


def test_a_run_made_outside_a_repository_has_no_problem(client: Client, runs: list[str], root: Path) -> None:
    papers = root / runs[0] / "provenance"
    (papers / "git.json").write_text("null\n")
    (papers / "command.json").write_text('{"argv": ["etude"')
    page = client.get(f"/api/run/{runs[0]}").json()
    assert page["provenance"] == {}
    (problem,) = page["problems"]
    assert "command.json is damaged" in problem


def test_links_in_a_run_are_not_followed(client: Client, runs: list[str], root: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    for name in ("steps-1.mp4", "run.log", "report.html", "git.json", "alerts.jsonl", "evaluations.jsonl"):
        (secret / name).write_text('{"commit": "SECRET", "message": "SECRET"}')
    folder = root / runs[0]
    for name in ("videos", "provenance", "logs"):
        (folder / name).rmdir()
        (folder / name).symlink_to(secret)
    (folder / "run.log").symlink_to(secret / "run.log")
    (folder / "report.html").symlink_to(secret / "report.html")
    page = client.get(f"/api/run/{runs[0]}")
    assert "SECRET" not in page.text
    assert "provenance is a link, which is never followed" in page.json()["problems"]
    assert page.json()["report"] is False
    for path in ("log", "report", "videos/steps-1.mp4"):
        answer = client.get(f"/files/{runs[0]}/{path}")
        assert answer.status == 404
        assert "SECRET" not in answer.text
    assert "SECRET" not in client.get(f"/api/diff?run={runs[0]}&run={runs[1]}").text
    assert "SECRET" not in client.get("/api/runs?column=commit").text


def test_a_link_to_a_run_is_no_run(client: Client, runs: list[str], root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "run.json").write_text("{}")
    (root / "linked").symlink_to(outside)
    (root / "@last").symlink_to(runs[0])
    for name in ("linked", "@last", ".", "..", "...", "%2e%2e", "..%2foutside", ".index.sqlite", "a%00b", "%ff", "x" * 300, ""):
        for path in (f"/api/run/{name}", f"/files/{name}/log", f"/files/{name}/videos/a.mp4"):
            answer = client.get(path)
            assert answer.status in (400, 404), path
        assert client.post(f"/api/run/{name}/tags", {"add": ["x"]}).status in (400, 404, 405)


@pytest.mark.parametrize(
    "path",
    ["videos/..%2frun.json", "videos/%2e%2e/run.json", "../run.json", "videos/run.json", "checkpoints/x.png", "videos/.x.mp4",
     "videos/%2fetc%2fpasswd", "videos/a%5c..%5cb.png", "logs/alerts.jsonl", "videos/pipe.mp4", "videos/folder.mp4"],
)  # fmt: skip
def test_only_videos_and_pictures_of_the_run_are_served(path: str, client: Client, runs: list[str], root: Path) -> None:
    os.mkfifo(root / runs[0] / "videos" / "pipe.mp4")
    (root / runs[0] / "videos" / "folder.mp4").mkdir()
    (root / runs[0] / "checkpoints" / "x.png").write_bytes(b"x")
    (root / runs[0] / "videos" / ".x.mp4").write_bytes(b"x")
    assert client.get(f"/files/{runs[0]}/{path}").status in (400, 404)


def test_videos_are_served_in_ranges(client: Client, runs: list[str], root: Path) -> None:
    (root / runs[0] / "videos" / "a.mp4").write_bytes(bytes(range(100)))
    path = f"/files/{runs[0]}/videos/a.mp4"
    whole = client.get(path)
    assert (whole.status, whole.body, whole.headers["content-type"]) == (200, bytes(range(100)), "video/mp4")
    assert "sandbox" in whole.headers["content-security-policy"]
    for asked, start, end in (("0-9", 0, 10), ("90-", 90, 100), ("-5", 95, 100), ("50-1000", 50, 100), ("99-99", 99, 100)):
        part = client.get(path, {"range": f"bytes={asked}"})
        assert (part.status, part.body) == (206, bytes(range(start, end)))
        assert part.headers["content-range"] == f"bytes {start}-{end - 1}/100"
    for asked in ("100-", "9-2", "-0", "-", "a-b", "0-1,3-4"):
        assert client.get(path, {"range": f"bytes={asked}"}).status == 416
    assert client.ask("HEAD", path).body == b""
    assert client.get(path, {"if-none-match": whole.headers["etag"]}).status == 304


def test_a_report_is_shown_in_a_sandbox(client: Client, runs: list[str], root: Path) -> None:
    (root / runs[0] / "report.html").write_text("<script>steal()</script>")
    policy = client.get(f"/files/{runs[0]}/report").headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts;")
    assert "allow-same-origin" not in policy
    assert "connect-src" not in policy  # falls back to default-src, which is none
    assert "default-src 'none'" in policy


def test_differences_are_those_of_a_comparison(client: Client, runs: list[str]) -> None:
    found = client.get(f"/api/diff?run={runs[1]}&run={runs[0]}").json()
    assert [run["id"] for run in found["runs"]] == [runs[1], runs[0]]
    assert {"key": "environment.id", "values": ["CartPole-v1", "Acrobot-v1"]} in found["settings"]
    assert client.get(f"/api/diff?run={runs[0]}").status == 400
    assert client.get(f"/api/diff?run={runs[0]}&run=nothing").status == 404


def test_the_log_is_text_that_moves_nothing(client: Client, runs: list[str], root: Path) -> None:
    (root / runs[0] / "run.log").write_text("first\n" + "x" * 100_000 + "\nlast \x1b[2J<script>")
    answer = client.get(f"/files/{runs[0]}/log")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.text.endswith("last \\x1b[2J<script>")
    assert "first" not in answer.text
