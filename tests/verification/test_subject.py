"""What a resume changed is undone for the beginning of a re-run, and made again on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etude.config.compose import compose
from etude.config.validate import to_plain
from etude.errors import EtudeError, UserError
from etude.runs.run import Run
from etude.training.session import config_changes
from etude.verification.comparability import late_obstacles, obstacles
from etude.verification.rerun import Sitting, plan
from etude.verification.subject import Change, Position, Subject, merged, read_subject

CONFIG = compose("CartPole-v1:ppo").config


def _changed(*words: str) -> tuple[Change, dict[str, Any]]:
    """The change that these words make to CartPole's config, as a run records it, and the config after it."""
    after = compose("CartPole-v1:ppo", words=words).config
    lines = [line.partition(": ") for line in config_changes(CONFIG, after)]
    values = {key: tuple(text.split(" → ")) for key, _, text in lines}
    from etude.verification.subject import _value

    return Change(Position(8, 2, 1), {k: (_value(old), _value(new)) for k, (old, new) in values.items()}), to_plain(after)


@pytest.mark.parametrize(
    "words",
    [
        ("training.total_steps=5000",),
        ("algorithm.learning_rate=1e-05",),  # a schedule becomes a number
        ("algorithm.entropy_coef=lin_0.01",),  # a number becomes a schedule
        (
            "network.actor.hidden_dims=[8,8]",
            "evaluation.mode=both",
            "algorithm.target_kl=0.02",
            "environment.normalize_rewards=true",
        ),
    ],
)
def test_a_change_is_undone_and_made_again(words: tuple[str, ...]) -> None:
    change, after = _changed(*words)
    undone = json.loads(json.dumps(after))
    change.undo(undone)
    assert undone == to_plain(CONFIG)
    assert to_plain(compose(None, base=undone, words=change.words()).config) == after


def _subject(path: Path, **fields: Any) -> Subject:
    run = Run(path)
    rows = [{"env_steps": steps, "updates": 0, "cycles": steps} for steps in (4, 8, 12)]
    base: dict[str, Any] = {"facts": {}, "newest": None, "last": None, "changes": (), "ends_by_itself": True}
    return Subject(**{"run": run, "settings": {}, "last_settings": {}, "rows": rows, **base, **fields})


def test_a_re_run_has_a_sitting_for_each_change_and_one_for_a_pause(tmp_path: Path) -> None:
    changes = tuple(Change(Position(steps), {"training.total_steps": (1, steps)}) for steps in (4, 8))
    subject = _subject(tmp_path, changes=changes)
    words = [("training.total_steps=4",), ("training.total_steps=8",)]
    assert plan(subject) == [Sitting(Position(4)), Sitting(Position(8), words[0]), Sitting(None, words[1])]
    assert plan(subject, Position(6))[1:3] == [Sitting(Position(6), words[0]), Sitting(Position(8))]
    part = _subject(tmp_path, changes=changes, ends_by_itself=False, steps_asked=6)
    assert plan(part) == [Sitting(Position(4)), Sitting(Position(6), words[0])]
    assert plan(_subject(tmp_path, ends_by_itself=False)) == [Sitting(Position(12, 0, 12))]


def _run(path: Path, *changes: dict[str, Any], **record: Any) -> Run:
    (path / "logs").mkdir(parents=True)
    (path / "run.json").write_text(json.dumps({"version": 1, "id": path.name, "status": "finished", **record}))
    (path / "resolved.yaml").write_text("training: {total_steps: 8}\n")
    if changes:
        (path / "logs" / "changes.jsonl").write_text("".join(json.dumps(change) + "\n" for change in changes))
    return Run(path)


def test_changes_that_come_out_otherwise_are_not_comparable(tmp_path: Path) -> None:
    change = {"env_steps": 8, "updates": 2, "cycles": 1, "changes": ["training.total_steps: 8 → 16"]}
    stored = _subject(_run(tmp_path / "stored", change, change).path)
    for name, made, is_alike in (("a", change, True), ("b", {**change, "env_steps": 9}, False)):
        again = _run(tmp_path / name, made)
        assert (late_obstacles(stored, {"run": str(again.path)}) == []) is is_alike
    other = _run(tmp_path / "c", initial_weights="abc")
    assert "began with, is another one now" in late_obstacles(stored, {"run": str(other.path)})[0]
    assert "mode: the run was eager" in late_obstacles(_subject(tmp_path, facts={"mode": "eager"}), {"mode": "compiled"})[0]


def test_a_resume_that_lost_its_episodes_can_not_be_repeated(tmp_path: Path) -> None:
    subject = _subject(_run(tmp_path / "run").path, facts={"snapshot": "restart"})
    assert obstacles(subject, brings_etude=False) == [], "never resumed"
    subject.run.log_path.write_text("resumed from checkpoint 000002-8-2\n")
    (reason,) = obstacles(subject, brings_etude=False)
    assert "snapshot: restart" in reason
    assert obstacles(_subject(subject.run.path, facts={"snapshot": "exact"}), brings_etude=False) == []


def test_what_can_not_be_verified_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to verify"):
        read_subject(_run(tmp_path / "empty"))
    with pytest.raises(EtudeError, match="line 1 is not a record of changed settings"):
        read_subject(_run(tmp_path / "damaged", {"changes": 7}))
    broken = _run(tmp_path / "broken")
    broken.resolved_path.write_text("a: [")
    with pytest.raises(EtudeError, match=r"resolved.yaml: can't be read"):
        read_subject(broken)


def test_changes_at_one_place_are_one_and_none_where_they_undo_each_other() -> None:
    place, later = Position(8, 2, 1), Position(16, 4, 2)
    changes = [
        Change(place, {"a": (1, 2), "b": (1, 2)}),
        Change(place, {"a": (2, 1), "b": (2, 3)}),
        Change(later, {"b": (3, 4)}),
        Change(later, {"b": (4, 3)}),
    ]
    assert merged(changes) == [Change(place, {"b": (1, 3)})]
