"""What `from_data.py` asks in processes of their own: returns, sides of a wall, milliseconds of a chunk, and datasets.

python bench/from_data_measures.py policy --run NAME --episodes 100 --out FILE
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch

import etude
from bench.from_data_jobs import UNFINISHED
from etude.config.compose import compose
from etude.datasets.dataset import Dataset
from etude.datasets.manifest import Manifest
from etude.datasets.places import default_root, folder_of
from etude.datasets.writer import writing
from etude.environments.make import make_environment
from etude.errors import EtudeError, UserError
from etude.runs import places
from etude.runs.run import Run
from etude.training import assembly
from etude.using.evaluate import measure
from etude.using.record_dataset import record
from etude.using.stored_policy import StoredPolicy, open_policy

STEPS_OF_A_CHUNK = (10, 16)


def policy(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What a run's last checkpoint earns, and what it would with other chunks; of the phase without an environment too."""
    stored = _opened(options.run, options.device)
    found = {**_facts(stored), **_returns(stored, options.episodes)}
    yield found
    if options.offline_too:
        saved = [each for each in stored.run.checkpoints().list() if each.kind == "full" and not each.counters["env_steps"]]
        offline = replace(stored, checkpoint=max(saved, key=lambda each: each.counters["updates"]))
        found["offline"] = {**_facts(offline), **_returns(offline, options.episodes)}
        yield found
    for count in options.action_steps:
        algorithm = replace(stored.config.algorithm, action_steps=count)
        other = replace(stored, config=replace(stored.config, algorithm=algorithm))
        found.setdefault("action_steps", {})[str(count)] = _returns(other, options.episodes)
        yield found


def sides(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """How often a policy arrives behind the wall of TwoWays-v0, and on which side of it."""
    stored = _opened(options.run, options.device)
    paths = etude.play(stored.run, options.episodes, seed=1000)
    won = np.array([path["return"] > 0 for path in paths])
    left = np.array([path["observations"][:, 0].min() < -0.45 for path in paths])
    arrived = int(won.sum())
    yield {
        **_facts(stored),
        "episodes": len(won),
        "success": float(won.mean()),
        "left": float((left & won).sum() / max(1, arrived)),
    }


def record_best(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Record demonstrations of the one of some runs that earns the most."""
    results = {Path(name).stem: json.loads(Path(name).read_text())["return_mean"] for name in options.results}
    run = max(results, key=results.__getitem__)
    data = record(
        _opened(run, "cpu"), options.name, default_root(), options.episodes, mode="greedy", num_envs=min(100, options.episodes)
    )
    yield {"demonstrator": run, "demonstrator_return": results[run], "candidates": results, **_of_data(data)}


def mix(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Record episodes with drawn actions of several early checkpoints, while the run goes on, as one dataset."""
    parts = []
    for steps in options.steps:
        stored = _awaited(options.run, steps)
        name = f"{options.name}-{steps}"
        parts.append(record(stored, name, default_root(), options.episodes, mode="sample", num_envs=min(67, options.episodes)))
    of = parts[0].manifest
    manifest = Manifest(
        of.observation_space, of.action_space, environment=of.environment, description=f"at {options.steps} steps"
    )
    folder = folder_of(options.name, default_root())
    with writing(folder, manifest) as writer:
        for part in parts:
            writer.add(*part.episodes())
    yield {**_of_data(Dataset(folder)), "parts": [_of_data(part) for part in parts]}


def chunk(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Milliseconds of a chunk for one episode, by device, threads and steps of DDIM."""
    found: dict[str, Any] = {"rows": []}
    threads = [count for count in (1, 2, 4, 8) if count <= (os.cpu_count() or 1)]
    places = [("cpu", count) for count in threads] + ([("cuda", 1)] if torch.cuda.is_available() else [])
    for device, count in places:
        torch.set_num_threads(count)
        for steps in STEPS_OF_A_CHUNK:
            found["rows"].append({"device": device, "threads": count, "ddim": steps, **_chunk(device, steps, options.rounds)})
            print(found["rows"][-1], flush=True)
            yield found


@torch.no_grad()
def _chunk(device: str, steps: int, rounds: int) -> dict[str, Any]:
    """As it is by itself, and with what surrounds it: what was seen, its noise, and a decision."""
    words = (
        *("buffers.data.dataset=none", "network.denoiser={type: denoising_unet, widths: [64,128,256], kernel: 5}"),
        *(
            "network.encoder.hidden_dims=[128]",
            "algorithm.horizon=16",
            "algorithm.observation_steps=2",
            "algorithm.embedding=64",
        ),
        *(f"algorithm.sampling_steps={steps}", f"experiment.device={device}"),
    )
    config = compose("HalfCheetah-v5:diffusion_policy", words=words).config
    environment = make_environment(config.environment, num_envs=1)
    acting: Any = assembly.build_workflow(
        config, environment.single_observation_space, environment.single_action_space
    ).policy()
    seen: Any = environment.reset([1])[0]
    observation = seen.to(device)
    generator, first = torch.Generator(device).manual_seed(0), torch.ones(1, dtype=torch.bool, device=device)
    state = acting.initial_state(1)
    noise = torch.randn(1, 16, 6, device=device)

    def decide() -> Any:
        return acting.act(observation, state, first, mode="sample", generator=generator)

    alone = _milliseconds(lambda: acting.make(state["seen"], noise, noise.new_empty(0, 1, 16, 6)), device, rounds)
    weights = sum(parameter.numel() for parameter in acting.parts["denoiser"].parameters())
    return {"weights": weights, "chunk_ms": alone, "decision_ms": _milliseconds(decide, device, rounds)}


def _milliseconds(call: Callable[[], Any], device: str, rounds: int) -> dict[str, float]:
    times = []
    for _ in range(rounds + 10):
        began = time.perf_counter()
        call()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - began))
    times = sorted(times[10:])
    return {"least": round(times[0], 3), "median": round(times[len(times) // 2], 3), "most": round(times[-1], 3)}


def _opened(name: str, device: str, checkpoint: str | None = None) -> StoredPolicy:
    found = sorted(places.default_root().glob(f"????????-??????-{name}-s*"))
    if not found:
        raise UserError(f"there is no run {name} in {places.default_root()}")
    return open_policy(Run.open(found[-1]), checkpoint, device=device)


def _awaited(name: str, steps: int) -> StoredPolicy:
    """Return a run's policy at some environment steps, once it has come so far."""
    while True:
        try:
            return _opened(name, "cpu", str(steps))
        except EtudeError:
            time.sleep(1)


def _facts(stored: StoredPolicy) -> dict[str, Any]:
    counters = stored.checkpoint.counters
    return {"run": stored.run.id, "env_steps": counters["env_steps"], "updates": counters["updates"]}


def _returns(stored: StoredPolicy, episodes: int) -> dict[str, Any]:
    began = time.perf_counter()
    (result,) = measure(stored, episodes, num_envs=min(100, episodes)).values()
    told = {key: round(value, 3) for key, value in result.metrics("").items()}
    return {**told, "evaluated_s": round(time.perf_counter() - began, 1)}


def _of_data(data: Dataset) -> dict[str, Any]:
    returns = np.array(data.manifest.returns)
    told = {"episodes": len(returns), "return_mean": float(returns.mean()), "return_std": float(returns.std())}
    return {**told, "return_min": float(returns.min()), "return_max": float(returns.max()), "steps": data.manifest.steps}


WHAT: dict[str, Callable[[argparse.Namespace], Iterator[dict[str, Any]]]] = {
    "policy": policy,
    "sides": sides,
    "record": record_best,
    "mix": mix,
    "chunk": chunk,
}


def main(words: Sequence[str] | None = None) -> None:
    """Measure one thing, and write it as it grows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--run", default="@last")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--name", default="data")
    parser.add_argument("--results", nargs="*", default=[])
    parser.add_argument("--steps", nargs="*", type=int, default=[])
    parser.add_argument("--action-steps", nargs="*", type=int, default=[])
    parser.add_argument("--offline-too", action="store_true")
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args(words)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    found = dict[str, Any]()
    for found in WHAT[options.what](options):
        options.out.write_text(json.dumps({**found, UNFINISHED: True}, indent=1))
    options.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
