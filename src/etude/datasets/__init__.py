"""Stored experience: whole episodes in a folder, written so that they survive a crash and read with suspicion."""
