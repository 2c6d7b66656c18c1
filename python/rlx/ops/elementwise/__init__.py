"""Elementwise ops, what they are made of, and leaves: constants and positions."""
