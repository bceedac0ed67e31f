"""Algorithms, and the contract they share."""
