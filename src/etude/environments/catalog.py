"""Which environments there are, family by family, without building one and without importing PyTorch."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from etude.config.environment_presets import environment_presets, family_presets, variants
from etude.environments.families import FAMILIES, Family, family_of, register_installed
from etude.errors import UserError, did_you_mean


@dataclass(frozen=True)
class Entry:
    """One environment."""

    id: str
    description: str = ""
    variants: tuple[str, ...] = ()
    """What has tuned settings, such as ppo."""

    @property
    def is_tuned(self) -> bool:
        """Whether Etude has settings for it."""
        return bool(self.variants or self.description)


@dataclass(frozen=True)
class Listing:
    """The environments of one family, those with tuned settings first."""

    family: Family
    missing: tuple[str, ...]
    """Packages that are not installed: its ids can't be known then, but for those with tuned settings."""
    entries: list[Entry] = field(default_factory=list)
    variants: tuple[str, ...] = ()
    """What has settings for every environment of the family."""


def catalog(families: Sequence[Family] = FAMILIES) -> list[Listing]:
    """Return every environment that is known here."""
    import gymnasium

    by_themselves = set(gymnasium.registry)
    register_installed(families)
    presets = family_presets()
    listings = {
        family.name: Listing(family, tuple(family.missing()), variants=tuple(variants(presets.get(family.name, {}))))
        for family in families
    }
    tuned = {
        name: Entry(name, str(preset.get("description", "")), tuple(variants(preset)))
        for name, preset in environment_presets().items()
    }
    for entry in (*tuned.values(), *(Entry(name) for name in sorted(gymnasium.registry, key=_natural) if name not in tuned)):
        family = family_of(entry.id)
        # Known only because another family's package was imported just now: by its id alone nobody would find it.
        is_stray = not family.packages and not family.module and entry.id not in by_themselves
        if family.name in listings and (
            entry.is_tuned or not (listings[family.name].missing or is_stray or _is_gone(entry.id))
        ):
            listings[family.name].entries.append(entry)
    return list(listings.values())


def search(listings: Sequence[Listing], text: str) -> list[Listing]:
    """Return what has `text` in its id or description, and all of a family that is called so."""
    wanted = text.lower()
    found = []
    for listing in listings:
        family = listing.family
        if wanted in (family.name.lower(), family.title.lower()):
            found.append(listing)
            continue
        entries = [entry for entry in listing.entries if wanted in entry.id.lower() or wanted in entry.description.lower()]
        # The family that this would be found in, were it installed.
        is_form = bool(listing.missing) and (
            wanted in family.form.lower() or family.has(text) or wanted in family.title.lower()
        )
        if entries or is_form:
            found.append(replace(listing, entries=entries))
    return found


def near(listings: Sequence[Listing], text: str, count: int = 5) -> list[str]:
    """Return the ids that look most like `text`."""
    return _closest([entry.id for entry in _entries(listings)], text, count)


def did_you_mean_id(name: str) -> str:
    """Return ``; did you mean 'x'?`` for the known id that looks most like `name`, tuned ones and robots included."""
    import gymnasium

    ids = [*environment_presets(), *(known for known in gymnasium.registry if not _is_gone(known))]
    close = _closest(list(dict.fromkeys(ids)), name.rpartition(":")[2], 1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else "; `etude envs SEARCH` lists what there is"


def _closest(ids: Sequence[str], text: str, count: int, cutoff: float = 0.5) -> list[str]:
    by_lower = {name.lower(): name for name in ids}
    # An id without its version and prefix is what people type.
    by_stem = {_stem(lower): name for lower, name in by_lower.items()}
    close = [by_lower[match] for match in difflib.get_close_matches(text.lower(), by_lower, n=count, cutoff=cutoff)]
    close += [by_stem[match] for match in difflib.get_close_matches(_stem(text.lower()), by_stem, n=count, cutoff=0.6)]
    return list(dict.fromkeys(close))[:count]


def find_family(name: str) -> Family:
    """Return the family of this name; raises UserError where there is none."""
    by_name = {family.name: family for family in FAMILIES}
    if name.lower() not in by_name:
        raise UserError(f"--family {name}: no such family{did_you_mean(name, by_name)} (there are: {', '.join(by_name)})")
    return by_name[name.lower()]


def _is_gone(name: str) -> bool:
    """Whether Gymnasium keeps the id only to say where the environment has moved to."""
    import gymnasium

    return getattr(gymnasium.registry[name].entry_point, "__name__", "").startswith("_raise_")


def _entries(listings: Sequence[Listing]) -> Iterator[Entry]:
    return (entry for listing in listings for entry in listing.entries)


def _stem(name: str) -> str:
    return name.rpartition("/")[2].rpartition(":")[2].partition("-v")[0]


def _natural(name: str) -> tuple[str, int]:
    """Version 10 after version 9."""
    stem, dash, version = name.rpartition("-v")
    return (stem.lower(), int(version)) if dash and version.isdigit() else (name.lower(), 0)
