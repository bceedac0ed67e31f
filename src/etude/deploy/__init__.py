"""Policies that leave the lab: files that run without Etude, and what their numbers mean."""
