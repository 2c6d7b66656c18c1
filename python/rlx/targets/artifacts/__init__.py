"""Compiled programs as data and as files: artifacts, archives, bundles, signatures and parameters."""
