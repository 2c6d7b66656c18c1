"""Reductions, running reductions, and order."""
