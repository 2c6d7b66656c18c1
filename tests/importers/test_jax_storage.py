"""`rlx.from_jax` of storage-dtype functions at every bit pattern: equal to JAX, or to JAX in f32, rounded once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rlx
from rlx.ir.dtype import DTYPES, DType
from tests.conformance.compiled import compile_graphs
from tests.conformance.levels import at_any_level, skip_if_not_run
from tests.drawing import drawn
from tests.importers.modules import values

Functions = dict[str, Callable[[Any, Any], Any]]
STORED = [d for d in DTYPES if d.storage]
FLOATS = [d for d in STORED if d.is_float]
INTEGERS = [d for d in STORED if d.is_integer]
ROWS = 4


def patterns(kind: DType) -> tuple[np.ndarray, np.ndarray]:
    """Return every bit pattern, and a permutation of them, in rows. The smallest f8e8m0fnu is one that XLA flushes to 0."""
    codes = np.arange(1 << kind.bits, dtype=np.uint8)
    codes = codes if kind.name != "f8e8m0fnu" else np.append(codes[2:], codes[126:128])
    rng = np.random.default_rng(4)
    a, b = (rng.permutation(np.resize(codes, max(16, codes.size))).view(kind.numpy) for _ in range(2))
    return a.reshape(ROWS, -1), b.reshape(ROWS, -1)


def of(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, y: function(x)


def one(x: Any) -> Any:
    return jnp.ones((), x.dtype)


# Results that are operands, booleans, or exact: none is rounded twice.
EXACT: Functions = {
    "sign": of(lax.sign),
    "where": lambda x, y: lax.select(x < y, x, y),
    "order": lambda x, y: [lax.max(x, y), lax.min(x, y), x == y, x != y, x <= y, x > y],
    "clamp": lambda x, y: [
        lax.clamp(lax.min(x, y), y[::-1], lax.max(x, y)),
        lax.clamp(one(x), x, one(x) + one(x)),
    ],
    "pad": lambda x, y: [
        lax.pad(x, one(x), ((1, 2, 0), (0, 1, 0))),
        lax.pad(x, one(x), ((1, 2, 1), (-1, 1, 2))),
        lax.pad(x, y[0, 0], ((1, 2, 1), (-1, 1, 2))),
    ],
    "running": lambda x, y: [lax.cummax(x, 1), lax.cummin(y, 0), lax.cummax(y, 0, reverse=True)],
    "windows": lambda x, y: [
        lax.reduce_window(x, x[0, 0], lax.max, (2, 2), (1, 2), "SAME"),
        lax.reduce_window(x, x[0, 1], lax.min, (2, 1), (1, 1), ((1, 0), (0, 0)), base_dilation=(2, 1)),
    ],
    "reductions": lambda x, y: [jnp.max(x, 1), jnp.min(x, 0), lax.argmax(x, 1, np.int32), lax.argmin(y, 0, np.int32)],
    "scatter": lambda x, y: [x.at[jnp.array([0, 2])].set(y[:2]), x.at[jnp.array([1, 1])].max(y[:2])],
    "loop": lambda x, y: lax.scan(lambda c, r: (lax.max(c, r), lax.min(c, r)), x[0], y),
    "powers": of(lambda x: [lax.integer_pow(x, n) for n in (0, 1)]),
}
OF_FLOATS: Functions = {
    "abs": of(lax.abs),
    "kinds": of(lambda x: [lax.is_finite(x), jnp.isinf(x), jnp.isnan(x), jnp.isposinf(x)]),
    "rounding": of(
        lambda x: [lax.round(x), lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN), lax.floor(x), lax.ceil(x)]
    ),
    "neighbours": lambda x, y: lax.nextafter(x, y) if x.dtype.itemsize == 1 else x,
}
OF_INTEGERS: Functions = {
    "zeros": of(lax.clz),
    "shifts": lambda x, y: [lax.shift_right_logical(x, y), lax.shift_left(x, y), lax.shift_right_arithmetic(x, y)],
    "not": of(lax.bitwise_not),
    "division": lambda x, y: [lax.div(x, y | 1), lax.rem(x, y | 1)],
    "arithmetic": lambda x, y: [x + y, x - y, x * y, -x],
}
# Rounded results. JAX computes them in f16 or step by step. The reference is JAX in f32, rounded once.
ROUNDED: Functions = {
    name: of(getattr(lax, name))
    for name in (
        *(
            "exp",
            "expm1",
            "log",
            "log1p",
            "sin",
            "cos",
            "tan",
            "tanh",
            "sqrt",
            "rsqrt",
            "cbrt",
            "logistic",
            "erf",
            "erf_inv",
        ),
        *("digamma", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh", "bessel_i0e", "reciprocal"),
    )
} | {name: getattr(lax, name) for name in ("add", "sub", "mul", "div", "rem", "pow", "atan2")}


def numbers(x: np.ndarray) -> np.ndarray:
    """Return values as f64, because NumPy does not recognise NaN in all dtypes."""
    with np.errstate(invalid="ignore"):
        return x.astype(np.float64)


def every(functions: Functions) -> Callable[[Any, Any], Any]:
    return lambda x, y: {name: function(x, y) for name, function in functions.items()}


def by_jax(functions: Functions, *arrays: np.ndarray) -> dict[str, list[np.ndarray]]:
    results = jax.jit(every(functions), compiler_options={"xla_allow_excess_precision": False})(*arrays)
    return {name: [np.asarray(r) for r in jax.tree.leaves(results[name])] for name in sorted(functions)}


# Functions that XLA's CPU client cannot compile for 2-bit integers, or that abort the process.
NOT_OF_TWO_BITS = ("pad", "scatter", "loop", "windows", "running", "clamp", "reductions")


def of_kind(kind: DType) -> Functions:
    functions = EXACT | (OF_FLOATS if kind.is_float else OF_INTEGERS)
    return {n: f for n, f in functions.items() if kind.bits > 2 or n not in NOT_OF_TWO_BITS}


@drawn("kind", STORED, of_each=2, ids=str)
def test_what_is_exact_is_what_jax_computes(kind: DType) -> None:
    functions, arrays = of_kind(kind), patterns(kind)
    found = iter(values(rlx.from_jax(every(functions), *arrays), *arrays))
    for name, results in by_jax(functions, *arrays).items():
        for wanted in results:
            got = next(found)
            assert got.dtype == wanted.dtype and got.shape == wanted.shape, name
            np.testing.assert_array_equal(numbers(got), numbers(wanted), err_msg=name)


@drawn("kind", FLOATS, of_each=2, ids=str)
def test_what_is_rounded_is_computed_in_f32(kind: DType) -> None:
    arrays = patterns(kind)
    found = iter(values(rlx.from_jax(every(ROUNDED), *arrays), *arrays))
    for name, (wide,) in by_jax(ROUNDED, *(a.astype(np.float32) for a in arrays)).items():
        got = next(found)
        assert got.dtype == kind.numpy, name
        # For values halfway between two numbers except for the last digit, either neighbour is correct.
        with np.errstate(all="ignore"):
            near = [wide * np.float32(1 + step) for step in (0, -4e-6, 4e-6)]
            allowed = [numbers(n.astype(kind.numpy)) for n in near]
        value = numbers(got)
        right = np.logical_or.reduce([(value == w) | (np.isnan(value) & np.isnan(w)) for w in allowed])
        if kind.name == "f4e2m1fn":  # the dtype has no NaN
            right |= np.isnan(wide)
        if kind.name == "f8e8m0fnu":  # XLA flushes subnormal f32 numbers
            right |= np.abs(wide) < 2.0**-126
        at = np.flatnonzero(~right)[:4]
        assert right.all(), (name, [(*(a.flat[i] for a in arrays), got.flat[i], wide.flat[i]) for i in at])


@at_any_level()
@drawn("kind", STORED, of_each=3, ids=str)
def test_compiled_functions_are_those_of_the_evaluator(kind: DType, level: str) -> None:
    arrays = patterns(kind)
    graph = rlx.from_jax(every(of_kind(kind)), *arrays)
    programs = compile_graphs([graph], level=level)
    assert programs[0].problem is None
    skip_if_not_run(level, programs)
    for got, wanted in zip(programs[0].run(list(arrays)), values(graph, *arrays), strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(numbers(got), numbers(wanted))


@pytest.mark.parametrize("name", [kind.name for kind in FLOATS if kind.bits == 8])
def test_reduced_precision_is_jaxs(name: str) -> None:
    """The test includes small numbers, which the format that JAX computes in may represent."""
    x = np.arange(256, dtype=np.uint8).view(rlx.dtype(name).numpy)
    formats = ((5, 2), (4, 3), (8, 7), (5, 1), (4, 2), (3, 1), (5, 10), (2, 1), (3, 4))

    def reduced(x: Any) -> Any:
        return [lax.reduce_precision(x, exponent, mantissa) for exponent, mantissa in formats]

    graph = rlx.from_jax(reduced, x)
    found = rlx.evaluate(graph, {graph.arguments[0].name: x})
    for got, wanted, layout in zip(found, jax.jit(reduced)(x), formats, strict=True):
        np.testing.assert_array_equal(
            got.astype(np.float64), np.asarray(wanted).astype(np.float64), err_msg=str(layout)
        )
