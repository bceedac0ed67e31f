"""Tasks on the learner's device, and what learns on them: `python bench/device_tasks.py [--quick] [--out FILE]`.

One command for a machine with a GPU. It measures, in this order and in one process:

    steps      environment steps a second of each task alone, by the number of copies
    ppo        environment steps a second with learning, by the number of copies; what of a cycle is collecting
    solved     seconds of training until the last 100 episodes reach the task's threshold, by seed
    flash_sac  environment steps a second of one MuJoCo environment with one update a step
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from etude.config.compose import compose
from etude.config.schema import EnvironmentConfig
from etude.environments.make import make_environment
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly

TASKS = ("CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Acrobot-v1", "BrickWall-v0", "RoadCrossing-v0", "FruitFall-v0")
COPIES = (1, 16, 256, 1024, 4096, 16384, 65536)
WAYS = {"captured": ("experiment.compile=capture",), "captured, TF32": ("experiment.compile=capture", "experiment.tf32=true"),
        "compiled, TF32": ("experiment.compile=on", "experiment.tf32=true")}  # fmt: skip
SOLVED = {"CartPole-v1:ppo_gpu": 475.0, "BrickWall-v0:ppo_gpu": 29.0}


def main() -> None:
    """Measure what was asked for, print a line each, and write everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="only these")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="small and short, to see that it runs")
    parser.add_argument("--out", type=Path, metavar="FILE")
    options = parser.parse_args()
    device, found = torch.device(options.device), list[dict[str, Any]]()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}")
    for part in options.parts or PARTS:
        for row in PARTS[part](device, quick=options.quick):
            found.append({"part": part, **row})
            print("  ".join(f"{key} {_plain(value)}" for key, value in found[-1].items()), flush=True)
            if options.out is not None:
                options.out.write_text(json.dumps({"device": name, "torch": torch.__version__, "rows": found}, indent=1))


def _steps(device: torch.device, *, quick: bool) -> Iterator[dict[str, Any]]:
    for task in TASKS:
        for copies in COPIES[:4] if quick else COPIES:
            config = EnvironmentConfig(id=task, num_envs=copies, backend="torch")
            vector = make_environment(config, device=device)
            vector.reset(range(copies))
            space = vector.single_action_space
            action = torch.zeros(
                copies, *(space.shape or ()), dtype=torch.float32 if space.shape else torch.int64, device=device
            )
            count = 20 if quick else 300
            seconds = _timed(lambda vector=vector, action=action: vector.step(action), count, device)
            yield {"task": task, "copies": copies, "steps_per_s": count * copies / seconds}


def _ppo(device: torch.device, *, quick: bool) -> Iterator[dict[str, Any]]:
    ways = WAYS if device.type == "cuda" else {"auto": ("experiment.compile=auto",)}
    for spec in SOLVED:
        for copies in (64,) if quick else (1024, 4096, 16384):
            for way, words in ways.items():
                batch = max(16, copies * 32 // 8)
                run = _begun(spec, device, f"environment.num_envs={copies}", f"algorithm.batch_size={batch}", *words)
                cycles = 3 if quick else 30
                for _ in range(5):  # until everything is captured
                    run._run_cycle()
                seconds = _timed(run._run_cycle, cycles, device)
                yield {"spec": spec, "copies": copies, "way": way, "steps_per_s": cycles * copies * 32 / seconds}


def _solved(device: torch.device, *, quick: bool) -> Iterator[dict[str, Any]]:
    for spec, threshold in SOLVED.items():
        for seed in (1,) if quick else (1, 2, 3, 4, 5):
            words = ("environment.num_envs=128", "algorithm.batch_size=1024") if quick else ()
            run = _begun(spec, device, f"experiment.seed={seed}", *words)
            begun, total = time.perf_counter(), run.scheduler.total_steps
            limit = min(total, 40_000) if quick else total
            mean = 0.0
            assert run.collector is not None
            while run.counters.env_steps < limit and mean < threshold:
                for _ in range(5):
                    run._run_cycle()
                mean = run.collector.episodes.read().get("collect/return_mean", 0.0)
            seconds = time.perf_counter() - begun
            yield {"spec": spec, "seed": seed, "return": mean, "env_steps": run.counters.env_steps, "seconds": seconds}


def _flash_sac(device: torch.device, *, quick: bool) -> Iterator[dict[str, Any]]:
    spec = "Pendulum-v1:flash_sac" if quick else "HalfCheetah-v5:flash_sac"
    for way in ("off",) if device.type == "cpu" else ("capture", "on"):
        run = _begun(spec, device, "algorithm.learning_starts=600", f"experiment.compile={way}")
        while run.counters.updates < 20:
            run._run_cycle()
        count = 20 if quick else 500
        yield {"spec": spec, "way": way, "steps_per_s": count / _timed(run._run_cycle, count, device)}


PARTS: dict[str, Callable[..., Iterator[dict[str, Any]]]] = {
    "steps": _steps,
    "ppo": _ppo,
    "solved": _solved,
    "flash_sac": _flash_sac,
}


def _begun(spec: str, device: torch.device, *words: str) -> Orchestrator:
    config = compose(spec, words=(f"experiment.device={device}", "evaluation.every_steps=0", *words)).config
    run = assembly.build(assembly.resolve(config))
    assert run.collector is not None
    run.collector.start(run.workflow.initial_state)
    return run


def _timed(call: Callable[[], Any], count: int, device: torch.device) -> float:
    call()
    _wait(device)
    begun = time.perf_counter()
    for _ in range(count):
        call()
    _wait(device)
    return time.perf_counter() - begun


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _plain(value: Any) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
