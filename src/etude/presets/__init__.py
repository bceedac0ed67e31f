"""Shipped settings, as YAML: experiments, environments with their tuned variants, and networks."""
