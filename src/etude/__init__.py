"""Etude: a reinforcement-learning laboratory on PyTorch."""

__version__ = "0.1.0"
