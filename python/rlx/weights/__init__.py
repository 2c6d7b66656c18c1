"""Weights: lazy, immutable tensors with an encoding, whatever file they come from.

`open` gives a mapping of names to `Weight`s, of which nothing but the headers has been read. The formats are in a table
(`formats.py`), each in a file of its own; how the elements of a tensor are stored is its `Encoding`'s business.
"""

from __future__ import annotations

from rlx.weights.encoding import Encoding, Plain, Unreadable
from rlx.weights.formats import open, opened
from rlx.weights.weight import Weight, Weights

__all__ = ["Encoding", "Plain", "Unreadable", "Weight", "Weights", "open", "opened"]
