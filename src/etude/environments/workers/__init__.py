"""Copies of an environment in their own processes."""
