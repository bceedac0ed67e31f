"""The inspector in a browser: what its table shows is a scripted rollout, and the first branch is the recording."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from etude.components.returns import generalized_advantages
from etude.runs.run import Run
from etude.ui.server import Server
from etude.using.play import play
from etude.using.stored_policy import open_policy
from tests.runs_compared import train
from tests.ui.browser import CHROMIUM, DRIVER, Browser

pytestmark = pytest.mark.skipif(not CHROMIUM or not DRIVER, reason="there is no Chromium with its chromedriver here")

WORDS = (
    *("training.total_steps=16", "evaluation.every_steps=0", "environment.num_envs=2"),
    *("algorithm.rollout_steps=8", "algorithm.batch_size=8", "algorithm.epochs=1"),
)
STEPS = 12
CELLS = """
const names = [...document.querySelectorAll("table.steps th")].map((cell) => cell.textContent);
const rows = [...document.querySelectorAll("table.steps tbody tr")];
return rows.map((row) => [...row.children].map((cell, place) => [names[place], cell.className, cell.textContent]));
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train("CartPole-v1:ppo", tmp_path_factory.mktemp("runs"), *WORDS)


@pytest.fixture
def server(run: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        monkeypatch.setenv(name, "dummy")
    made = Server(run.path.parent, host="127.0.0.1", port=0)
    thread = threading.Thread(target=made.serve)
    thread.start()
    yield made
    made.stop()
    thread.join()
    made.app.state.inspections.close_all()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    made = Browser(tmp_path / "profile")
    made.size(1440, 1400)
    yield made
    made.close()


def column(browser: Browser, name: str, *, other: bool = False) -> list[str]:
    rows = browser.run(CELLS)
    return [next(text for title, kind, text in row if title == name and (kind == "other") == other) for row in rows]


def numbers(texts: list[str]) -> list[float]:
    return [float(text) for text in texts]


def test_the_page_shows_a_scripted_rollout_and_branches_off_it(server: Server, browser: Browser, run: Run) -> None:
    start, _, fragment = server.address.partition("/#")
    browser.open(f"{start}/inspect?run={run.id}&mode=sample&seed=3&max_steps={STEPS}#{fragment}")
    browser.wait("return document.querySelector('table.steps tr.now') !== null")

    (path,) = play(run, 1, checkpoint="last", mode="sample", seed=3, max_steps=STEPS)
    stored = open_policy(run, "last")
    _, environment = stored.with_environment(1)
    workflow: Any = stored.workflow(environment)
    values, following = (workflow.values(torch.as_tensor(path[name])) for name in ("observations", "next_observations"))
    parts = (torch.as_tensor(path["rewards"]).float(), values, following, torch.as_tensor(path["terminated"]))
    rewards, values, following, terminated = (part.unsqueeze(-1) for part in parts)
    settings = workflow.settings
    advantages = generalized_advantages(rewards, values, following, terminated, terminated, settings.gamma, settings.gae_lambda)
    assert numbers(column(browser, "step")) == list(range(path["length"]))
    assert column(browser, "action") == [("left", "right")[action] for action in path["actions"]]
    assert numbers(column(browser, "reward")) == path["rewards"].tolist()
    assert numbers(column(browser, "value")) == pytest.approx(values[:, 0].tolist(), abs=1e-3)
    assert numbers(column(browser, "advantage")) == pytest.approx(advantages[:, 0].tolist(), abs=1e-3)

    at_step = "return document.querySelector('tr.now').dataset.step === arguments[0]"
    frame = "return document.querySelector('.future .frame').getAttribute('src').endsWith(`/frame/${arguments[0]}.png`)"
    browser.run("document.getElementById('forward').click()")
    browser.wait(at_step, "1")
    browser.run("document.querySelector('tr[data-step=\"5\"]').click()")
    browser.wait(at_step, "5")
    browser.wait(frame, 5)
    browser.run("document.activeElement.blur()")
    browser.press("\ue012")  # arrow left
    browser.wait(at_step, "4")
    assert browser.run("return document.querySelector('.future .frame').naturalWidth") > 100

    browser.run("document.getElementById('branch').click()")
    browser.wait("return document.querySelectorAll('.futures .line').length === 2")
    browser.wait("return document.querySelector('td.other') !== null")
    for name in ("action", "reward", "return", "value"):
        assert column(browser, name, other=True) == column(browser, name)
    assert browser.complaints() == []


@pytest.mark.skipif(find_spec("mujoco") is None, reason="needs mujoco")
def test_a_robot_is_seen_in_three_dimensions_and_driven_by_keys(server: Server, browser: Browser, run: Run) -> None:
    small = ("network.actor.hidden_dims=[8]", "network.critic.hidden_dims=[8]", "environment.workers=0")
    robot = train("quadruped-flat:ppo", run.path.parent, *WORDS, *small)
    start, _, fragment = server.address.partition("/#")
    browser.open(f"{start}/inspect?run={robot.id}&max_steps=6&pictures=false#{fragment}")
    browser.wait("return document.querySelector('table.steps tr.now') !== null")
    colours = """
    const canvas = document.querySelector("canvas.world"), gl = canvas.getContext("webgl2");
    if (!gl) return "none";
    const pixels = new Uint8Array(canvas.width * canvas.height * 4);
    gl.readPixels(0, 0, canvas.width, canvas.height, gl.RGBA, gl.UNSIGNED_BYTE, pixels);
    return new Set(new Uint32Array(pixels.buffer)).size;
    """
    assert browser.run(colours) == "none" or browser.run(colours) > 100
    browser.run("document.getElementById('drive').focus()")
    browser.press("\ue007")  # enter
    browser.wait("return document.querySelector('.drive.driving')")
    browser.press("w", "q")
    asked = (
        "return [...document.querySelectorAll('.drive .axis')].map((row) => Number(row.querySelector('output').textContent))"
    )
    forward, sideways, turn = browser.run(asked)
    assert forward > 0
    assert (sideways, turn > 0) == (0, True)
    browser.wait("return document.querySelectorAll('.drive .axis output')[1].textContent.startsWith('does')")
    browser.press("x")
    browser.wait("return document.querySelectorAll('.futures .line').length === 2 && !document.querySelector('.driving')")
    browser.wait("return document.querySelector('.future:last-child h2').textContent === 'Driven from step 0'")
    assert browser.complaints() == []
