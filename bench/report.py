"""Results as one table, with every side's settings under it."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

SCHEMA = 1
NOTICEABLE_S = 0.1
PLAIN_WIDTH = 180
COLUMNS = (
    "threads",
    "best /s",
    "worst /s",
    "Etude ÷ side",
    "gradient\nsteps /\nenv step",
    "compile s\nfirst",
    "compile s\nagain",
)


def document(machine: dict[str, Any], benches: list[dict[str, Any]], *, quick: bool, repeats: int) -> dict[str, Any]:
    """Return everything that was found out, as it is written to JSON."""
    return {"schema": SCHEMA, "quick": quick, "repeats": repeats, "machine": machine, "benches": benches}


def show(results: dict[str, Any], console: Console | None = None) -> None:
    """Print the table of ratios, the settings, the versions and the machine."""
    console = console or Console()
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    if results["quick"]:
        console.print("quick sizes: these numbers say that everything runs, and nothing about speed", style="bold")
    console.print(_table(results))
    console.print(
        "Best of repeats, warm-up excluded. Etude ÷ side: above 1, Etude is faster; Etude is the first of its rows. "
        "compile: what the warm-up took beyond steady speed, with an empty and with a filled cache.",
        markup=False,
    )
    for bench in results["benches"]:
        console.print(f"\n{bench['name']}  ({_pairs(bench['task'])})", markup=False, highlight=False)
        for side in bench["sides"]:
            if side["status"] == "ok":
                told = f"  {side['label']}, {side['threads']} threads: {_pairs(side['resolved'])}"
                console.print(told, markup=False, highlight=False)
    console.print(f"\nversions: {_versions(results)}", markup=False, highlight=False)
    console.print(f"machine: {_pairs(results['machine'])}", markup=False, highlight=False)


def _table(results: dict[str, Any]) -> Table:
    table = Table(pad_edge=False)
    table.add_column("bench", no_wrap=True)
    table.add_column("side")
    for name in COLUMNS:
        table.add_column(name, justify="right")
    for bench in results["benches"]:
        own = next((side["rate"] for side in bench["sides"] if side["ours"] and side["rate"]), None)
        for index, side in enumerate(bench["sides"]):
            head = (f"{bench['name']} ({bench['unit']})" if index == 0 else "", _label(side))
            table.add_row(*head, *_cells(side, own), end_section=index == len(bench["sides"]) - 1)
    return table


def _label(side: dict[str, Any]) -> str:
    return side["label"] if side["reason"] is None else f"{side['label']}: {side['reason']}"


def _cells(side: dict[str, Any], own: float | None) -> tuple[str, ...]:
    if side["status"] != "ok":
        return ()
    return (
        str(side["threads"]),
        f"{side['rate']:,.0f}",
        f"{min(side['rates_by_threads'][str(side['threads'])]):,.0f}",
        f"{own / side['rate']:.2f}" if own else "",
        f"{side['gradient_steps_per_unit']:.4f}" if side["gradient_steps_per_unit"] else "",
        _seconds(side["compile_first_s"]),
        _seconds(side["compile_again_s"]),
    )


def _seconds(value: float | None) -> str:
    return "" if value is None or value < NOTICEABLE_S else f"{value:.1f}"


def _pairs(settings: dict[str, Any], prefix: str = "") -> str:
    parts = []
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            parts.append(_pairs(value, f"{prefix}{key}."))
        elif value not in (None, {}, [], ""):
            parts.append(f"{prefix}{key}={value}")
    return " ".join(parts)


def _versions(results: dict[str, Any]) -> str:
    found: dict[str, set[str]] = {}
    for bench in results["benches"]:
        for side in bench["sides"]:
            for package, version in side.get("versions", {}).items():
                found.setdefault(package, set()).add(version)
    return ", ".join(f"{package} {'/'.join(sorted(versions))}" for package, versions in sorted(found.items()))
