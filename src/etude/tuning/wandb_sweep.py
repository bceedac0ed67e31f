"""Settings from a Weights & Biases sweep: its agent starts `etude train`, and says in `wandb.config` what to try."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from etude.config.overrides import parse
from etude.errors import UserError
from etude.tuning.plan import canonical, flat, word


def sweep_words(words: Sequence[str], tell: Callable[[str], None] = lambda step: None) -> list[str]:
    """Join the sweep's run, and return its settings as words; those that `words` name already are left out.

    Metrics then go to that run, whatever the config says of Weights & Biases.
    """
    try:
        wandb = importlib.import_module("wandb")
    except ImportError:
        raise UserError("--wandb-sweep needs the 'wandb' extra: pip install 'etude[wandb]'") from None
    tell("asking Weights & Biases what to try")
    if not os.environ.get("WANDB_SWEEP_ID"):
        raise UserError("--wandb-sweep: WANDB_SWEEP_ID is not set; start an agent with `wandb agent ENTITY/PROJECT/SWEEP`")
    run = wandb.run if wandb.run is not None else wandb.init(settings={"console": "off"})
    fixed = {canonical(key) for key in flat(parse(words).values)}
    asked = flat(_plain(dict(run.config)))
    found = [word(key, value) for key, value in asked.items() if canonical(key) not in fixed]
    online = {"logging.wandb.enabled": True, "logging.wandb.mode": "online"}
    return [*found, *(word(key, value) for key, value in online.items() if key not in fixed and key not in asked)]


def _plain(value: Any) -> Any:
    """As plain data, without what W&B keeps for itself."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if not str(key).startswith("_")}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
