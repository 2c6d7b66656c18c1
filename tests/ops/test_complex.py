"""Complex numbers and their parts against NumPy and JAX, including special values."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from rlx.ir.dtype import dtype
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from rlx.support.errors import ShapeError
from tests.ops.references import agree, in_jax, pairs_of, random, run

SHAPES = [(), (5,), (3, 4), (0, 2)]


def special() -> np.ndarray:
    """Return every special float as a real part with every special float as an imaginary part."""
    return run("complex", *pairs_of("f32"))


def test_complex_keeps_the_bits_of_its_parts() -> None:
    real, imag = pairs_of("f32")
    z = run("complex", real, imag)
    assert z.dtype == np.complex64
    parts = z.view(np.uint32).reshape(-1, 2)
    assert np.array_equal(parts[:, 0], real.view(np.uint32)) and np.array_equal(parts[:, 1], imag.view(np.uint32))


@pytest.mark.parametrize(
    ("left", "right"), [((3, 1, 2), (4, 1)), ((), (2, 3)), ((1, 1), (0, 3)), ((4,), (1,))], ids=str
)
def test_parts_broadcast(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    real, imag = random("f32", left, seed=1), random("f32", right, seed=2)
    assert np.array_equal(run("complex", real, imag), real + 1j * imag)
    assert np.array_equal(run("complex", real, imag), in_jax(lambda a, b: a + 1j * b, real, imag))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_parts(shape: tuple[int, ...]) -> None:
    z = random("c64", (60,), seed=3)[: int(np.prod(shape))].reshape(shape)
    assert np.array_equal(run("real", z), in_jax(jnp.real, z))
    assert np.array_equal(run("imag", z), in_jax(jnp.imag, z))
    assert np.array_equal(run("conjugate", z), in_jax(jnp.conj, z))
    assert run("real", z).shape == run("imag", z).shape == run("conjugate", z).shape == shape


def test_special_parts_bit_for_bit() -> None:
    z = special()
    words = z.view(np.uint32).reshape(-1, 2)
    assert np.array_equal(run("real", z).view(np.uint32), words[:, 0])
    assert np.array_equal(run("imag", z).view(np.uint32), words[:, 1])
    flipped = run("conjugate", z).view(np.uint32).reshape(-1, 2)
    assert np.array_equal(flipped[:, 0], words[:, 0]) and np.array_equal(flipped[:, 1], words[:, 1] ^ (1 << 31))


def test_norm_is_rounded_once() -> None:
    z = special()
    with np.errstate(all="ignore"):
        exact = np.real(z).astype(np.longdouble) ** 2 + np.imag(z).astype(np.longdouble) ** 2
        agree(run("complex_norm_sq", z), exact.astype(np.float32), factor=0)
    usual = random("c64", (300,), seed=4)
    agree(run("complex_norm_sq", usual), in_jax(lambda v: jnp.abs(v) ** 2, usual))


def built(function: Any, *arrays: np.ndarray) -> np.ndarray:
    """Return the results of a function of a graph and its tensors for arrays."""
    graph = Graph()
    tensors = [graph.input(f"x{i}", a.shape, dtype(a.dtype)) for i, a in enumerate(arrays)]
    graph.set_outputs(function(graph, *tensors))
    return evaluate(graph, {f"x{i}": a for i, a in enumerate(arrays)})[0]


@pytest.mark.parametrize("name", ["f32", "f16", "f64", "i32", "u8", "bool"])
def test_parts_of_real_numbers(name: str) -> None:
    x = random(name, (2, 3))
    assert np.array_equal(built(lambda g, v: g.real(v), x), x)
    zeros = built(lambda g, v: g.imag(v), x)
    assert zeros.dtype == x.dtype and zeros.shape == x.shape and not zeros.any()
    assert np.array_equal(built(lambda g, v: g.conjugate(v), x), x)


def test_builder_lifts_what_is_not_c64() -> None:
    x = random("i32", (4,))
    assert np.array_equal(built(lambda g, v: g.complex(v, 1.5), x), (x + 1.5j).astype(np.complex64))
    assert np.array_equal(built(lambda g, v: g.complex_norm_sq(v), x), (x * x).astype(np.float32))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda g, z, d: g.complex(z, 0.0), "real, not c64"),
        (lambda g, z, d: g.complex(g.real(z), g.input("w", (3,))), "do not broadcast"),
    ],
)
def test_refusals(call: Any, expected: str) -> None:
    graph = Graph()
    z, d = graph.input("z", (2,), "c64"), graph.input("d", (2,), "f64")
    with pytest.raises(ShapeError, match=expected) as caught:
        call(graph, z, d)
    assert caught.value.location


def test_power_vanishes_or_explodes_as_its_size_does() -> None:
    """NumPy multiplies repeatedly for integer exponents, and meets infinities where the result is 0."""
    a = np.array([3e30 + 1j, 1e20 - 40j, np.inf + 0j, 2j, 1 + 1j], np.complex64)
    b = np.array([-89, -40 + 0j, -2, -200, -300], np.complex64)
    assert np.array_equal(run("binary", a, b, kind="pow"), np.zeros(5, np.complex64))
    assert not np.isfinite(run("binary", a[:2], -b[:2], kind="pow")).any()
