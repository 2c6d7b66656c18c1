"""Reductions, running reductions, and sorting."""
