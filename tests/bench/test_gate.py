from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gate
import pytest

from tests.bench.conftest import BENCH

KEY = "collect-cartpole: etude / plain"
HERE = {"cpu": "this", "cpus_used": 2}


def measured(ratio: float | None, status: str = "ok") -> list[dict[str, Any]]:
    sides = [{"name": "etude", "status": status, "reason": None if status == "ok" else status}]
    sides.append({"name": "plain", "status": "ok", "reason": None})
    return [{"name": "collect-cartpole", "sides": sides, "ratios": {"etude / plain": ratio}}]


@pytest.mark.parametrize(("ratio", "status"), [(2.0, 0), (1.61, 0), (1.59, 1), (5.0, 0)])
def test_a_ratio_may_fall_by_a_fifth(ratio: float, status: int) -> None:
    verdicts = gate.judge(measured(ratio), {KEY: 2.0})
    assert gate.decide(verdicts, here=HERE, there=HERE) == status


def test_another_processor_only_informs(capsys: pytest.CaptureFixture[str]) -> None:
    verdicts = gate.judge(measured(0.1), {KEY: 2.0})
    assert gate.decide(verdicts, here=HERE, there={**HERE, "cpu": "that"}) == 0
    assert "for information only" in capsys.readouterr().out


def test_what_is_absent_passes_and_what_broke_fails() -> None:
    absent, broken = (gate.judge(measured(None, status), {KEY: 2.0}) for status in ("not available", "failed"))
    assert gate.decide(absent, here=HERE, there=HERE) == 0
    assert gate.decide(broken, here=HERE, there=HERE) == 1
    assert gate.decide(broken, here=HERE, there={**HERE, "cpu": "that"}) == 1


def test_nothing_stored_asks_for_an_update(capsys: pytest.CaptureFixture[str]) -> None:
    assert gate.decide(gate.judge(measured(1.0), {}), here=HERE, there={"cpu": None, "cpus_used": None}) == 0
    assert "--update" in capsys.readouterr().out


def test_update_stores_what_the_next_run_compares_with(tmp_path: Path) -> None:
    stored = tmp_path / "baselines.json"
    stored.write_text(json.dumps({"schema": 1, "cpu": None, "cpus_used": None, "ratios": {"other": 3.0}}))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(BENCH / "gate.py"), "step-cartpole", "--quick", "--repeats", "1"]
        return subprocess.run([*command, "--baselines", str(stored), *words], capture_output=True, text=True, cwd=tmp_path)

    done = run("--update")
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(stored.read_text())
    key = "step-cartpole: etude-gymnasium / sync"
    assert document["ratios"][key] > 0
    assert document["ratios"]["other"] == 3.0, "ratios that were not measured are kept"
    document["ratios"] = {key: 1000 * document["ratios"][key]}
    stored.write_text(json.dumps(document))
    done = run()
    assert done.returncode == 1
    assert f"FAIL {key}" in done.stdout


def test_stored_ratios_are_ones_the_gate_measures() -> None:
    known = {f"{bench}: {own} / {reference}" for bench, (owns, reference) in gate.REFERENCES.items() for own in owns}
    document = json.loads((BENCH / "baselines.json").read_text())
    assert document["schema"] == 1
    assert document["ratios"].keys() <= known
