"""Graphs as functions of JAX, and functions of JAX in graphs.

A graph is one primitive of JAX (`primitive.py`), whose parameter is a program (`programs.py`). JAX asks the primitive for
derivatives and for batches; the answer is the same primitive with another program, made by RLX's own transforms.
"""

from __future__ import annotations

from rlx.runtime.jax.exported import JaxGraph, to_jax
from rlx.runtime.jax.function import JaxFunction, jax_function

__all__ = ["JaxFunction", "JaxGraph", "jax_function", "to_jax"]
