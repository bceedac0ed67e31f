"""Motors that were learnt from logs of real ones."""
