"""Scenarios with a whole server: a soak, and workers killed under load."""
