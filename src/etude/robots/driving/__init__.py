"""A robot on the screen and under the keys."""
