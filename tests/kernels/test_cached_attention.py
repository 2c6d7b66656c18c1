"""Attention to a cache: an entry of a batch has the bits that it has alone, whatever its pages, at each CPU level."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.graph.graph import Graph
from tests.conformance.compiled import compile_graphs
from tests.conformance.levels import at_any_level, skip_if_not_run

_HEADS, _KV_HEADS, _LANES, _LENGTH, _TABLE, _POOL = 4, 2, 64, 64, 3, 7


def _graph(kind: str, batch: int, queries: int) -> Graph:
    g: Any = Graph("attention")
    width = _KV_HEADS * _LANES
    scheme = kind if kind == "q8_0" else None
    dims = (_POOL, _LENGTH, width if scheme is None else width // 32 * 34)
    q = g.input("q", (batch, queries, _HEADS * _LANES))
    k, v = (g.input(name, dims, kind if scheme is None else "u8") for name in "kv")
    start, pages = g.input("start", (batch,), "i32"), g.input("pages", (batch, _TABLE), "i32")
    sizes: dict[str, Any] = {"num_heads": _HEADS, "head_dim": _LANES, "scheme": scheme}
    g.set_outputs({"y": g.cached_attention(q, k, v, start, pages, **sizes)})
    return g


@at_any_level()
@pytest.mark.parametrize("kind", ["f16", "q8_0"])
def test_an_entry_of_a_batch_has_the_bits_that_it_has_alone(seed: int, kind: str, level: str) -> None:
    """The second half of the pool has the pages of the first one in another order."""
    rng = np.random.default_rng(seed)
    graphs = [_graph(kind, batch, queries) for queries in (1, 5) for batch in (3, 1)]
    programs = compile_graphs(graphs, level=level, kernels="all")
    skip_if_not_run(level, programs)
    rows = rng.standard_normal((2, 3, _LENGTH, _KV_HEADS * _LANES)).astype(np.float32)
    order = [2, 0, 1]
    k, v = (np.concatenate([half, half[order], half[:1]]) for half in rows)
    encode = rlx.weights.schemes["q8_0"].encode
    assert encode is not None
    k, v = (encode(x) if kind == "q8_0" else x.astype(np.float16) for x in (k, v))
    tables = np.array([[0, 1, 2], [4, 5, 3], [1, 6, 2]], np.int32)  # the first two are equal rows
    for several, alone, queries in ((programs[0], programs[1], 1), (programs[2], programs[3], 5)):
        q = rng.standard_normal((3, queries, _HEADS * _LANES)).astype(np.float32)
        start = np.array([130, 70, 0], np.int32)
        (whole,) = several.run([q, k, v, start, tables])
        for i in range(3):
            (own,) = alone.run([q[i : i + 1], k, v, start[i : i + 1], tables[i : i + 1]])
            np.testing.assert_array_equal(own[0], whole[i])
        (moved,) = alone.run([q[:1], k, v, start[:1], tables[1:2]])
        np.testing.assert_array_equal(moved[0], whole[0])
        decoded = [rlx.weights.schemes["q8_0"].decode(x) if kind == "q8_0" else x.astype(np.float32) for x in (k, v)]
        expected = _attention(q, start, *(x[tables].reshape(3, -1, _KV_HEADS, _LANES) for x in decoded))
        np.testing.assert_allclose(whole, expected, rtol=1e-4, atol=1e-5)


def _attention(q: np.ndarray, start: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return attention in f64, of keys and values `[B, T, Hkv, D]`."""
    batch, queries = q.shape[:2]
    heads = q.reshape(batch, queries, _KV_HEADS, -1, _LANES).astype(np.float64)
    scores = np.einsum("bshgd,bthd->bhgst", heads, k.astype(np.float64)) * _LANES**-0.5
    own = start[:, None] + np.arange(queries)
    is_seen = np.arange(k.shape[1]) <= own[..., None]
    weights = np.exp(np.where(is_seen[:, None, None], scores, -np.inf))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("bhgst,bthd->bshgd", weights, v.astype(np.float64)).reshape(q.shape)
