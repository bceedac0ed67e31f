"""A run that compiles nothing does not import what compiling takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from etude.config.compose import compose
from etude.training import assembly

words = ("algorithm.rollout_steps=16", "algorithm.epochs=1", "algorithm.batch_size=64", "experiment.device=cpu")
run = assembly.build(assembly.resolve(compose("CartPole-v1:ppo", words=words).config))
run.collector.start(run.workflow.initial_state)
run._run_cycle()
assert run.counters.updates == 2
print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
"""


def test_a_run_in_numpy_imports_no_compiler(tmp_path: Path) -> None:
    found = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert found.stdout.strip() == "[]"
