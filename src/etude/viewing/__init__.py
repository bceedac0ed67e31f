"""A robot to look at from all sides while it moves: in MuJoCo's own viewer, or in a browser."""
