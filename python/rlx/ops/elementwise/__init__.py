"""Elementwise ops, compositions of them, and leaf ops: constants and positions."""
