"""Learning from data, from nothing to a table, in bounded time: `python bench/from_data.py [PARTS] --deadline-s 1400`.

    chunk        milliseconds of one chunk of a Diffusion Policy, on each device; runs first, with nothing beside it
    two-ways     Diffusion Policies beside means of the demonstrations, where the mean hits a wall
    imitate      SAC learns HalfCheetah-v5 and Hopper-v5 (200,000 steps), 200 demonstrations each, BC and Diffusion Policy
    medium       BC, IQL and TD3+BC on what SAC did at 20,000 to 60,000 steps, fine-tuned online

Every training is `etude train` in a process of its own. At its time limit it is asked to stop, saves itself and is measured as
it is. `from_data.json` is written anew after each, so that whatever ends this early leaves what was found until then.

Datasets and results that the folder has already are not made again; without its result, something is measured anew. `--only
REGEX` takes the jobs whose names it finds, and what they need: where demonstrations are, `imitate --only dp` trains nothing but
Diffusion Policies.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch

from bench.from_data_jobs import Job, Jobs, Step, due

MEASURE = str(Path(__file__).resolve().with_name("from_data_measures.py"))
TASKS = {"cheetah": ("HalfCheetah-v5", (1,)), "hopper": ("Hopper-v5", (1, 2))}
"""What is demonstrated, and by which seeds of SAC; the best of them demonstrates."""
QUIET = ("evaluation.every_steps=0", "evaluation.every_updates=0", "logging.terminal=false", "logging.report=false")
EARLY = (20_000, 40_000, 60_000)
CHUNKS = (1, 2, 4)
PARTS = ("chunk", "imitate", "two-ways", "medium")
EXTRAS = ("-bc-mse-", "-td3_bc-")
"""What comes last: other ways of doing the same."""


class Plan:
    """Which processes there are, what they need, and how long they may take."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.folder = options, options.folder
        self.quick, self.seeds = options.quick, range(1, options.seeds + 1)

    def jobs(self) -> Iterator[Job]:
        """Yield what was asked for, what matters most first."""
        asked = [part for part in PARTS if part in self.options.parts]
        found = [job for part in asked for job in getattr(self, f"_{part.replace('-', '_')}")()]
        yield from sorted(found, key=lambda job: any(extra in job.name for extra in EXTRAS))

    def _chunk(self) -> Iterator[Job]:
        words = ["--out", str(self._result("chunk")), "--rounds", "5" if self.quick else str(self.options.rounds)]
        measure = self._measure("chunk", *words, limit_s=120)
        yield Job("chunk", "chunk", [measure], gpu=True, alone=True, makes=self._made("chunk"))

    def _two_ways(self) -> Iterator[Job]:
        data = "two-ways"
        convert = self._etude("dataset", "convert", "script:TwoWays-v0", data)
        yield Job("two-ways-data", "two-ways", [convert], makes=(f"datasets/{data}/dataset.json",))
        quick = ("algorithm.updates=20", "algorithm.batch_size=16") if self.quick else ()
        for seed in self.seeds:
            yield self._learner(
                f"two-ways-dp-{seed}", "two-ways", "TwoWays-v0:diffusion_policy", seed, data, *quick, gpu=True, measure="sides"
            )
        for seed in self.seeds:
            words = ("algorithm.head=deterministic", "algorithm.updates=20" if self.quick else "algorithm.updates=3000")
            yield self._learner(f"two-ways-mse-{seed}", "two-ways", "TwoWays-v0:bc", seed, data, *words, measure="sides")

    def _demonstrators(self, *names: str) -> Iterator[Job]:
        steps = 1200 if self.quick else self.options.sac_steps
        for name in names:
            task, seeds = TASKS[name]
            for seed in seeds:
                words = [f"training.total_steps={steps}", f"checkpoint.every_steps={steps // 10}", "checkpoint.keep=30"]
                words += ["algorithm.learning_starts=200"] if self.quick else []
                run = f"sac-{name}-{seed}"
                train = self._train(f"{task}:sac", run, seed, *words, gpu=True, limit_s=self.options.sac_s)
                yield Job(run, "imitate", [train, self._policy(run)], gpu=True, makes=self._made(run))

    def _imitate(self) -> Iterator[Job]:
        yield from self._demonstrators(*TASKS)
        for name, (_, seeds) in TASKS.items():
            runs = [f"sac-{name}-{seed}" for seed in seeds]
            candidates = [str(self._result(run)) for run in runs]
            words = ["--results", *candidates, "--episodes", "2" if self.quick else "200", "--name", name]
            step = self._measure("record", *words, "--out", str(self._result(f"{name}-data")), limit_s=200)
            yield Job(f"{name}-data", "imitate", [step], needs=tuple(runs), cores=4, makes=self._made(f"{name}-data", name))
        tiny = ("algorithm.updates=20",) if self.quick else ()
        chunks = ["--action-steps", *map(str, CHUNKS)]
        for seed in self.seeds:
            for name, (task, _) in TASKS.items():
                yield self._learner(
                    f"{name}-dp-{seed}",
                    "imitate",
                    f"{task}:diffusion_policy",
                    seed,
                    name,
                    *tiny,
                    gpu=True,
                    more=chunks,
                    limit_s=900,
                )
                yield self._learner(f"{name}-bc-{seed}", "imitate", f"{task}:bc", seed, name, *tiny)
        for seed in self.seeds:
            for name, (task, _) in TASKS.items():
                words = ("algorithm.head=deterministic", "algorithm.learning_rate=lin_1e-3", *tiny)
                yield self._learner(f"{name}-bc-mse-{seed}", "imitate", f"{task}:bc", seed, name, *words)

    def _medium(self) -> Iterator[Job]:
        if "imitate" not in self.options.parts:
            yield from self._demonstrators("cheetah")
        early = [600, 840, 1200] if self.quick else [*EARLY]
        words = ["--run", "sac-cheetah-1", "--steps", *map(str, early), "--episodes", "1" if self.quick else "67"]
        made = self._measure("mix", *words, "--name", "medium", "--out", str(self._result("medium-data")), limit_s=900)
        yield Job("medium-data", "medium", [made], after=("sac-cheetah-1",), makes=self._made("medium-data", "medium"))
        tiny = ["algorithm.updates=20"] if self.quick else []
        fine = 300 if self.quick else self.options.finetune_steps
        updates = [] if self.quick else [f"algorithm.updates={self.options.offline_updates}"]
        for name in ("bc", "iql", "td3_bc"):
            for seed in self.seeds:
                online = name != "bc"
                words = [*tiny, *(updates if online else [])]
                words += [f"algorithm.finetune_steps={fine}", f"training.total_steps={fine}"] if online else []
                words += ["checkpoint.keep=40"] if online else []
                gpu = online and self.options.offline_device == "cuda"
                yield self._learner(
                    f"medium-{name}-{seed}", "medium", f"HalfCheetah-v5:{name}", seed, "medium", *words,
                    gpu=gpu, more=["--offline-too"] if online else [],
                    limit_s=1000,
                )  # fmt: skip

    def _learner(
        self, run: str, part: str, spec: str, seed: int, data: str, *words: str, gpu: bool = False,
        cores: int | None = None, measure: str = "policy", more: list[str] | None = None, limit_s: float = 600,
    ) -> Job:  # fmt: skip
        cores = cores or (1 if gpu else int(self.options.threads))
        train = self._train(spec, run, seed, f"buffers.data.dataset={data}", *words, gpu=gpu, cores=cores, limit_s=limit_s)
        steps = [train, self._policy(run, *(more or []), measure=measure, gpu=gpu)]
        return Job(run, part, steps, needs=(f"{data}-data",), gpu=gpu, cores=cores, makes=self._made(run))

    def _train(self, spec: str, run: str, seed: int, *words: str, gpu: bool, limit_s: float, cores: int = 1) -> Step:
        gpu = gpu and self.options.device == "cuda"
        device, how = ("cuda", self.options.compile) if gpu else ("cpu", self.options.cpu_compile)
        where = [f"experiment.device={device}", f"experiment.compile={how}", f"experiment.threads={cores}"]
        said = [*QUIET, *where, *words, *self.options.word, "--seed", str(seed), "--name", run, "-q"]
        step = self._etude("train", spec, *said, limit_s=limit_s, stops=True)
        if how != "off":
            step.otherwise = [*step.command, "experiment.compile=off"]
        return step

    def _policy(self, run: str, *more: str, measure: str = "policy", gpu: bool = False) -> Step:
        episodes = ["--episodes", "2" if self.quick else "200" if measure == "sides" else "100"]
        device = "cuda" if gpu and self.options.device == "cuda" else "cpu"
        words = ["--run", run, "--device", device, *episodes, "--out", str(self._result(run)), *more]
        return self._measure(measure, *words, limit_s=300)

    def _etude(self, *words: str, limit_s: float = 300, stops: bool = False) -> Step:
        return Step([sys.executable, "-m", "etude", *words], limit_s, stops=stops)

    def _measure(self, *words: str, limit_s: float) -> Step:
        return Step([sys.executable, MEASURE, *words], limit_s)

    def _made(self, result: str, dataset: str | None = None) -> tuple[str, ...]:
        return (f"results/{result}.json", *([] if dataset is None else [f"datasets/{dataset}/dataset.json"]))

    def _result(self, name: str) -> Path:
        return self.folder / "results" / f"{name}.json"


def main() -> None:
    """Run what was asked for, and write what it finds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="chunk, two-ways, imitate, medium; all of them unless named")
    parser.add_argument("--only", metavar="REGEX", help="the jobs whose names it finds, and what these need")
    parser.add_argument("--folder", type=Path, default=Path("from-data"), help="runs, datasets and results go here")
    parser.add_argument("--out", type=Path, help="where else the result is written, as it grows")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cuda", "cpu"))
    parser.add_argument(
        "--offline-device", default="cuda", choices=("cuda", "cpu"), help="of IQL and TD3+BC, where there is a GPU"
    )
    parser.add_argument("--compile", default="capture", help="experiment.compile on a GPU")
    parser.add_argument("--cpu-compile", default="auto", help="experiment.compile on the processor")
    parser.add_argument("--jobs", type=int, default=12, help="processes on the GPU at once")
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1, help="of the processor, shared by all processes")
    parser.add_argument("--threads", type=int, default=1, help="of a training on the processor")
    parser.add_argument("--deadline-s", type=float, default=1400, help="everything has ended by then")
    parser.add_argument("--reserve-s", type=float, default=150, help="trainings are asked to stop so long before it")
    parser.add_argument("--sac-s", type=float, default=600, help="a demonstrator is asked to stop after so long")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sac-steps", type=int, default=200_000)
    parser.add_argument("--offline-updates", type=int, default=100_000, help="of IQL and TD3+BC")
    parser.add_argument("--finetune-steps", type=int, default=50_000)
    parser.add_argument("--word", action="append", default=[], help="a setting for every training")
    parser.add_argument("--rounds", type=int, default=100, help="chunks that are timed")
    parser.add_argument("--quick", action="store_true", help="tiny, to see that it runs")
    options = parser.parse_args()
    wrong = [part for part in options.parts if part not in PARTS]
    if wrong:
        parser.error(f"{wrong[0]!r} is no part; there are {', '.join(PARTS)}")
    options.parts = options.parts or list(PARTS)
    options.folder = options.folder.resolve()
    (options.folder / "results").mkdir(parents=True, exist_ok=True)
    try:
        jobs = due([*Plan(options).jobs()], options.folder, options.only)
    except re.error as error:
        parser.error(f"--only {options.only}: is no regular expression: {error}")
    if not jobs:
        parser.error(f"--only {options.only}: finds none of the jobs of {', '.join(options.parts)}")
    Jobs(jobs, options).run()


if __name__ == "__main__":
    main()
