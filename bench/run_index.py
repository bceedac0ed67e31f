"""Many workers and one folder of runs: how many reports a second it takes, and how long the list of runs takes meanwhile.

    python bench/run_index.py                       # 1,000 runs, 8 processes that write for them, 4 that look
    python bench/run_index.py --runs 5000 --writers 16 --lookers 8 --seconds 30

A report is what a living run writes at a save: a row of metrics, `summary.json` and its place in `run.json`. A look is
`etude runs list`, which is also what `--auto-resume` does when a task begins, and what a group of seeds does twice a second.
Nothing is trained. The folder lies where --root says; on a network file system that is what is measured.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from etude.runs.index import RunIndex
from etude.runs.index_file import IndexFile
from etude.runs.run import Run

CONFIG = "environment: {id: CartPole-v1}\nalgorithm: {name: ppo, gamma: 0.99}\nexperiment: {seed: 1}\n"


def make_runs(root: Path, count: int) -> None:
    """Make run directories as trainings would."""
    facts = {"environment": "CartPole-v1", "algorithm": "ppo", "config_hash": "c", "setup_hash": "s"}
    for number in range(count):
        name = f"w{number:05}"
        run = Run.create(root, name=name, config_yaml=CONFIG, resolved_yaml=CONFIG, facts={**facts, "seed": number})
        report(run, 0)


def report(run: Run, step: int) -> None:
    """Write what a save writes of the record, the checkpoint itself left out."""
    with run.metrics_path.open("a") as file:
        file.write(json.dumps({"env_steps": step, "train/loss": 0.5, "eval/return_mean": 1.0 * step}) + "\n")
    run.write_summary({"counters": {"env_steps": step, "updates": step}, "elapsed_s": 1.0})
    run.update_status(status="running")


def write(root: Path, part: int, parts: int, until: float, answers: Any) -> None:
    """Report for every parts-th run in turn, as fast as the disk takes it."""
    runs = [Run.open(path) for path in sorted(root.iterdir())[part::parts] if path.is_dir() and path.name[0] not in ".@"]
    done, longest = 0, 0.0
    while time.monotonic() < until:
        began = time.monotonic()
        report(runs[done % len(runs)], done)
        longest = max(longest, time.monotonic() - began)
        done += 1
    answers.put(("reports", done, longest, time.process_time(), 0))


def look(root: Path, until: float, answers: Any) -> None:
    """List the runs again and again."""
    failed = 0
    original = IndexFile.save

    def counted(self: IndexFile, *arguments: Any) -> bool:
        nonlocal failed
        saved = original(self, *arguments)
        failed += not saved
        return saved

    IndexFile.save = counted  # type: ignore[method-assign] # counts what is otherwise silent
    done, longest = 0, 0.0
    while time.monotonic() < until:
        began = time.monotonic()
        RunIndex(root).read()
        longest = max(longest, time.monotonic() - began)
        done += 1
    answers.put(("looks", done, longest, time.process_time(), failed))


def measure(root: Path, writers: int, lookers: int, seconds: float) -> dict[str, Any]:
    """Let them all loose for some seconds, and say what they got done."""
    answers: Any = multiprocessing.Queue()
    until = time.monotonic() + seconds
    jobs = [(write, (root, part, writers, until, answers)) for part in range(writers)]
    jobs += [(look, (root, until, answers)) for _ in range(lookers)]
    processes = [multiprocessing.Process(target=target, args=arguments) for target, arguments in jobs]
    for process in processes:
        process.start()
    found = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    reports, looks = ([each for each in found if each[0] == kind] for kind in ("reports", "looks"))
    return {
        "writers": writers,
        "lookers": lookers,
        "reports_per_s": sum(each[1] for each in reports) / seconds,
        "longest_report_s": max((each[2] for each in reports), default=0.0),
        "cpu_ms_per_report": _cpu_ms(reports),
        "looks_per_s": sum(each[1] for each in looks) / seconds,
        "cpu_ms_per_look": _cpu_ms(looks),
        "longest_look_s": max((each[2] for each in looks), default=0.0),
        "index_not_saved": sum(each[4] for each in looks),
    }


def _cpu_ms(found: list[Any]) -> float:
    """Processor time of each, which a busy machine does not change."""
    return 1000 * sum(each[3] for each in found) / max(1, sum(each[1] for each in found))


def main() -> None:
    """Measure, and print a line of JSON each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--writers", type=int, nargs="+", default=[8])
    parser.add_argument("--lookers", type=int, nargs="+", default=[0, 1, 4])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--root", type=Path)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="etude-index-", dir=given.root))
    try:
        began = time.monotonic()
        make_runs(folder, given.runs)
        print(json.dumps({"runs": given.runs, "made_per_s": given.runs / (time.monotonic() - began), "cores": os.cpu_count()}))
        for name in ("first", "unchanged"):
            began = time.monotonic()
            RunIndex(folder).read()
            print(json.dumps({"look": name, "s": time.monotonic() - began}), flush=True)
            time.sleep(0.1)
        for writers in given.writers:
            for lookers in given.lookers:
                print(json.dumps(measure(folder, writers, lookers, given.seconds)), flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
