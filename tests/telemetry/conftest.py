"""A small CartPole PPO run, made up but shaped like a real one."""

from __future__ import annotations

import io
import math
import random
import re
from pathlib import Path

import pytest

from etude.telemetry.console import RunHeader, RunOutcome


def made_up_rows(total: int = 100_000, rollout: int = 1024) -> list[dict[str, float]]:
    noise = random.Random(0)
    rows: list[dict[str, float]] = []
    best = best_eval = -math.inf
    cycles = total // rollout
    for cycle in range(1, cycles + 1):
        done = cycle / cycles
        steps = cycle * rollout
        mean = min(500.0, 20 + 480 / (1 + math.exp(-12 * (done - 0.35))) + noise.gauss(0, 14) * (1 - 0.7 * done))
        best = max(best, mean)
        row: dict[str, float] = {
            "decisions": steps,
            "env_steps": steps,
            "updates": cycle * 80,
            "episodes": int(steps / (20 + 200 * done)),
            "cycles": cycle,
            "collect/return_mean": mean,
            "collect/return_std": abs(noise.gauss(60, 10)) * (1 - 0.7 * done),
            "collect/return_best": best,
            "collect/length_mean": mean,
            "collect/episodes": float(rollout // int(mean) + 1),
            "train/policy_loss": -0.012 * (1 - done) + noise.gauss(0, 0.002),
            "train/value_loss": 40 * math.exp(-3 * done) + 4 * noise.random(),
            "train/entropy": 0.69 - 0.2 * done + noise.gauss(0, 0.004),
            "train/approx_kl": abs(noise.gauss(0.006, 0.002)),
            "train/clip_fraction": abs(noise.gauss(0.08, 0.03)),
            "train/explained_variance": 1 - math.exp(-4 * done) + noise.gauss(0, 0.03),
            "train/grad_norm": abs(noise.gauss(0.4, 0.1)),
            "hp/learning_rate": 3e-4 * (1 - done),
            "time/elapsed_s": steps / 9800,
            "time/steps_per_second": 9800 + noise.gauss(0, 50),
            "time/eta_s": (total - steps) / 9800,
            "time/share/collect": 0.41,
            "time/share/update": 0.52,
            "time/share/evaluate": 0.043,
            "time/share/save": 0.007,
            "time/share/log": 0.02,
        }
        if cycle % 10 == 0:
            score = min(500.0, mean + 20)
            best_eval = max(best_eval, score)
            row |= {"eval/return_mean": score, "eval/return_std": 12 * (1 - done), "eval/return_best": best_eval}
            row |= {"eval/length_mean": score, "eval/episodes": 20.0}
        rows.append(row)
    return rows


@pytest.fixture
def rows() -> list[dict[str, float]]:
    return made_up_rows()


@pytest.fixture
def header() -> RunHeader:
    return RunHeader(
        run_id="cartpole-ppo-7f3a",
        run_dir=Path("runs/cartpole-ppo-7f3a"),
        environment="CartPole-v1",
        algorithm="ppo",
        device="cpu",
        mode="compiled",
        seed=1,
        num_envs=8,
        total_steps=100_000,
        phases=["main"],
        notes=["rollout buffer 0.2 MB"],
    )


@pytest.fixture
def outcome() -> RunOutcome:
    return RunOutcome(
        status="finished",
        reason="spent training.total_steps",
        run_id="cartpole-ppo-7f3a",
        run_dir=Path("runs/cartpole-ppo-7f3a"),
        best=500.0,
        last_eval=487.0,
        elapsed_s=10.4,
        env_steps=99_328,
        next_commands=["etude play @last", "etude verify @last"],
    )


class Terminal(io.StringIO):
    """A terminal as far as a program can tell; `screen` plays what was written on one of endless height."""

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        lines, row = [""], 0
        for token in re.findall(r"\x1b\[\d*[A-Za-z]|\x1b\[[\d;]*m|\n|\r|[^\x1b\n\r]+", self.getvalue()):
            if token.endswith("A") and token.startswith("\x1b"):
                row -= int(token[2:-1])
            elif token == "\x1b[J":
                del lines[row:]
                lines.append("")
            elif token == "\n":
                row += 1
                if row == len(lines):
                    lines.append("")
            elif not token.startswith(("\x1b", "\r")):
                lines[row] += token
        return lines


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "30")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()
