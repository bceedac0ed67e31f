"""Proves that a run reproduces: runs it again with its own code and compares every number."""
