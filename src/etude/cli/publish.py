"""`etude publish`: make a run's policy a folder or a repository for others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from etude.cli.options import at_least
from etude.cli.output import emit_json, note, say
from etude.cli.parameters import AsJson, RunName, RunsFolder, Trust
from etude.cli.places import find_run
from etude.cli.starting import starting

FOLDER = "published"


def publish(
    run: RunName,
    /,
    *,
    repo: str | None = None,
    private: bool = False,
    out: Path | None = None,
    dry: bool = False,
    checkpoint: str | None = None,
    episodes: int = 100,
    leave_out: Annotated[list[Literal["evaluation", "onnx", "replay"]] | None, Parameter(consume_multiple=True)] = None,
    license_name: Annotated[str | None, Parameter(name="--license")] = None,
    runs: RunsFolder = None,
    trust: Trust = False,
    as_json: AsJson = False,
) -> int:
    """Make a run's policy a folder that others load, or a repository of Hugging Face (extra hub).

    In it are the policy, its settings, a card with an evaluation on fresh episodes, the policy as ONNX and a video.
    Secrets and the names of this machine's folders are taken out; where one is left, nothing is published.

    Parameters
    ----------
    repo
        OWNER/NAME on Hugging Face. Default: a folder alone.
    private
        Make the repository private, where it is new.
    out
        The folder to write. Default: published/ID.
    dry
        Write the folder and say what would be sent, and send nothing.
    checkpoint
        best, last, a sequence number or environment steps. Default: last.
    episodes
        How many to evaluate.
    leave_out
        What not to make: evaluation, onnx, replay.
    license_name
        What the card says of it, such as apache-2.0.
    """
    from etude.errors import UserError

    at_least(1, episodes=episodes)
    if private and repo is None:
        raise UserError("--private is of a repository: name one with --repo")
    with starting(f"publishing {run}", quiet=as_json) as tell:
        if repo is not None:
            from etude.training.hub_models import check_repository

            check_repository(repo, "--repo")
        found = find_run(run, runs)
        tell("loading torch")
        import torch

        from etude.publishing.hub_upload import check_login, upload
        from etude.publishing.publication import make_publication
        from etude.using.stored_policy import open_policy

        torch.set_num_threads(1)
        if repo is not None and not dry:
            check_login()
        stored = open_policy(found.run, checkpoint or found.checkpoint or "last", trusted=trust, device="cpu")
        made = make_publication(
            stored,
            out or Path(FOLDER) / found.run.id,
            episodes=episodes,
            leave_out=leave_out or (),
            repository=repo,
            license_name=license_name,
            trust=trust,
            tell=tell,
        )
    address = upload(made.folder, repo, private=private) if repo is not None and not dry else None
    if as_json:
        emit_json({"folder": str(made.folder), "files": made.files, "address": address, "notes": made.notes})
    else:
        for name, size in made.files.items():
            say(f"  {name:<60} {size / 1024:>10,.0f} KiB")
    for line in made.notes:
        note(f"note: {line}")
    if repo is not None and dry:
        note(f"--dry: nothing was sent to {repo}")
    note(f"Published: {address}" if address else f"Written: {made.folder}")
    return 0
