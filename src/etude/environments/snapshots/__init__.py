"""An environment's state, saved and brought back without pickle."""
