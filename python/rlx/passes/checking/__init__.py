"""Checking: result comparison across passes, bisection of rewrites, and test case reduction."""
