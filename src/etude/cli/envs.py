"""`etude envs`: which environments there are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from etude.cli.output import drawing, emit_json, say, styled
from etude.cli.parameters import AsJson

if TYPE_CHECKING:
    from rich.console import Console

    from etude.environments.catalog import Listing

_SHOWN = 12
"""Ids without tuned settings that are listed of a family that nobody asked for by name."""


def envs(
    search: Annotated[str | None, Parameter(name="SEARCH", show_default=False)] = None,
    /,
    *,
    family: str | None = None,
    as_json: AsJson = False,
) -> int:
    """List environments by family, those with tuned variants first, and what is missing for families that are not installed.

    Parameters
    ----------
    search
        Show only environments with this text in their id or description, or the family of this name.
    family
        Show only this family, with all of its ids: classic, mujoco, dmc, atari, ....
    """
    from etude.environments import catalog as environments

    everything = environments.catalog() if family is None else environments.catalog([environments.find_family(family)])
    found = everything if search is None else environments.search(everything, search)
    if as_json:
        emit_json([_plain(listing) for listing in found])
        return 0
    if not found:
        near = environments.near(everything, search or "")
        where = "" if family is None else f" of the family {family}"
        hint = f"; near it are {', '.join(near)}" if near else ""
        say(f"no environment{where} has '{search}' in its id or description{hint}")
        return 0
    console = drawing(soft_wrap=True)
    width = max((len(spec) for listing in found for spec, _ in _tuned(listing)), default=0)
    for position, listing in enumerate(found):
        if position:
            say()
        _show(console, listing, width, everything=search is not None or family is not None)
    return 0


def _show(console: Console, listing: Listing, width: int, *, everything: bool) -> None:
    family = listing.family
    console.print(styled((family.title, "bold"), (f"  {family.name}", "dim")))
    if listing.missing:
        line = f"  not installed: pip install '{family.install}'  (then {family.form} and its like)"
        console.print(styled(line, style="yellow"))
    elif family.backend != "auto":
        console.print(styled(f"  for ids of other families: etude train {family.example}:ppo {family.form}"))
    if listing.variants:
        console.print(styled(f"  any id has settings for {', '.join(listing.variants)}", style="dim"))
    for spec, description in _tuned(listing):
        padding = " " * (width - len(spec) + 2) if description else ""
        console.print(styled("  ", (spec, "cyan"), padding, description), overflow="ignore")
    others = [entry.id for entry in listing.entries if not entry.is_tuned]
    shown = others if everything else others[:_SHOWN]
    for line in _columns(shown, max(40, console.width - 2)):
        console.print(styled(f"  {line}"))
    if len(others) > len(shown):
        console.print(styled(f"  ... and {len(others) - len(shown)} more: etude envs --family {family.name}", style="dim"))


def _tuned(listing: Listing) -> list[tuple[str, str]]:
    """Return each spec that `etude train` takes as it is; the description stands at the first of an environment."""
    found = []
    for entry in listing.entries:
        if entry.is_tuned:
            specs = [f"{entry.id}:{variant}" for variant in entry.variants] or [entry.id]
            found += [(spec, entry.description if position == 0 else "") for position, spec in enumerate(specs)]
    return found


def _columns(names: list[str], width: int) -> list[str]:
    """Lay names out in as many columns as fit."""
    if not names:
        return []
    cell = max(map(len, names)) + 2
    per_line = max(1, width // cell)
    lines = [names[begin : begin + per_line] for begin in range(0, len(names), per_line)]
    return ["".join(f"{name:<{cell}}" for name in line).rstrip() for line in lines]


def _plain(listing: Listing) -> dict[str, object]:
    family = listing.family
    return {
        "family": family.name,
        "title": family.title,
        "form": family.form,
        "installed": not listing.missing,
        "missing": list(listing.missing),
        "install": f"pip install '{family.install}'" if listing.missing else None,
        "variants": list(listing.variants),
        "environments": [
            {"id": entry.id, "description": entry.description, "variants": list(entry.variants)} for entry in listing.entries
        ],
    }
