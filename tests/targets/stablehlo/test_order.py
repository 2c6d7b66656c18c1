"""Sorting and top-k on XLA: ties, NaN, zeros and subnormals of every dtype, and sizes 0 and 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import REAL, dtype
from rlx.targets.compilation import Compilation
from rlx.targets.registry import target_of
from rlx.targets.xla import backend, client
from tests.targets.stablehlo.edge_values import assert_same_bits, edges, on_xla


def _ordered(g: rlx.Graph, x: Any, axis: int, k: int) -> dict[str, Any]:
    outputs: dict[str, Any] = {}
    for descending in (False, True):
        outputs[f"argsort {descending}"] = g.argsort(x, axis=axis, descending=descending)
        outputs[f"sort {descending}"] = g.sort(x, axis=axis, descending=descending)
    if axis == x.rank - 1 and not x.dtype.is_bool:
        outputs["values"], outputs["indices"] = g.topk(x, k)
        outputs["all values"], outputs["all indices"] = g.topk(x, x.shape[-1])
    return outputs


@pytest.mark.parametrize("kind", [*REAL, "bool"])
def test_orders_of_every_dtype(kind: str) -> None:
    arrays = {"x": edges(dtype(kind), (3, 60)), "y": edges(dtype(kind), (50,), 1), "z": edges(dtype(kind), (2, 3, 50))}

    def build(g: rlx.Graph, x: Any, y: Any, z: Any) -> dict[str, Any]:
        cases = [("x", x, 1), ("x of columns", x, 0), ("y", y, 0), ("z", z, 2), ("z of planes", z, 0)]
        return {f"{n}: {m}": v for n, t, axis in cases for m, v in _ordered(g, t, axis, 3).items()}

    for name, result, expected in on_xla(build, arrays, every_form=kind in ("f32", "bf16", "u32", "i64")):
        assert_same_bits(result, expected, f"{kind} {name}")


@pytest.mark.parametrize("shape", [(0,), (1,), (2, 0), (0, 3), (2, 1), (1, 1, 1)], ids=str)
def test_orders_of_few_elements(shape: tuple[int, ...]) -> None:
    k = min(shape[-1], 1)
    for kind in ("f32", "i64", "u8", "bf16"):
        found = on_xla(lambda g, x: _ordered(g, x, len(shape) - 1, k), {"x": edges(dtype(kind), shape)})
        for name, result, expected in found:
            assert_same_bits(result, expected, f"{kind} {name}")


def test_equal_elements_stay_in_order_in_long_axes() -> None:
    x = np.random.default_rng(0).integers(0, 3, (2, 20_000)).astype(np.float32)
    x[:, ::5] = np.nan
    for name, result, expected in on_xla(lambda g, x: _ordered(g, x, 1, 9000), {"x": x}):
        assert_same_bits(result, expected, name)


@pytest.mark.parametrize("kind", ["f32", "bf16", "i32", "u32", "i8"])
def test_topk_is_a_selection(kind: str) -> None:
    """XLA's CPU client recognises the sort of top-k, of any rank and of all dtypes of at most 32 bits."""
    g = rlx.Graph("top")
    g.set_outputs(list(g.topk(g.input("x", (2, 3, 1000), kind), 5)))
    text = client.XlaExecutable(backend.portable(Compilation(g, target_of("xla")))).text
    assert 'custom_call_target="TopK"' in text and " sort(" not in text
