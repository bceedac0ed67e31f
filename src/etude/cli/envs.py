"""`etude envs`: which environments there are."""

from __future__ import annotations

import json
from typing import Annotated

from cyclopts import Parameter


def envs(
    search: Annotated[str | None, Parameter(name="SEARCH", show_default=False)] = None,
    /,
    *,
    as_json: Annotated[bool, Parameter(name="--json")] = False,
) -> int:
    """List environments: those with tuned variants first, then every id that Gymnasium knows here.

    Parameters
    ----------
    search
        Show only ids that contain this text.
    as_json
        Print JSON.
    """
    import gymnasium

    import etude.environments.small  # noqa: F401 # registers its tasks
    from etude.config.compose import environment_presets, variants

    def wanted(name: str) -> bool:
        return search is None or search.lower() in name.lower()

    presets = {name: preset for name, preset in environment_presets().items() if wanted(name)}
    others = sorted(name for name in gymnasium.registry if wanted(name) and name not in presets)
    if as_json:
        tuned = {name: {"description": p.get("description", ""), "variants": variants(p)} for name, p in presets.items()}
        print(json.dumps({"tuned": tuned, "gymnasium": others}))
        return 0
    for name, preset in presets.items():
        for spec in [f"{name}:{variant}" for variant in variants(preset)] or [name]:
            print(f"{spec:<28} {preset.get('description', '')}")
    if others:
        print(("\n" if presets else "") + "Any algorithm that fits, with its defaults, on:")
        for name in others:
            print(f"  {name}")
    if not presets and not others:
        print(f"no environment's id contains '{search}'")
    return 0
