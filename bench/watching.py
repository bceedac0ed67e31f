"""What watching costs a training: CPU time with everything that watches, beside the same training with nothing.

    python bench/watching.py                              # 10 pairs of PPO on CartPole, 240,000 steps, one after the other
    python bench/watching.py --task Pendulum-v1:sac --steps 8000 --pairs 5

Watched: TensorBoard, alerts with a webhook that answers, a sink of one's own, W&B offline where it is installed, run.log and
the report. Bare: metrics.jsonl and metrics.csv; alerts, the run's log, the report and every sink are left out. Each training is
a process of its own, and what counts is its user and system time from the first step to the end, threads included; what
packages take to be imported is not part of it. Both do the same steps, which is checked. A row costs what it costs, and a run
has 200 whatever its length: of a training of seconds watching is a larger share than of one of minutes.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path
from typing import Any

WATCHED = ("logging.tensorboard=true", "logging.sinks=[{type: bench.watching.Counting}]")
WANDB = ("logging.wandb.enabled=true", "logging.wandb.mode=offline")
BARE = ("logging.report=false",)


class Counting:
    """A sink of one's own: counts rows."""

    def __init__(self, run: Any) -> None:
        self.rows = 0

    def write(self, rows: Any) -> None:
        """Count them."""
        self.rows += len(rows)

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing is held."""


class Answering(http.server.BaseHTTPRequestHandler):
    """A webhook that takes whatever comes."""

    def do_POST(self) -> None:
        """Take it."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def one(task: str, steps: int, *, watched: bool) -> dict[str, Any]:
    """Train once in this process; return CPU seconds of the training and what it came to."""
    import torch

    import etude
    from etude.orchestration.orchestrator import Orchestrator

    if watched and find_spec("tensorboard"):
        import torch.utils.tensorboard  # its import is not watching
    if watched and find_spec("wandb"):
        import wandb  # noqa: F401
    if not watched:
        _watch_nothing()
    began: list[float] = []
    plain = Orchestrator.rows

    def timed(self: Any) -> Any:
        began.append(_cpu())
        return plain(self)

    Orchestrator.rows = timed  # type: ignore[method-assign] # the clock starts with the loop
    torch.set_num_threads(1)
    words = [f"training.total_steps={steps}", "logging.terminal=false", "evaluation.every_steps=0"]
    words += [*WATCHED, *(WANDB if find_spec("wandb") else ())] if watched else BARE
    with tempfile.TemporaryDirectory() as folder:
        run = etude.train(task, *words, runs=folder)
        spent = _cpu() - began[0]
        rows = (run.path / "metrics.jsonl").read_text().splitlines()
        last = json.loads(rows[-1])
    compared = ("env_steps", "train/loss", "collect/return_mean")
    return {"cpu": spent, "rows": len(rows), "last": [last.get(name) for name in compared]}


def _watch_nothing() -> None:
    from etude.telemetry.monitor import Monitor

    Monitor.write = lambda self, rows: None  # type: ignore[method-assign] # alerts are not looked for


def _cpu() -> float:
    times = os.times()
    return times.user + times.system


def main() -> None:
    """Run the pairs and print what watching adds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", default="CartPole-v1:ppo")
    parser.add_argument("--steps", type=int, default=240_000)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--one", choices=("watched", "bare"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(one(asked.task, asked.steps, watched=asked.one == "watched")))
        return
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    root = str(Path(__file__).resolve().parents[1])
    plain = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]), "OMP_NUM_THREADS": "1"}
    environments = {
        "watched": {**plain, "ETUDE_ALERT_WEBHOOK": f"http://127.0.0.1:{server.server_address[1]}/"},
        "bare": {**plain, "ETUDE_DISABLE_SESSION_LOGS": "1"},
    }
    shares = []
    for pair in range(asked.pairs):
        found = {}
        for side in ("watched", "bare") if pair % 2 else ("bare", "watched"):
            command = [sys.executable, __file__, "--task", asked.task, "--steps", str(asked.steps), "--one", side]
            made = subprocess.run(command, env=environments[side], capture_output=True, text=True, check=False)
            if made.returncode:
                raise SystemExit(made.stderr)
            found[side] = json.loads(made.stdout.splitlines()[-1])
        assert found["watched"]["last"] == found["bare"]["last"], "they did not do the same"
        shares.append(found["watched"]["cpu"] / found["bare"]["cpu"] - 1)
        told = f"bare {found['bare']['cpu']:.2f} s, watched {found['watched']['cpu']:.2f} s, {100 * shares[-1]:+.1f}%"
        print(f"pair {pair + 1}: {told} ({found['watched']['rows']} rows)", flush=True)
    print(
        f"median {100 * statistics.median(shares):+.2f}%, mean {100 * statistics.fmean(shares):+.2f}%, of {len(shares)} pairs"
    )


if __name__ == "__main__":
    main()
