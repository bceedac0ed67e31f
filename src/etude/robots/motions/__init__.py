"""Motions to follow: made, or read from files."""
