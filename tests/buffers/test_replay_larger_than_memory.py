"""Gigabytes of frames are written, drawn and saved with little memory, none of which is theirs."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

GIGABYTES = 3
FILL_AND_DRAW = """
import json, sys, time
from pathlib import Path
import torch
from etude.buffers.replay import ReplayBuffer

torch.set_num_threads(1)
N, SHAPE, L = 16, (3, 64, 64), 64
total = int(float(sys.argv[2]) * 10**9) // (3 * 64 * 64)
buffer = ReplayBuffer(total, N, storage="disk", folder=sys.argv[1], sequence=L, leave_out=("next_observation",))
generator, peak = torch.Generator().manual_seed(0), 0

def look():
    global peak
    table = dict(line.split(":", 1) for line in Path("/proc/self/smaps_rollup").read_text().splitlines()[1:])
    peak = max(peak, int(table["Anonymous"].split()[0]) * 1024)

def mark(t):
    return ((torch.arange(N) * 31 + t) % 251).to(torch.uint8)

def row(t):
    ended = torch.tensor([(t + 50 * env) % 1000 == 999 for env in range(N)])
    return {"observation": mark(t)[:, None, None, None].expand(N, *SHAPE), "action": torch.arange(N) + 1000 * t,
            "is_first": torch.tensor([(t + 50 * env) % 1000 == 0 for env in range(N)]), "reward": torch.zeros(N),
            "terminated": ended, "truncated": torch.zeros(N, dtype=torch.bool)}

def check(batch):
    env, step = batch["action"] % 1000, batch["action"] // 1000
    expected = ((env * 31 + step) % 251).to(torch.uint8)
    for corner in (0, -1):
        assert torch.equal(batch["observation"][:, :, corner, corner, corner], expected)

began = time.perf_counter()
for t in range(total // N):
    buffer.add(row(t))
    if t % 2000 == 1999:
        check(buffer.sample(16, generator))
        look()
filled = time.perf_counter()
for _ in range(60):
    check(buffer.sample(16, generator))
    look()
drawn = time.perf_counter()
state, saved = buffer.state_dict(), 0
for segment in state["segments"]:
    saved += sum(tensor.nbytes for tensor in segment.load().values())
    look()
(file,) = [buffer.store.memory["observation"]]
print(json.dumps({"peak": peak, "disk": file.disk_bytes, "memory": buffer.nbytes, "saved": saved,
                  "fill_s": filled - began, "ms_per_batch": (drawn - filled) / 60 * 1000}))
"""


@pytest.mark.slow
def test_frames_take_none_of_the_memory(tmp_path: Path) -> None:
    if shutil.disk_usage(tmp_path).free < (GIGABYTES + 1) * 10**9:
        pytest.skip(f"needs {GIGABYTES + 1} GB of the disk of {tmp_path}")
    command = [sys.executable, "-c", FILL_AND_DRAW, str(tmp_path), str(GIGABYTES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    print(said)
    assert said["disk"] > GIGABYTES * 10**9
    assert said["saved"] > 0.98 * GIGABYTES * 10**9, "a checkpoint holds them all"
    assert said["peak"] < 0.75 * 2**30, said
