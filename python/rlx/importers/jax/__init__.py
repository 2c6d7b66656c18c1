"""Functions of JAX as graphs, by way of StableHLO."""

from __future__ import annotations

from rlx.importers.jax.function import from_jax

__all__ = ["from_jax"]
