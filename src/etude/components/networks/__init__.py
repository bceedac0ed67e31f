"""Networks that a config chooses by name."""
