"""World Models: its settings, how it acts, and how it learns."""
