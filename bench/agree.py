"""Etude's losses beside Stable-Baselines3's, on the same weights and batches: `python bench/agree.py [PEERS]`.

Prints the largest difference of each loss, each gradient and each network's move in an update, relative to the largest entry of
what is compared, and exits with 1 if one is above its tolerance.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import runner

TOLERANCE = 1e-5
"""A few roundings of 32-bit numbers; sums over a batch are taken in different orders."""
EXPECTED = {"sac": 1e-3}
"""SAC: Stable-Baselines3 writes the logarithm of tanh's slope as log(1 − a² + 1e-6), which is off near the bounds; Etude's form
is exact. `sac_exact_slope` is the same with that 1e-6 set to 0, and is held to the tolerance of all others."""
OF_MOVES = 1e-4
"""For what an update changed: weights move by thousandths of themselves, so that much of their precision is gone."""
SHOWN = {"sac_exact_slope": "sac"}
"""Whose case an answer belongs to, where it has another name."""


def main(arguments: list[str] | None = None) -> int:
    """Compare, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "peers", nargs="?", type=Path, help="the peers' virtual environment or its python (default: bench/.peers)"
    )
    parser.add_argument("--json", type=Path, metavar="OUT", help="write the table there as well")
    options = parser.parse_args(arguments)
    with runner.machine(options.peers) as machine, tempfile.TemporaryDirectory(prefix="etude-agree-") as folder:
        if machine.peers is None:
            print(f"Stable-Baselines3 is {runner.NO_PEERS}", file=sys.stderr)
            return 2
        rows, missing = compare(Path(folder), machine.peers)
    for name in missing:
        print(f"{name}: left out, Etude has no such algorithm here", file=sys.stderr)
    show(rows)
    if options.json:
        options.json.write_text(json.dumps({"schema": 1, "rows": rows, "left_out": missing}, indent=2) + "\n", encoding="utf-8")
    return int(not all(row["agrees"] for row in rows))


def compare(folder: Path, peers: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Run both halves and return the differences, and the cases that could not be made."""
    from agreement.etude_side import write_cases

    made = write_cases(folder)
    script = Path(__file__).resolve().parent / "agreement" / "stable_baselines_side.py"
    done = subprocess.run([str(peers), str(script), str(folder)], capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"{peers} {script.name} failed:\n{done.stderr}")
    rows = []
    for file in sorted((folder / "answers").glob("*.npz")):
        with np.load(file) as theirs, np.load(folder / f"{SHOWN.get(file.stem, file.stem)}.npz") as ours:
            rows += _differences(file.stem, dict(ours), dict(theirs))
    return rows, [name for name in ("dqn",) if name not in made]


def _differences(case: str, ours: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    kinds = ("result.", "gradient.", "after.")
    names = {name for name in ours if name.startswith(kinds)}
    if names != set(theirs):
        raise SystemExit(f"{case}: only one side has {', '.join(sorted(names ^ set(theirs)))}")
    before = {name: ours[name.replace("after.", "weight.", 1)] if name.startswith("after.") else 0 for name in names}
    ours = {name: value - before[name] for name, value in ours.items() if name in names}
    theirs = {name: value.reshape(ours[name].shape) - before[name] for name, value in theirs.items()}
    rows = []
    for what in dict.fromkeys(_what(name) for name in ours):
        group = [name for name in ours if _what(name) == what]
        tolerance = max(EXPECTED.get(case, TOLERANCE), OF_MOVES if group[0].startswith("after.") else 0.0)
        scale = max(float(np.abs(theirs[name]).max()) for name in group)
        apart = max(float(np.abs(ours[name] - theirs[name]).max()) for name in group)
        difference = apart / scale if scale else float("nan")  # nothing happened: nothing was compared
        agrees = difference <= tolerance
        entries = sum(ours[name].size for name in group)
        rows.append(
            {"case": case, "what": what, "entries": entries, "difference": difference, "tolerance": tolerance, "agrees": agrees}
        )
    return rows


def _what(name: str) -> str:
    """All layers of a network count as one: its gradient, or how it moved."""
    kind, _, rest = name.partition(".")
    network = rest.partition(".")[0]
    return {"result": rest, "gradient": f"{network} gradient", "after": f"{network} update"}[kind]


def show(rows: list[dict[str, Any]]) -> None:
    """Print the table."""
    print(f"{'case':<16} {'what':<32} {'entries':>7} {'difference':>11} {'tolerance':>10}")
    for row in rows:
        verdict = "" if row["agrees"] else "  DISAGREES"
        numbers = f"{row['entries']:>7} {row['difference']:>11.1e} {row['tolerance']:>10.0e}"
        print(f"{row['case']:<16} {row['what']:<32} {numbers}{verdict}")


if __name__ == "__main__":
    sys.exit(main())
