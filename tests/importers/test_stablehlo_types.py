"""`rlx.from_stablehlo` of unsigned integers, 8-bit floats, packed integers, quantised numbers, and XLA's random bits."""

from __future__ import annotations

import math
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rlx
from rlx.ir.dtype import DTYPES, DType
from tests.conformance.compiled import compile_graphs
from tests.drawing import drawn
from tests.importers.modules import values

RANDOM = np.random.default_rng(11)
UNSIGNED = ("ui64", "ui16")
JAX_NAMES = {"ui64": jnp.uint64, "ui16": jnp.uint16}
BINARY: dict[str, Any] = {
    **{"add": lax.add, "and": lax.bitwise_and, "divide": lax.div, "maximum": lax.max, "minimum": lax.min},
    **{"multiply": lax.mul, "or": lax.bitwise_or, "remainder": lax.rem, "subtract": lax.sub},
    **{"shift_left": lax.shift_left, "shift_right_logical": lax.shift_right_logical, "xor": lax.bitwise_xor},
    "shift_right_arithmetic": lax.shift_right_arithmetic,
}
UNARY: dict[str, Any] = {
    **{"not": lax.bitwise_not, "negate": lax.neg, "popcnt": lax.population_count, "count_leading_zeros": lax.clz}
}


def f32(numbers: Any) -> np.ndarray:
    return np.array(numbers, np.float32)


def samples(kind: str, size: int) -> np.ndarray:
    """Return values of a type: small ones, large ones, and the limits."""
    bits = int(kind[2:])
    ends = [0, 1, 2, 3, 7, 2 ** (bits - 1) - 1, 2 ** (bits - 1), 2 ** (bits - 1) + 1, 2**bits - 2, 2**bits - 1]
    drawn = [int(RANDOM.integers(2**62)) * 4 % 2**bits >> int(RANDOM.integers(bits)) for _ in range(size)]
    pool = np.array([*ends, *drawn], f"u{bits // 8}")
    return RANDOM.choice(pool, size)


@pytest.fixture(scope="module", autouse=True)
def wide_numbers() -> Any:
    with jax.enable_x64(True):
        yield


def graph_of(function: Any, *arrays: Any) -> rlx.Graph:
    return rlx.from_stablehlo(jax.jit(function, keep_unused=True).lower(*arrays).as_text())


def check_together(functions: dict[str, Any], arrays: list[np.ndarray]) -> None:
    """Check on the evaluator, with all functions in one module, so that JAX compiles once."""

    def every(*xs: Any) -> Any:
        return {name: f(*xs) for name, f in functions.items()}

    wanted = jax.jit(every, compiler_options={"xla_allow_excess_precision": False})(*arrays)
    found = iter(values(graph_of(every, *arrays), *arrays))
    for name in sorted(functions):  # the order of JAX's trees
        for b in map(np.asarray, jax.tree.leaves(wanted[name])):
            a = next(found)
            assert a.dtype == b.dtype, name
            if not rlx.dtype(a.dtype).is_numpys_own:  # NumPy does not recognise NaN in these dtypes
                a, b = a.astype(np.float32), b.astype(np.float32)
            np.testing.assert_array_equal(a, b, err_msg=name)


def check(functions: dict[str, Any], arrays: list[np.ndarray], *, compiled: bool) -> None:
    """Imported JAX functions give JAX's results: on the evaluator, and on the CPU."""
    graphs = {name: graph_of(f, *arrays) for name, f in functions.items()}
    programs = compile_graphs(list(graphs.values())) if compiled else []
    runs = {n: p.run for n, p in zip(graphs, programs, strict=False)}
    for name, graph in graphs.items():
        wanted = [np.asarray(w) for w in jax.tree.leaves(functions[name](*arrays))]
        results = [values(graph, *arrays)] + ([runs[name](arrays)] if runs else [])
        for found in results:
            for a, b in zip(found, wanted, strict=True):
                assert a.dtype == b.dtype, name
                np.testing.assert_array_equal(a, b, err_msg=name)


@drawn("kind", UNSIGNED)
def test_unsigned_integers_of_other_widths(kind: str) -> None:
    """Ops that depend on sign or width are JAX's: arithmetic, order, casts, reductions, scatters, sorts, products."""
    a, b = samples(kind, 120), samples(kind, 120)
    functions: dict[str, Any] = {**BINARY}
    functions |= {name: lambda x, y, f=f: f(x) for name, f in UNARY.items()}
    functions |= {f"compare_{f.__name__}": f for f in (lax.lt, lax.le, lax.gt, lax.ge, lax.eq, lax.ne)}
    for dtype in (jnp.float32, jnp.float64, jnp.int8, jnp.int32, jnp.int64, jnp.uint32, jnp.bool_):
        functions[f"to_{jnp.dtype(dtype).name}"] = lambda x, y, d=dtype: x.astype(d)
    for dtype in (jnp.int8, jnp.int32, jnp.int64, jnp.uint8, jnp.bool_):
        functions[f"from_{jnp.dtype(dtype).name}"] = lambda x, y, d=dtype: x.astype(d).astype(JAX_NAMES[kind])
    functions["clamp"] = lambda x, y: lax.clamp(jnp.minimum(x, y), y[::-1], jnp.maximum(x, y))
    functions["reductions"] = lambda x, y: [
        f(jnp.reshape(x, (10, 12)), 1) for f in (jnp.max, jnp.min, jnp.sum, jnp.prod)
    ]
    functions["windows"] = lambda x, y: [lax.cummax(x), lax.cumsum(y)]
    functions["argmax"] = lambda x, y: [lax.argmax(x, 0, np.int32), lax.argmin(x, 0, JAX_NAMES[kind])]
    functions["sort"] = lambda x, y: lax.sort((x, y), num_keys=2)
    functions["product"] = lambda x, y: jnp.reshape(x, (10, 12)) @ jnp.reshape(y, (12, 10))
    functions["scatters"] = lambda x, y: [
        getattr(jnp.asarray(x).at[jnp.arange(60) % 40], how)(y[:60]) for how in ("add", "max", "min")
    ]
    functions["parts"] = lambda x, y: [
        lax.bitcast_convert_type(x, jnp.uint8),
        x[::-1],
        lax.iota(x.dtype, 9),
        lax.top_k(x, 5),
    ]
    check(functions, [a, b], compiled=False)
    tested = ("divide", "maximum", "to_float32", "product", "reductions", "shift_right_arithmetic", "compare_lt")
    check({n: functions[n] for n in tested}, [a, b], compiled=True)


STORED = [d.name for d in DTYPES if d.storage]


@drawn("kind", STORED, of_each=3)
def test_storage_dtypes_are_computed_as_in_jax(kind: str) -> None:
    """Casts, arithmetic, order, moves and products of 8-bit floats and packed integers, at every bit pattern."""
    own = rlx.dtype(kind)
    a = np.arange(1 << own.bits, dtype=np.uint8).view(own.numpy)
    if kind == "f8e8m0fnu":
        a = np.append(a[64:192], a[255])  # XLA flushes the f32 of the smallest result, which is subnormal
    a, b = np.resize(a, 256), np.random.default_rng(12).permutation(np.resize(a, 256))
    with np.errstate(all="ignore"):
        unlike = (a.astype(np.float32) != b.astype(np.float32)) & (b.astype(np.float32) != 0)
    a, b = np.resize(a[unlike], 240), np.resize(b[unlike], 240)
    functions: dict[str, Any] = {
        f"to_{np.dtype(to).name}": lambda x, y, to=to: x.astype(to)
        for to in (
            jnp.float32,
            jnp.float16,
            jnp.bfloat16,
            jnp.float64,
            *([] if own.is_float else [jnp.int8, jnp.uint32]),
        )
    }
    functions |= {
        "from_float32": lambda x, y: jnp.sin(x.astype(jnp.float32)).astype(x.dtype),
        "from_int32": lambda x, y: (lax.iota(jnp.int32, 240) - 120).astype(x.dtype),
        "moves": lambda x, y: [
            x[::-1],
            x.reshape(12, 20).T,
            jnp.where(x.astype(jnp.float32) > 1, x, y),
            # Through f32, because XLA's own cast of the greatest f4 to an integer gives 2147483647.
            jnp.take(x, y.astype(jnp.float32).astype(jnp.int32) % 240, axis=0),
        ],
        "order": lambda x, y: [x < y, x == y, jnp.maximum(x, y)],
        "arithmetic": lambda x, y: [x + y, x * y, x - y],
    }
    if own.bits == 8:  # XLA's CPU client cannot compile products of packed dtypes
        # A sum of two exact products is rounded once, in any order.
        functions["wide product"] = lambda x, y: lax.dot(
            x.reshape(120, 2), y.reshape(2, 120), preferred_element_type=jnp.float32
        )
    if own.bits == 2:  # XLA's CPU client aborts the process
        del functions["moves"]
    if own.bits < 8 and own.is_float:
        del functions["arithmetic"]  # XLA keeps some intermediate results wider
    check_together(functions, [a, b])


# Q, U, W and P are quantised types.
QUANTISED = """
func.func @f(%x: tensor<3x4xf32>, %w: tensor<4x2xW>, %u: tensor<3x4xU>)
    -> (tensor<3x2xf32>, tensor<3x4xU>, tensor<4x3xi8>, tensor<4xU>) {
  %q = stablehlo.uniform_quantize %x : (tensor<3x4xf32>) -> tensor<3x4xQ>
  %p = stablehlo.dot_general %q, %w, contracting_dims = [1] x [0] : (tensor<3x4xQ>, tensor<4x2xW>) -> tensor<3x2xP>
  %y = stablehlo.uniform_dequantize %p : (tensor<3x2xP>) -> tensor<3x2xf32>
  %s = stablehlo.add %q, %u : (tensor<3x4xQ>, tensor<3x4xU>) -> tensor<3x4xU>
  %t = stablehlo.transpose %q, dims = [1, 0] : (tensor<3x4xQ>) -> tensor<4x3xQ>
  %b = stablehlo.bitcast_convert %t : (tensor<4x3xQ>) -> tensor<4x3xi8>
  %z = "stablehlo.constant"() {value = dense<-20> : tensor<i8>} : () -> tensor<U>
  %r = stablehlo.reduce(%u init: %z) applies stablehlo.add across dimensions = [0] : (tensor<3x4xU>, tensor<U>) -> tensor<4xU>
  return %y, %s, %b, %r : tensor<3x2xf32>, tensor<3x4xU>, tensor<4x3xi8>, tensor<4xU>
}"""
NUMBER_TYPES = {
    **{"Q": "!quant.uniform<i8:f32, 0.1:-30>", "U": "!quant.uniform<i8:f32, 0.5:-20>"},
    **{"W": "!quant.uniform<i8<-127:127>:f32:1, {0.5, 0.25}>", "P": "!quant.uniform<i32:f32:1, {0.05, 0.025}>"},
}


def test_quantised_numbers() -> None:
    """The nearest value is stored, ties to even, within the limits of the type. Regions compute in the type too."""
    graph = rlx.from_stablehlo(re.sub(r"(?<=[x<])[QUWP](?=>)", lambda m: NUMBER_TYPES[m[0]], QUANTISED))
    x = f32(RANDOM.uniform(-15, 15, (3, 4)).round(1))
    w, u = RANDOM.integers(-127, 128, (4, 2)).astype(np.int8), RANDOM.integers(-128, 128, (3, 4)).astype(np.int8)
    q = np.clip(np.round(x / np.float32(0.1)) - 30, -128, 127)
    numbers, others = (q + 30) * np.float32(0.1), (u + np.float32(20)) * np.float32(0.5)
    weights = w * f32([0.5, 0.25])

    def stored(v: np.ndarray) -> np.ndarray:
        return np.clip(np.round(v / np.float32(0.5)) - 20, -128, 127).astype(np.int8)

    step = f32([0.05, 0.025])
    product = np.round(numbers @ weights / step) * step
    for found in (values(graph, x, w, u), compile_graphs([graph])[0].run([x, w, u])):
        np.testing.assert_allclose(found[0], product, atol=0.051)
        np.testing.assert_array_equal(found[1], stored(numbers + others))
        np.testing.assert_array_equal(found[2], q.T.astype(np.int8))
        # A sum in halves: rows 0 and 1, then row 2. Each half is stored.
        halves = (stored(others[0] + others[1]) + np.float32(20)) * np.float32(0.5)
        np.testing.assert_array_equal(found[3], stored(halves + others[2]))


@drawn("algorithm", ["RNG_PHILOX", "RNG_THREE_FRY"])
def test_random_bits_are_those_of_xla(algorithm: str) -> None:
    """Bits of every width and shape, and the next state, are XLA's. The lower half of the counter overflows."""
    key = np.array([2**32 - 1, 3, 2**32 - 3, 2**32 - 1], np.uint32)
    dtypes = {
        (): np.uint16,
        (7,): np.uint32,
        (3, 5): np.uint32,
        (5, 3): np.uint64,
        (0, 2): np.uint32,
        (1, 9, 2): np.uint8,
    }

    @jax.jit
    def draw(state: Any) -> Any:
        return [
            lax.rng_bit_generator(state, shape, dtype, lax.RandomAlgorithm[algorithm])
            for shape, dtype in dtypes.items()
        ]

    graph = rlx.from_stablehlo(draw.lower(key).as_text())
    wanted = [np.asarray(w) for w in jax.tree.leaves(draw(key))]
    for found in (values(graph, key), compile_graphs([graph])[0].run([key])):
        for a, b in zip(found, wanted, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def function(x: str, result: str, op: str) -> str:
    return f"func.func @f(%x: {x}) -> {result} {{ %0 = stablehlo.{op} : ({x}) -> {result} return %0 : {result} }}"


PER_BLOCK = "tensor<2x!quant.uniform<i8:f32:{0:1}, {0.5}>>"
WIDE = "tensor<2xui64>"
DRAWN = f"func.func @f(%x: tensor<3xui64>) -> {WIDE} {{ %s, %b = stablehlo.rng_bit_generator %x, algorithm = THREE_FRY"
REFUSED = {
    "complex<f16>": function("tensor<2xcomplex<f16>>", "tensor<2xf16>", "real %x"),
    "f6E2M3FN": function("tensor<2xf6E2M3FN>", "tensor<2xf32>", "convert %x"),
    "rng_bit_generator by THREE_FRY from a state of": DRAWN
    + f" : (tensor<3xui64>) -> (tensor<3xui64>, {WIDE}) return %b : {WIDE} }}",
    "quant": function(PER_BLOCK, "tensor<2xf32>", "uniform_dequantize %x"),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_held_in_no_dtype_is_refused(message: str) -> None:
    with pytest.raises(rlx.Error, match=re.escape(message)):
        rlx.from_stablehlo(REFUSED[message])


@pytest.mark.parametrize("kind", UNSIGNED)
def test_powers_of_unsigned_integers(kind: str) -> None:
    a, b = samples(kind, 60), samples(kind, 60)
    type_ = f"tensor<60x{kind}>"
    text = f"func.func @f(%a: {type_}, %b: {type_}) -> {type_} {{ %0 = stablehlo.power %a, %b : {type_} return %0 : {type_} }}"
    bits = 2 ** int(kind[2:])
    (found,) = values(rlx.from_stablehlo(text), a, b)
    assert found.tolist() == [pow(int(x), int(y), bits) for x, y in zip(a, b, strict=True)]


def test_error_functions_of_storage_dtypes() -> None:
    """JAX cannot export these functions, and computes only `erf`. They equal those of f32, rounded once."""
    kinds = [d for d in DTYPES if d.storage and d.is_float]
    arrays = [np.arange(1 << d.bits, dtype=np.uint8).view(d.numpy) for d in kinds]
    graph = rlx.from_jax(lambda *xs: [[lax.erf(x), lax.erfc(x)] for x in xs], *arrays)
    found = iter(values(graph, *arrays))
    for kind, array in zip(kinds, arrays, strict=True):
        for function in (math.erf, math.erfc):
            wanted = np.array([function(v) for v in array.astype(np.float64)], np.float32).astype(kind.numpy)
            np.testing.assert_array_equal(np.float32(next(found)), np.float32(wanted), err_msg=f"{function} of {kind}")


@pytest.mark.parametrize("kind", [d for d in DTYPES if d.packed and d.is_integer])
def test_bits_of_packed_integers(kind: DType) -> None:
    """All pairs of values are correct, even if the width, or a number of bits, is not representable in the dtype."""
    every, mask = np.arange(kind.min, kind.max + 1), (1 << kind.bits) - 1
    x, y = (v.ravel().astype(kind.numpy) for v in np.meshgrid(every, every))
    functions = (
        lambda x, y: lax.shift_right_logical(x, y),
        lambda x, y: lax.clz(x),
        lambda x, y: lax.population_count(x),
    )
    found = values(rlx.from_jax(lambda *xs: [f(*xs) for f in functions], x, y), x, y)
    pairs = [(int(a) & mask, int(b) & mask) for a, b in zip(x, y, strict=True)]
    shifted = [a >> b if b < kind.bits else 0 for a, b in pairs]
    wanted = [shifted, [kind.bits - a.bit_length() for a, _ in pairs], [a.bit_count() for a, _ in pairs]]
    for f, w in zip(found, wanted, strict=True):
        assert f.dtype == kind.numpy
        assert [int(v) & mask for v in f] == w


def test_windows_of_powers_of_two() -> None:
    """f8e8m0fnu has no zero. The padding of a tensor is the start value of the window."""
    kind = rlx.f8e8m0fnu.numpy
    x = np.exp2(np.random.default_rng(4).integers(-4, 5, (6, 3))).astype(kind)
    joins = ((lax.max, np.maximum, 0.25), (lax.min, np.minimum, 0.5), (lax.mul, np.multiply, 2.0))
    padding = ((1, 0), (0, 2))

    def windows(x: Any, start: Any) -> Any:
        return [
            lax.reduce_window(x, v, join, (2, 3), (1, 1), padding) for v, (join, *_) in zip(start, joins, strict=True)
        ]

    starts = [np.array(start).astype(kind) for *_, start in joins]
    found = values(rlx.from_jax(windows, x, starts), x, *starts)
    for f, (_, join, start) in zip(found, joins, strict=True):
        around = np.pad(x.astype(np.float32), padding, constant_values=start)
        wanted = join.reduce(np.lib.stride_tricks.sliding_window_view(around, (2, 3)), axis=(2, 3), initial=start)
        np.testing.assert_array_equal(f.astype(np.float32), wanted)
