"""Conversions at the limits of their ranges, reductions of non-finite numbers, and empty contractions."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from rlx.ir.dtype import dtype
from tests.targets.linalg.helpers import assert_agrees, case, run

_RANDOM = np.random.default_rng(17)
_EDGES = [0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -1.5, 127.9, 128, -128.9, -129, 255.9, 256, -0.9, 2.0**31]
_EDGES += [2.0**31 - 128, -(2.0**31), 2.0**32, 2.0**63, -(2.0**63), 2.0**63 - 2.0**40, 1e30, -1e30, 65504, 65519, 65520]


def _floats(kind: type) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.concatenate([_EDGES, _RANDOM.standard_normal(100) * np.exp2(_RANDOM.uniform(-20, 20, 100))]).astype(
            kind
        )


def test_floats_become_integers_toward_zero_and_saturate():
    targets = [dtype(name) for name in ("i8", "i16", "i32", "i64", "u8", "u32", "bool")]
    sources = [_floats(kind) for kind in (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)]
    cases = [case("cast", x, dtype=target) for target in targets for x in sources]
    for one, result in zip(cases, run(cases), strict=True):
        assert_agrees(one, result)


def test_f64_is_rounded_once_to_f16():
    steps = 1 + np.arange(1, 40, 2) * 2.0**-11  # midpoints of two f16
    x = np.concatenate([steps, steps + 2.0**-40, steps - 2.0**-40, -steps - 2.0**-40, [65519.999, 65520, 2.0**-25]])
    x = np.concatenate([x, [np.nextafter(2.0**-25, 1), 6e-8, 1e300, np.inf, -np.inf, np.nan]])
    one = case("cast", x, dtype=dtype("f16"))
    assert_agrees(one, run([one])[0])


def test_reductions_of_what_is_not_finite():
    x = _RANDOM.standard_normal((6, 500)).astype(np.float32)
    x[0, 3] = np.nan
    x[1, 5] = np.inf
    x[2, 1], x[2, 4] = np.inf, -np.inf
    x[3], x[4] = -np.inf, np.nan
    cases = [
        case("reduce", x.astype(kind), kind=name, axes=axes, keep_dims=False)
        for kind in (np.float32, np.float16)
        for name in ("sum", "max", "min")
        for axes in ((0,), (1,))
    ]
    cases += [case("softmax", x, axis=axis) for axis in (0, 1)]
    for one, result in zip(cases, run(cases), strict=True):
        assert_agrees(one, result, 2e-3 if result[0].dtype == np.float16 else 1e-5)


def test_sums_over_nothing_are_zero():
    def zeros(*shape: int) -> np.ndarray:
        return np.zeros(shape, np.float32)

    cases = [
        case("matmul", zeros(3, 0), zeros(0, 2)),
        case("matmul", zeros(0, 3), zeros(3, 2)),
        case("matmul", zeros(2, 3, 0), zeros(2, 0, 4)),
        case("matmul", zeros(3, 0), zeros(0, 2), dims=[("n", "k"), ("k", 2)]),
        case("matmul", zeros(3, 0).astype(np.complex64), zeros(0, 2).astype(np.complex64)),
        case("narrow", zeros(3, 5), axis=1, start=(5,), length=(0,)),
    ]
    for one, result in zip(cases, run(cases), strict=True):
        assert_agrees(one, result)
