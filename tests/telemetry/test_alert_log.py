"""A run's alerts on disk: what is written is read again, and a stranger's file does no harm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etude.errors import EtudeError
from etude.telemetry import alert_log
from etude.telemetry.alert_log import AlertLog, Transition, active_in, alerts_of


def transition(name: str = "kl_high", state: Any = "raised", steps: int = 100, **changes: Any) -> Transition:
    line: Any = {
        "id": name,
        "metric": "train/approx_kl",
        "message": "too high",
        "tip": "lower it",
        "state": state,
        "env_steps": steps,
        "updates": steps // 10,
        "decisions": steps,
        "time": "2026-01-31T12:00:00+00:00",
    }
    return {**line, **changes}


def write_lines(run: Path, *lines: Any) -> None:
    (run / "logs").mkdir(exist_ok=True)
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (run / alert_log.NAME).write_text(text + "\n")


def test_what_is_written_is_read_again_and_says_what_is_active(tmp_path: Path) -> None:
    log = AlertLog(tmp_path)
    lines = [transition("a"), transition("b", steps=200), transition("a", "cleared", steps=300)]
    for line in lines:
        log.write(line)

    assert alerts_of(tmp_path) == lines
    assert list(active_in(lines)) == ["b"]


def test_a_run_without_alerts_has_none(tmp_path: Path) -> None:
    assert alerts_of(tmp_path) == []


@pytest.mark.parametrize(
    "line",
    [
        "not json",
        "[" * 10_000,
        "[]",
        "3",
        '{"id": "x"}',
        transition(state="maybe"),
        transition(name=""),
        transition(env_steps=-1),
        transition(env_steps=True),
        transition(updates=1.5),
        transition(decisions=10**30),
        transition(id=["x"]),
        {**transition(), "message": {"deep": {"er": []}}},
    ],
)
def test_what_is_no_alert_is_left_out(tmp_path: Path, line: Any) -> None:
    write_lines(tmp_path, transition("before"), line, transition("after"))

    assert [found["id"] for found in alerts_of(tmp_path)] == ["before", "after"]


def test_a_strangers_texts_are_cut_and_move_no_cursor(tmp_path: Path) -> None:
    write_lines(tmp_path, transition(message="\x1b[2J" + "x" * 10_000, tip="a\nb", time="soon"))

    (found,) = alerts_of(tmp_path)

    assert found["message"].startswith("\\x1b[2J")
    assert len(found["message"]) <= alert_log.LONGEST_TEXT
    assert found["tip"] == "a b"
    assert found["time"] == ""


def test_a_half_written_last_line_is_left_out_and_the_next_is_whole(tmp_path: Path) -> None:
    log = AlertLog(tmp_path)
    log.write(transition("a"))
    with open(tmp_path / alert_log.NAME, "a") as file:
        file.write('{"id": "torn"')
    log.write(transition("b"))

    assert [found["id"] for found in alerts_of(tmp_path)] == ["a", "b"]


def test_links_and_files_past_all_measure_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / alert_log.NAME).symlink_to("/etc/hostname")
    with pytest.raises(EtudeError, match="link"):
        alerts_of(tmp_path)

    (tmp_path / alert_log.NAME).unlink()
    write_lines(tmp_path, transition())
    monkeypatch.setattr(alert_log, "LARGEST", 10)
    with pytest.raises(EtudeError, match="larger"):
        alerts_of(tmp_path)


def test_lines_past_a_checkpoint_are_moved_aside(tmp_path: Path) -> None:
    log = AlertLog(tmp_path)
    log.write(transition("a", steps=100))
    log.write(transition("b", steps=200))

    kept = log.go_on_from({"env_steps": 150, "updates": 15, "decisions": 150})

    assert [line["id"] for line in kept] == ["a"] == [line["id"] for line in alerts_of(tmp_path)]
    assert "b" in (tmp_path / alert_log.SUPERSEDED).read_text()
