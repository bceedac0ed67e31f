"""Copies of an environment in processes of their own."""
