"""Devices, threads and random streams."""
