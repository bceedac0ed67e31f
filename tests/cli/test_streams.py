"""Standard streams that are closed, or can't write every letter."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from etude.cli.streams import prepare_streams
from tests.runs.run_trees import make_run


def etude(words: str, folder: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the command line in a shell, which alone can close descriptors."""
    environ = {**os.environ, **environ}
    command = ["bash", "-c", f"{sys.executable} -m etude {words}"]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)


def test_a_training_needs_no_streams(tmp_path: Path) -> None:
    """Defect 19. A descriptor that stays closed would be given to one of the run's files."""
    words = "train CartPole-v1:random training.total_steps=64 evaluation.every_steps=0 --runs here <&- >&- 2>&-"
    assert etude(words, tmp_path).returncode == 0
    (run,) = (tmp_path / "here").glob("*-CartPole*")
    assert "Finished" in (run / "run.log").read_text()
    assert (run / "metrics.jsonl").read_text().startswith("{")


@pytest.mark.parametrize("words", ["runs list >&-", "evaluate @last 2>&-", "play @last --step-by-step <&-", "--help >&- 2>&-"])
def test_closed_descriptors_are_no_traceback(words: str, tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "a")  # Defect 19
    done = etude(words, tmp_path)
    assert done.returncode in (0, 1, 2)
    assert "Traceback" not in done.stdout + done.stderr
    assert "waits for Enter" in done.stderr or "--step-by-step" not in words


def test_letters_that_an_encoding_lacks_get_a_plain_likeness(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))  # Defect 19
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    prepare_streams()
    print("CartPole · 482.0 ± 88.1 → ▁▇ 水", flush=True)
    assert written.getvalue() == b"CartPole - 482.0 +/- 88.1 -> _# \\u6c34\n"
