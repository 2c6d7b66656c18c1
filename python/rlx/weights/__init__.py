"""Weights: lazy, immutable tensors with an encoding, from files of any format.

`open` gives a mapping of names to `Weight`s, of which only the headers have been read. The formats are in a table
(`formats.py`), and each has its own file; the `Encoding` of a tensor knows how its elements are stored.
"""

from __future__ import annotations

from rlx.weights.encoding import Encoding, Plain, Unreadable, Untyped
from rlx.weights.formats import open, opened
from rlx.weights.weight import Weight, Weights

__all__ = ["Encoding", "Plain", "Unreadable", "Untyped", "Weight", "Weights", "open", "opened"]
