"""Ops that move elements: shapes, ranges, padding, gathers and scatters."""
