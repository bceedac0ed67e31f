"""Attacks on Etude's reliability: runs killed, bytes flipped, files replaced. `python -m tools.attack --help`."""
