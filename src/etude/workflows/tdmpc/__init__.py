"""TD-MPC2: its settings, what it imagines and how it acts, and how it learns."""
