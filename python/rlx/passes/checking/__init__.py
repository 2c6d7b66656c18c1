"""Checking: whether a pass keeps the results, which rewriting does not, and the least module that shows it."""
