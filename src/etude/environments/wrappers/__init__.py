"""Wrappers: what stands between a task and its learner, chosen in `environment.wrappers`."""
