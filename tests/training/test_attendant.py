"""What is asked of a run while it trains is done, and changes nothing that is learnt but what it was asked to change."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from etude.config.compose import compose
from etude.orchestration.callbacks import Callback, Progress, Row
from etude.runs.requests import ask, read_events
from etude.runs.run import Run
from etude.runs.settings_files import read_changes
from etude.runs.status_file import read_status
from etude.training import attendant, session
from tests.runs_compared import assert_same_run, resume, rows, stopped_after, train

SPEC = "CartPole-v1:ppo"
WORDS = ("training.total_steps=1536", "algorithm.epochs=2", "evaluation.episodes=2", "logging.every_steps=256",
         "evaluation.every_steps=768", "experiment.compile=off")  # fmt: skip
Asked = Sequence[tuple[str, Sequence[str]]]


class Asking(Callback):
    """Asks at rows, as somebody beside the run would; answered at the same cycle boundary."""

    def __init__(self, run: Run, at: Mapping[int, Asked]) -> None:
        self.run, self.at = run, dict(at)

    def on_row(self, progress: Progress, row: Row) -> None:
        for action, words in self.at.pop(progress.counters["env_steps"], ()):
            ask(self.run, action, words)


@pytest.fixture(autouse=True)
def looking_at_every_boundary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attendant, "TICK_S", 0.0)
    monkeypatch.setattr(attendant, "REQUESTS_EVERY_S", 0.0)


def attended(root: Path, at: Mapping[int, Asked], *words: str) -> Run:
    with open(os.devnull, "w") as nowhere:
        training = session.start(compose(SPEC, words=(*WORDS, *words)), root=root, quiet=True, stream=nowhere)
        training.orchestrator.add_callback(Asking(training.run, at))
        return training.finish().run


def said(run: Run) -> list[tuple[str, bool]]:
    return [(event["action"], event["done"]) for event in read_events(run)]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The run that nobody asked for anything."""
    return train(SPEC, tmp_path_factory.mktemp("plain"), *WORDS)


def test_saves_evaluations_and_videos_on_the_way_change_nothing(plain: Run, tmp_path: Path) -> None:
    asked = [("evaluate", ()), ("save", ()), ("video", ())]
    run = attended(tmp_path, {512: asked, 1024: [("evaluate", ()), ("continue", ())]})
    assert_same_run(run, plain)
    assert said(run) == [("evaluate", True), ("video", True), ("save", True), ("evaluate", True), ("continue", True)]
    first, _, _, second, _ = read_events(run)
    assert first["env_steps"] == 512
    assert first["metrics"]["eval/episodes"] == 2
    assert second["env_steps"] == 1024
    assert [path.name for path in run.videos.glob("*.mp4")] == ["steps-0000000512.mp4"]
    assert not (run.path / "requests").stat().st_mode & 0o077
    assert not list((run.path / "requests").iterdir())


def test_an_evaluation_can_be_asked_for_where_there_are_none(tmp_path: Path) -> None:
    run = attended(tmp_path, {256: [("evaluate", ())]}, "evaluation.every_steps=0", "training.total_steps=512")
    assert said(run) == [("evaluate", True)]
    assert not any(name.startswith("eval/") for row in rows(run) for name in row)


EDITS = {
    "rates, cadences and the budget": (
        SPEC,
        ("algorithm.learning_rate=1e-4", "algorithm.clip_range=lin_0.1", "algorithm.entropy_coef=0.01",
         "evaluation.every_steps=512", "logging.every_steps=512", "evaluation.episodes=3", "training.total_steps=1792"),
        WORDS,
    ),
    "a rate that adapts": (SPEC, ("algorithm.learning_rate=1e-4",), (*WORDS, "algorithm.adaptive_kl=0.01")),
    "exploration": (
        "CartPole-v1:dqn",
        ("algorithm.epsilon=0.3", "algorithm.learning_rate=1e-4"),
        ("training.total_steps=640", "algorithm.learning_starts=256", "evaluation.every_steps=0", "logging.every_steps=256",
         "experiment.compile=off"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", EDITS)
def test_a_change_is_what_a_stop_and_a_resume_with_it_would_be(case: str, tmp_path: Path) -> None:
    spec, changes, words = EDITS[case]
    with open(os.devnull, "w") as nowhere:
        training = session.start(compose(spec, words=words), root=tmp_path / "live", quiet=True, stream=nowhere)
        training.orchestrator.add_callback(Asking(training.run, {512: [("set", changes)]}))
        live = training.finish().run
    assert said(live) == [("set", True)]
    (noted,) = read_changes(live)
    assert noted["env_steps"] == 512
    with stopped_after(noted["cycles"]):
        stopped = train(spec, tmp_path / "stopped", *words)
    resume(stopped, *changes)
    assert read_changes(stopped)[0]["changes"] == noted["changes"]
    assert_same_run(live, stopped)
    assert live.record["config_hash"] == stopped.record["config_hash"]


def test_a_changed_run_that_is_stopped_goes_on_with_what_it_was_changed_to(tmp_path: Path) -> None:
    change = ("set", ("algorithm.learning_rate=1e-4",))
    whole = attended(tmp_path / "whole", {512: [change]})
    stopped = attended(tmp_path / "stopped", {512: [change], 1024: [("stop", ())]})
    assert stopped.status == "interrupted"
    assert stopped.record["stop_reason"] == "stopped from outside"
    resume(stopped)
    assert_same_run(stopped, whole)


def test_two_changes_at_one_place_both_hold(tmp_path: Path) -> None:
    changes = [("set", ("algorithm.learning_rate=1e-4",)), ("set", ("algorithm.clip_range=0.1",))]
    run = attended(tmp_path, {256: changes}, "training.total_steps=512", "evaluation.every_steps=0")
    last = json.loads(run.metrics_path.read_text().splitlines()[-1])
    assert last["hp/learning_rate"] == pytest.approx(1e-4)
    assert last["hp/clip_range"] == pytest.approx(0.1)


REFUSED = {
    "algorithm.gamma=0.9": "algorithm.gamma: can't be changed while the run trains; stop the run, and resume it",
    "algorithm.learning_rat=1": "learning_rate",
    "algorithm.learning_rate=-1": "algorithm.learning_rate=-1",
    "training.total_steps=100": "512 are done already",
    "experiment.seed=2": "experiment.seed: can't be changed",
    "training.total_steps=1536": "that is how it is already",
    "algorithm.critic_learning_rate=1e-4": "can't be changed while the run trains",
}


def test_what_cannot_change_is_refused_in_a_line_and_the_run_goes_on(plain: Run, tmp_path: Path) -> None:
    run = attended(tmp_path, {512: [("set", (word,)) for word in REFUSED]})
    events = {event["words"][0]: event for event in read_events(run)}
    assert events.keys() == REFUSED.keys()
    for word, why in REFUSED.items():
        assert not events[word]["done"], word
        assert why in events[word]["said"]
        assert "\n" not in events[word]["said"]
    assert not read_changes(run)
    assert_same_run(run, plain)


class Answering:
    """A keyboard whose keys come one at a look."""

    def __init__(self, *keys: str) -> None:
        self._keys = list(keys)

    def pressed(self) -> str:
        return self._keys.pop(0) if self._keys else ""

    def release(self) -> None:
        pass


def attend_to(keys: Answering, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Let a run hear these keys; returns what it said."""
    told: list[str] = []
    real = attendant.Attendant.__init__

    def hearing(self: Any, *arguments: Any, say: Any, **options: Any) -> None:
        real(self, *arguments, say=lambda text, error=False: told.append(text), **{**options, "keyboard": keys})

    monkeypatch.setattr(attendant.Attendant, "__init__", hearing)
    return lambda: told


def test_keys_save_evaluate_pause_and_help(plain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = attend_to(Answering("", "s", "e", "?", "x", "p", "s", "", "p"), monkeypatch)
    run = train(SPEC, tmp_path, *WORDS)
    assert_same_run(run, plain)
    pressed = ["save", "evaluate", "pause", "save", "continue"]
    assert [(event["action"], event["by"]) for event in read_events(run)] == [(action, "key") for action in pressed]
    assert attendant.HELP in told()


def test_the_key_q_saves_and_stops_also_while_paused(plain: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attend_to(Answering("", "p", "q"), monkeypatch)
    run = train(SPEC, tmp_path, *WORDS)
    assert (run.status, run.record["stop_reason"]) == ("interrupted", "stopped by a key")
    monkeypatch.undo()
    resume(run)
    assert_same_run(run, plain)


def test_the_status_file_says_how_a_run_stands_and_how_it_ended(tmp_path: Path) -> None:
    seen: list[dict[str, Any]] = []

    class Polling(Callback):
        def on_row(self, progress: Progress, row: Row) -> None:
            seen.append(read_status(training.run.status_path) or {})

    with open(os.devnull, "w") as nowhere:
        training = session.start(compose(SPEC, words=WORDS), root=tmp_path, quiet=True, stream=nowhere)
        training.orchestrator.add_callback(Polling())
        run = training.finish().run
    assert seen[0]["state"] == "running"
    assert seen[0]["pid"] == os.getpid()
    status = read_status(run.status_path)
    assert status is not None
    assert (status["state"], status["fraction"], status["eta_s"], status["alerts"]) == ("finished", 1.0, None, 0)
    assert status["counters"]["env_steps"] == status["total_steps"] == 1536
    assert {"eval/return_mean", "collect/return_mean", "hp/learning_rate"} <= status["metrics"].keys()


def test_the_status_is_written_about_once_a_second_however_many_cycles_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from etude.training import status_report

    written: list[float] = []
    monkeypatch.setattr(status_report, "write_status", lambda path, status: written.append(status["fraction"]))
    monkeypatch.setattr(status_report, "EVERY_S", 1e9)
    train(SPEC, tmp_path, *WORDS)
    assert written == [0.0, 1.0]
