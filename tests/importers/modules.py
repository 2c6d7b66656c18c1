"""Shared helpers for tests of importers."""

from __future__ import annotations

import numpy as np

import rlx

# For an element type: its name in StableHLO, its family and its bits. It promotes to types of its family with at least
# its bits.
ELEMENTS = {
    **{n: (n, "float", 64) for n in ("f16", "bf16", "f32", "f64")},  # any float promotes to any other
    **{n: (n.replace("u", "ui"), "integer", int(n[1:])) for n in ("i8", "i16", "i32", "i64", "u8", "u32")},
    "bool": ("i1", "integer", 1),
    "c64": ("complex<f32>", "complex", 64),
}


def values(graph: rlx.Graph, *arrays: np.ndarray) -> list[np.ndarray]:
    return rlx.evaluate(graph, {a.name: array for a, array in zip(graph.inputs, arrays, strict=True)})
