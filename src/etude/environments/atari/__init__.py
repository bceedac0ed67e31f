"""Atari 2600 games: many copies on ALE's own threads, and one game whose state can be captured."""
