"""Gradient steps: what an update computes, and how it runs."""
