"""`python -m tools.attack [kills] [flips] [hostile]`: attack Etude and print what came of it; 1 if something was found."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tools.attack.report import Report


def _kills(seed: int, only: list[str] | None, share: float) -> Report:
    from tools.attack.kills import kill

    return kill(only, seed=seed, share=share, groups=0 if only else 4)


def _flips(seed: int, only: list[str] | None, share: float) -> Report:
    from tools.attack.flips import flip

    return flip(only, seed=seed, share=share)


def _hostile(seed: int, only: list[str] | None, share: float) -> Report:
    from tools.attack.hostile import plant

    return plant(only, seed=seed, share=share / 2)  # half of all there are is already more than a thousand commands


ATTACKS: dict[str, Callable[[int, list[str] | None, float], Report]] = {"kills": _kills, "flips": _flips, "hostile": _hostile}


def main() -> int:
    """Run the attacks that are named, all of them by default."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.attack", description="Attack Etude: kill runs, flip bytes, plant files."
    )
    parser.add_argument("attacks", nargs="*", metavar="ATTACK", help=f"some of {', '.join(ATTACKS)}; default: all")
    parser.add_argument("--only", help="names with commas: victims of kills, verbs of flips, kinds of hostile files")
    parser.add_argument("--seed", type=int, default=1, help="another choice of moments, places and bytes")
    parser.add_argument("--share", type=float, default=1.0, help="try only this share of everything, such as 0.1")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers here, an object a line")
    chosen = parser.parse_args()
    unknown = sorted(set(chosen.attacks) - set(ATTACKS))
    if unknown:
        parser.error(f"{unknown[0]}: not one of {', '.join(ATTACKS)}")
    reports = []
    for name in chosen.attacks or ATTACKS:
        began = time.monotonic()
        report = ATTACKS[name](chosen.seed, chosen.only.split(",") if chosen.only else None, chosen.share)
        report.facts["seconds"] = round(time.monotonic() - began)
        print("\n".join(report.lines()), flush=True)
        reports.append(report)
    if chosen.json:
        chosen.json.write_text("".join(f"{report.to_json()}\n" for report in reports), encoding="utf-8")
    return 1 if any(report.findings for report in reports) else 0


if __name__ == "__main__":
    sys.exit(main())
