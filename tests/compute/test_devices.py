from __future__ import annotations

import os

import pytest
import torch

from etude.compute.devices import out_of_memory, pick_device, set_up
from etude.errors import UserError


def test_a_device_that_is_here_is_taken_as_named() -> None:
    assert pick_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(
    ("cuda", "mps", "expected"), [(True, True, "cuda"), (True, False, "cuda"), (False, True, "mps"), (False, False, "cpu")]
)
def test_auto_takes_cuda_then_mps_then_cpu(monkeypatch: pytest.MonkeyPatch, cuda: bool, mps: bool, expected: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)
    assert pick_device("auto") == torch.device(expected)


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "tpu", "meta", ""])
def test_a_name_that_is_no_device_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"experiment.device={name}: must be auto, cpu, cuda, cuda:N or mps"):
        pick_device(name)


def test_a_device_that_is_not_here_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert pick_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(UserError, match="cuda:2: this machine has 2 CUDA devices"):
        pick_device("cuda:2")
    with pytest.raises(UserError, match="mps: there is no such device here"):
        pick_device("mps")


def test_threads_and_determinism_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    set_up(2, deterministic=True)
    assert torch.get_num_threads() == 2
    assert torch.are_deterministic_algorithms_enabled()
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    set_up(1, deterministic=False)
    assert torch.get_num_threads() == 1
    assert not torch.are_deterministic_algorithms_enabled()


def test_each_process_takes_its_device_from_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert pick_device("cpu, cpu").type == "cpu"
    monkeypatch.setenv("LOCAL_RANK", "2")
    with pytest.raises(UserError, match="names 2 devices, and this is process 2"):
        pick_device("cpu,cpu")


def test_running_out_of_memory_names_the_settings_that_help() -> None:
    said = out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has ..."))
    assert said.startswith("CUDA out of memory; lower environment.num_envs, algorithm.batch_size")


def test_a_host_without_memory_is_told_too_and_other_errors_are_none_of_it() -> None:
    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")):
        assert "this machine has no memory left; lower environment.num_envs" in str(out_of_memory(error))
    assert out_of_memory(RuntimeError("shapes can't be multiplied")) is None
