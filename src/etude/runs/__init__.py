"""Run directories: what a run leaves on disk, how it is found again and how far it can be trusted."""
