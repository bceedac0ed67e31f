"""Free memory is what the tightest of all limits leaves. Defect 12: only the outermost group of version 2 was looked at."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
import torch

from etude.buffers import free_memory as module
from etude.buffers.free_memory import free_memory, group_memory, limit_memory
from etude.buffers.replay import ReplayBuffer
from tests.buffers.transitions import transition


def _group(folder: Path, limit: object, used: int, *, version: int = 2, cached: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for name, value in zip(names, (limit, used), strict=True):
        (folder / name).write_text(f"{value}\n")
    (folder / "memory.stat").write_text(f"{'inactive_file' if version == 2 else 'total_inactive_file'} {cached}\nother 5\n")


def test_every_group_around_this_process_counts(tmp_path: Path) -> None:
    (tmp_path / "self").write_text("0::/batch/job\n")
    _group(tmp_path / "fs/batch/job", "max", 10)
    _group(tmp_path / "fs/batch", 1000, 400, cached=50)
    _group(tmp_path / "fs", 5000, 400)
    assert sorted(group_memory(tmp_path / "self", tmp_path / "fs")) == [650, 4600]


def test_groups_of_the_first_version_count_too(tmp_path: Path) -> None:
    (tmp_path / "self").write_text("7:cpu,cpuacct:/x\n4:memory:/job/step:1\n0::/\n")
    _group(tmp_path / "fs/memory/job/step:1", 800, 300, version=1, cached=100)
    _group(tmp_path / "fs/memory/job", 2**63 - 4096, 300, version=1)
    assert list(group_memory(tmp_path / "self", tmp_path / "fs")) == [600]


def test_a_group_of_the_host_is_found_at_the_containers_root(tmp_path: Path) -> None:
    (tmp_path / "self").write_text("0::/docker/0123\n")
    _group(tmp_path / "fs", 900, 100)
    assert list(group_memory(tmp_path / "self", tmp_path / "fs")) == [800]
    assert list(group_memory(tmp_path / "nothing", tmp_path / "fs")) == []


def test_ulimit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "status").write_text("Name:\tpython\nVmSize:\t 400 kB\nVmData:\t 100 kB\n")
    limits = {resource.RLIMIT_AS: 1000 * 1024, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limits[which], resource.RLIM_INFINITY))
    assert list(limit_memory(tmp_path / "status")) == [600 * 1024]


def test_the_tightest_limit_is_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_machine_memory", lambda: [1000])
    monkeypatch.setattr(module, "group_memory", lambda: [700, 300])
    monkeypatch.setattr(module, "limit_memory", lambda: [400])
    assert free_memory(torch.device("cpu")) == 300
    monkeypatch.setattr(module, "limit_memory", lambda: [-5])
    assert free_memory(torch.device("cpu")) == 0
    for name in ("_machine_memory", "group_memory", "limit_memory"):
        monkeypatch.setattr(module, name, list)
    assert free_memory(torch.device("cpu")) is None


def test_a_replay_shrinks_to_what_ulimit_leaves(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    taken = module._read_table(Path("/proc/self/status"))["VmSize:"] * 1024
    limit = taken + 2**20
    known = {resource.RLIMIT_AS: limit, resource.RLIMIT_DATA: resource.RLIM_INFINITY}
    monkeypatch.setattr(resource, "getrlimit", lambda which: (known[which], limit))
    buffer = ReplayBuffer(10**7, 4)
    buffer.add(transition(0, 4))
    assert buffer.reduced_to is not None
    assert buffer.nbytes < 2**20
    assert "do not fit into" in capsys.readouterr().err
