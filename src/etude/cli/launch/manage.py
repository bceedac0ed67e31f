"""`etude launch status`, `logs`, `cancel` and `sync`: of what was launched, whichever tool runs it."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from etude.cli.launch import parameters as shared
from etude.cli.output import emit_json, note, say
from etude.cli.parameters import AsJson, RunsFolder
from etude.cli.places import runs_root

Name = Annotated[str | None, Parameter(name="NAME", help="The name of a launch, or the beginning of it. Default: the newest.")]


def status(name: Name = None, /, *, runs: RunsFolder = None, as_json: AsJson = False) -> int:
    """Say how each task of a launch stands: waiting, running, finished, interrupted, failed, or gone without a word."""
    from etude.launching.backends import launcher_of
    from etude.launching.launcher import read_launch

    launch = read_launch(runs_root(runs).absolute(), name)
    states = launcher_of(launch).states(launch)
    if as_json:
        tasks = [
            {"task": number, "state": states.get(number, "gone"), "words": list(launch.tasks[number])} for number in states
        ]
        emit_json({"name": launch.name, "backend": launch.backend, "id": launch.identity, "tasks": tasks})
        return 0
    say(f"{launch.name} ({launch.backend} {launch.identity or 'not submitted'})")
    width = len(str(len(launch.tasks) - 1))
    for number, words in enumerate(launch.tasks):
        say(f"  {number:>{width}}  {states.get(number, 'gone'):<20}  {' '.join(words)}")
    return 0


def logs(
    name: Name = None, /, *, task: int | None = None, follow: Annotated[bool, Parameter(name=["--follow", "-f"])] = False,
    runs: RunsFolder = None, dry: shared.Dry = False,
) -> int:  # fmt: skip
    """Show what the tasks of a launch print.

    Parameters
    ----------
    task
        Only the task of this number.
    follow
        Go on showing what comes, until Ctrl-C.
    """
    from etude.cli.launch.carrying_out import do
    from etude.errors import UserError
    from etude.launching.backends import launcher_of
    from etude.launching.launcher import read_launch
    from etude.launching.plan import require_tools, streamed

    launch = read_launch(runs_root(runs).absolute(), name)
    if task is not None and not 0 <= task < len(launch.tasks):
        raise UserError(f"--task {task}: {launch.name} has tasks 0 to {len(launch.tasks) - 1}")
    plan = launcher_of(launch).logs(launch, task, follow=follow)
    if dry:
        return do(plan, dry=True)
    require_tools(plan)
    return max((streamed(command) for command in plan.commands), default=0)


def cancel(name: Name, /, *, runs: RunsFolder = None, dry: shared.Dry = False) -> int:
    """Stop the tasks of a launch. Runs save themselves; launched again with the same words, they go on."""
    from etude.cli.launch.carrying_out import do
    from etude.errors import UserError
    from etude.launching.backends import launcher_of
    from etude.launching.launcher import read_launch

    if name is None:
        raise UserError("which launch? `etude launch status` shows the newest")
    launch = read_launch(runs_root(runs).absolute(), name)
    code = do(launcher_of(launch).cancel(launch), dry=dry)
    if not dry:
        note(f"{launch.name} was told to stop; `etude launch status {launch.name}` says when it has")
    return code


def sync(name: Name = None, /, *, runs: RunsFolder = None, dry: shared.Dry = False) -> int:
    """Bring the runs of a launch, as they are now, into the folder of runs here."""
    from etude.cli.launch.carrying_out import do
    from etude.launching.backends import launcher_of
    from etude.launching.launcher import read_launch

    launch = read_launch(runs_root(runs).absolute(), name)
    return do(launcher_of(launch).sync(launch), dry=dry)
