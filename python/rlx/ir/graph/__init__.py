"""Graphs under construction, and their evaluation."""
