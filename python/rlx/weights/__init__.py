"""Weights: lazy, immutable tensors with an encoding, from files of any format.

`open` returns a mapping of names to `Weight`s. It reads only the headers of the files. `formats.py` has a table of the
formats, and each format has its own file. The `Encoding` of a tensor defines how its elements are stored.
"""

from __future__ import annotations

from rlx.schemes import SCHEMES as schemes
from rlx.weights.encoding import Encoding, PackedBlocks, PermutedBlocks, Plain, Unreadable, Untyped
from rlx.weights.formats import open, open_parameters
from rlx.weights.gguf_writer import save_gguf
from rlx.weights.weight import Weight, Weights

__all__ = [
    "Encoding",
    "PackedBlocks",
    "PermutedBlocks",
    "Plain",
    "Unreadable",
    "Untyped",
    "Weight",
    "Weights",
    "open",
    "open_parameters",
    "save_gguf",
    "schemes",
]
