"""What algorithms are made of: networks, distributions, returns, normalisers, optimisers."""
