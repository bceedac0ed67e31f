"""Where tensors live, and how many CPU threads work on them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch
from threadpoolctl import threadpool_limits

from etude.errors import UserError


def pick_device(wanted: str, *, where: str = "experiment.device") -> torch.device:
    """Return the device that `wanted` names; auto takes cuda, then mps, then cpu.

    Of a list, such as cuda:0,cuda:2, each process of a machine takes the one at its LOCAL_RANK.
    """
    if "," in wanted:
        listed, rank = [name.strip() for name in wanted.split(",")], int(os.environ.get("LOCAL_RANK", "0"))
        if rank >= len(listed):
            raise UserError(f"{where}={wanted}: names {len(listed)} devices, and this is process {rank} of the machine")
        return pick_device(listed[rank], where=where)
    if wanted == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(wanted)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise UserError(f"{where}={wanted}: must be auto, cpu, cuda, cuda:N or mps")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(f"{where}={wanted}: this machine has {torch.cuda.device_count()} CUDA devices; use cpu or auto")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise UserError(f"{where}={wanted}: there is no such device here; use cpu or auto")
    return device


def is_same(*devices: torch.device) -> bool:
    """Whether devices are one: without a number, cuda is the current one, which tensors there say with its number."""
    numbers = {(device.type, _number(device)) for device in devices}
    return len(numbers) == 1


def _number(device: torch.device) -> int:
    if device.index is not None and device.index >= 0:
        return device.index
    return torch.cuda.current_device() if device.type == "cuda" else 0


def devices_of_ranks(wanted: str, processes: int) -> str:
    """Return the device of each process of this machine, as a list, where they differ; each is looked for.

    auto and cuda give them the GPUs in turn.
    """
    local = int(os.environ.get("LOCAL_WORLD_SIZE", processes))
    if wanted in ("auto", "cuda") and torch.cuda.is_available():
        wanted = ",".join(f"cuda:{rank % torch.cuda.device_count()}" for rank in range(local))
    if "," not in wanted:
        return str(pick_device(wanted))
    listed = [str(pick_device(name.strip())) for name in wanted.split(",")]
    if len(listed) < local:
        raise UserError(f"experiment.device={wanted}: names {len(listed)} devices for {local} processes; name one for each")
    if len({torch.device(name).type for name in listed}) > 1:
        raise UserError(f"experiment.device={wanted}: processes that train together need devices of one kind")
    return ",".join(listed[:local])


def set_up(
    threads: int,
    deterministic: bool,
    *,
    device: torch.device | None = None,
    memory_fraction: float | None = None,
    tf32: bool = False,
) -> None:
    """Fix thread counts; if asked, a cap on GPU memory, coarser products, and errors for non-deterministic operations."""
    torch.set_num_threads(threads)
    threadpool_limits(threads, user_api="blas")  # NumPy's, which takes every core unless told, and waits for them spinning
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    if memory_fraction is not None and device is not None and device.type == "cuda":
        torch.cuda.set_per_process_memory_fraction(memory_fraction, device)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if deterministic != torch.are_deterministic_algorithms_enabled():  # asking for it imports the compiler: two seconds
        torch.use_deterministic_algorithms(deterministic)


def out_of_memory(error: BaseException) -> str | None:
    """Return what happened and which settings need less memory; None if memory is not what was missing."""
    # For memory of the host, torch raises a plain RuntimeError.
    is_host = isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
    if not is_host and not isinstance(error, torch.OutOfMemoryError):
        return None
    said = "this machine has no memory left" if is_host else str(error).partition(". ")[0]
    return (
        f"{said}; lower environment.num_envs, algorithm.batch_size or the networks' sizes, keep buffers on the CPU, "
        "or raise experiment.memory_fraction if it is set"
    )


@contextlib.contextmanager
def lack_of_memory_told() -> Iterator[None]:
    """Within, running out of memory is one line that names the settings which need less; other errors pass."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        told = out_of_memory(error)
        if told is None:
            raise
        raise UserError(told) from error
