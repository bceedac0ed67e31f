"""Runs side by side: curves over seeds, statistics, what differs between them, and tables and plots of it."""
