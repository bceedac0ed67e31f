"""Searching for good settings: sweeps over any key, and `etude tune`, which also minds what a run costs."""
