"""Processes that collect beside the learner."""
