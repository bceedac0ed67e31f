"""What may be asked of any algorithm's settings, whether it has such a setting or not."""

from __future__ import annotations

from typing import Any


class AlgorithmSettings:
    """What every algorithm's `Config` is derived from. One that has such a setting declares a field of the same name."""

    rollout_steps: Any = None
    """Vector steps per rollout; None: it collects one at a time."""
    batch_size: Any = None
    """Transitions per gradient step, where they are sampled; None: as many as Etude's own take."""
    gamma: Any = None
    """Discount; None: it has no such setting."""
    n_step: Any = 1
    """Rewards summed before bootstrapping."""
    sequence: Any = None
    """Steps in a row that it learns from at once, where they are sampled; None: single transitions."""
    rewritten: Any = ()
    """Columns that its `act` adds and that its updates write anew, such as latents."""
    learning_starts: Any = None
    """Transitions before anything is learnt; None: one batch."""
