"""`stablehlo.bitcast_convert` between all element types, and complex ops, compared with bits and formulas of NumPy."""

from __future__ import annotations

import cmath
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import rlx
from rlx.ir.dtype import DTYPES, DType
from tests.conformance.compiled import compile_graphs
from tests.importers.modules import values

BYTES = np.random.default_rng(3).integers(0, 256, 3 * 16).astype(np.uint8)
PARTS = (0.0, 1.0, -0.25, 3.5, -2.0)
NUMBERS = np.array([complex(x, y) for x in PARTS for y in PARTS])
COMPLEXES = [d for d in DTYPES if d.is_complex]


@pytest.fixture(scope="module", autouse=True)
def wide_numbers() -> Any:
    with jax.enable_x64(True):
        yield


def width(kind: DType) -> int:
    return 1 if kind.is_bool else kind.bits


def of_bits(bits: np.ndarray, kind: DType) -> np.ndarray:
    """Return one element for each row of the last axis, which holds its bits, lowest first."""
    if kind.bits > 8:
        return np.packbits(bits, axis=-1, bitorder="little").view(kind.numpy)[..., 0]
    return np.packbits(bits, axis=-1, bitorder="little")[..., 0].view(kind.numpy)  # zero-extended


def codes(array: np.ndarray) -> bytes:
    """Return the bits of the elements. The upper bits in the byte of a packed element are masked."""
    kind = rlx.dtype(array.dtype)
    return bytes(b & ((1 << kind.bits) - 1) for b in array.tobytes()) if kind.packed else array.tobytes()


def test_bits_are_kept_between_all_dtypes() -> None:
    """Bits are preserved from 1 bit (bool) to 128 bits, in both directions, including NaN and denormals."""
    bits = np.unpackbits(BYTES, bitorder="little")
    arguments, lines, results, given, wanted = [], [], [], {}, []
    for a in DTYPES:
        for b in (b for b in DTYPES if b.is_complex == a.is_complex):
            wide = max(width(a), width(b))
            dims = [(3,) if width(k) == wide else (3, wide // width(k)) for k in (a, b)]
            types = [f"tensor<{'x'.join(map(str, d))}x{k.mlir}>" for d, k in zip(dims, (a, b), strict=True)]
            n = len(given)
            arguments.append(f"%x{n}: {types[0]}")
            results.append(types[1])
            lines.append(f"  %y{n} = stablehlo.bitcast_convert %x{n} : ({types[0]}) -> {types[1]}")
            arrays = [of_bits(bits[: 3 * wide].reshape(*d, width(k)), k) for d, k in zip(dims, (a, b), strict=True)]
            given[f"arg{n}"] = arrays[0]
            wanted.append(arrays[1])
    assert len(given) == 26**2 + 2**2
    names = ", ".join(f"%y{n}" for n in range(len(given)))
    kinds = ", ".join(results)
    text = "\n".join(
        [f"func.func @f({', '.join(arguments)}) -> ({kinds}) {{", *lines, f"  return {names} : {kinds}\n}}"]
    )
    graph = rlx.from_stablehlo(text)
    found = rlx.evaluate(graph, dict(zip([i.name for i in graph.inputs], given.values(), strict=True)))
    for line, f, w in zip(lines, found, wanted, strict=True):
        assert (f.dtype, f.shape, codes(f)) == (w.dtype, w.shape, codes(w)), line


def test_complex_bits_are_kept_when_compiled() -> None:
    texts = [
        f"func.func @f(%x: {a}) -> {b} {{ %0 = stablehlo.bitcast_convert %x : ({a}) -> {b} return %0 : {b} }}"
        for a, b in (
            ("tensor<25xcomplex<f64>>", "tensor<25x2xcomplex<f32>>"),
            ("tensor<25x2xcomplex<f32>>", "tensor<25xcomplex<f64>>"),
            ("tensor<5x32xi1>", "tensor<5xf32>"),
            ("tensor<25xf32>", "tensor<25x32xi1>"),
        )
    ]
    wide = NUMBERS.astype(np.complex128)
    narrow = wide.view(np.complex64).reshape(25, 2)
    floats = (np.real(NUMBERS) + 0.1).astype(np.float32)
    bits = np.unpackbits(floats.view(np.uint8), bitorder="little").reshape(25, 32).astype(bool)
    cases = [(wide, narrow), (narrow, wide), (bits[:5], floats[:5]), (floats, bits)]
    for program, (x, y) in zip(compile_graphs([rlx.from_stablehlo(t) for t in texts]), cases, strict=True):
        (found,) = program.run([x])
        np.testing.assert_array_equal(found, y)


@pytest.mark.parametrize("kind", COMPLEXES)
def test_functions_of_complex_numbers(kind: DType) -> None:
    """Functions that RLX has only for real numbers are composed. The cast to bool reads only the real part."""
    ops = {
        "cbrt": lambda z: np.where(z == 0, 0, z ** (1 / 3)),
        "logistic": lambda z: 1 / (1 + np.exp(-z)),
        "rsqrt": lambda z: 1 / np.sqrt(z),
        "convert": lambda z: z.real != 0,
    }
    (t, b) = (f"tensor<25x{m}>" for m in (kind.mlir, "i1"))
    lines = [f"  %{n} = stablehlo.{n} %x : {t}" for n in ("cbrt", "logistic", "rsqrt")]
    lines += [f"  %convert = stablehlo.convert %x : ({t}) -> {b}", f"  %atan2 = stablehlo.atan2 %x, %y : {t}"]
    text = "\n".join(
        [
            f"func.func @f(%x: {t}, %y: {t}) -> ({t}, {t}, {t}, {b}, {t}) {{",
            *lines,
            f"  return %cbrt, %logistic, %rsqrt, %convert, %atan2 : {t}, {t}, {t}, {b}, {t}\n}}",
        ]
    )
    graph = rlx.from_stablehlo(text)
    x, y = NUMBERS.astype(kind.numpy), np.full(25, 2 - 1j, kind.numpy)
    with np.errstate(all="ignore"):
        wanted = [f(x.astype(np.complex128)) for f in ops.values()]
    # atan2(x, y) is the arc tangent of x/y if the real part of y is positive and the quotient is small.
    wanted.append(np.array([cmath.atan(complex(a) / complex(b)) for a, b in zip(x, y, strict=True)]))
    close = np.abs(x / y) < 0.9
    for found in (values(graph, x, y), compile_graphs([graph])[0].run([x, y])):
        for name, f, w in zip([*ops, "atan2"], found, wanted, strict=True):
            where = close if name == "atan2" else (np.isfinite(w) if name == "rsqrt" else np.full(25, True))
            assert f.dtype == (bool if name == "convert" else kind.numpy)
            np.testing.assert_allclose(f[where], w[where], rtol=40 * kind.eps, atol=4 * kind.eps, err_msg=name)


@pytest.mark.parametrize("kind", COMPLEXES)
def test_primitives_of_complex_numbers_are_jaxs(kind: DType) -> None:
    """Powers and the logistic function, which `rlx.from_jax` builds from primitives, have JAX's values and derivatives."""
    x = (NUMBERS + 0.5 + 0.3j).astype(kind.numpy)
    functions: dict[str, Any] = {f"power {n}": lambda z, n=n: lax.integer_pow(z, n) for n in (-3, -1, 0, 1, 2, 4)}
    functions["logistic"] = lax.logistic

    def loss(z: Any) -> Any:
        return [jnp.sum(jnp.abs(f(z)) ** 2) for f in functions.values()]

    def every(z: Any) -> Any:
        # JAX's gradient is the conjugate of RLX's, which consists of the derivatives by real and imaginary part.
        gradients = [jax.grad(lambda z, f=f: jnp.sum(jnp.abs(f(z)) ** 2))(z) for f in functions.values()]
        return [f(z) for f in functions.values()] + [jnp.conj(g) for g in gradients]

    graph = rlx.from_jax(lambda z: [f(z) for f in functions.values()] + loss(z), x)
    results = rlx.evaluate(graph, {"arg0": x})
    found = results[: len(functions)]
    for n in range(len(functions)):
        part = rlx.from_jax(lambda z, n=n: loss(z)[n], x)
        found += rlx.evaluate(rlx.grad(part, "arg0"), {"arg0": x})
    for f, w in zip(found, jax.jit(every)(x), strict=True):
        assert f.dtype == w.dtype == kind.numpy
        np.testing.assert_allclose(f, w, rtol=100 * kind.eps, atol=10 * kind.eps)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_transforms_of_real_numbers_have_complex_numbers_of_their_precision(kind: Any) -> None:
    x = np.random.default_rng(5).standard_normal((2, 4, 6)).astype(kind)

    def function(x: Any) -> Any:
        return [jnp.fft.rfft(x), jnp.fft.rfftn(x), jnp.fft.irfftn(jnp.fft.rfftn(x), x.shape), jnp.fft.fft2(x)]

    graph = rlx.from_stablehlo(jax.jit(function).lower(x).as_text())
    wanted = [np.fft.rfft(x), np.fft.rfftn(x), x, np.fft.fft2(x)]
    for f, w, theirs in zip(values(graph, x), wanted, function(x), strict=True):
        assert f.dtype == theirs.dtype
        np.testing.assert_allclose(f, w, atol=100 * np.finfo(kind).eps)
