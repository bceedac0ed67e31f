"""Exact resume for every family of environments, in this process, in workers and natively."""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

import pytest

from etude.errors import EnvironmentFailureError
from etude.runs.run import Run
from tests.runs_compared import assert_same_run, resume, rows, stopped_after, train

TINY = ("training.total_steps=512", "algorithm.rollout_steps=32", "algorithm.batch_size=0.5", "algorithm.epochs=1",
        "environment.num_envs=4", "evaluation.every_steps=256", "evaluation.episodes=1", "logging.every_steps=128",
        "environment.max_episode_steps=60")  # fmt: skip
CASES = {
    **{f"{name}-{backend}": (f"{name}-v5:ppo", f"environment.backend={backend}")
       for name in ("HalfCheetah", "Ant", "Humanoid") for backend in ("native", "gymnasium")},
    "LunarLander": ("LunarLander-v3:ppo",),
    "dmc-cheetah": ("dmc/cheetah-run:ppo",),
    "dmc-walker-gymnasium": ("dmc/walker-stand:ppo", "environment.backend=gymnasium"),
    "MiniGrid": ("MiniGrid-DoorKey-5x5-v0:ppo",),
    "BabyAI": ("BabyAI-GoToObj-v0:ppo",),
    "workers-CartPole": ("CartPole-v1:ppo", "environment.backend=gymnasium", "environment.workers=2"),
    "workers-LunarLander": ("LunarLander-v3:ppo", "environment.workers=2"),
}  # fmt: skip

ALIKE = {"Ant-native", "Ant-gymnasium", "Humanoid-gymnasium"}
"""Of a family that has another case here, for the slow tests."""


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=name, marks=pytest.mark.slow if name in ALIKE else ()) for name, case in CASES.items()]
)
def test_resume_equals_uninterrupted(case: tuple[str, ...], tmp_path: Path) -> None:
    spec, *words = case
    whole = train(spec, tmp_path / "whole", *TINY, *words)
    generator = random.Random(spec)
    with stopped_after(generator.randint(1, 2)):
        run = train(spec, tmp_path / "cut", *TINY, *words)
    while run.status == "interrupted":
        with stopped_after(generator.randint(1, 3)):
            resume(run)
    assert_same_run(whole, run)


def test_workers_give_the_run_that_this_process_gives(tmp_path: Path) -> None:
    inside = train("CartPole-v1:ppo", tmp_path, *TINY, "environment.backend=gymnasium")
    outside = train("CartPole-v1:ppo", tmp_path, *TINY, "environment.workers=2")
    assert rows(inside) == rows(outside)


def test_the_native_backend_gives_the_run_that_gymnasium_gives(tmp_path: Path) -> None:
    for spec in ("CartPole-v1:ppo", "HalfCheetah-v5:ppo"):
        native = train(spec, tmp_path, *TINY, "environment.backend=native")
        reference = train(spec, tmp_path, *TINY, "environment.backend=gymnasium")
        assert rows(native) == rows(reference)


def test_a_worker_that_dies_fails_the_run_says_so_and_the_run_goes_on_exactly(tmp_path: Path) -> None:
    tmp_path.joinpath("mortal.py").write_text(
        "import os, gymnasium, pathlib\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Mortal(CartPoleEnv):\n"
        "    def step(self, action):\n"
        "        mark = pathlib.Path(os.environ['MORTAL'])\n"
        "        if self.state[0] > 0.2 and mark.exists():\n"
        "            mark.unlink()\n"
        "            os.kill(os.getpid(), 9)\n"
        "        return super().step(action)\n"
        "gymnasium.register('Mortal-v0', Mortal, max_episode_steps=200)\n"
    )
    mark = tmp_path / "mark"
    sys.path.insert(0, str(tmp_path))
    os.environ["MORTAL"] = str(mark)
    words = (*TINY[:-1], "environment.workers=2", "checkpoint.every_steps=128")
    try:
        whole = train("mortal:Mortal-v0:ppo", tmp_path / "whole", *words)
        mark.touch()
        with pytest.raises(EnvironmentFailureError, match=r"(?s)worker.*etude resume") as failure:
            train("mortal:Mortal-v0:ppo", tmp_path / "cut", *words)
        run = Run.resolve("@last", tmp_path / "cut")
        assert run.status == "failed"
        assert signal.SIGKILL.name in str(failure.value) or "-9" in str(failure.value)
        assert resume(run).status == "finished"
    finally:
        sys.path.remove(str(tmp_path))
        del os.environ["MORTAL"]
    assert_same_run(whole, run)
