"""Elementwise evaluators against JAX, SciPy and NumPy's extended precision, including special values."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from rlx.dialect.spec_gen import ENUMS
from rlx.ir.dtype import DTYPES, dtype
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from rlx.support.errors import Error, ShapeError
from tests.drawing import drawn
from tests.ops.references import (
    ACTIVATIONS_IN_JAX,
    FLOATS,
    INTEGERS,
    agree,
    has_denormals,
    in_jax,
    of_mpmath,
    pairs_of,
    random,
    run,
    samples_of,
)

LONG = np.longdouble

# Computed in x86's extended precision, which has 11 more bits than f64. Without these bits the comparison is only
# weaker.
_EXTENDED: dict[str, Callable[[Any], Any]] = {
    "gelu": lambda x: LONG(0.5) * x * special.erfc(np.asarray(-x / np.sqrt(LONG(2)), np.float64)),
    "gelu_approx": lambda x: LONG(0.5) * x * (1 + np.tanh(np.sqrt(2 / LONG(np.pi)) * (x + LONG(0.044715) * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "relu": lambda x: np.where(np.isnan(x), x, np.where(x > 0, x, 0)),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "neg": np.negative,
    "abs": np.abs,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "atan": np.arctan,
    "round": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "cbrt": np.cbrt,
    "erf": of_mpmath("erf"),
    "erfc": of_mpmath("erfc"),
    "asin": np.arcsin,
    "acos": np.arccos,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}
_GATED = ("gelu", "gelu_approx", "silu")


def test_every_activation_has_references() -> None:
    assert set(_EXTENDED) == set(ACTIVATIONS_IN_JAX) == set(ENUMS["Activation"])


@pytest.mark.parametrize("kind", _EXTENDED)
@drawn("name", FLOATS, of_each=2)
def test_activation_is_correctly_rounded(kind: str, name: str) -> None:
    """The error is within the last digit of the exact value everywhere, including denormals and huge angles."""
    x = samples_of(name, low=-20, high=20)
    got = run("activation", x, kind=kind)
    with np.errstate(all="ignore"):
        exact = np.asarray(_EXTENDED[kind](x.astype(LONG)))
        exact = np.where(np.isneginf(x) & (kind in _GATED), -0.0, exact)
        rounded = exact.astype(x.dtype)
    # f64 has no wider type for the reference. There gelu is 1 + erf, which cancels.
    eps = np.finfo(np.float64).eps
    noise = eps * np.abs(np.nan_to_num(x.astype(np.float64), posinf=0, neginf=0)) if kind.startswith("gelu") else None
    agree(got, rounded, factor=0.5 if name in ("f32", "f64") else 1.0, noise=noise)


@pytest.mark.parametrize("kind", ACTIVATIONS_IN_JAX)
@drawn("name", FLOATS, of_each=2)
def test_activation_in_jax(kind: str, name: str) -> None:
    x = samples_of(name)
    usual = ~has_denormals(x) & ~(np.isneginf(x) & (kind in _GATED))
    # JAX computes narrow dtypes in their own precision, and its trigonometry fails for huge angles.
    usual &= ~(np.abs(x.astype(np.float64)) > 1e4) | (kind not in ("sin", "cos", "tan"))
    # Its compositions for these lose the digits of the result's exponent.
    usual &= ~(np.abs(x.astype(np.float64)) > 5) | (kind not in ("exp2", "sinh", "cosh"))
    reference = in_jax(ACTIVATIONS_IN_JAX[kind], x)
    noise = 4 * dtype(name).eps * np.abs(np.nan_to_num(x.astype(np.float64), posinf=0, neginf=0))
    agree(run("activation", x, kind=kind), reference, factor=4, noise=noise, where=usual)


@pytest.mark.parametrize("kind", ["neg", "abs", "relu"])
@pytest.mark.parametrize("name", INTEGERS)
def test_integer_activation(kind: str, name: str) -> None:
    x = samples_of(name, high=100)
    exact = {"neg": lambda v: -v, "abs": abs, "relu": lambda v: max(v, 0)}[kind]
    wrapped = [_wrapped(exact(int(v)), name) for v in x]
    assert run("activation", x, kind=kind).tolist() == wrapped
    assert np.array_equal(run("activation", x, kind=kind), in_jax(ACTIVATIONS_IN_JAX[kind], x))


@pytest.mark.parametrize("kind", ["neg", "abs", "exp", "log", "sqrt", "sin", "cos", "tanh"])
def test_complex_activation(kind: str) -> None:
    x = samples_of("c64")
    x = x[np.abs(x) < 80]  # within the range of exp
    with np.errstate(all="ignore"):
        exact = np.asarray(_EXTENDED[kind](x.astype(np.clongdouble)))
    got = run("activation", x, kind=kind)
    assert got.dtype == (np.float32 if kind == "abs" else np.complex64)
    agree(got, exact.astype(got.dtype), factor=0.25)
    agree(
        got, in_jax(ACTIVATIONS_IN_JAX[kind], x), factor=4, where=(x != 0) if kind == "log" else np.ones(x.shape, bool)
    )


def _wrapped(value: int, name: str) -> int:
    """Return the value in two's complement."""
    bits = 8 * dtype(name).itemsize
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype(name).is_signed and value >> (bits - 1) else value


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": jnp.add,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "pow": jnp.power,
}


@pytest.mark.parametrize("kind", _BINARY)
@pytest.mark.parametrize("name", FLOATS)
def test_float_binary(kind: str, name: str) -> None:
    a, b = pairs_of(name)
    got = run("binary", a, b, kind=kind)
    exactly = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power}
    exactly |= {"max": np.maximum, "min": np.minimum}
    with np.errstate(all="ignore"):
        exact = exactly[kind](a.astype(LONG), b.astype(LONG)).astype(a.dtype)
    in_range = (np.abs(b.astype(np.float64)) < 2.0**63) | (kind != "pow")  # NumPy's longdouble power treats 2^63 as odd
    agree(got, exact, factor=0.5 if kind == "pow" else 0.25, where=in_range)
    usual = ~has_denormals(a, b)
    # JAX's power loses digits in proportion to the exponent of the result, and its (-inf)^-2 is not 0.
    usual &= ((np.abs(b.astype(np.float64)) < 30) & ~np.isneginf(a)) | (kind != "pow")
    agree(got, in_jax(_BINARY[kind], a, b), factor=8, where=usual & ~has_denormals(got))


@pytest.mark.parametrize("name", FLOATS)
def test_the_corners_of_pow(name: str) -> None:
    """C's rules hold: x^0 = 1 and 1^y = 1 even for NaN; odd powers keep the sign of zero and infinity."""
    kind = dtype(name).numpy
    nan, inf = np.nan, np.inf
    table = [(nan, 0, 1), (1, nan, 1), (nan, 1, nan), (-8, 1 / 3, nan), (-2, 3, -8), (-2, 2, 4), (0, -1, inf)]
    table += [(-0.0, -3, -inf), (-0.0, 3, -0.0), (-inf, 3, -inf), (-inf, 2, inf), (-inf, -3, -0.0), (0.5, inf, 0)]
    table += [(0.5, -inf, inf), (2, inf, inf), (-1, inf, 1), (-1, -inf, 1), (inf, -1, 0), (0, 0, 1), (inf, 0, 1)]
    a, b, expected = (np.array(column).astype(kind) for column in zip(*table, strict=True))
    agree(run("binary", a, b, kind="pow"), expected, signed_zeros=True)


@pytest.mark.parametrize("kind", [k for k in _BINARY if k != "div"])
@pytest.mark.parametrize("name", INTEGERS)
def test_integer_binary(kind: str, name: str) -> None:
    """The reference is Python's unbounded integers, wrapped."""
    a, b = pairs_of(name)
    exact: dict[str, Callable[[int, int], int]] = {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul": lambda x, y: x * y,
        "max": max,
        "min": min,
        "pow": _exact_power,
    }
    if kind == "pow":
        kept = np.abs(b.astype(np.float64)) < 300
        a, b = a[kept], b[kept]
    wrapped = [_wrapped(exact[kind](int(x), int(y)), name) for x, y in zip(a, b, strict=True)]
    assert run("binary", a, b, kind=kind).tolist() == wrapped


def _exact_power(x: int, y: int) -> int:
    """Return the quotient 1/x^-y truncated toward zero for negative y; 0 for 0."""
    if y >= 0:
        return x**y
    return {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)


@pytest.mark.parametrize("kind", ["add", "sub", "mul", "div", "pow"])
def test_complex_binary(kind: str) -> None:
    a, b = (x[np.abs(x) < 10] for x in (random("c64", (300,), seed=3), random("c64", (300,), seed=4)))
    got = run("binary", a[:150], b[:150], kind=kind)
    a, b = a[:150], b[:150]
    exactly = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power}[kind]
    agree(got, exactly(a.astype(np.clongdouble), b.astype(np.clongdouble)).astype(np.complex64), factor=0.25)
    noise = np.abs(got) * np.abs(b * np.log(a)) * 1e-7 if kind == "pow" else None
    agree(got, in_jax(_BINARY[kind], a, b), noise=noise)


def test_bool_arithmetic_is_logic() -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    for kind in ("add", "max"):
        assert run("binary", a, b, kind=kind).tolist() == [False, True, True, True]
    for kind in ("mul", "min"):
        assert run("binary", a, b, kind=kind).tolist() == [False, False, False, True]
    with pytest.raises(ShapeError, match="not defined for bool"):
        run("binary", a, b, kind="sub")


_LOGIC: dict[str, Callable[[Any, Any], Any]] = {"&": operator.and_, "|": operator.or_, "^": operator.xor}


@pytest.mark.parametrize("symbol", _LOGIC)
def test_logical_operators_are_numpys(symbol: str) -> None:
    """For bools, tensors or not. For integers see `test_numbers.py`; floats have no logical operators."""
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    apply = _LOGIC[symbol]
    graph = Graph("logic")
    x, y = graph.input("x", (4,), "bool"), graph.input("y", (4,), "bool")
    graph.set_outputs([apply(x, y), apply(x, b), apply(b, x), apply(x, True), apply(False, x), apply(x, np.True_)])
    expected = [apply(a, b), apply(a, b), apply(b, a), apply(a, True), apply(False, a), apply(a, np.True_)]
    for got, wanted in zip(evaluate(graph, {"x": a, "y": b}), expected, strict=True):
        assert got.dtype == np.bool_ and np.array_equal(got, wanted)
    for other in (1.0, np.float32(2), np.array([1.0, 2, 3, 4]), "x", None):
        for sides in ((x, other), (other, x)):
            with pytest.raises(Error, match=r"takes integers or bools|expected a tensor"):
                apply(*sides)


@drawn("name", [d.name for d in DTYPES], of_each=8)
@pytest.mark.parametrize("kind", ENUMS["Comparison"])
def test_compare(kind: str, name: str) -> None:
    a, b = pairs_of(name)
    if a.dtype.kind == "c" and kind not in ("eq", "ne"):
        with pytest.raises(Error, match="complex"):
            run("compare", a, b, kind=kind)
        return
    methods = {
        "eq": "equal",
        "ne": "not_equal",
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
    }
    got = run("compare", a, b, kind=kind)
    usual = ~has_denormals(a, b)
    agree(got, in_jax(getattr(jnp, methods[kind]), a, b), where=usual)
    # Denormals are compared like other numbers.
    exact = [getattr(x, f"__{kind}__")(y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert got.tolist() == exact


@pytest.mark.parametrize("name", [d.name for d in DTYPES])
def test_where_takes_bits_as_they_are(name: str) -> None:
    a, b = pairs_of(name)
    condition = random("bool", a.shape, seed=5)
    got = run("where", condition, a, b)
    words = f"V{a.dtype.itemsize}"
    assert np.array_equal(got.view(words), np.where(condition, a.view(words), b.view(words)))
    assert np.array_equal(run("where", np.array(True), a, b[:1]).view(words), a.view(words))


@pytest.mark.parametrize(
    ("on_true", "on_false", "expected"),
    [
        (1.0, 0.0, "f32"),
        (1, 0, "i32"),
        (True, False, "bool"),
        (True, 2, "i32"),
        (2, True, "i32"),
        (1, 0.5, "f32"),
        (0.5, False, "f32"),
        (np.float64(1), 0.5, "f32"),
        (1j, 2.0, "c64"),
        (np.float64(1), np.ones(2), "f64"),
        (np.int8(1), 0.5, "f32"),
    ],
)
def test_where_of_numbers(on_true: Any, on_false: Any, expected: str) -> None:
    graph = Graph("chosen")
    chosen = graph.where(graph.input("condition", (2,), "bool"), on_true, on_false)
    graph.set_outputs([chosen])
    (got,) = evaluate(graph, {"condition": np.array([True, False])})
    kind = dtype(expected).numpy
    assert got.dtype == kind and got.tolist() == [kind.type(on_true), np.broadcast_to(on_false, 2).astype(kind)[1]]


def test_where_of_a_number_that_fits_nothing() -> None:
    graph = Graph("chosen")
    with pytest.raises(Error, match="2147483648"):
        graph.where(graph.input("condition", (2,), "bool"), 2**31, 0)


# --- casts ------------------------------------------------------------------------------------------


@drawn("target", [d.name for d in DTYPES], of_each=4)
@pytest.mark.parametrize("source", [d.name for d in DTYPES])
def test_cast(source: str, target: str) -> None:
    x = samples_of(source, low=-300, high=300)
    got = run("cast", x, dtype=dtype(target))
    exact = [_cast(value, source, target) for value in x.tolist()]
    if (
        target == "f8e8m0fnu"
    ):  # ml_dtypes converts through f32, where less than its least number is 0, which is NaN then
        exact = [max(value, 2.0**-149) if np.real(value) > 0 else value for value in exact]
    with np.errstate(over="ignore"):
        # From integers on both sides of 2^63, NumPy makes floats.
        expected = np.array(exact, "u8" if target == "u64" else None).astype(dtype(target).numpy)
    agree(got, expected, factor=0)
    if source in FLOATS:
        usual = ~has_denormals(x, got)
        if target == "f8e8m0fnu":  # its least number is a denormal of f32, through which JAX converts
            usual &= ~has_denormals(got.astype(np.float32))
        reference = in_jax(lambda v: v.astype(dtype(target).numpy), x)
        agree(got, reference, factor=0, where=usual)


def _cast(value: Any, source: str, target: str) -> Any:
    """Apply `rlx.cast` to a Python number; NumPy does the rounding."""
    to = dtype(target)
    if to.is_bool:
        return value != 0
    if isinstance(value, complex) and not to.is_complex:
        value = value.real
    if not to.is_integer:
        return value
    if isinstance(value, float):
        if np.isnan(value):
            return 0
        return int(min(max(value, to.min), to.max)) if np.isfinite(value) else (to.max if value > 0 else to.min)
    return _wrapped(int(np.real(value)), target)


@pytest.mark.parametrize("target", ["f16", "bf16", "f32"])
def test_cast_rounds_to_nearest_even(target: str) -> None:
    """The values are halfway between two neighbours, and just above and below."""
    kind = dtype(target)
    grid = random(kind, (500,), low=-100, high=100)
    with np.errstate(all="ignore"):
        upper = np.nextafter(grid, kind.numpy.type(np.inf)).astype(np.float64)
    middle = (grid.astype(np.float64) + upper) / 2
    even = np.where(grid.view(f"u{kind.itemsize}") % 2 == 0, grid.astype(np.float64), upper)
    assert np.array_equal(run("cast", middle, dtype=kind).astype(np.float64), even)
    above, below = (np.nextafter(middle, bound) for bound in (np.inf, -np.inf))
    assert np.array_equal(run("cast", above, dtype=kind).astype(np.float64), upper)
    assert np.array_equal(run("cast", below, dtype=kind).astype(np.float64), grid.astype(np.float64))


@pytest.mark.parametrize("name", (*FLOATS, *INTEGERS))
def test_clamp(name: str) -> None:
    x, low = pairs_of(name)
    high = np.roll(low, 7)
    got = run("clamp", x, low, high)
    # Also where low > high, and where any operand is NaN. JAX treats denormals as zeros.
    denormal = has_denormals(x, low, high) if name in FLOATS else np.zeros(x.shape, bool)
    agree(got, in_jax(lambda a, b, c: jnp.minimum(jnp.maximum(a, b), c), x, low, high), factor=0, where=~denormal)
    if name in FLOATS:
        nan = [np.isnan(v.astype(np.float64)) for v in (x, low, high)]
        assert np.array_equal(np.isnan(got.astype(np.float64)), nan[0] | nan[1] | nan[2])


def test_how_clamp_is_written() -> None:
    g = Graph()
    x, bound = g.input("x", (2, 3)), g.input("b", (3,))
    both, below, above = g.clamp(x, -1, 2), g.clamp(x, low=bound), g.clamp(x, high=1.5)
    whole = g.clamp(g.constant(np.array([-7, 7], np.int8)), -3, 5)
    g.set_outputs([both, below, above, whole])
    value, limit = np.array([[-3, 0, 9], [np.nan, 1, 2]], np.float32), np.array([0, 1, 2], np.float32)
    got = evaluate(g, {"x": value, "b": limit})
    expected = [np.clip(value, -1, 2), np.maximum(value, limit), np.minimum(value, np.float32(1.5)), [-3, 5]]
    for result, reference in zip(got, expected, strict=True):
        assert np.array_equal(result, reference, equal_nan=result.dtype.kind == "f")
    assert got[3].dtype == np.int8
    with pytest.raises(ShapeError, match="expected low, high, or both"):
        g.clamp(x)
    with pytest.raises(ShapeError, match="does not broadcast"):
        g.clamp(bound, x, x)


def test_stop_gradient_is_the_value() -> None:
    for name in (*FLOATS, "bool", "c64", "i64"):
        x = samples_of(name)
        assert run("stop_gradient", x).tobytes() == x.tobytes()


@pytest.mark.parametrize("op", ["activation", "cast", "binary", "compare", "where"])
def test_empty(op: str) -> None:
    x, c = np.zeros((0, 3), np.float32), np.zeros((0, 3), bool)
    uses = {
        "activation": lambda: run("activation", x, kind="exp"),
        "cast": lambda: run("cast", x, dtype=dtype("i8")),
        "binary": lambda: run("binary", x, x[:, :1], kind="add"),
        "compare": lambda: run("compare", x, x, kind="lt"),
        "where": lambda: run("where", c, x, x),
    }
    assert uses[op]().shape == (0, 3)
