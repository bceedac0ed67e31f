"""What reaches a terminal is text, whoever wrote it; what a program reads is left alone."""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from etude.cli import output
from etude.cli import run as etude
from etude.telemetry.live_area import LiveArea
from etude.telemetry.run_log import RunLog
from tests.runs.run_trees import make_run

COMMANDS = Path(output.__file__).parent
RED = "\x1b[31mred\x1b[0m"
FORGED = "fine\r\x9b2Jforged"


@pytest.mark.parametrize("path", sorted(COMMANDS.rglob("*.py")), ids=lambda path: str(path.relative_to(COMMANDS)))
def test_commands_print_in_one_place_only(path: Path) -> None:
    """Defect 9: a printer of its own would have to remember to escape."""
    if path.name in ("output.py", "streams.py"):
        return
    called = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    names = {func.id for func in called if isinstance(func, ast.Name)}
    written = {ast.unparse(func) for func in called if isinstance(func, ast.Attribute)}
    assert not names & {"print", "Text", "Console"}
    assert not written & {"sys.stdout.write", "sys.stderr.write", "Text.assemble"}


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "@last", "--runs", f"/none/{RED}"],
        ["evaluate", f"{RED}"],
        ["resume", f"/none/{FORGED}"],
        ["config", f"CartPole-v1:{RED}"],
        ["config", "CartPole-v1:ppo", f"algorithm.{RED}=1"],
        ["config", "CartPole-v1:ppo", f"algorithm.gamma={RED}"],
        ["config", "CartPole-v1:ppo", "--config", f"/none/{FORGED}.yaml"],
        ["check", f"{RED}"],
        ["envs", f"{RED}"],
        ["runs", "list", "--runs", f"/none/{RED}"],
        ["runs", "list", "--filter", f"{RED}=1"],
        ["runs", "rebuild", "--runs", f"/none/{FORGED}"],
        [f"{RED}"],
        ["train", f"--{RED}"],
    ],
)
def test_a_message_spells_out_what_would_move_the_cursor(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    etude(words)  # Defect 9
    shown = "".join(capsys.readouterr())
    assert shown
    assert not set(shown) & {"\x1b", "\r", "\x9b"}


@pytest.fixture
def strangers_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run all of whose names are hostile."""
    monkeypatch.setenv("ETUDE_RUNS", str(tmp_path))
    run = make_run(tmp_path, "a", group=RED, tags=[FORGED, "two\nlines"]).path
    for name in ("run.json", "summary.json"):
        record = json.loads((run / name).read_text())
        record.pop("checksum", None)  # a stranger's is right, or missing
        record |= {"environment": f"Cart{RED}", "algorithm": FORGED, "stop_reason": RED}
        (run / name).write_text(json.dumps(record))
    (run / "resolved.yaml").write_text(json.dumps({RED: {FORGED: RED}}))
    (run / "config.yaml").write_text(json.dumps({RED: {FORGED: RED}}))
    hostile = tmp_path / f"x{RED}"
    run.rename(hostile)
    return hostile


@pytest.mark.parametrize(
    "words",
    [
        ["runs", "list"],
        ["runs", "list", "--columns", "id,environment,algorithm,tags,group"],
        ["runs", "show", "RUN"],
        ["runs", "compare", "RUN"],
        ["runs", "tag", "RUN"],
        ["runs", "rebuild"],
        ["runs", "cleanup", "--keep-best", "0", "--keep-recent", "0"],
        ["runs", "checkout", "RUN"],
        ["evaluate", "RUN"],
        ["resume", "RUN"],
        ["play", "RUN"],
        ["verify", "RUN"],
        ["export", "RUN"],
        ["train", "--from-run", "RUN"],
    ],
)
def test_nothing_of_a_strangers_run_reaches_the_terminal_raw(
    words: list[str], strangers_run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    etude([str(strangers_run) if word == "RUN" else word for word in words])  # Defect 9
    shown = "".join(capsys.readouterr())
    assert shown
    assert not set(shown) & {"\x1b", "\r", "\x9b"}


def test_a_cell_is_one_line(strangers_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert etude(["runs", "list", "--columns", "tags"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_what_a_program_reads_is_byte_for_byte_what_it_was(
    strangers_run: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert etude(["runs", "path", str(strangers_run)]) == 0
    assert capsysbinary.readouterr().out == f"{strangers_run}\n".encode()
    assert etude(["runs", "list", "--json"]) == 0
    assert json.loads(capsysbinary.readouterr().out)[0]["group"] == RED


def test_a_path_that_is_no_text_is_written_as_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    bytes_written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(bytes_written, encoding="ascii"))
    output.emit_path(Path("/runs/\udcff-ü"))
    assert bytes_written.getvalue() == b"/runs/\xff-\xc3\xbc\n"


def test_the_live_area_and_the_log_take_strangers_names(tmp_path: Path) -> None:
    from rich.text import Text

    drawn: list[str] = []
    area = LiveArea(io.StringIO(), drawn.append)
    area.show([Text("collect/\x1b]0;title\x07 1.0")])  # Defect 9: metrics are named by whoever wrote the rows
    assert "collect/\\x1b]0;title" in "".join(drawn)
    log = RunLog(tmp_path / "run.log")
    log.line("name \x9b2J and \u202e")
    log.close()
    assert "name \\x9b2J and \\u202e" in (tmp_path / "run.log").read_text()


def test_a_reader_that_leaves_ends_a_listing_quietly() -> None:
    command = f"{sys.executable} -m etude envs; echo code $? >&2"
    done = subprocess.run(["bash", "-c", f"({command}) | true"], capture_output=True, text=True, check=False)
    assert done.stderr in ("code 1\n", "code 0\n")
