"""A reader of an algorithm gets from `update` to its loss in a few calls, and meets no way of running on the way."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from etude import workflows
from etude.config.compose import compose
from etude.training import assembly

ALGORITHMS = Path(workflows.__file__).parent


def calls_between(spec: str, loss: str, *words: str) -> int:
    """Return how many calls lie between an algorithm's `update` and its loss, the loss's own included."""
    small = ("experiment.device=cpu", "experiment.compile=off", "evaluation.every_steps=0", *words)
    orchestrator = assembly.build(assembly.resolve(compose(spec, words=small).config))
    found: list[int] = []

    def trace(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name == loss and not found:
            above, depth = frame.f_back, 1
            while above.f_code.co_name != "update" or "workflows" not in above.f_code.co_filename:
                # A method that is held weakly is called through one more frame, which no reader meets.
                above, depth = above.f_back, depth + (not above.f_code.co_filename.endswith("weak_methods.py"))
            found.append(depth)

    orchestrator.begin()
    sys.setprofile(trace)
    try:
        while not found:
            orchestrator._run_cycle()
    finally:
        sys.setprofile(None)
        orchestrator.close()
    return found[0]


@pytest.mark.parametrize(
    ("spec", "loss", "most"),
    [("CartPole-v1:ppo", "loss", 3), ("Pendulum-v1:sac", "critic_loss", 3), ("CartPole-v1:dqn", "loss", 3)],
)
def test_an_update_reaches_its_loss_in_a_few_calls(spec: str, loss: str, most: int) -> None:
    words = ["algorithm.rollout_steps=32"] if "ppo" in spec else ["algorithm.learning_starts=64"]
    assert calls_between(spec, loss, *words, "environment.num_envs=8") <= most


def test_no_algorithm_mentions_how_updates_run() -> None:
    ways = re.compile(r"\b(compiled|captured|is_captured|is_compiled|Captured|context\.mode)\b")
    contracts = {"base.py"}
    for file in sorted(ALGORITHMS.glob("*.py")):
        code = "\n".join(line.partition("  #")[0] for line in file.read_text(encoding="utf-8").splitlines())
        code = re.sub(r'""".*?"""|"[^"\n]*"', "", code, flags=re.DOTALL)  # what is said to users is no code
        assert file.name in contracts or not ways.findall(code), f"{file.name}: {ways.findall(code)}"
