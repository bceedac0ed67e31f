"""`etude runs checkout`: a run's exact code, in its own folder."""

from __future__ import annotations

from pathlib import Path

from etude.cli.output import emit_json, emit_path, note, say
from etude.cli.parameters import AsJson, RunName, RunsFolder
from etude.cli.places import find_run


def checkout(
    run: RunName,
    /,
    *,
    to: Path | None = None,
    repo: Path | None = None,
    remove: bool = False,
    force: bool = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> int:
    """Restore the exact code of a run into its own git worktree; your own files, index and branch stay as they are.

    Commit, uncommitted changes and untracked files come back as they were when the run was started. The path is printed.

    Parameters
    ----------
    to
        Where to put it. Default: .worktrees/ID beside the run.
    repo
        The repository that has the run's commit. Default: the one of the current folder.
    remove
        Remove the worktree that was made of this run.
    force
        With --remove: even if files in it were changed.
    """
    from etude.errors import UserError
    from etude.runs import trust, worktree
    from etude.runs.stored_code import read_stored_code

    if force and not remove:
        raise UserError("--force belongs to --remove")
    found = find_run(run, runs).run
    place = to or worktree.default_place(found.path)
    code = read_stored_code(found.path)
    if code is None:
        raise UserError(f"run {found.id} was made outside a git repository: its code was not stored")
    repository = worktree.find_repository(code, cwd=Path.cwd(), given=repo)
    if remove:
        worktree.remove(place, repository, force=force)
        if as_json:
            emit_json({"run": found.id, "removed": str(place)})
        else:
            say(f"removed {place}")
        return 0
    restored = worktree.restore(code, repository, place)
    own = trust.is_own_code(found.path)
    if as_json:
        report = {"run": found.id, "path": str(restored.path), "repository": str(repository), "commit": restored.commit}
        emit_json({**report, "folder": code.folder, "own": own, "notes": list(restored.notes)})
        return 0
    note(f"commit {restored.commit[:12]} of {repository}, as it was for run {found.id}")
    for line in restored.notes:
        note(f"note: {line}")
    if not own:
        note("note: you did not make this run on this machine; look at the code before you run it")
    emit_path(restored.path)
    return 0
