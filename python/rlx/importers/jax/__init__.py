"""Import of JAX functions, through StableHLO."""

from __future__ import annotations

from rlx.importers.jax.function import from_jax

__all__ = ["from_jax"]
