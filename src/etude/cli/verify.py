"""`etude verify`: prove that a run reproduces."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from etude.cli.options import exclusive
from etude.cli.output import emit_json, say
from etude.cli.parameters import AsJson, RunName, RunsFolder
from etude.cli.places import find_run
from etude.cli.starting import starting
from etude.errors import UserError


def verify(
    run: RunName,
    /,
    *,
    steps: int | None = None,
    resume_at: str | None = None,
    seed: int | None = None,
    eager_vs_compiled: bool = False,
    current_code: bool = False,
    repo: Path | None = None,
    trust: bool = False,
    keep: bool = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> int:
    """Run a run again with its own settings and its own code, and compare every number, bit by bit.

    Exit code 0: reproduced. 1: something differs, and where first. 2: not comparable here (another CPU, other versions), or a
    wrong request.

    Parameters
    ----------
    steps
        Verify only the first N environment steps.
    resume_at
        Also run it with a stop and a resume at a cycle boundary: random, or after N environment steps.
    seed
        Another random place for --resume-at random.
    eager_vs_compiled
        Also take one gradient step from the last checkpoint, eager and compiled, and compare.
    current_code
        Use the code as it is now instead of the run's own; says how far the two differ.
    repo
        The repository that has the run's commit. Default: the one of the current folder.
    trust
        Run the code and honour the import paths of somebody else's run.
    keep
        Keep the folder of the re-run, and print where it is.
    """
    exclusive({"--current-code": current_code, "--repo": repo})
    if seed is not None and resume_at != "random":
        raise UserError(f"--seed {seed} is of --resume-at random: it chooses the place")
    with starting(f"verifying {run}", quiet=as_json) as tell:
        found = find_run(run, runs).run
        tell("loading torch")
        from etude.cli.verify_progress import ProgressOnStderr
        from etude.verification.verify import Request
        from etude.verification.verify import verify as verify_run

    request = Request(
        repository=repo,
        current_code=current_code,
        steps=steps,
        resume_at=resume_at,
        seed=seed or 0,
        eager_vs_compiled=eager_vs_compiled,
        trusted=trust,
        keep=keep,
    )
    # As Ctrl-C: the re-run is ended, and its folder and its worktree are removed.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        report = verify_run(found, request, ProgressOnStderr(moving=sys.stderr.isatty()))
    finally:
        signal.signal(signal.SIGTERM, before)
    if as_json:
        emit_json(report.to_json())
    else:
        say("\n".join(report.lines()))
    return report.exit_code
