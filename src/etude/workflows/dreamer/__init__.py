"""Dreamer: a world model, and a policy that learns in its imagination."""
