"""FlashSAC as published: `python bench/flash_sac.py [--task HalfCheetah-v5 ...] [--seeds 1 2 3] [--jobs 5]`.

Trains each task and seed in a process of its own, several side by side, and measures the last policy of each on 100 fresh
episodes. The JSON grows with every run that ends; a run that the deadline cuts short is measured where it stands, and says so.
Beside it stand the means of the authors' own files (Holiday-Robot/FlashSAC at 87edc90, `results/stateRL_cpusim`: v4, 5 seeds).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import queue
import sys
import time
import traceback
from pathlib import Path
from typing import Any

TASKS = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5")
PUBLISHED = {
    "HalfCheetah-v5": {100_000: 9_800, 500_000: 12_200, 1_000_000: 14_500},
    "Hopper-v5": {100_000: 2_100, 500_000: 3_700, 1_000_000: 4_060},
    "Walker2d-v5": {100_000: 3_300, 500_000: 6_700, 1_000_000: 7_300},
    "Ant-v5": {100_000: 3_200, 500_000: 6_700, 1_000_000: 7_600},
    "Humanoid-v5": {100_000: 6_100, 500_000: 11_400, 1_000_000: 12_600},
}
WHOLE_RUN = 1_000_000
"""What the published rate falls over, whatever part of a run is taken here."""


def main() -> int:
    """Train, measure, and say what came of it."""
    options = _parser().parse_args()
    tasks = ["Pendulum-v1"] if options.quick else options.task
    jobs = [(task, seed) for seed in ([1] if options.quick else options.seeds) for task in tasks]
    if options.quick:
        options.steps, options.episodes = 1500, 4
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    until = time.monotonic() + options.deadline_s
    waiting, running, rows = list(jobs), dict[tuple[str, int], Any](), dict[tuple[str, int], dict[str, Any]]()
    while waiting or running:
        while waiting and len(running) < options.jobs and time.monotonic() < until:
            job = waiting.pop(0)
            running[job] = context.Process(target=_job, args=(*job, options, until, answers), daemon=True)
            running[job].start()
        if time.monotonic() >= until:
            waiting.clear()
        try:
            job, row = answers.get(timeout=5)
            rows[job] = row
            if row.get("is_over"):
                print(_line(row), flush=True)
        except queue.Empty:
            pass
        for job, process in list(running.items()):
            if rows.get(job, {}).get("is_over") or not process.is_alive():
                process.join(10)
                del running[job]
        if options.out is not None:
            told = {"steps": options.steps, "jobs": options.jobs, "words": options.words, "rows": [*rows.values()]}
            options.out.write_text(json.dumps(told, indent=1))
    return 0 if len(rows) == len(jobs) and all("error" not in row for row in rows.values()) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", nargs="+", default=list(TASKS), metavar="ID")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=5, help="trainings side by side")
    parser.add_argument("--deadline-s", type=float, default=3600.0, help="stop training then, and measure what is there")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--words", nargs="+", default=["experiment.tf32=true"], metavar="WORD", help="more settings")
    parser.add_argument("--quick", action="store_true", help="one tiny training, to see that it runs")
    parser.add_argument("--out", type=Path, metavar="FILE")
    return parser


def _job(task: str, seed: int, options: argparse.Namespace, until: float, answers: Any) -> None:
    row: dict[str, Any] = {"task": task, "seed": seed, "published": PUBLISHED.get(task, {}).get(options.steps)}
    try:
        for told in _trained(task, seed, options, until):
            row |= told
            answers.put(((task, seed), row.copy()))
    except BaseException as error:  # noqa: BLE001 # said in its row; the others go on
        print("\n".join(traceback.format_exc().strip().splitlines()[-12:]), file=sys.stderr, flush=True)
        row["error"] = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:300]}"
    answers.put(((task, seed), {**row, "is_over": True}))


def _trained(task: str, seed: int, options: argparse.Namespace, until: float) -> Any:
    import torch

    from etude.config.compose import compose
    from etude.training import assembly

    share = options.steps / WHOLE_RUN
    words = [f"experiment.seed={seed}", f"experiment.device={options.device}", "evaluation.every_steps=0"]
    words += [f"training.total_steps={options.steps}"]
    if share < 1 and not options.quick:
        words.append(f"algorithm.learning_rate={{start: 3e-4, end: {3e-4 - 1.5e-4 * share:.6g}}}")
    if options.quick:
        words += ["algorithm.learning_starts=500"]
    config = assembly.resolve(compose(f"{task}:flash_sac", words=[*words, *options.words]).config)
    run = assembly.build(config)
    run.begin()
    is_cuda = torch.device(config.experiment.device).type == "cuda"
    begun = told = mark = time.monotonic()
    marked: int | None = None  # where speed is counted from: once everything is compiled and captured
    while run._run_cycle():
        if marked is None and run.counters.updates >= 200:
            _wait(is_cuda)
            mark, marked = time.monotonic(), run.counters.env_steps
        now = time.monotonic()
        if now - told > 20:
            told = now
            yield {"env_steps": run.counters.env_steps, "training_return": _return(run), "seconds": now - begun}
        if now > until:
            break
    _wait(is_cuda)
    seconds, steps = time.monotonic() - mark, run.counters.env_steps
    speed = (steps - marked) / seconds if marked is not None and seconds > 0 else None
    told_ = {"env_steps": steps, "is_whole": steps >= options.steps, "steps_per_s": speed, "start_s": mark - begun}
    yield {**told_, "updates": run.counters.updates, "training_return": _return(run)}
    yield _evaluated(run, config, options.episodes)


def _evaluated(run: Any, config: Any, episodes: int) -> dict[str, Any]:
    """Return what the policy that is there earns, greedily, on episodes with seeds of their own."""
    from etude.compute.random_streams import derive_seed
    from etude.environments.make import make_environment
    from etude.orchestration.evaluator import evaluate_episodes
    from etude.training import assembly

    environment = make_environment(config.environment, num_envs=min(episodes, 16))
    seed = derive_seed(config.experiment.seed, "bench/flash_sac")
    try:
        result = evaluate_episodes(
            run.workflow.policy(),
            environment,
            episodes,
            mode="greedy",
            seed=seed,
            device=config.experiment.device,
            captured=assembly.acts_captured(config),
        )
    finally:
        environment.close()
    returns = result.returns.tolist()
    mean = sum(returns) / len(returns)
    spread = (sum((each - mean) ** 2 for each in returns) / len(returns)) ** 0.5
    return {"return": mean, "return_std": spread, "returns": returns}


def _return(run: Any) -> float | None:
    return run.collector.episodes.read().get("collect/return_mean")


def _wait(is_cuda: bool) -> None:
    if is_cuda:
        import torch

        torch.cuda.synchronize()


def _line(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['task']} seed {row['seed']}: {row['error']}"
    speed = f"{row['steps_per_s']:,.0f} steps/s" if row.get("steps_per_s") else "too short to tell its speed"
    published = f" (published {row['published']:,})" if row.get("published") else ""
    cut = "" if row["is_whole"] else ", cut short"
    return f"{row['task']} seed {row['seed']}: {row['return']:,.0f} ± {row['return_std']:,.0f}{published} after " \
        f"{row['env_steps']:,} steps{cut}; {speed}, started in {row['start_s']:.0f} s"  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
