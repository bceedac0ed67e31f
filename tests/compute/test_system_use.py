"""How much of the machine is taken: read at most once a second, from the nearest limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from etude.compute import system_use
from etude.compute.system_use import SystemUse


def test_memory_and_disk_are_read_and_no_more_than_once_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, readings = [0.0], []
    monkeypatch.setattr(system_use, "_memory", lambda: readings.append(now[0]) or {"system/rss_mib": 1.0})
    use = SystemUse(clock=lambda: now[0])
    for moment in (0.0, 0.1, 0.9, 1.0, 1.5, 2.0):
        now[0] = moment
        assert use.read(tmp_path)["system/disk_free_mib"] > 0
    assert readings == [0.0, 1.0, 2.0]
    assert SystemUse().read(tmp_path / "gone") == {"system/rss_mib": 1.0}


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux says")
def test_a_process_holds_memory_and_the_machine_has_a_share() -> None:
    found = SystemUse().read(None)
    assert found["system/rss_mib"] > 10
    assert 0 < found["system/memory_share"] < 1


def test_a_containers_limit_counts_where_it_is_nearer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proc").write_text("0::/job/step\n")
    step = tmp_path / "groups" / "job" / "step"
    step.mkdir(parents=True)
    (step / "memory.max").write_text("max\n")
    (step.parent / "memory.max").write_text("1000\n")
    (step.parent / "memory.current").write_text("990\n")
    (step.parent / "memory.stat").write_text("anon 900\ninactive_file 30\n")
    monkeypatch.setattr(system_use, "_OWN_GROUPS", tmp_path / "proc")
    monkeypatch.setattr(system_use, "_GROUPS", tmp_path / "groups")
    assert system_use._share_of_group() == 0.96
    (step.parent / "memory.max").write_text("9223372036854771712\n")
    assert system_use._share_of_group() is None
    (tmp_path / "proc").write_text("4:cpu,memory:/\n")
    old = tmp_path / "groups" / "memory"
    old.mkdir()
    for name, text in (("limit_in_bytes", "200"), ("usage_in_bytes", "100"), ("stat", "total_inactive_file 50")):
        (old / f"memory.{name}").write_text(text)
    assert system_use._share_of_group() == 0.25


def test_a_gpu_is_asked_and_a_driver_that_does_not_say_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    now, asked = [0.0], []

    def refuse() -> float:
        asked.append(now[0])
        raise type("NVMLError", (Exception,), {})("not supported")

    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.is_initialized", lambda: True)
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda: (2**30, 4 * 2**30))
    monkeypatch.setattr("torch.cuda.utilization", refuse)
    use = SystemUse(clock=lambda: now[0])
    for moment in (0.0, 2.0):
        now[0] = moment
        found = use.read(None)
        assert found["system/gpu_memory_share"] == 0.75
        assert found["system/gpu_memory_used_mib"] == 3072
        assert "system/gpu_utilization" not in found
    assert asked == [0.0], "once is enough"
    monkeypatch.setattr("torch.cuda.utilization", lambda: 40)
    assert SystemUse().read(None)["system/gpu_utilization"] == 0.4
