from __future__ import annotations

import errno
import io
import os
import re
import signal
import subprocess
import sys
import warnings

import pytest

from etude.errors import EtudeError
from etude.telemetry.console import Console
from etude.telemetry.run_log import RunLog, real_stream, tee_to


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.log"


def lines_of(path):
    """Lines without their times, each of which must have one."""
    lines = []
    for line in path.read_text().splitlines():
        stamped = re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?: (.*))?", line)
        assert stamped, line
        lines.append(stamped[1] or "")
    return lines


def test_prints_are_shown_and_logged_without_colours(path, capsys):
    with tee_to(path):
        print("one\n\x1b[1;31mtwo\x1b[0m")
        print("\x1b]8;;http://x\x1b\\three\x1b]8;;\x1b\\", file=sys.stderr)
    assert capsys.readouterr().out == "one\n\x1b[1;31mtwo\x1b[0m\n"
    assert lines_of(path) == ["one", "two", "three"]


def test_lines_printed_in_pieces_stay_whole(path):
    with tee_to(path):
        print("half ", end="")
        print("an error", file=sys.stderr)
        print("a line")
        print("10%\r55%\r100%")
        print("unfinished", end="")
    assert lines_of(path) == ["an error", "half a line", "100%", "unfinished"]


def test_warnings_are_logged(path):
    with tee_to(path), warnings.catch_warnings():
        warnings.simplefilter("always")
        # pytest records warnings; this is what Python does without it
        warnings.showwarning = lambda message, *_: print(f"UserWarning: {message}", file=sys.stderr)
        warnings.warn("too narrow", UserWarning, stacklevel=1)
    assert lines_of(path) == ["UserWarning: too narrow"]


def test_an_exception_is_logged_and_passes_through(path):
    stdout, stderr = sys.stdout, sys.stderr

    def fail():
        print("last words")
        raise ZeroDivisionError("division by zero")

    with pytest.raises(ZeroDivisionError), tee_to(path):
        fail()
    assert (sys.stdout, sys.stderr) == (stdout, stderr)
    lines = lines_of(path)
    assert lines[0] == "last words"
    assert "Traceback" in lines[1]
    assert lines[-1] == "ZeroDivisionError: division by zero"


def test_leaving_the_program_is_not_an_error(path):
    with pytest.raises(SystemExit), tee_to(path):
        sys.exit(3)
    assert lines_of(path) == []


def test_a_second_session_is_appended(path):
    for word in ("first", "second"):
        with tee_to(path):
            print(word)
    assert lines_of(path) == ["first", "second"]


def test_nested_logs_restore_the_streams_in_order(path, tmp_path):
    stdout = sys.stdout
    with tee_to(path):
        outer = sys.stdout
        with tee_to(tmp_path / "inner.log"):
            print("both")
            assert real_stream(sys.stdout) is stdout
        assert sys.stdout is outer
        print("outer")
    assert sys.stdout is stdout
    assert lines_of(path) == ["both", "outer"]
    assert lines_of(tmp_path / "inner.log") == ["both"]


def test_a_log_that_cannot_be_opened_is_told_once_and_printing_goes_on(tmp_path, capsys):
    stdout = sys.stdout
    with tee_to(tmp_path):
        print("still printed")
        print("and this")
    assert sys.stdout is stdout
    printed = capsys.readouterr()
    assert printed.out == "still printed\nand this\n"
    assert printed.err == "run.log can't be written: is a folder, not a file; the run goes on without these lines\n"


def test_our_own_errors_are_logged_in_their_words(path):
    with pytest.raises(EtudeError), tee_to(path):
        raise EtudeError("the disk is full; make room")
    assert lines_of(path) == ["the disk is full; make room"]


def test_a_full_disk_costs_lines_and_the_rest_is_not_glued_to_them(path, monkeypatch):
    told, real, left = [], os.write, 30

    def nearly_full(descriptor, data):
        nonlocal left
        if left == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = min(left, len(data))
        left -= taken
        return real(descriptor, bytes(data[:taken]))

    log = RunLog(path, told.append)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", nearly_full)
        log.line("this one is cut off in its middle")
        log.line("this one is lost")
    log.line("there is room again")
    log.close()
    log.line("never written")
    assert [line[20:] for line in path.read_text().splitlines()] == ["this one i", "there is room again"]
    assert told == ["run.log can't be written: No space left on device; the run goes on without these lines"]


def test_a_signal_that_prints_in_the_middle_of_a_line_does_not_lock_up(path, monkeypatch):
    real = os.write

    def interrupted(descriptor, data):
        monkeypatch.setattr(os, "write", real)
        print("from the handler")
        return real(descriptor, data)

    with tee_to(path):
        monkeypatch.setattr(os, "write", interrupted)
        print("interrupted")
    assert sorted(lines_of(path)) == ["from the handler", "interrupted"]


def test_a_stream_that_went_away_does_not_stop_what_prints(path, monkeypatch):
    class Gone(io.StringIO):
        def write(self, text):
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(sys, "stderr", Gone())
    with tee_to(path):
        print("said to nobody", file=sys.stderr, flush=True)
    assert lines_of(path) == ["said to nobody"]


def test_a_killed_process_leaves_its_last_lines(path):
    program = (
        "import os, signal, sys; from pathlib import Path; from etude.telemetry.run_log import tee_to\n"
        "with tee_to(Path(sys.argv[1])): print('last line'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=False, capture_output=True)
    assert done.returncode == -signal.SIGKILL
    assert lines_of(path) == ["last line"]


def test_the_log_has_the_story_but_not_the_drawing(path, terminal, monkeypatch, header, rows, outcome):
    monkeypatch.setattr(sys, "stderr", terminal)
    with tee_to(path) as log:
        console = Console(log=log.line)
        console.start(header)
        console.write(rows)
        print("someone else", file=sys.stderr)
        console.finish(outcome)
    lines = lines_of(path)
    assert "someone else" in lines
    assert any("99,328 steps" in line for line in lines)
    assert "Finished: spent training.total_steps" in lines
    assert not any("━" in line or "collect 41%" in line for line in lines)
    assert "━" in terminal.getvalue()


def test_a_closed_log_does_not_break_printing(path, monkeypatch):
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with tee_to(path) as log:
        log.close()
        print("still printed")
    assert sys.stdout.getvalue() == "still printed\n"
