"""Interoperation with JAX: graphs as functions of JAX, and functions of JAX in graphs.

A graph is one JAX primitive (`primitive.py`), whose parameter is a program (`programs.py`). For derivatives and
batches, the rules of the primitive return the same primitive with another program, created by RLX's transforms.
"""

from __future__ import annotations

from rlx.runtime.jax.exported import JaxGraph, to_jax
from rlx.runtime.jax.function import JaxFunction, jax_function

__all__ = ["JaxFunction", "JaxGraph", "jax_function", "to_jax"]
