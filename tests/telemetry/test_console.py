from __future__ import annotations

import dataclasses
import io
import subprocess
import sys

import pytest

from etude.telemetry import live_view
from etude.telemetry.console import Console
from etude.telemetry.monitor import Monitor

INTRO = """\
CartPole-v1 · ppo · cartpole-ppo-7f3a · cpu
  compiled · seed 1 · 8 environments · 100,000 steps
  runs/cartpole-ppo-7f3a
  rollout buffer 0.2 MB
"""

SUMMARY = """\
Finished: spent training.total_steps
  return  ▁▁▁▁▁▁▂▂▃▃▄▅▆▆▇▇████████████████  41.10 → 497.5
  eval    ▁▂▄▆█████  46.59 → 500.0
  score   best 500.0 · last 487.0
  took    99,328 steps in 0:10
  run     runs/cartpole-ppo-7f3a
Next:
  etude play @last
  etude verify @last
"""


def test_a_pipe_gets_plain_lines(header, rows, outcome, clock):
    pipe = io.StringIO()
    console = Console(pipe, clock=clock)
    console.start(header)
    for row in rows:
        console.write([row])
        clock.now += 0.1
    console.finish(outcome)
    printed = pipe.getvalue()
    assert printed.startswith(INTRO)
    assert printed.endswith(SUMMARY)
    progress = printed.removeprefix(INTRO).removesuffix(SUMMARY).splitlines()
    # The first, every tenth (they were evaluated, and 2 s never pass in between), and the last.
    assert [line.split()[0] for line in progress] == ["1,024", *(f"{i * 10_240:,}" for i in range(1, 10)), "99,328"]
    assert progress[4] == "   40,960 steps   40%  9.7k/s  eta 0:06  return 324.2  eval 344.2  kl 0.004"
    assert "\x1b" not in printed


def test_plain_lines_are_two_seconds_apart(header, rows, clock):
    pipe = io.StringIO()
    console = Console(pipe, clock=clock)
    console.start(header)
    for row in rows[:9]:
        console.write([row])
        clock.now += 0.5
    console.close()
    steps = [line.split()[0] for line in pipe.getvalue().removeprefix(INTRO).splitlines()]
    assert steps == ["1,024", "5,120", "9,216"]


def test_without_a_kl_the_line_shows_a_loss(header, clock):
    pipe = io.StringIO()
    console = Console(pipe, clock=clock)
    console.start(header)
    console.write([{"env_steps": 50_000, "train/q_loss": 0.25}])
    assert pipe.getvalue().splitlines()[-1] == "   50,000 steps   50%  q_loss 0.25"


def test_quiet_says_only_errors_and_the_end(header, rows, outcome, terminal):
    log = []
    console = Console(terminal, quiet=True, log=log.append)
    console.start(header)
    console.write(rows)
    console.message("saved")
    console.message("disk is full", error=True)
    console.finish(outcome)
    assert terminal.getvalue() == (
        "disk is full\nFinished: spent training.total_steps · 99,328 steps in 0:10 · best 500.0 · runs/cartpole-ppo-7f3a\n"
    )
    assert "saved" in log
    assert SUMMARY.splitlines() == log[-9:]


def test_a_terminal_is_redrawn_in_place_with_messages_above(header, rows, outcome, terminal, clock, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal)
    console = Console(clock=clock)
    console.start(header)
    for row in rows:
        console.write([row])
        clock.now += 0.3
    console.message("saved checkpoint 3")
    print("someone else printed", file=sys.stderr)
    console.finish(outcome)
    screen = terminal.screen()
    intro = INTRO.splitlines()
    assert screen[:6] == [*intro[1:], "saved checkpoint 3", "someone else printed", intro[0]]
    assert sum("━" in line for line in screen) == 1
    assert "99,328 / 100,000 steps" in screen[6]
    assert "\n".join(screen).endswith(SUMMARY)
    assert max(map(len, screen)) <= 80
    assert sys.stderr is terminal


def test_a_print_without_a_newline_waits_and_is_not_lost(header, terminal, monkeypatch):
    monkeypatch.setattr(sys, "stdout", terminal)
    console = Console(terminal)
    console.start(header)
    print("half", end="")
    assert not any("half" in line for line in terminal.screen())
    console.close()
    assert any(line == "half" for line in terminal.screen())


def test_drawing_costs_less_than_a_hundredth_of_the_time(header, rows, terminal, clock, monkeypatch):
    draws = []

    def slow_draw(*arguments):
        clock.now += 0.05
        draws.append(clock.now)
        return []

    monkeypatch.setattr(live_view, "draw", slow_draw)
    console = Console(terminal, clock=clock)
    console.start(header)
    begin = clock.now
    while clock.now < begin + 100:
        console.write([rows[0]])
        clock.now += 0.01
    assert 15 <= len(draws) <= 21


def test_the_last_state_is_always_drawn(header, rows, outcome, terminal, clock):
    console = Console(terminal, clock=clock)
    console.start(header)
    console.write(rows)
    assert "99,328" not in terminal.getvalue()
    console.finish(outcome)
    assert "99,328 / 100,000 steps" in terminal.getvalue()


def test_colour_is_for_terminals_that_want_it(header, rows, terminal, monkeypatch):
    def colours(**environment):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        terminal.truncate(0)
        console = Console(terminal)
        console.start(header, past=rows)
        console.close()
        return "\x1b[32m" in terminal.getvalue(), "\x1b[" in terminal.getvalue(), "━" in terminal.getvalue()

    assert colours() == (True, True, True)
    assert colours(NO_COLOR="1") == (False, True, True)
    assert colours(TERM="dumb") == (False, False, False)


def test_a_resumed_run_shows_its_whole_curve(header, rows, outcome, clock):
    pipe = io.StringIO()
    console = Console(pipe, clock=clock)
    console.start(header, past=rows[:40])
    console.write(rows[40:])
    console.finish(outcome)
    assert pipe.getvalue().endswith(SUMMARY)
    assert "   10,240 steps" not in pipe.getvalue()


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("status", ["finished", "stopped", "interrupted", "failed"])
def test_a_run_that_barely_began_has_an_end_too(header, rows, outcome, terminal, count, status):
    console = Console(terminal)
    console.start(header)
    console.write(rows[:count])
    short = dataclasses.replace(outcome, status=status, reason="", best=None, last_eval=None, next_commands=[])
    console.finish(short)
    console.close()
    ending = [line for line in terminal.screen() if line][-4:]
    told = "Interrupted and saved" if status == "interrupted" else status.capitalize()
    if count == 0:
        assert ending[1:] == [told, "  took    99,328 steps in 0:10", "  run     runs/cartpole-ppo-7f3a"]
    else:
        assert ending[:2] == [told, "  return  ─  41.10"]


def test_a_closed_pipe_silences_the_console_and_nothing_else(header, rows, outcome):
    class ClosedPipe(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    console = Console(ClosedPipe())
    console.start(header)
    console.write(rows)
    console.finish(outcome)


def test_lines_and_files_need_neither_rich_nor_torch():
    program = (
        "import sys, etude.telemetry.console, etude.telemetry.jsonl, etude.telemetry.sinks, etude.telemetry.run_log\n"
        "import etude.telemetry.tensorboard, etude.telemetry.wandb\n"
        "sys.exit(bool({'rich', 'torch', 'numpy', 'wandb'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_lines_and_the_end_tell_of_alerts(header, rows, outcome, clock):
    stream = io.StringIO()
    console = Console(stream, clock=clock)
    monitor = Monitor()
    console.watch(monitor)
    console.start(header)
    for row in rows[:3]:
        monitor.write([row])
        console.write([row])
        monitor.send_alert("mine", "too much", tip="less")
        clock.now += 5
    console.finish(outcome)
    shown = stream.getvalue()
    assert "  ! mine\n" in shown
    assert "  alerts  mine  2 of 3 rows: too much\n" in shown
    assert "\x1b" not in shown, "colour is for terminals"
