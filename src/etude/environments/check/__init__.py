"""Checks of an environment of one's own."""
