"""Packed formats of weights: blocks of elements with their scales, as data.

A `Scheme` describes one format. Its decoder is written over `Blocks`, and so is the meaning (on NumPy arrays) and the
lowering (on tensors of a graph) of packed weights.
"""

from __future__ import annotations

from rlx.schemes.registry import SCHEMES, find_scheme
from rlx.schemes.scheme import Scheme

__all__ = ["SCHEMES", "Scheme", "find_scheme"]
