"""Rounding, signs, remainders, bits and classification: the evaluator against NumPy, compilers against the evaluator."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from rlx.support.errors import Error
from tests.drawing import drawn, shares
from tests.ops.references import FLOATS, INTEGERS, same_bits
from tests.ops.references import run as one_op

_FEW = np.array([0, 1, -1, 2, -2, 3, -3, 5, -5, 7, 8, 13, 31, 32, 33, 63, 64, 65, 100, -100])
_FLOATS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.5, 2.5, -2.5, 3.0, 0.1, -0.3, 1e3, 7.25, 1e-3, np.inf, -np.inf, np.nan, 4e4]


def numbers(name: str) -> np.ndarray:
    """Return small numbers, and numbers at the ends of the range."""
    kind = rlx.dtype(name)
    if kind.is_bool:
        return np.array([False, True])
    if kind.is_float:
        limits = [float(kind.max), -float(kind.max), 1.0 / kind.eps, -1.0 / kind.eps + 0.5, float(kind.eps)]
        return np.array(_FLOATS + limits).astype(kind.numpy)
    low, high = int(kind.min), int(kind.max)
    near = {min(max(int(n), low), high) for n in (*_FEW, low, low + 1, high, high - 1)}
    return np.array(sorted(near), object).astype(kind.numpy)


def pairs(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return every number paired with every other."""
    x = numbers(name)
    a, b = np.meshgrid(x, x, indexing="ij")
    return a.ravel(), b.ravel()


def graph_of(calls: dict[str, Callable[..., Any]], *arrays: np.ndarray) -> tuple[rlx.Graph, dict[str, np.ndarray]]:
    g = rlx.Graph("numbers")
    inputs = {f"x{i}": a for i, a in enumerate(arrays)}
    tensors = [g.input(name, a.shape, a.dtype) for name, a in inputs.items()]
    g.set_outputs({name: call(g, *tensors) for name, call in calls.items()})
    return g, inputs


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compute f16 and bf16 in f64, rounded once."""

    def evaluated(*arrays: np.ndarray) -> np.ndarray:
        kind = arrays[0].dtype
        result = function(*(a.astype(np.float64) for a in arrays)) if rlx.dtype(kind).is_float else function(*arrays)
        return np.asarray(result).astype(kind)

    return evaluated


def _bits_of(x: np.ndarray) -> np.ndarray:
    return x.view(f"u{x.itemsize}")


# --- functions of one number ------------------------------------------------------------------------

_OF_ONE: dict[str, tuple[tuple[str, ...], Callable[[Any], Any]]] = {
    "floor": ((*FLOATS, *INTEGERS), _wide(np.floor)),
    "ceil": ((*FLOATS, *INTEGERS), _wide(np.ceil)),
    "trunc": ((*FLOATS, *INTEGERS), _wide(np.trunc)),
    "rint": ((*FLOATS, *INTEGERS), lambda x: x if x.dtype.kind in "iu" else _wide(np.rint)(x)),
    "sign": ((*FLOATS, *INTEGERS), lambda x: np.where(x > 0, 1, np.where(x < 0, -1, x)).astype(x.dtype)),
    "signbit": (
        (*FLOATS, *INTEGERS),
        lambda x: np.where(x == x, np.signbit(x.astype(np.float64)), False) if x.dtype.kind not in "iu" else x < 0,
    ),
    "square": (("f32", "f64", *INTEGERS), np.square),
    "isnan": ((*FLOATS, *INTEGERS, "bool"), lambda x: x != x),
    "isinf": ((*FLOATS, *INTEGERS, "bool"), lambda x: np.isinf(x.astype(np.float64))),
    "isfinite": ((*FLOATS, *INTEGERS, "bool"), lambda x: np.isfinite(x.astype(np.float64))),
    "nan_to_num": (("f32", "f64", *INTEGERS), np.nan_to_num),
    "popcount": (INTEGERS, lambda x: np.bitwise_count(_bits_of(x)).astype(x.dtype)),
    "bitwise_not": ((*INTEGERS, "bool"), np.bitwise_not),
    "logical_not": ((*FLOATS, *INTEGERS, "bool"), lambda x: x == 0),
}
_CASES = [(name, kind) for name, (kinds, _) in _OF_ONE.items() for kind in kinds]


@pytest.mark.parametrize(("name", "kind"), _CASES)
def test_of_one_number(name: str, kind: str) -> None:
    x = numbers(kind)
    g, inputs = graph_of({"y": lambda g, t: getattr(g, name)(t)}, x)
    with np.errstate(all="ignore"):
        same_bits(rlx.evaluate(g, inputs)[0], _OF_ONE[name][1](x))


# --- functions of two numbers -----------------------------------------------------------------------


def _integers(function: Callable[[Any, Any], Any], by_zero: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return NumPy's function, with another result where NumPy returns 0 and a warning."""

    def evaluated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a.dtype.kind not in "iu":
            return _wide(function)(a, b)
        return np.where(b == 0, by_zero(a), function(a, np.where(b == 0, 1, b).astype(b.dtype))).astype(a.dtype)

    return evaluated


def _shifted(function: Callable[[int, int], int]) -> Callable[..., Any]:
    """Apply a function to Python integers and truncate the result."""

    def evaluated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        bits = 8 * a.itemsize
        found = [function(int(x), int(n) if 0 <= n < bits else bits) for x, n in zip(a, b, strict=True)]
        return np.array([x % 2**bits for x in found], f"u{a.itemsize}").view(a.dtype)

    return evaluated


_ONES = {"i": -1, "u": -1}
_OF_TWO: dict[str, tuple[tuple[str, ...], Callable[[Any, Any], Any]]] = {
    "fmod": ((*FLOATS, *INTEGERS), _integers(np.fmod, lambda a: a)),
    "remainder": ((*FLOATS, *INTEGERS), _integers(np.remainder, lambda a: a)),
    "floor_divide": (INTEGERS, _integers(np.floor_divide, lambda a: ~np.zeros_like(a))),
    "bitwise_and": ((*INTEGERS, "bool"), np.bitwise_and),
    "bitwise_or": ((*INTEGERS, "bool"), np.bitwise_or),
    "bitwise_xor": ((*INTEGERS, "bool"), np.bitwise_xor),
    "logical_and": ((*FLOATS, *INTEGERS, "bool"), lambda a, b: (a != 0) & (b != 0)),
    "logical_or": ((*FLOATS, *INTEGERS, "bool"), lambda a, b: (a != 0) | (b != 0)),
    "logical_xor": ((*FLOATS, *INTEGERS, "bool"), lambda a, b: (a != 0) ^ (b != 0)),
    "left_shift": (INTEGERS, _shifted(lambda x, n: x << n)),
    "right_shift": (INTEGERS, _shifted(lambda x, n: x >> n)),
    "copysign": (FLOATS, lambda a, b: _with_sign(a, b)),
    # NumPy returns the first of two f16 zeros.
    "nextafter": (FLOATS, lambda a, b: np.where(a == b, b, np.nextafter(a, b))),
    "clip": (("f32", "f64", *INTEGERS), np.maximum),
}
_PAIRS = [(name, kind) for name, (kinds, _) in _OF_TWO.items() for kind in kinds]


def _with_sign(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    negative = np.signbit(b.astype(np.float64)) & (b == b)
    return np.where(negative, -np.abs(a), np.abs(a))


@pytest.mark.parametrize(("name", "kind"), _PAIRS)
def test_of_two_numbers(name: str, kind: str) -> None:
    a, b = pairs(kind)
    g, inputs = graph_of({"y": lambda g, x, y: getattr(g, name)(x, y)}, a, b)
    with np.errstate(all="ignore"):
        same_bits(rlx.evaluate(g, inputs)[0], _OF_TWO[name][1](a, b))


@pytest.mark.parametrize("kind", INTEGERS)
def test_logical_shifts(kind: str) -> None:
    a, b = pairs(kind)
    g, inputs = graph_of({"y": lambda g, x, y: g.shift_right_logical(x, y)}, a, b)
    unsigned = _shifted(lambda x, n: x >> n)(_bits_of(a), b.astype(object)).view(a.dtype)
    same_bits(rlx.evaluate(g, inputs)[0], unsigned)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_floor_divide_of_floats(kind: str) -> None:
    """The result is NumPy's, and its quotient is an integer; `divmod` returns both."""
    a, b = pairs(kind)
    g, inputs = graph_of({"y": lambda g, x, y: g.divmod(x, y)[0], "r": lambda g, x, y: g.divmod(x, y)[1]}, a, b)
    quotient, rest = rlx.evaluate(g, inputs)
    with np.errstate(all="ignore"):
        same_bits(rest, np.remainder(a, b))
        expected = np.floor_divide(a, b)
    # Where NumPy returns infinity for a finite quotient, it has overflowed internally.
    assert np.array_equal(quotient, expected, equal_nan=True)


_OPERATORS = (operator.and_, operator.or_, operator.xor, operator.floordiv, operator.mod)


def test_operators() -> None:
    a, b = np.array([7, -7, 0, 5], np.int32), np.array([2, 2, 3, -3], np.int32)
    calls: dict[str, Callable[..., Any]] = {f.__name__: lambda g, x, y, f=f: f(x, y) for f in _OPERATORS}
    calls |= {f"{f.__name__}_right": lambda g, x, y, f=f: f(6, y) for f in _OPERATORS}
    calls |= {"left": lambda g, x, y: x << 2, "right": lambda g, x, y: x >> 1, "of": lambda g, x, y: 1 << abs(y)}
    calls |= {"not": lambda g, x, y: ~x, "array": lambda g, x, y: np.full(4, 9, np.int32) % y}
    g, inputs = graph_of(calls, a, b)
    expected = [f(a, b) for f in _OPERATORS] + [f(6, b) for f in _OPERATORS]
    expected += [a << 2, a >> 1, 1 << abs(b), ~a, np.full(4, 9, np.int32) % b]
    for name, got, wanted in zip(calls, rlx.evaluate(g, inputs), expected, strict=True):
        assert np.array_equal(got, wanted), name


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda g, x: g.bitwise_and(x, 1), "bitwise_and: takes integers or bools, not f32"),
        (lambda g, x: ~x, "bitwise_not: takes integers or bools, not f32"),
        (lambda g, x: x << 1, "shift_left takes integers, not f32"),
        (lambda g, x: g.popcount(x), "rlx.popcount: operand 'x' is f32"),
        (lambda g, x: g.trunc(g.complex(x, x)), "trunc: is not defined for c64"),
        (lambda g, x: g.complex(x, x) % 2, "rem is not defined for c64"),
    ],
)
def test_what_is_refused(wrong: Callable[..., Any], message: str) -> None:
    g = rlx.Graph("wrong")
    with pytest.raises(Error, match=message):
        wrong(g, g.input("x", (3,)))


# --- compiled ---------------------------------------------------------------------------------------


@drawn("share", range(2))
@drawn("device", ["cpu", "xla", "c"])
def test_compilers_give_the_same_bits(device: str, share: int) -> None:
    """All functions of half of the dtypes are in one program. Any NaN equals any NaN."""
    g = rlx.Graph("numbers")
    inputs: dict[str, np.ndarray] = {}
    outputs = {}
    integers = [k for k in INTEGERS if device != "c" or k not in ("u16", "u64")]
    every = ("f32", *integers) if device == "c" else (*FLOATS, *integers)
    for kind in shares(every, 2, lambda kind: kind in INTEGERS)[share]:
        a, b = pairs(kind)
        inputs |= {f"a_{kind}": a, f"b_{kind}": b}
        x, y = g.input(f"a_{kind}", a.shape, kind), g.input(f"b_{kind}", b.shape, kind)
        outputs |= {f"{name}_{kind}": getattr(g, name)(x) for name, (kinds, _) in _OF_ONE.items() if kind in kinds}
        outputs |= {f"{name}_{kind}": getattr(g, name)(x, y) for name, (kinds, _) in _OF_TWO.items() if kind in kinds}
        if kind in INTEGERS:
            outputs[f"logical_{kind}"] = g.shift_right_logical(x, y)
    g.set_outputs(outputs)
    expected = rlx.evaluate(g, inputs)
    got = rlx.Session(device).compile(g, cache=False).run(inputs)
    wrong = [
        name
        for name, one, other in zip(outputs, got, expected, strict=True)
        if not np.array_equal(one.astype(np.float64), other.astype(np.float64), equal_nan=True)
    ]
    assert not wrong


# --- derivatives ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["floor", "ceil", "trunc", "sign", "square", "reciprocal", "clip", "fmod", "remainder", "copysign"]
)
def test_derivatives_are_those_of_jax(name: str) -> None:
    a = np.array([0.3, -0.3, 1.7, -2.2, 5.5, -7.1], np.float32)
    b = np.array([0.7, 0.9, -0.6, 1.1, -2.0, 3.0], np.float32)
    of_one = name in ("floor", "ceil", "trunc", "sign", "square", "reciprocal")
    arrays = (a,) if of_one else (a, b)
    g, inputs = graph_of(
        {"y": lambda g, *xs: g.sum(getattr(g, name)(*xs) * np.arange(1, 7, dtype=np.float32))}, *arrays
    )
    weights = np.arange(1, 7, dtype=np.float32)
    function = getattr(jnp, name)
    expected = jax.grad(lambda *xs: (function(*xs) * weights).sum(), argnums=tuple(range(len(arrays))))(*arrays)
    got = rlx.evaluate(rlx.grad(g, wrt=list(inputs)), inputs)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, np.asarray(other), rtol=1e-6)


def test_the_next_number() -> None:
    """It has no derivative (JAX refuses it), converts integers to floats, and includes denormals."""
    x = np.array([0.0, -0.0, 1e-45, 1.0, -1e-45], np.float32)
    g, inputs = graph_of({"y": lambda g, x: g.nextafter(x, 1), "z": lambda g, x: g.nextafter(3, x)}, x)
    y, z = rlx.evaluate(g, inputs)
    same_bits(y, np.nextafter(x, np.float32(1)))
    assert z.dtype == np.float32 and np.array_equal(z, np.full(5, np.nextafter(np.float32(3), np.float32(0))))
    h, _ = graph_of({"y": lambda g, x: g.sum(g.nextafter(x, x * 2.0))}, x)
    assert not rlx.evaluate(rlx.grad(h, wrt=["x0"]), inputs)[0].any()
    with pytest.raises(Error, match="nextafter: is not defined for c64"):
        g.nextafter(g.complex(1.0, 2.0), 1)


def test_remainder_of_far_numbers_is_exact() -> None:
    """The quotient has more digits than a float."""
    a, b = np.array([1e30, 3e38, -1e20], np.float32), np.array([3.0, 1e-30, 0.7], np.float32)
    exact = [int(float(x)) for x in a]
    assert one_op("binary", a, b, kind="rem").tolist()[0] == float(np.float32(exact[0] % 3))
    g, inputs = graph_of({"y": lambda g, x, y: g.fmod(x, y)}, a, b)
    for device in ("cpu", "xla"):
        same_bits(rlx.Session(device).compile(g).run(inputs)[0], rlx.evaluate(g, inputs)[0])
