"""`etude inspect`: look into a run step by step, in the browser or as a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from etude.cli.options import at_least, exclusive
from etude.cli.output import note, say, write_file
from etude.cli.parameters import Device, RunName, RunsFolder, StoredCode, Trust
from etude.cli.places import find_run
from etude.cli.starting import starting
from etude.cli.stored_code import again_with_stored_code

if TYPE_CHECKING:
    from etude.inspecting.inspector import Inspector
    from etude.inspecting.recording import Recording
    from etude.runs.run_selection import Selection


def inspect(
    run: RunName,
    /,
    *,
    checkpoint: str | None = None,
    seed: int = 0,
    episodes: int = 1,
    sample: bool = False,
    greedy: bool = False,
    max_steps: int | None = None,
    csv: Path | None = None,
    json: Path | None = None,
    port: int | None = None,
    host: str | None = None,
    open_browser: Annotated[bool, Parameter(name="--open")] = False,
    device: Device = None,
    runs: RunsFolder = None,
    trust: Trust = False,
    stored_code: StoredCode = False,
) -> int:
    """Look into a run step by step: what it saw, did and earned, what its networks thought, and what else could have come.

    With --csv or --json it records episodes and writes them. Without, it opens the inspector of the web app: play, scrub, and
    branch another future off any step. Ctrl-C ends it.

    Parameters
    ----------
    checkpoint
        best, last, a sequence number or environment steps. Default: last, which has all networks; best may hold the policy
        alone, and then there are no values.
    seed
        The first episode's seed; the next ones count on from it. They are the episodes of `etude play`.
    episodes
        How many to write.
    sample
        Draw actions from the policy. Default: as in the run's own evaluations.
    greedy
        Take the most likely action.
    max_steps
        End episodes after this many steps. Default: 10,000.
    csv
        Write a row for each step to this file.
    json
        Write everything but the pictures to this file.
    port
        The port to listen on; 0 takes a free one. Default: 8750, or a free one where that is taken.
    host
        The address to listen on. Default: 127.0.0.1, which only this machine reaches.
    open_browser
        Open the page in a browser.
    """
    at_least(1, episodes=episodes, max_steps=max_steps)
    exclusive({"--sample": sample, "--greedy": greedy})
    mode = "sample" if sample else "greedy" if greedy else "auto"
    writes = csv is not None or json is not None
    if stored_code:
        return again_with_stored_code(find_run(run, runs).run, run, trusted=trust)
    if not writes:
        _refuse({"--episodes": episodes != 1, "--device": device}, "is for --csv and --json; the page records one at a time")
        given = {"checkpoint": checkpoint, "mode": None if mode == "auto" else mode, "seed": seed, "max_steps": max_steps}
        return _serve(find_run(run, runs), given, host or "127.0.0.1", port, trust, open_browser)
    _refuse({"--port": port, "--host": host, "--open": open_browser}, "is of the page, which --csv and --json do without")
    with starting(f"inspecting {run}") as tell:
        found = find_run(run, runs)
        tell("loading torch")
        import torch

        from etude.inspecting.inspector import Inspector

        torch.set_num_threads(1)
        tell("reading the checkpoint, building the environment")
        inspector = Inspector.open(
            found.run, checkpoint or found.checkpoint, mode=mode, pictures=False, trusted=trust, device=device
        )
    try:
        for each in inspector.notes:
            note(each)
        recordings = [_record(inspector, seed + number, max_steps) for number in range(episodes)]
        _write(inspector, recordings, csv, json)
    finally:
        inspector.close()
    return 0


def _record(inspector: Inspector, seed: int, max_steps: int | None) -> Recording:
    recording = inspector.record(seed, max_steps=max_steps)
    said = f"return {recording.total_reward:>10.2f}  length {len(recording.steps):>5}  {recording.ending:<10}  seed {seed}"
    say(said)
    return recording


def _write(inspector: Inspector, recordings: list[Recording], csv: Path | None, json: Path | None) -> None:
    from etude.inspecting import table

    if csv is not None:
        write_file(csv, table.as_csv(inspector, recordings).encode(), "--csv")
    if json is not None:
        import json as text

        from etude.files.atomic import standard_json

        whole = text.dumps(standard_json(table.as_json(inspector, recordings)), allow_nan=False)
        write_file(json, whole.encode(), "--json")


def _refuse(options: dict[str, Any], why: str) -> None:
    from etude.errors import UserError

    for name, value in options.items():
        if value not in (None, False):
            raise UserError(f"{name} {why}")


def _serve(found: Selection, given: dict[str, Any], host: str, port: int | None, trusted: bool, opens: bool) -> int:
    import importlib.util

    from etude.errors import MissingPackageError, UserError

    if any(importlib.util.find_spec(name) is None for name in ("starlette", "uvicorn")):
        raise MissingPackageError(
            "the inspector's page needs starlette and uvicorn: pip install 'etude[ui]'; --csv FILE and --json FILE need neither"
        )
    if port is not None and not 0 <= port <= 65535:
        raise UserError(f"--port {port}: must be from 0 to 65535")
    from urllib.parse import urlencode

    from etude.ui.access import is_loopback
    from etude.ui.server import Server

    run = found.run
    chosen = {**given, "checkpoint": given["checkpoint"] or found.checkpoint}
    run.checkpoints().find(chosen["checkpoint"] or "last")  # what is wrong with it is said here
    server = Server(run.path.parent, host=host, port=port)
    server.app.state.trusted_runs = frozenset([run.id] if trusted else [])
    if not is_loopback(host):
        note(f"--host {host}: others reach this server; reading needs the token too, and nothing is encrypted")
    words = urlencode({"run": run.id, **{name: value for name, value in chosen.items() if value is not None}})
    start, _, fragment = server.address.partition("/#")
    address = f"{start}/inspect?{words}#{fragment}"
    say(address)
    note("the address holds the token. Ctrl-C ends this")
    if opens:
        import webbrowser

        webbrowser.open(address)
    server.serve()
    return 0
