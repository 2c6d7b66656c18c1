"""Passes about memory: the order of ops, and plans that a module carries."""
