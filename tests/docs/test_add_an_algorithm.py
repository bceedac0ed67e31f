"""The tutorial, followed in an empty folder outside the package: with a small budget, and word for word by the slow tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from etude.runs.run import Run
from etude.telemetry.jsonl import read_rows
from tests.docs.pages import ROOT, arguments, blocks
from tests.forked import ForkedProgram

PAGE = ROOT / "docs/add-an-algorithm.md"
STOP = "# press Ctrl-C"
THE_PAGES_STEPS = 20_000


class Reader:
    """Does what the page says, and remembers what came out."""

    def __init__(self, folder: Path, home: Path, *, steps: int) -> None:
        self.folder, self.steps = folder, steps
        self.output: dict[str, str] = {}
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": programs, "XDG_DATA_HOME": str(home)}
        for name in ("ETUDE_RUNS", "PYTHONPATH"):
            self.environment.pop(name, None)

    def follow(self) -> None:
        for block in blocks(PAGE):
            if block.title:
                text = block.text.replace("total_steps: 20_000", f"total_steps: {self.steps}")
                (self.folder / block.title).write_text(text.replace("every_steps: 10_000", f"every_steps: {self.steps // 2}"))
            for command in block.commands:
                self.do(command)

    def do(self, command: str) -> None:
        if STOP in command:
            self._press_ctrl_c(command)
        elif command == "pip install -e .":
            self._install()
        elif not self.output:  # a process of its own shows that nothing of the test's is needed
            options = {"capture_output": True, "text": True, "timeout": 240}
            done = subprocess.run(arguments(command), cwd=self.folder, env=self.environment, check=False, **options)
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            self.output[command] = done.stdout
        else:
            with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complained:
                code = self._fork(command, stdout=said, stderr=complained).wait(timeout=240)
                said.seek(0)
                complained.seek(0)
                assert code == 0, f"{command}\n{complained.read()}"
                self.output[command] = said.read()

    def _fork(self, command: str, *, stdout: Any, stderr: Any) -> ForkedProgram:
        program, *words = arguments(command)
        assert program in ("etude", "python"), command
        words = ["-m", "etude", *words] if program == "etude" else words
        return ForkedProgram([sys.executable, *words], cwd=self.folder, env=self.environment, stdout=stdout, stderr=stderr)

    def _press_ctrl_c(self, command: str) -> None:
        before = self._runs()
        process = self._fork(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + 240
            while not any(len((path / "metrics.jsonl").read_text().splitlines()) > 4 for path in self._runs() - before):
                assert process.poll() is None, "it ended before it could be stopped"
                assert time.monotonic() < deadline, "no row of metrics in four minutes"
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=240) == 130
        finally:
            process.kill()
            process.wait()

    def _runs(self) -> set[Path]:
        return {path.parent for path in self.folder.glob("runs/2*/metrics.jsonl")}

    def _install(self) -> None:
        """What `pip install -e .` leaves behind, without writing into the environment that runs the tests."""
        project = tomllib.loads((self.folder / "pyproject.toml").read_text())["project"]
        groups = project["entry-points"].items()
        entries = [f"[{group}]\n" + "".join(f"{key} = {value}\n" for key, value in named.items()) for group, named in groups]
        info = self.folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
        (info / "entry_points.txt").write_text("\n".join(entries))
        self.environment["PYTHONPATH"] = str(self.folder)


@pytest.fixture(scope="module", params=[3_000, pytest.param(THE_PAGES_STEPS, marks=pytest.mark.slow)])
def reader(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Reader:
    reader = Reader(tmp_path_factory.mktemp("empty"), tmp_path_factory.mktemp("home"), steps=request.param)
    reader.follow()
    return reader


def _oldest_first(reader: Reader) -> list[Run]:
    return Run.list(reader.folder / "runs")[::-1]


def test_it_trains_to_the_end(reader: Reader) -> None:
    whole = _oldest_first(reader)[0]
    assert whole.status == "finished"
    assert whole.summary["counters"]["env_steps"] == reader.steps
    rows = read_rows(whole.metrics_path)
    assert {"train/loss", "train/policy_loss", "train/entropy", "hp/learning_rate"} <= {name for row in rows for name in row}
    assert rows[0]["hp/learning_rate"] > rows[-1]["hp/learning_rate"] >= 0, "the schedule reaches the optimiser"


def test_stopped_and_resumed_it_ends_with_the_same_counters_metrics_and_weights(reader: Reader) -> None:
    whole, stopped = _oldest_first(reader)[:2]
    assert "resumed from checkpoint" in stopped.log_path.read_text()
    assert stopped.status == "finished"
    first, second = reader.output["python compare.py"].splitlines()
    assert first == second
    rollouts = reader.steps // (16 * 8)
    assert first.startswith(f"{rollouts} {reader.steps} "), "as many rollouts as there are in the steps of 8 environments"
    one, other = (run.checkpoints().find("last").load()["shared"] for run in (whole, stopped))
    for name, weight in one["workflow"]["actor"].items():  # type: ignore[index] # a tree of ours
        assert (weight == other["workflow"]["actor"][name]).all()  # type: ignore[index]


@pytest.mark.slow
@pytest.mark.parametrize("reader", [THE_PAGES_STEPS], indirect=True)
def test_it_is_clearly_better_than_random(reader: Reader) -> None:
    (printed,) = (text for command, text in reader.output.items() if command.startswith("etude evaluate"))
    found = re.search(r"return ([\d.]+)", printed)
    assert found is not None
    assert float(found[1]) > 100, "random actions reach about 20"
    assert "100 episodes" in printed


def test_it_passes_the_checks_of_every_algorithm(reader: Reader) -> None:
    head, *lines = reader.output["python check.py"].splitlines()
    assert head == "reinforce.Reinforce: 11 passed, 1 skipped"
    assert [line.split()[1] for line in lines if line.split()[0] == "skipped"] == ["hidden_state"]


def test_the_hook_and_the_phases_are_used(reader: Reader) -> None:
    fitted = _oldest_first(reader)[2]
    assert fitted.status == "finished"
    losses = [row["env_steps"] for row in read_rows(fitted.metrics_path) if "train/critic_loss" in row]
    assert losses
    assert min(losses) > 2_000, "the first phase does without it"


def test_the_short_names_work(reader: Reader) -> None:
    assert "my-reinforce" in reader.output["etude algorithms"].split()
    named, decorated = _oldest_first(reader)[3:]
    assert named.summary["algorithm"] == "my-reinforce"
    assert decorated.summary["algorithm"] == "patient-reinforce"
    assert "'env_steps': 1000" in reader.output["python script.py"]
