"""The training loop and what surrounds it: phases, counters, callbacks, evaluation."""
