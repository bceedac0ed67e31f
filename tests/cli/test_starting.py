"""A sign of life before anything heavy is loaded."""

from __future__ import annotations

import io
import subprocess
import sys

import pytest

from etude import __version__
from etude.cli.starting import starting
from etude.telemetry.one_line import OneLine


class Terminal(io.StringIO):
    """Remembers what was written, and says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("words", "title"),
    [
        ("train CartPole-v1:ppo", "CartPole-v1:ppo"),
        ("resume @last", "resuming @last"),
        ("evaluate @last", "evaluating @last"),
        ("play @last", "playing @last"),
        ("verify @last", "verifying @last"),
    ],
)
def test_the_first_line_needs_neither_torch_nor_anything_heavy(words: str, title: str) -> None:
    heavy = ("torch", "numpy", "gymnasium", "hydra", "rich", "etude.runs.run_selection")
    code = f"import sys; sys.modules.update(dict.fromkeys({heavy!r})); from etude.cli import main; main({words.split()!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[0] == f"etude {__version__} · {title} · starting"


def test_in_a_pipe_each_step_is_a_line_and_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (False, True):
        with starting("CartPole-v1:ppo", quiet=quiet) as tell:
            tell("loading torch")
    assert capsys.readouterr().err == f"etude {__version__} · CartPole-v1:ppo · starting\n  loading torch\n"


def test_on_a_terminal_it_is_one_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    with starting("CartPole-v1:ppo") as tell:
        tell("loading \x1b[31mtorch")
        print("a warning", file=sys.stderr)
    assert sys.stderr is screen
    *_, before, after = screen.getvalue().split("a warning\n")
    assert before.endswith("loading \\x1b[31mtorch\r\x1b[K"), "the line is taken away for what others print"
    assert after == f"\r\x1b[Ketude {__version__} · CartPole-v1:ppo · loading \\x1b[31mtorch\r\x1b[K"


def test_nothing_is_shown_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with OneLine(stream) as line:
        line.show("hello")
    assert stream.getvalue() == ""
