"""Stores of experience: preallocated columns that a collector writes and a workflow learns from."""
