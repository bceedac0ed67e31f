"""`etude mcp`: serve runs to a language model."""

from __future__ import annotations

import sys

from etude.cli.output import note
from etude.cli.parameters import RunsFolder
from etude.cli.places import runs_root


def mcp(*, runs: RunsFolder = None, allow_changes: bool = False) -> int:
    """Serve the runs of a folder to a language model, by the Model Context Protocol over stdin and stdout.

    It reads: list_runs, show_run, compare_runs, read_metrics.

    Parameters
    ----------
    allow_changes
        Let the model start, stop and resume runs too: start_run, stop_run, resume_run.
    """
    from etude.mcp_server.protocol import Server
    from etude.mcp_server.tools import INSTRUCTIONS, Tools

    root = runs_root(runs)
    answers = sys.stdout.buffer
    sys.stdout = sys.stderr  # whatever prints would be taken for an answer
    if sys.stdin.isatty():
        note(f"serving {root.absolute()} over stdin and stdout, for a program to talk to; Ctrl-D ends it")
    Server(Tools(root, allow_changes=allow_changes).all(), INSTRUCTIONS).serve(sys.stdin.buffer, answers)
    return 0
