"""Compiled programs as data and as files: artifacts, archives, entry points, signatures and parameters."""
