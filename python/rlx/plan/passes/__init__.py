"""Passes for memory: scheduling, and plans that are stored in a module."""
