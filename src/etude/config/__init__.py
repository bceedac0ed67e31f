"""Config: a typed schema, and every way to fill it in."""
