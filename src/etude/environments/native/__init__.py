"""Tasks that step many copies in one call."""
