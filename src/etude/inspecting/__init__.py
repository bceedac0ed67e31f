"""Looking into a run step by step: episodes recorded with all that the algorithm says of them, and other futures."""
