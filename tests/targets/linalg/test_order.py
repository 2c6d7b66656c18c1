"""argmax, topk and cumulative sums, compiled for this machine."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from tests.targets.linalg.helpers import Case, assert_agrees, case, run

_FLOATS = (np.float32, np.float64, np.float16, ml_dtypes.bfloat16)
_INTEGERS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)
_RANDOM = np.random.default_rng(11)


def _special(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Ordinary numbers with ties, both zeros, infinities, NaN of both signs and subnormals."""
    x = _RANDOM.standard_normal(shape).astype(dtype)
    flat = x.reshape(-1)
    tiny = float(np.finfo(dtype).tiny) if dtype is not ml_dtypes.bfloat16 else 1e-38
    values = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, tiny / 4, -tiny / 4, tiny / 2, 1.0]
    for value in values:
        flat[_RANDOM.integers(0, flat.size, max(1, flat.size // 30))] = value
    return x


def _extreme(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Integers of the whole range. The least and the greatest are repeated."""
    limits = np.iinfo(dtype)
    x = _RANDOM.integers(limits.min, limits.max, shape, dtype=dtype, endpoint=True)
    x[..., ::7], x[..., ::11] = limits.min, limits.max
    return x


def _ties(shape: tuple[int, ...], count: int, dtype: type = np.float32) -> np.ndarray:
    return _RANDOM.integers(0, count, shape).astype(dtype)


def _check(cases: list[Case], tolerance: float = 0.0) -> None:
    for one, result in zip(cases, run(cases), strict=True):
        assert_agrees(one, result, tolerance)


def test_argmax():
    x = _special((4, 50), np.float32)
    cases = [case("argmax", x, axis=axis, keep_dims=axis == 0) for axis in (0, 1)]
    cases += [case("argmax", _special((3, 40), dtype), axis=1, keep_dims=False) for dtype in _FLOATS[1:]]
    cases += [case("argmax", _extreme((3, 40), dtype), axis=1, keep_dims=False) for dtype in _INTEGERS]
    cases += [
        case("argmax", _ties((4, 9), 2, np.bool_), axis=1, keep_dims=True),
        case("argmax", np.full((2, 9), -np.inf, np.float32), axis=1, keep_dims=False),
        case("argmax", np.full((2, 9), np.iinfo(np.int32).min, np.int32), axis=1, keep_dims=False),
        case("argmax", np.array([1.0, np.nan, np.inf, np.nan], np.float32), axis=0, keep_dims=False),
        case("argmax", np.array([0.0, 1e-40, -1.0], np.float32), axis=0, keep_dims=False),
        case("argmax", _ties((3, 5, 7), 4), axis=1, keep_dims=False, dims=[("a", "n", "b")]),
        case("argmax", _ties((1, 40000), 9), axis=1, keep_dims=False, dims=[(1, "n")]),
    ]
    _check(cases)


def test_topk_of_every_dtype():
    cases = [case("topk", _special((3, 40), dtype), k=7) for dtype in _FLOATS]
    cases += [case("topk", _extreme((2, 40), dtype), k=20) for dtype in _INTEGERS]
    _check(cases)


def test_topk_by_blocks():
    lowest = np.iinfo(np.int32).min
    cases = [
        case("topk", _special((2, 700), np.float32), k=9),
        case("topk", _extreme((2, 300), np.int64), k=20),
        case("topk", np.full((1, 300), lowest, np.int32), k=40),
        case("topk", _special((1, 150000), np.float32), k=50),
    ]
    _check(cases)


def test_topk_of_any_size():
    cases = [
        case("topk", _ties((2, 9), 4), k=0),
        case("topk", _ties((2, 90), 4), k=1),
        case("topk", _ties((2, 9), 4), k=9),
        case("topk", _ties((6,), 4), k=2),
        case("topk", _ties((0, 9), 4), k=2),
        case("topk", _ties((2, 3, 60), 50, np.int64), k=10, dims=[("b", "c", 60)]),
        case("topk", _ties((1, 2000), 2000), k=1500),
        *(case("topk", _ties((2, n), 9), k=5, dims=[(2, "n")]) for n in (5, 1000)),
    ]
    _check(cases)


def test_cumsum_of_any_size():
    cases = [
        case("cumsum", _RANDOM.standard_normal(shape).astype(np.float32), axis=axis, exclusive=exclusive)
        for shape, axis, exclusive in (
            ((2, 0), 1, False),
            ((2, 1), 1, True),
            ((2, 16), 1, False),
            ((2, 17), 1, True),
            ((2, 40000), 1, False),
            ((2, 33, 3), 1, True),
            ((2, 33, 3), 0, False),
        )
    ]
    # One dynamic function would serve all sizes, but each case is compiled separately.
    cases += [
        case("cumsum", _RANDOM.standard_normal((n, 3)).astype(np.float32), axis=0, exclusive=exclusive, dims=dims)
        for n, exclusive, dims in ((9, True, [("n", 3)]), (1000, False, [("n", "m")]))
    ]
    _check(cases, 2e-6)


def test_cumsum_of_every_dtype():
    x = _RANDOM.standard_normal((3, 50))
    cases = [case("cumsum", _extreme((3, 50), dtype), axis=1, exclusive=False) for dtype in _INTEGERS]
    cases += [case("cumsum", x.astype(dtype), axis=1, exclusive=False) for dtype in _FLOATS]
    for one, (result,) in zip(cases, run(cases), strict=True):
        if result.dtype.kind in "iu":
            assert_agrees(one, (result,))
            continue
        # f16 and bf16 are accumulated in f32 and rounded once.
        exact = np.cumsum(one.arrays[0].astype(np.longdouble), 1)
        unit = np.spacing(np.abs(exact).astype(result.dtype)).astype(np.float64)
        slack = 1e-14 if result.dtype == np.float64 else 5e-6  # the rounding error of sums of about 20 numbers
        assert np.all(np.abs(result.astype(np.float64) - exact) <= 0.51 * unit + slack), str(one)


def test_what_is_not_finite_stays_behind_in_running_sums():
    x = np.ones((2, 100), np.float32)
    x[0, 50], x[1, 60] = np.inf, np.nan
    _check([case("cumsum", x, axis=1, exclusive=True)])
