"""`etude evaluate`: measure a run's policy."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from etude.cli.places import find_run


def evaluate(
    run: Annotated[str, Parameter(name="RUN")],
    /,
    *,
    episodes: int = 100,
    checkpoint: str | None = None,
    mode: Literal["auto", "mode", "sample", "both"] = "auto",
    seed: int = 0,
    num_envs: int | None = None,
    timeout: float | None = None,
    runs: Path | None = None,
    trust: bool = False,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """Measure a run's policy on fresh episodes, with the settings and statistics stored in the run.

    Seeds are disjoint from those of training and of the evaluations during it.

    Parameters
    ----------
    run
        @last, @best, an id, a unique prefix of one, or a path.
    episodes
        How many episodes, each run to its end, the same number in every copy of the environment.
    checkpoint
        best, last, a sequence number or environment steps. Default: last.
    mode
        mode: the most likely action; sample: as in training; both; auto: the algorithm's choice.
    seed
        Another set of episodes.
    num_envs
        Copies of the environment to evaluate on. Default: as many as episodes, at most 16.
    timeout
        Give up after this many seconds and report what has finished.
    runs
        Where runs live. Default: $ETUDE_RUNS, or ./runs.
    trust
        Honour import paths in the config of somebody else's run.
    as_json
        Print JSON with every episode's return.
    """
    from etude.errors import UserError

    if episodes < 1:
        raise UserError(f"--episodes {episodes}: must be at least 1")
    found = find_run(run, runs)
    from dataclasses import replace

    import torch

    from etude import assembly, session
    from etude.compute.random_streams import derive_seed
    from etude.orchestration.evaluator import MAX_ENVS, evaluate_episodes

    torch.set_num_threads(1)
    policy, environment, config, saved = session.load_policy(
        found.run,
        checkpoint or found.checkpoint or "last",
        trusted=trust,
        num_envs=num_envs or min(episodes, MAX_ENVS),
    )
    config = replace(config, evaluation=replace(config.evaluation, mode=mode))
    report = {"run": found.run.id, "checkpoint": saved.name, "env_steps": saved.counters["env_steps"], "modes": {}}
    for each in assembly.evaluation_modes(config):
        result = evaluate_episodes(
            policy,
            environment,
            episodes,
            mode=each,
            seed=derive_seed(config.experiment.seed, session.EVALUATION_SEEDS, seed),
            device=config.experiment.device,
            timeout_s=timeout,
            on_progress=_progress(episodes),
        )
        report["modes"][each] = {
            **result.metrics(prefix=""),
            "returns": result.returns.tolist(),
            "lengths": result.lengths.tolist(),
            "timed_out": result.timed_out,
        }
    environment.close()
    if as_json:
        print(json.dumps(report))
        return 0
    print(f"{config.environment.id} · {config.algorithm.name} · {found.run.id} · checkpoint {saved.name}")
    for each, values in report["modes"].items():
        if not values["returns"]:
            print(f"  {each:<7} no episode finished in time")
            continue
        print(
            f"  {each:<7} return {values['return_mean']:.2f} ± {values['return_std']:.2f}"
            f"  (min {values['return_min']:.2f}, max {values['return_max']:.2f})"
            f"  length {values['length_mean']:.1f}  {len(values['returns'])} episodes"
        )
    return 0


def _progress(episodes: int):
    """Show how far it is, on a terminal only."""
    if not sys.stderr.isatty():
        return None

    def show(finished: int) -> None:
        end = "\n" if finished >= episodes else ""
        print(f"\r{finished}/{episodes} episodes", end=end, file=sys.stderr, flush=True)

    return show
