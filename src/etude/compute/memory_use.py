"""How much memory a process holds at most, over its life and over each phase of a run."""

from __future__ import annotations

import re
import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

MEMORY, GPU_MEMORY = "system/memory_mib", "system/gpu_memory_mib"
_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"
"""What resets the kernel's mark of the highest resident size, and nothing else (proc(5))."""


class MemoryPeaks:
    """The most memory held, by this process and on its GPU: ever, and in each phase that was at work since the last reading.

    The kernel and torch keep a mark of the highest use; a phase begins by lowering it to the present one. Where the kernel does
    not let us (only Linux does), a phase's peak is what is held when it is read, or the process's own if that has risen since.
    """

    def __init__(self) -> None:
        self._phase: str | None = None
        self._peaks: dict[str, dict[str, float]] = {}
        self._highest: dict[str, float] = {}
        self._not_lowered: dict[str, float] = {}  # marks that still stand where they did before this phase

    def enter(self, phase: str) -> None:
        """Say which phase is at work from here on; nothing is done where it is the same one."""
        if phase == self._phase:
            return
        self._take()
        self._phase = phase
        self._not_lowered = {MEMORY: self._highest[MEMORY]}
        with suppress(OSError):
            _RESET.write_text(_RESET_PEAK)
            self._not_lowered = {}
        if _uses_cuda():
            torch.cuda.reset_peak_memory_stats()

    def read(self) -> dict[str, float]:
        """Return the peaks in MiB: the process's, and each phase's since the last call, under its name."""
        self._take()
        metrics = dict(self._highest)
        for phase, peaks in self._peaks.items():
            metrics |= {f"{name}/{phase}": peak for name, peak in peaks.items()}
        self._peaks = {phase: peaks for phase, peaks in self._peaks.items() if phase == self._phase}
        return metrics

    def _take(self) -> None:
        marks = _marks()
        for name, (peak, _) in marks.items():
            self._highest[name] = max(peak, self._highest.get(name, 0.0))
        if self._phase is None:
            return
        peaks = self._peaks.setdefault(self._phase, {})
        for name, (peak, now) in marks.items():
            of_this_phase = peak if peak > self._not_lowered.get(name, -1.0) else now
            peaks[name] = max(of_this_phase, peaks.get(name, 0.0))


def _marks() -> dict[str, tuple[float, float]]:
    """Return (the highest since the last reset, now) in MiB, of the process and of the GPU once it is in use."""
    marks = {MEMORY: _host_marks()}
    if _uses_cuda():
        marks[GPU_MEMORY] = torch.cuda.max_memory_allocated() / 2**20, torch.cuda.memory_allocated() / 2**20
    return marks


def _host_marks() -> tuple[float, float]:
    unit = 2**20 if sys.platform == "darwin" else 2**10
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    try:
        status = _STATUS.read_text()
    except OSError:  # elsewhere only the highest is known without more packages
        return highest, highest
    marks = {name: int(kib) / 2**10 for name, kib in re.findall(r"^(VmHWM|VmRSS):\s+(\d+) kB$", status, re.MULTILINE)}
    return marks.get("VmHWM", highest), marks.get("VmRSS", highest)


def _uses_cuda() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_initialized()
