"""Precision policies by name, as in `precision=`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from tests.passes.test_precision import dtypes_of, signature


def _model() -> rlx.Graph:
    g = rlx.Graph("model")
    x, table = g.input("x", (4, 8)), g.input("table", (9,), "i32")
    h = g.softmax(g.gelu(g.matmul(x, g.param("w", (8, 9)))))
    g.set_outputs({"y": h, "n": table + 1, "c": g.gt(h, 0.5)})
    return g


_POLICIES: list[tuple[Any, dict[str, str]]] = [
    (None, {"matmul": "f32", "gelu": "f32", "softmax": "f32"}),
    ("f32", {"matmul": "f32", "gelu": "f32", "softmax": "f32"}),
    ("always_f32", {"matmul": "f32", "gelu": "f32", "softmax": "f32"}),
    ("always_f16", {"matmul": "f16", "gelu": "f16", "softmax": "f16"}),
    ("auto_mixed_conservative", {"matmul": "f16", "softmax": "f32"}),
    ("auto_mixed", {"matmul": "f16", "softmax": "f16"}),
    ("auto_mixed_bf16", {"matmul": "bf16", "softmax": "bf16"}),
    ({"matmul": "bf16"}, {"matmul": "bf16", "gelu": "f32", "softmax": "f32"}),
    ({"matmul": "f16", "gelu": rlx.bf16, "softmax": "f32"}, {"matmul": "f16", "gelu": "bf16", "softmax": "f32"}),
]


@pytest.mark.parametrize(("precision", "expected"), _POLICIES, ids=str)
def test_policies_by_name(precision: Any, expected: dict[str, str]) -> None:
    """Each policy gives the expected dtypes. Integers, bool and the boundary are unchanged, and results are near."""
    graph = _model()
    result = rlx.Pipeline(precision=precision, policy="fusable", opt=0).compile(graph).mir
    assert {name: dtypes_of(result, name)[0] for name in expected} == expected
    assert signature(result) == signature(graph)
    random = np.random.default_rng(0)
    values: dict[str, Any] = {
        a.name: random.standard_normal(a.shape.static).astype(np.float32) for a in graph.arguments
    }
    values["table"] = np.arange(9, dtype=np.int32)
    wanted, got = rlx.evaluate(graph, values), rlx.evaluate(result, values)
    np.testing.assert_allclose(got[0], wanted[0], atol=0.02)
    np.testing.assert_array_equal(got[1], wanted[1])


def test_no_such_policy() -> None:
    for precision, message in (
        ("mixed", "precision must be one of f32, f16"),
        (rlx.f64, "precision must be one of"),
        ({"matmull": "f16"}, "no op or kind 'matmull'.*'matmul'"),
        ({"matmul": "i8"}, "maps names of ops to f32, f16 or bf16"),
        ({3: "f16"}, "maps names of ops"),
    ):
        with pytest.raises(rlx.Error, match=message):
            rlx.Session().compile(_model(), precision=precision, cache=False)
    for options in ("policy=custom", "lower=matmul"):
        with pytest.raises(rlx.Error, match="custom"):
            rlx.passes.run(_model(), f"rlx-precision{{{options}}}")
