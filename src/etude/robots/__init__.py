"""Robots on commands: one task definition, simulated on the CPU or on a GPU."""
