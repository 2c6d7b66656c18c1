"""Requantisation by fixed-point multipliers, against TensorFlow Lite's arithmetic on Python integers."""

from __future__ import annotations

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ops.quantization.requantize import BITS, fixed_point

LEAST, MOST = -(2**31), 2**31 - 1
EDGES = [0, 1, -1, 2, -2, 3, -3, 127, -128, 2**15, -(2**15), 2**30, -(2**30), 2**30 + 1, MOST, LEAST, LEAST + 1]
MULTIPLIERS = [0, 1, 2**14, 2**15 - 1, 2**30, 2**30 + 1, 1518500250, MOST]
SHIFTS = [-40, -31, -30, -15, -8, -2, -1, 0, 1, 2, 14, 15, 30, 40]


def _wrapped(value: int, bits: int) -> int:
    return (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))


def _doubling_high_multiply(a: int, b: int) -> int:
    """`SaturatingRoundingDoublingHighMul` of gemmlowp: the nudge has the sign of the product, and the quotient is truncated."""
    if a == b == LEAST:
        return MOST
    nudge = 2**30 if a * b >= 0 else 1 - 2**30
    total = a * b + nudge
    return abs(total) // 2**31 * (1 if total >= 0 else -1)


def _divided_by_power(x: int, exponent: int) -> int:
    """`RoundingDivideByPOT` of gemmlowp."""
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (x < 0)
    return (x >> exponent) + ((x & mask) > threshold)


def _expected(x: int, multiplier: int, shift: int, mode: str) -> int:
    """`MultiplyByQuantizedMultiplier` of TensorFlow Lite, in its three forms."""
    shift = max(-31, min(shift, BITS[mode] - 1))
    if mode == "double":
        left = _wrapped(x << max(shift, 0), 32)
        return _divided_by_power(_doubling_high_multiply(left, multiplier), max(-shift, 0))
    right = BITS[mode] - shift
    factor = multiplier if mode == "single" else _wrapped(multiplier, 16)
    return (x * factor + (1 << (right - 1))) >> right


def _cases(mode: str, seed: int) -> tuple[np.ndarray, ...]:
    edges = list(itertools.product(EDGES, MULTIPLIERS, SHIFTS))
    rng = np.random.default_rng(seed)
    bits = BITS[mode]
    drawn = [rng.integers(LEAST, MOST, 4000), rng.integers(2 ** (bits - 1), 2**bits, 4000), rng.integers(-31, 8, 4000)]
    drawn[0] >>= rng.integers(0, 31, 4000)
    # Halves of either sign, which have their own rounding rule.
    halves = [(odd << k, 2 ** (bits - 1), -k) for odd in (-5, -3, -1, 1, 3, 5) for k in range(1, 25)]
    every = [*edges, *zip(*drawn, strict=True), *halves]
    return tuple(np.array(column, np.int64).astype(np.int32) for column in zip(*every, strict=True))


@pytest.mark.parametrize("mode", BITS)
@pytest.mark.parametrize("device", ["evaluator", "cpu", "xla"])
def test_each_mode_is_that_of_tensorflow_lite(device: str, mode: str) -> None:
    x, multiplier, shift = _cases(mode, 3)
    kinds = [("i8", -3), ("u8", 200), ("i16", 7), ("i32", 0)]
    g: Any = rlx.Graph("requantize")
    tensors = [g.input(name, v.shape, "i32") for name, v in (("x", x), ("m", multiplier), ("s", shift))]
    g.set_outputs([g.requantize(*tensors, zero_point=zero, mode=mode, dtype=kind) for kind, zero in kinds])
    values = {"x": x, "m": multiplier, "s": shift}
    results = rlx.evaluate(g, values) if device == "evaluator" else rlx.Session(device).compile(g).run(values)
    scaled = [_expected(int(a), int(m), int(s), mode) for a, m, s in zip(x, multiplier, shift, strict=True)]
    for result, (kind, zero) in zip(results, kinds, strict=True):
        least, most = int(rlx.dtype(kind).min), int(rlx.dtype(kind).max)
        expected = [max(least, min(value + zero, most)) for value in scaled]
        np.testing.assert_array_equal(result, np.array(expected, rlx.dtype(kind).numpy), err_msg=f"{mode} {kind}")


@pytest.mark.parametrize("mode", BITS)
def test_fixed_point_numbers_are_near_the_real_ones(mode: str) -> None:
    bits = BITS[mode]
    rng = np.random.default_rng(0)
    scales = np.array(
        [
            *2.0 ** rng.uniform(-28, 10, 500),
            1.0,
            0.5,
            1 - 2.0**-40,
            2.0**-31,
            3e-12,
            0.0,
            2.0 ** (bits - 1) - 1,
            np.nextafter(2.0 ** (bits - 1), 0),
        ]
    )
    multiplier, shift = fixed_point(scales, mode)
    for scale, m, s in zip(scales, multiplier.tolist(), shift.tolist(), strict=True):
        assert m == 0 or (2 ** (bits - 1) <= m < 2**bits and -31 <= s < bits), (scale, m, s)
        error = abs(Fraction(m) * Fraction(2) ** (s - bits) - Fraction(scale))
        assert error <= max(Fraction(scale) * Fraction(1, 2 ** (bits - 1)), Fraction(1, 2**32)), scale


def test_rescale_takes_real_numbers_for_each_channel() -> None:
    g: Any = rlx.Graph("rescale")
    x = g.input("x", (5, 3), "i32")
    scales = np.array([0.1, 0.003, 1.7])
    g.set_outputs([g.rescale(x, scales, zero_point=4), g.rescale(x, 0.25, mode="short", dtype="u8")])
    values = np.random.default_rng(1).integers(-3000, 3000, (5, 3)).astype(np.int32)
    by_channel, by_one = rlx.evaluate(g, {"x": values})
    np.testing.assert_array_equal(by_channel, np.clip(np.round(values * scales) + 4, -128, 127))
    np.testing.assert_array_equal(by_one, np.clip(np.floor(values * 0.25 + 0.5), 0, 255))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda g, x: g.rescale(x, -0.5), r"scales must lie in \[0, 2\^30\), got -0.5"),
        (lambda g, x: g.rescale(x, float("nan")), "scales must lie in"),
        (lambda g, x: g.rescale(x, 2.0**14, mode="short"), r"\[0, 2\^14\)"),
        (lambda g, x: g.rescale(x, 0.5, mode="triple"), "mode must be one of double, single, short, got 'triple'"),
        (lambda g, x: g.requantize(x, 1.5, 0), "'multiplier' must be integers, got 1.5"),
        (lambda g, x: g.requantize(x, 2**31, 0), "does not fit i32"),
        (lambda g, x: g.requantize(x, 1, 0, zero_point=200), "zero_point = 200 is outside i8: -128 to 127"),
        (lambda g, x: g.requantize(x, 1, 0, dtype="f32"), "dtype must be one of i8, u8, i16, i32, got f32"),
        (lambda g, x: g.requantize(g.cast(x, "f32"), 1, 0), "operand 'x' is f32; expected one of i32"),
        (lambda g, x: g.requantize(x, [1, 2], 0), "do not broadcast"),
    ],
)
def test_what_is_refused(call: Any, message: str) -> None:
    g: Any = rlx.Graph("refused")
    with pytest.raises(rlx.ShapeError, match=message):
        call(g, g.input("x", (3, 5), "i32"))
