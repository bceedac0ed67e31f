"""A server of the Model Context Protocol: a language model reads runs, and starts and stops them where the user allows it."""
