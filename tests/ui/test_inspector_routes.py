"""The inspector's routes: what they show is what was recorded, and what they refuse is one line."""

from __future__ import annotations

import random
import threading
from base64 import b64decode
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from etude.inspecting.inspector import Inspector
from etude.runs.run import Run
from etude.ui.app import make_app
from tests.runs_compared import train
from tests.ui.asgi_client import Client

TOKEN = "token-of-the-test"
QUICK = ("training.total_steps=16", "evaluation.every_steps=0", "environment.num_envs=2")
WORDS = (*QUICK, "algorithm.rollout_steps=8", "algorithm.batch_size=8", "algorithm.epochs=1")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train("CartPole-v1:ppo", tmp_path_factory.mktemp("runs"), *WORDS)


@pytest.fixture
def app(run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        monkeypatch.setenv(name, "dummy")
    made = make_app(run.path.parent, token=TOKEN)
    yield made
    if hasattr(made.state, "inspections"):
        made.state.inspections.close_all()


def finish(app: Any) -> None:
    reached = threading.Event()
    app.state.inspections._put(reached.set)
    assert reached.wait(120)


def opened(app: Any, run: Run, **options: Any) -> tuple[Client, str]:
    client = Client(app, TOKEN)
    answer = client.post("/api/inspect", {"run": run.id, "max_steps": 8, **options})
    assert answer.status == 200, answer.text
    finish(app)
    return client, f"/api/inspect/{answer.json()['session']}"


def test_the_page_gets_what_was_recorded(app: Any, run: Run) -> None:
    client, place = opened(app, run, seed=2, mode="sample")
    status = client.get(place).json()
    assert (status["busy"], status["error"]) == (None, None)
    (summary,) = status["recordings"]
    shown = client.get(f"{place}/{summary['number']}/steps").json()
    inspector = Inspector.open(run, mode="sample", pictures=False)
    recording = inspector.record(2, max_steps=8)
    assert [step["action"] for step in shown["steps"]] == [int(step.action) for step in recording.steps]
    columns: Any = recording.columns()
    assert [step["value"] for step in shown["steps"]] == columns.values.tolist()
    assert [step["advantage"] for step in shown["steps"]] == columns.advantages.tolist()
    assert shown["frames"] == len(recording.steps) + 1
    for number in range(shown["frames"]):
        frame = client.get(f"{place}/{summary['number']}/frame/{number}.png")
        assert (frame.status, frame.headers["content-type"]) == (200, "image/png")
    facts = client.get(f"{place}/facts").json()
    assert facts["action_labels"] == ["left", "right"]
    assert set(facts["tabs"]) == {"environment", "model", "checkpoint"}
    text = client.get(f"{place}/{summary['number']}/episode.csv")
    assert "attachment" in text.headers["content-disposition"]
    assert text.text.count("\n") == len(recording.steps) + 1


def test_the_first_branch_is_the_recording(app: Any, run: Run) -> None:
    client, place = opened(app, run, mode="sample")
    number = client.get(place).json()["recordings"][0]["number"]
    assert client.post(f"{place}/{number}/branch", {"step": 3, "max_steps": 8}).status == 200
    finish(app)
    first, second = (client.get(f"{place}/{each['number']}/steps").json() for each in client.get(place).json()["recordings"])
    assert second["branched_at"] == 3
    assert first["steps"] == second["steps"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/inspect", {"run": "../elsewhere"}, 404),
        ("/api/inspect", {"run": "nothing"}, 404),
        ("/api/inspect", {"run": None}, 400),
        ("{run}", {"mode": "explore"}, 400),
        ("{run}", {"max_steps": 10**9}, 400),
        ("{run}", {"seed": "0"}, 400),
        ("{run}", {"checkpoint": "x" * 5000}, 400),
        ("/api/inspect/unknown/0/branch", {"step": 0}, 400),
        ("/api/inspect/unknown/stop", {}, 400),
    ],
)
def test_what_is_wrong_with_a_request_is_one_line(app: Any, run: Run, path: str, body: dict[str, Any], status: int) -> None:
    if path == "{run}":
        path, body = "/api/inspect", {"run": run.id, **body}
    answer = Client(app, TOKEN).post(path, body)
    assert answer.status == status
    assert len(answer.json()["error"].splitlines()) == 1


@pytest.mark.skipif(find_spec("mujoco") is None, reason="needs mujoco")
def test_a_robot_is_driven_and_its_world_is_told(app: Any, run: Run) -> None:
    small = ("network.actor.hidden_dims=[8]", "network.critic.hidden_dims=[8]", "environment.workers=0")
    robot = train("quadruped-flat:ppo", run.path.parent, *WORDS, *small)
    client, place = opened(app, robot, pictures=False, max_steps=4)
    facts = client.get(f"{place}/facts").json()
    assert facts["has_world"]
    assert set(facts["drive"]["ranges"]) == {"forward", "sideways", "turn"}
    shapes = len(client.get(f"{place}/world").json()["shapes"])
    number = client.get(place).json()["recordings"][0]["number"]
    assert len(client.get(f"{place}/{number}/poses").body) == 5 * shapes * 7 * 4
    drive = client.post(f"{place}/{number}/drive", {"step": 2}).json()["number"]
    told = client.post(f"{place}/{drive}/steer", {"command": [0.25, 0, 99], "steps": 3}).json()
    assert told["command"][0] == 0.25
    assert told["command"][2] == facts["drive"]["ranges"]["turn"][1]
    assert len(b64decode(told["poses"])) == 3 * shapes * 7 * 4
    summary = client.get(place).json()["recordings"][-1]
    assert (summary["number"], summary["length"], summary["driven"], summary["branched_at"]) == (drive, 5, True, 2)
    assert client.get(f"{place}/{drive}/steps").json()["steps"][4]["command"] == told["command"]
    for body in (
        {"steps": 101},
        {"command": "ahead"},
        {"command": [1, 2]},
        {"command": [1, 2, None]},
        {"command": [1e999, 0, 0]},
    ):
        assert client.post(f"{place}/{drive}/steer", body).status == 400
    assert client.post(f"{place}/{number}/drive", {"step": 5}).status == 400


def test_what_has_no_world_says_so(app: Any, run: Run) -> None:
    client, place = opened(app, run)
    number = client.get(place).json()["recordings"][0]["number"]
    assert client.get(f"{place}/facts").json()["drive"] is None
    assert client.get(f"{place}/world").status == client.get(f"{place}/{number}/poses").status == 404
    assert "can't be driven" in client.post(f"{place}/{number}/drive", {"step": 0}).json()["error"]


ODD: tuple[Any, ...] = (
    None,
    -1,
    0,
    3,
    10**12,
    "x",
    [],
    [1],
    {},
    True,
    1.5,
    float("inf"),
    "\x00",
    "../..",
    [[[]]],
    "greedy",
    "9" * 900,
)


ASKED = ("branch", "more", "drive", "steer", "steps", "poses", "frame/{}.png", "seen/{}.png", "saliency/{}.png")


def test_hostile_requests_to_an_inspection_neither_fail_nor_end_it(app: Any, run: Run) -> None:
    client, place = opened(app, run)
    number = client.get(place).json()["recordings"][0]["number"]
    generator = random.Random(0)
    for _ in range(150):
        what = generator.choice(ASKED).format(generator.choice((0, 2, 10**9, "x")))
        path = f"{place}/{generator.choice((number, number, 99, 10**30, '-1', 'x'))}/{what}"
        fields = generator.sample(("step", "action", "run", "checkpoint", "mode", "max_steps", "command", "steps"), 3)
        body = {name: generator.choice(ODD) for name in fields}
        is_change = what in ("branch", "more", "drive", "steer")
        answer = client.post(path, body) if is_change else client.get(path)
        assert answer.status < 500, f"{path} {body}: {answer.text[:200]}"
    finish(app)
    assert client.get(place).json()["is_open"]
    assert client.get(f"{place}/{number}/steps").status == 200


def test_recording_needs_the_token(app: Any, run: Run) -> None:
    assert Client(app).post("/api/inspect", {"run": run.id}).status == 401


def test_a_link_in_the_place_of_a_run_is_none(app: Any, run: Run, tmp_path: Path) -> None:
    link = run.path.parent / "linked"
    link.symlink_to(tmp_path)
    try:
        assert Client(app, TOKEN).post("/api/inspect", {"run": "linked"}).status == 404
    finally:
        link.unlink()
