"""One short word for a whole config."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from etude.config.schema import Config
from etude.config.validate import to_plain

_LATER_FACTS = ("observation_space", "action_space", "reward_range", "metadata")
"""Of environment.spec, younger than stored runs: where none is said, the hash is what it was without them."""

_LATER_SETTINGS = {
    "experiment": {"processes": 1},
    "environment": {"samplers": 0, "free_running": False, "device": "auto"},
    "logging.wandb": {"artifacts": "policy"},
    "logging": {
        "report": True,
        "sinks": [],
        "rules": None,
        "strict": False,
        "webhook": None,
        "email": None,
        "histograms_every_updates": 0,
        "nan": "keep",
    },
}
"""Younger than stored runs: where they are what all runs were, the hash is what it was without them."""


def config_hash(config: Config | dict[str, Any], *, with_seed: bool = True) -> str:
    """Return a hash that changes with any value and not with the order of keys; names and the seed can stay out."""
    plain = to_plain(config)
    for key in ("name", "project", "group", "tags", *(() if with_seed else ("seed",))):
        plain.get("experiment", {}).pop(key, None)
    spec = plain.get("environment", {}).get("spec", {})
    for key in _LATER_FACTS:
        if isinstance(spec, dict) and not spec.get(key):
            spec.pop(key, None)
    for path, usual in _LATER_SETTINGS.items():
        section = plain
        for name in path.split("."):
            section = section.get(name, {})
        for key, value in usual.items():
            if section.get(key) == value:
                del section[key]
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
