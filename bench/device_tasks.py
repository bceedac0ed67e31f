"""Tasks on the learner's device, and what learns on them: `python bench/device_tasks.py [PART ...] [--quick] [--out FILE]`.

One command for a machine with a GPU. It measures, in this order and in one process:

    ppo        environment steps a second with learning, by the number of copies and by how updates run
    solved     seconds of training until the last 100 episodes are as they should be, by seed
    resume     whether a training that was saved and loaded goes on to the same bits
    precision  what coarser products change: speed, and how far a training comes
    split      what a cycle goes into: rollout, preparation and updates, and the kernels of each
    steps      environment steps a second of each task alone, by the number of copies
    flash_sac  environment steps a second of one MuJoCo environment with one update a step

Whatever fails says so in its row, and the rest is measured. The last parts take minutes.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from etude.compute import accelerate
from etude.config.compose import compose
from etude.config.schema import EnvironmentConfig
from etude.environments.make import make_environment
from etude.orchestration.orchestrator import Orchestrator
from etude.training import assembly

TASKS = ("CartPole-v1", "Pendulum-v1", "MountainCar-v0", "Acrobot-v1", "BrickWall-v0", "RoadCrossing-v0", "FruitFall-v0")
COPIES = (1, 16, 256, 1024, 4096, 16384, 65536)
WAYS = {"captured": ("experiment.compile=capture",), "captured, TF32": ("experiment.compile=capture", "experiment.tf32=true"),
        "compiled, TF32": ("experiment.compile=on", "experiment.tf32=true")}  # fmt: skip
PRECISIONS = {"float32": (), "TF32": ("experiment.tf32=true",)}
SPECS = ("CartPole-v1:ppo_gpu", "BrickWall-v0:ppo_gpu")
SOLVED = {"CartPole-v1:ppo_gpu": (475.0, 1.0), "BrickWall-v0:ppo_gpu": (29.5, 0.9)}
"""The return of a good episode, and what share of the last 100 has to be good; of 1.0 the mean has to be."""
LIMIT_S = 20.0
LONG = "training.total_steps=10_000_000_000"
"""Where speed is measured, the run must not end before."""


class Options(argparse.Namespace):
    """What was asked for."""

    parts: list[str]
    device: str
    quick: bool
    out: Path | None
    copies: list[int]
    ways: list[str]
    fusion: int | None
    words: list[str]


def main() -> int:
    """Measure what was asked for, print a line each, and write everything as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="only these")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="small and short, to see that it runs")
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--copies", type=int, nargs="+", default=[4096, 16384], help="of ppo")
    parser.add_argument("--ways", nargs="+", choices=WAYS, help="of ppo")
    parser.add_argument("--fusion", type=int, metavar="N", help="the largest kernels of compiled updates, for a trial")
    parser.add_argument("--words", nargs="+", default=[], metavar="WORD", help="settings for every training")
    options = parser.parse_args(namespace=Options())
    if options.fusion is not None:
        accelerate._ON_GPU["max_fusion_size"] = options.fusion
    device, found = torch.device(options.device), list[dict[str, Any]]()
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}", flush=True)
    begun, failed = time.perf_counter(), 0
    for part in options.parts or PARTS:
        for case in PARTS[part](device, options):
            row = {"part": part, **_measured(*case)}
            failed += "error" in row
            found.append({**row, "at_s": round(time.perf_counter() - begun, 1)})
            print("  ".join(f"{key} {_plain(value)}" for key, value in found[-1].items()), flush=True)
            if options.out is not None:
                told = {"device": name, "torch": torch.__version__, "words": options.words, "rows": found}
                options.out.write_text(json.dumps(told, indent=1))
    return 1 if failed else 0


Case = tuple[dict[str, Any], Callable[[], dict[str, Any]]]
"""What is measured, and what measures it."""


def _measured(what: dict[str, Any], measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return a row; of what fails, with the end of its traceback."""
    try:
        return {**what, **measure()}
    except Exception as error:  # noqa: BLE001 # the rest is measured all the same
        print("\n".join(traceback.format_exc().strip().splitlines()[-16:]), file=sys.stderr, flush=True)
        return {**what, "error": f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"}
    finally:
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _ways(device: torch.device, options: Options) -> dict[str, tuple[str, ...]]:
    if device.type != "cuda":
        return {"auto": ("experiment.compile=auto",)}
    return {way: words for way, words in WAYS.items() if not options.ways or way in options.ways}


def _ppo(device: torch.device, options: Options) -> Iterator[Case]:
    for spec in SPECS:
        for copies in (64,) if options.quick else options.copies:
            for way, words in _ways(device, options).items():
                yield (
                    {"spec": spec, "copies": copies, "way": way},
                    lambda spec=spec, copies=copies, words=words: _speed(spec, copies, words, device, options),
                )


def _speed(spec: str, copies: int, words: tuple[str, ...], device: torch.device, options: Options) -> dict[str, Any]:
    begun = time.perf_counter()
    run = _begun(spec, device, options, f"environment.num_envs={copies}", LONG, *words)
    for _ in range(6):  # until everything is compiled and captured
        run._run_cycle()
    _wait(device)
    start, steps, best = time.perf_counter() - begun, run.counters.env_steps, 0.0
    run._run_cycle()
    steps = run.counters.env_steps - steps
    for _ in range(1 if options.quick else 3):
        cycles = 2 if options.quick else 40
        best = max(best, cycles * steps / _timed(run._run_cycle, cycles, device))
    return {"steps_per_s": best, "start_s": start, **_return(run)}


def _solved(device: torch.device, options: Options) -> Iterator[Case]:
    for spec in SOLVED:
        for seed in (1,) if options.quick else (1, 2, 3, 4, 5):
            yield {"spec": spec, "seed": seed}, lambda spec=spec, seed=seed: _until_solved(spec, seed, device, options)


def _until_solved(spec: str, seed: int, device: torch.device, options: Options) -> dict[str, Any]:
    """Train until it is solved; what is compiled and captured first is apart."""
    good, share = SOLVED[spec]
    words = ("environment.num_envs=64",) if options.quick else ()
    begun = time.perf_counter()
    run = _begun(spec, device, options, f"experiment.seed={seed}", *words)
    limit = 40_000 if options.quick else run.scheduler.total_steps
    for _ in range(6):
        run._run_cycle()
    _wait(device)
    start, begun = time.perf_counter() - begun, time.perf_counter()
    solved_s = solved_at = None
    assert run.collector is not None
    while run.counters.env_steps < limit and time.perf_counter() - begun < LIMIT_S:
        for _ in range(5):
            run._run_cycle()
        if solved_s is None and _is_solved(run, good, share):
            solved_s, solved_at = time.perf_counter() - begun, run.counters.env_steps
    _wait(device)
    seconds = time.perf_counter() - begun
    told = {"solved_s": solved_s, "solved_at": solved_at, "start_s": start, "seconds": seconds}
    return {**told, "env_steps": run.counters.env_steps, **_return(run), "good_at_end": _share(run, good)}


def _is_solved(run: Orchestrator, good: float, share: float) -> bool:
    assert run.collector is not None
    held = run.collector.episodes._window[0, :100]
    if run.collector.episodes.finished < 100:
        return False
    return bool(held.mean() >= good) if share == 1.0 else _share(run, good) >= share


def _share(run: Orchestrator, good: float) -> float:
    assert run.collector is not None
    return float((run.collector.episodes._window[0, :100] >= good).float().mean())


def _resume(device: torch.device, options: Options) -> Iterator[Case]:
    specs = (("CartPole-v1:ppo_gpu", ()), ("BrickWall-v0:ppo_gpu", ()), ("Pendulum-v1:ppo", ("environment.backend=torch",)))
    for (spec, words), (way, more) in itertools.product(specs, _ways(device, options).items()):
        yield {"spec": spec, "way": way}, lambda spec=spec, more=(*words, *more): _exact(spec, more, device, options)


def _exact(spec: str, words: tuple[str, ...], device: torch.device, options: Options, cycles: int = 4) -> dict[str, Any]:
    """Train on and resume; compare the state right after loading, and both where they have come to."""
    words = (*words, "environment.num_envs=256", "algorithm.rollout_steps=32", "algorithm.batch_size=0.125")
    words = (*words, "algorithm.epochs=2", "environment.normalize_observations=rolling")
    one = _begun(spec, device, options, *words)
    for _ in range(cycles):
        one._run_cycle()
    saved = _copied(one.state_dict())
    for _ in range(cycles):
        one._run_cycle()
    ended = _copied(one.state_dict())
    one.load_state_dict(_copied(saved, "cpu"))  # its graphs stay, and stand elsewhere
    returned = _differences(saved, one.state_dict())
    for _ in range(cycles):
        one._run_cycle()
    other = _begun(spec, device, options, *words)
    other.load_state_dict(_copied(saved, "cpu"))
    loaded = _differences(saved, other.state_dict())
    for _ in range(cycles):
        other._run_cycle()
    went_on, fresh = _differences(ended, one.state_dict()), _differences(ended, other.state_dict())
    return {
        "loaded_exactly": not returned and not loaded,
        "same_process_exactly": not went_on,
        "fresh_exactly": not fresh,
        "differences": [*returned[:2], *loaded[:2], *went_on[:4], *fresh[:4]],
    }


def _copied(tree: Any, device: str | None = None) -> Any:
    if isinstance(tree, torch.Tensor):
        return tree.detach().clone() if device is None else tree.detach().to(device, copy=True)
    if isinstance(tree, dict):
        return {key: _copied(value, device) for key, value in tree.items()}
    return type(tree)(_copied(value, device) for value in tree) if isinstance(tree, list | tuple) else tree


def _differences(one: Any, other: Any, path: str = "") -> list[str]:
    """Return where two states differ, and by how much; what the clock says is not compared."""
    if isinstance(one, torch.Tensor):
        mine, theirs = one.detach().cpu(), other.detach().cpu()
        if mine.shape == theirs.shape and torch.equal(torch.nan_to_num(mine), torch.nan_to_num(theirs)):
            return []
        apart = float((mine.double() - theirs.double()).abs().max()) if mine.shape == theirs.shape else float("nan")
        return [f"{path}: {apart:.3g}"]
    if isinstance(one, dict):
        keys = sorted(one.keys() | other.keys(), key=str)
        both = [(key, one.get(key), other.get(key)) for key in keys if key not in ("elapsed_s", "columns")]
        return [said for key, mine, theirs in both for said in _differences(mine, theirs, f"{path}/{key}")]
    if isinstance(one, list | tuple):
        pairs = enumerate(zip(one, other, strict=True))
        return [said for k, (mine, theirs) in pairs for said in _differences(mine, theirs, f"{path}/{k}")]
    return [] if one == other or (one != one and other != other) else [f"{path}: {one!r} and {other!r}"]


def _precision(device: torch.device, options: Options) -> Iterator[Case]:
    for spec in SPECS:
        for name, words in PRECISIONS.items():
            told = {"spec": spec, "precision": name}
            yield told, lambda spec=spec, words=words: _learnt(spec, words, device, options)


def _learnt(spec: str, words: tuple[str, ...], device: torch.device, options: Options) -> dict[str, Any]:
    """Take as many cycles in each precision, and say how fast they were and where they led."""
    small = ("environment.num_envs=64",) if options.quick else ()
    run = _begun(spec, device, options, *words, *small, LONG)
    for _ in range(6):
        run._run_cycle()
    before, cycles = run.counters.env_steps, 3 if options.quick else 150
    seconds = _timed(run._run_cycle, cycles - 1, device)
    return {"steps_per_s": (run.counters.env_steps - before) * (cycles - 1) / cycles / seconds, **_return(run)}


def _split(device: torch.device, options: Options) -> Iterator[Case]:
    for spec in SPECS:
        for copies in (64,) if options.quick else options.copies:
            for way, words in _ways(device, options).items():
                told = {"spec": spec, "copies": copies, "way": way}
                yield told, lambda spec=spec, copies=copies, words=words: _shares(spec, copies, words, device, options)


def _shares(spec: str, copies: int, words: tuple[str, ...], device: torch.device, options: Options) -> dict[str, Any]:
    """Say how long each hook of a cycle takes, waited for by itself, and how many kernels a cycle has."""
    run = _begun(spec, device, options, f"environment.num_envs={copies}", LONG, *words)
    for _ in range(6):
        run._run_cycle()
    return _parts(run, 2 if options.quick else 20, device)


def _parts(run: Orchestrator, cycles: int, device: torch.device) -> dict[str, Any]:
    """Say how long each hook of a cycle takes, waited for by itself, and which kernels a cycle has."""
    spent: dict[str, float] = {}
    call = run._call

    def timed(action: Any) -> Any:
        _wait(device)
        begun = time.perf_counter()
        result = call(action)
        _wait(device)
        spent[action.hook] = spent.get(action.hook, 0.0) + time.perf_counter() - begun
        return result

    run._call = timed  # type: ignore[method-assign] # waits for the device between hooks
    for _ in range(cycles):
        run._run_cycle()
    run._call = call  # type: ignore[method-assign]
    kernels = {}
    if device.type == "cuda":
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            run._run_cycle()
            _wait(device)
        events = sorted(profile.key_averages(), key=lambda event: -event.self_device_time_total)
        kernels = {
            "kernels": sum(event.count for event in events),
            "kernel_ms": sum(event.self_device_time_total for event in events) / 1e3,
            "costliest": [f"{e.key[:60]} {e.count} {e.self_device_time_total / 1e3:.2f} ms" for e in events[:12]],
        }
    return {**{f"{hook}_ms": 1e3 * seconds / cycles for hook, seconds in spent.items()}, **kernels}


def _steps(device: torch.device, options: Options) -> Iterator[Case]:
    for task in TASKS:
        for copies in COPIES[:4] if options.quick else COPIES:
            count = 20 if options.quick else 300
            told = {"task": task, "copies": copies}
            yield told, lambda task=task, copies=copies, count=count: _stepping(task, copies, count, device)


def _stepping(task: str, copies: int, count: int, device: torch.device) -> dict[str, Any]:
    vector = make_environment(EnvironmentConfig(id=task, num_envs=copies, backend="torch"), device=device)
    vector.reset(range(copies))
    space = vector.single_action_space
    action = torch.zeros(copies, *(space.shape or ()), dtype=torch.float32 if space.shape else torch.int64, device=device)
    return {"steps_per_s": count * copies / _timed(lambda: vector.step(action), count, device)}


def _flash_sac(device: torch.device, options: Options) -> Iterator[Case]:
    spec = "Pendulum-v1:flash_sac" if options.quick else "HalfCheetah-v5:flash_sac"
    for way in ("off",) if device.type == "cpu" else ("capture", "on"):
        yield {"spec": spec, "way": way}, lambda way=way: _updating(spec, way, device, options)


def _updating(spec: str, way: str, device: torch.device, options: Options) -> dict[str, Any]:
    begun = time.perf_counter()
    run = _begun(spec, device, options, "algorithm.learning_starts=600", f"experiment.compile={way}", "experiment.tf32=true")
    while run.counters.updates < 20:
        run._run_cycle()
    _wait(device)
    start = time.perf_counter() - begun
    before, count = run.counters.env_steps, 20 if options.quick else 500
    seconds = _timed(run._run_cycle, count, device)
    told = {"steps_per_s": (run.counters.env_steps - before) * count / (count + 1) / seconds, "start_s": start}
    while run.counters.updates % 2 == 0:  # so that the cycle whose kernels are counted has all stages
        run._run_cycle()
    return {**told, **_parts(run, 20 if options.quick else 100, device)}


PARTS: dict[str, Callable[[torch.device, Options], Iterator[Case]]] = {
    "ppo": _ppo,
    "solved": _solved,
    "resume": _resume,
    "precision": _precision,
    "split": _split,
    "steps": _steps,
    "flash_sac": _flash_sac,
}


def _begun(spec: str, device: torch.device, options: Options, *words: str) -> Orchestrator:
    said = (f"experiment.device={device}", "evaluation.every_steps=0", *words, *options.words)
    run = assembly.build(assembly.resolve(compose(spec, words=said).config))
    run.begin()
    return run


def _return(run: Orchestrator) -> dict[str, Any]:
    assert run.collector is not None
    return {"return": run.collector.episodes.read().get("collect/return_mean")}


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
    if isinstance(value, list):
        return "".join(f"\n    {each}" for each in value)
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    sys.exit(main())
