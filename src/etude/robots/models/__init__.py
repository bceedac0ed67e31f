"""Robots as files: shipped ones, those found on this machine, and a user's own."""
