"""The checker of environments: each fault is named in words, with the way out, and a sound one passes."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

from etude.cli import run as etude
from etude.environments.check.check import Checker, check_environment
from etude.environments.check.report import Remark


class Sound(gymnasium.Env[Any, Any]):
    """A walk on a line that ends at either side."""

    def __init__(self) -> None:
        self.observation_space: Any = spaces.Box(-9, 9, (2,), np.float32)
        self.action_space: Any = spaces.Discrete(2)
        self.place = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.place = float(self.np_random.uniform(-1, 1))
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.place += 2.0 * float(action) - 1.0 + float(self.np_random.normal()) / 10
        return self.observe(), -abs(self.place), abs(self.place) > 4, False, {}

    def observe(self) -> Any:
        return np.array([self.place, 1.0], np.float32)


def remarks(env: type[gymnasium.Env[Any, Any]], limit: int | None = None, steps: int = 200) -> list[Remark]:
    def make() -> gymnasium.Env[Any, Any]:
        return env() if limit is None else TimeLimit(env(), limit)

    return Checker(make, steps=steps).run()


def faults(env: type[gymnasium.Env[Any, Any]], level: str = "wrong", **options: Any) -> list[str]:
    return [f"{found.check}: {found.says} → {found.way_out}" for found in remarks(env, **options) if found.level == level]


def test_a_sound_environment_is_fine_in_every_check() -> None:
    found = remarks(Sound)
    assert {each.level for each in found} == {"fine"}, found
    assert [each.check for each in found] == ["builds", "spaces", "reset", "step", "ends", "seeds", "resume", "speed"]
    assert "exact" in found[-2].says


def changed(**methods: Any) -> type[Sound]:
    return type("Changed", (Sound,), methods)


def with_step(change: Any) -> type[Sound]:
    return changed(step=lambda self, action: change(self, *Sound.step(self, action)))


def reset_to(observation: Any) -> type[Sound]:
    return changed(observe=lambda self: observation)


def init_with(**attributes: Any) -> type[Sound]:
    def build(self: Any) -> None:
        Sound.__init__(self)
        for name, make in attributes.items():
            setattr(self, name, make())

    return changed(__init__=build)


HALVES = itertools.cycle([False] * 33 + [True])
WRONG = {
    "four things": (with_step(lambda _, o, r, t, u, i: (o, r, t, i)), "step: returns 4 things", "OldGymAdapter"),
    "old reset": (changed(reset=lambda self, seed=None, options=None: self.observe()), "observation alone", "OldGymAdapter"),
    "no seed": (changed(reset=lambda self: (self.observe(), {})), "reset: takes no seed", "def reset(self, *, seed=None"),
    "another shape": (reset_to(np.zeros(3, np.float32)), "it has the shape (3,), the space says (2,)", ""),
    "another dtype": (reset_to(np.zeros(2, np.complex64)), "of complex64, the space says float32", "astype(np.float32)"),
    "outside": (reset_to(np.array([0, 99], np.float32)), "it[1] is 99, outside of its bounds -9 to 9", "widen the space"),
    "a list": (reset_to([0.0, 0.0]), "it is a list", "return a NumPy array of float32"),
    "NaN": (reset_to(np.array([0, np.nan], np.float32)), "it has NaN or infinite entries", ""),
    "reward array": (with_step(lambda _, o, r, t, u, i: (o, np.array([r]), t, u, i)), "an array of shape (1,)", "float(rew"),
    "reward text": (with_step(lambda _, o, r, t, u, i: (o, "much", t, u, i)), "reward: it is a str", "return a float"),
    "reward NaN": (with_step(lambda _, o, r, t, u, i: (o, float("nan"), t, u, i)), "reward: it is nan", ""),
    "flag": (with_step(lambda _, o, r, t, u, i: (o, r, int(t), u, i)), "terminated: it is a int", "bool(terminated)"),
    "info": (with_step(lambda _, o, r, t, u, i: (o, r, t, u, None)), "a NoneType as info", "{}"),
    "never ends": (with_step(lambda s, o, r, t, u, i: (o * 0, r, False, False, i)), "no episode ended", "max_episode_steps"),
    "global numpy": (
        with_step(lambda _, o, r, t, u, i: (o, r + np.random.normal(), t, u, i)),  # noqa: NPY002 # that is the fault
        "differ in the reward, after 1 steps; it draws from the global generator of numpy.random",
        "self.np_random",
    ),
    "unseeded": (
        with_step(lambda _, o, r, t, u, i: (o * np.float32(np.random.default_rng().random()), r, t, u, i)),
        "two resets with the same seed differ in the observation, after 1 steps",
        "self.np_random",
    ),
    "text space": (init_with(observation_space=lambda: spaces.Text(9)), "Text space; Etude reads", "ObservationWrapper"),
    # Defect 37: these were tracebacks, and ends were not compared.
    "no space": (changed(__init__=lambda self: setattr(self, "place", 0.0)), "it has no observation_space", "gymnasium.spaces"),
    "no action space": (init_with(action_space=lambda: None), "it has no action_space", "set self.action_space"),
    "reset raises TypeError": (changed(observe=lambda self: 1 + "a"), "reset: raised TypeError: unsupported", "test_check.py:"),
    "ends differ": (
        with_step(lambda _, o, r, t, u, i: (o, r, bool(np.random.default_rng().random() < 0.5), u, i)),
        "with the same seed differ in",
        "self.np_random",
    ),
    "only the end differs": (
        with_step(lambda _, o, r, t, u, i: (o * 0, 0.0, False, bool(next(HALVES)), i)),
        "two resets with the same seed differ in how the episode ends, after ",
        "self.np_random",
    ),
    "raises": (with_step(lambda _, o, r, t, u, i: 1 / 0), "step: raised ZeroDivisionError", "test_check.py:"),
}  # fmt: skip


@pytest.mark.parametrize(("env", "says", "way_out"), WRONG.values(), ids=WRONG)
def test_a_fault_is_named_with_the_way_out(env: Any, says: str, way_out: str) -> None:
    found = faults(env)
    assert any(says in each and way_out in each.split(" → ")[1] for each in found), found


def test_a_part_of_a_dict_is_named() -> None:
    class Parts(Sound):
        def __init__(self) -> None:
            super().__init__()
            self.observation_space = spaces.Dict({"near": spaces.Box(-9, 9, (1,), np.float32), "far": spaces.Discrete(3)})

        def observe(self) -> Any:
            return {"near": np.array([self.place], np.float32), "fra": 1}

    found = faults(Parts)
    assert any("'far' is in the space and not in the observation" in each for each in found)
    assert any("'fra' is in the observation and not in the space" in each for each in found)


def test_a_limit_told_as_a_termination_is_noticed() -> None:
    class Counting(Sound):
        def step(self, action: Any) -> Any:
            self.count = getattr(self, "count", 0) + 1
            observation, reward, _, _, info = super().step(action)
            return np.clip(observation, -9, 9), reward, self.count % 10 == 0, False, info

    assert any("terminated after exactly 10 steps" in each for each in faults(Counting, "notice"))


def test_one_array_for_all_steps_is_noticed() -> None:
    class Sharing(Sound):
        def __init__(self) -> None:
            super().__init__()
            self.array = np.zeros(2, np.float32)

        def observe(self) -> Any:
            self.array[:] = (self.place, 1.0)
            return self.array

    assert any("the same array" in each and "copy()" in each for each in faults(Sharing, "notice"))
    assert faults(Sharing) == []


def test_what_keeps_it_from_resuming_exactly_is_named() -> None:
    class Engine:
        pass

    (found,) = faults(init_with(engine=Engine), "notice")
    assert "restart" in found
    assert "engine is a Engine" in found
    assert "state_dict()" in found


def test_state_outside_of_its_attributes_is_found_out() -> None:
    hidden = {"steps": 0}

    class Clockwork(Sound):
        def reset(self, **options: Any) -> Any:
            hidden["steps"] = 0
            return super().reset(**options)

        def step(self, action: Any) -> Any:
            hidden["steps"] += 1
            observation, _, terminated, truncated, info = super().step(action)
            return observation, float(hidden["steps"]), terminated, truncated, info

    assert any("a restored copy differs in the reward after 1 steps" in each for each in faults(Clockwork))


def test_a_slow_one_is_advised_to_use_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 4)

    def slow(_: Any, *returned: Any) -> Any:
        time.sleep(2e-4)
        return returned

    speed = remarks(with_step(slow), steps=50)[-1]
    assert "environment.workers=4" in speed.way_out


def test_an_environment_of_a_family_is_checked_as_etude_shows_it() -> None:
    pytest.importorskip("minigrid")
    found = check_environment("MiniGrid-Empty-5x5-v0", steps=100)  # bare, it observes a sentence
    assert not [each for each in found if each.level == "wrong"], found


def test_the_command_reads_a_module_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checked_module.py").write_text(
        "import gymnasium\n"
        "from tests.environments.test_check import Sound\n"
        "class Own(Sound):\n"
        "    def __init__(self, bad=False):\n"
        "        super().__init__()\n"
        "        self.bad = bad\n"
        "    def step(self, action):\n"
        "        o, r, t, u, i = super().step(action)\n"
        "        return (o, r, t, i) if self.bad else (o, r, t, u, i)\n"
        "gymnasium.register('Checked-v0', Own, max_episode_steps=50)\n"
    )
    assert etude(["check", "checked_module:Checked-v0", "--steps", "100"]) == 0
    assert "✓ resume" in capsys.readouterr().out
    assert etude(["check", "checked_module:Checked-v0", "bad=true", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["passed"] is False
    assert etude(["check", "checked_module:Cheked-v0"]) == 2
    assert "did you mean 'Checked-v0'" in capsys.readouterr().err
    assert etude(["check", "no_module_here:Checked-v0"]) == 2


def test_a_module_that_can_not_be_imported_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Defect 37."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_module.py").write_text("import json\njson.loads('{')\n")
    assert etude(["check", "broken_module:Broken-v0"]) == 1
    said = capsys.readouterr().err
    assert said.startswith("etude: broken_module:Broken-v0: its module can't be imported: JSONDecodeError: ")
    assert said.endswith("(broken_module.py:2)\n")
    (tmp_path / "unfinished_module.py").write_text("def step(:\n")
    assert etude(["check", "unfinished_module:Broken-v0"]) == 1
    assert "SyntaxError" in (said := capsys.readouterr().err)
    assert "unfinished_module.py:1" in said
    assert len(said.splitlines()) == 1


def test_no_steps_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Defect 37."""
    assert etude(["check", "CartPole-v1", "--steps", "0"]) == 2
    assert capsys.readouterr().err == "etude: --steps 0: must be at least 1\n"


def test_remarks_are_heard_as_they_are_made() -> None:
    """Defect 37: it was silent until all was done."""
    heard: list[str] = []
    env = with_step(lambda _, o, r, t, u, i: (heard.append("stepped"), (o, r, t, u, i))[1])
    Checker(env, steps=3, on_remark=lambda remark: heard.append(remark.check)).run()
    assert heard[:4] == ["builds", "spaces", "reset", "stepped"]


def test_a_game_is_checked_as_it_is_trained() -> None:
    """Defect 37: it looked at ALE's plain class, without the preprocessing."""
    pytest.importorskip("ale_py")
    found = {each.check: each for each in check_environment("ALE/Pong-v5", steps=20)}
    assert "AtariVector, 4 copies" in found["builds"].says
    assert "4, 84, 84" in found["spaces"].says
    assert "restart" in found["resume"].says
    assert "AtariGame" in check_environment("ALE/Pong-v5", {"obs_type": "ram"}, steps=20)[0].says
