"""Shipped settings, as YAML: experiments, and environments with their tuned variants."""
