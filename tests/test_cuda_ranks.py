"""Ranks on GPUs: NCCL where each has one, gloo where two share it. Needs CUDA."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from tests.runs_compared import assert_same_run

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.slow,
    pytest.mark.timeout(1200),
]

PPO = ("CartPole-v1:ppo", "environment.num_envs=8", "algorithm.rollout_steps=16", "algorithm.batch_size=0.5",
       "training.total_steps=8192", "evaluation.every_steps=4096", "evaluation.episodes=2",
       "checkpoint.every_steps=1024")  # fmt: skip
SAC = ("Pendulum-v1:sac", "environment.num_envs=4", "algorithm.learning_starts=200", "algorithm.batch_size=64",
       "training.total_steps=2400", "evaluation.every_steps=0", "checkpoint.every_steps=400")  # fmt: skip


def etude(*arguments: str, launcher: tuple[str, ...] = (), within: float = 600) -> str:
    """Run a command to its end, and return what it said."""
    command = [sys.executable, *launcher, "-m", "etude", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=within, check=False)
    assert done.returncode == 0, done.stdout
    return done.stdout


def only_run(root: Path) -> Run:
    (run,) = Run.list(root)
    return run


@pytest.mark.parametrize("words", [PPO, SAC], ids=["ppo", "sac"])
def test_two_ranks_on_one_gpu_train_over_gloo_and_resume(words: tuple[str, ...], tmp_path: Path) -> None:
    common = ("experiment.device=cuda:0", "--processes=2", "-q")
    etude("train", *words, *common, f"--runs={tmp_path}/whole")
    half = [word for word in words if not word.startswith("training.total_steps")]
    whole = next(int(word.partition("=")[2]) for word in words if word.startswith("training.total_steps"))
    etude("train", *half, f"training.total_steps={whole // 2}", *common, f"--runs={tmp_path}/half")
    run = only_run(tmp_path / "half")
    etude("resume", str(run.path), f"training.total_steps={whole}", "-q")
    assert run.status == "finished"
    assert read_rows(run.metrics_path)[-1]["env_steps"] == whole
    assert {f"rank/{rank}" for rank in range(2)} <= set(run.checkpoints().find("last").parts)


def test_the_same_seed_twice_gives_the_same_run_of_two_ranks_on_one_gpu(tmp_path: Path) -> None:
    common = ("experiment.device=cuda:0", "experiment.deterministic=true", "--processes=2", "-q")
    for name in ("one", "two"):
        etude("train", *PPO, *common, f"--runs={tmp_path}/{name}")
    assert_same_run(only_run(tmp_path / "one"), only_run(tmp_path / "two"))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_each_rank_has_a_gpu_of_its_own_over_nccl(tmp_path: Path) -> None:
    etude("train", *PPO, "--processes=2", "-q", f"--runs={tmp_path}")
    assert "device: cuda:0,cuda:1" in (only_run(tmp_path).path / "resolved.yaml").read_text()


def test_torchrun_with_one_process_is_the_run_without_it(tmp_path: Path) -> None:
    words = (*PPO, "experiment.device=cuda:0", "experiment.compile=off", "experiment.deterministic=true", "-q")
    etude("train", *words, f"--runs={tmp_path}/alone")
    torchrun = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1")
    etude("train", *words, f"--runs={tmp_path}/launched", launcher=torchrun)
    assert_same_run(only_run(tmp_path / "alone"), only_run(tmp_path / "launched"))


def test_nccl_reduces_what_ranks_say_at_world_size_one(tmp_path: Path) -> None:
    """The process group itself, whatever a world of one process leaves out."""
    import torch.distributed as dist

    from etude.compute.world import World

    store = dist.FileStore(str(tmp_path / "store"), 1)  # type: ignore[reportPrivateImportUsage] # it is documented
    dist.init_process_group("cpu:gloo,cuda:nccl", store=store, rank=0, world_size=1)
    try:
        world = World(dist.group.WORLD)
        world.size = 2  # so that it does say it; the sum over one rank is halved
        values = torch.randn(1000, device="cuda")
        torch.testing.assert_close(world.mean([values])[0], values / 2)
        began, calls = time.perf_counter(), 200
        for _ in range(calls):
            world.mean([values])
        torch.cuda.synchronize()
        print(f"a reduction of 1000 numbers over NCCL takes {1e6 * (time.perf_counter() - began) / calls:.0f} µs")
    finally:
        dist.destroy_process_group()


def test_a_rank_that_is_killed_ends_the_other(tmp_path: Path) -> None:
    words = [word for word in PPO if not word.startswith("training.total_steps")]
    command = [sys.executable, "-m", "etude", "train", *words, "training.total_steps=10000000", "experiment.device=cuda:0"]
    running = subprocess.Popen(
        [*command, "--processes=2", "-q", f"--runs={tmp_path}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    while not list(tmp_path.glob("2*/metrics.jsonl")):
        assert running.poll() is None
        time.sleep(0.2)
    from tools.attack.ranks import ranks_of

    os.kill(ranks_of(running.pid)[1], 9)
    said, _ = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "rank 1 was killed by SIGKILL" in said
    assert "goes on from" in said
