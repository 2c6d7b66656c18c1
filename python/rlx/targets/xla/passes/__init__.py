"""Passes of the XLA back end."""
