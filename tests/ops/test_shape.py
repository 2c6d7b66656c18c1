"""Shape and index ops against JAX: the same elements, bit for bit, in other positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlx.ir.dtype import DTYPES, dtype
from tests.drawing import drawn
from tests.ops.references import INTEGERS, in_jax, random, run, same_bits, special_array

NAMES = [d.name for d in DTYPES]
Use = tuple[str, tuple[int, ...], dict[str, Any], Callable[[Any], Any]]

_UNARY: list[Use] = [
    ("reshape", (2, 3, 4), {"shape": (6, 4)}, lambda x: jnp.reshape(x, (6, 4))),
    ("reshape", (2, 3, 4), {"shape": (2, 2, 1, 6)}, lambda x: jnp.reshape(x, (2, 2, 1, 6))),
    ("reshape", (1,), {"shape": ()}, lambda x: jnp.reshape(x, ())),
    ("reshape", (0, 3), {"shape": (3, 0, 2)}, lambda x: jnp.reshape(x, (3, 0, 2))),
    ("transpose", (2, 3, 4), {"perm": (2, 0, 1)}, lambda x: jnp.transpose(x, (2, 0, 1))),
    ("transpose", (), {"perm": ()}, jnp.transpose),
    ("transpose", (0, 3), {"perm": (1, 0)}, jnp.transpose),
    ("narrow", (4, 6), {"axis": 1, "start": (2,), "length": (3,)}, lambda x: jax.lax.slice_in_dim(x, 2, 5, axis=1)),
    ("narrow", (4, 6), {"axis": 0, "start": (4,), "length": (0,)}, lambda x: jax.lax.slice_in_dim(x, 4, 4, axis=0)),
    (
        "slice",
        (5, 9),
        {"starts": (1, 0), "limits": (4, 8), "strides": (1, 3)},
        lambda x: jax.lax.slice(x, (1, 0), (4, 8), (1, 3)),
    ),
    ("slice", (5,), {"starts": (5,), "limits": (5,), "strides": (2,)}, lambda x: jax.lax.slice(x, (5,), (5,), (2,))),
    ("reverse", (3, 4, 5), {"axes": (0, 2)}, lambda x: jax.lax.rev(x, (0, 2))),
    ("reverse", (3, 4), {"axes": ()}, lambda x: x),
    ("reverse", (0, 3), {"axes": (0,)}, lambda x: jax.lax.rev(x, (0,))),
    ("expand", (3, 1), {"shape": (2, 3, 4)}, lambda x: jnp.broadcast_to(x, (2, 3, 4))),
    ("expand", (), {"shape": (2, 0)}, lambda x: jnp.broadcast_to(x, (2, 0))),
    ("expand", (1, 3), {"shape": (0, 3)}, lambda x: jnp.broadcast_to(x, (0, 3))),
]


@pytest.mark.parametrize(
    ("op", "shape", "attributes", "reference"), _UNARY, ids=[f"{op}-{shape}" for op, shape, *_ in _UNARY]
)
def test_unary(op: str, shape: tuple[int, ...], attributes: dict[str, Any], reference: Callable[[Any], Any]) -> None:
    for name in ("f32", "bf16", "bool", "c64"):
        x = special_array(name, shape)
        same_bits(run(op, x, **attributes), in_jax(reference, x))


@drawn("name", NAMES, of_each=8)
def test_concat(name: str) -> None:
    x, y = special_array(name, (2, 3)), special_array(name, (2, 4))
    aborts = dtype(name).bits == 2  # XLA's CPU client aborts the process
    expected = np.concatenate([x, y], 1) if aborts else in_jax(lambda a, b: jnp.concatenate([a, b], 1), x, y)
    same_bits(run("concat", x, y, axis=1), expected)
    same_bits(run("concat", x[:0], x, axis=0), x)


def _indices(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Return indices that include some far out of range in both directions."""
    values = random(name, shape, low=-4, high=9)
    kind = dtype(name)
    values.flat[0], values.flat[-1] = kind.max, kind.min
    return values


@drawn("name", NAMES, of_each=4)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_gather_clamps(axis: int, name: str) -> None:
    table, indices = special_array(name, (4, 5, 3)), _indices("i32", (2, 4))
    got = run("gather", table, indices, axis=axis)
    same_bits(got, in_jax(lambda t, i: jnp.take(t, i, axis=axis, mode="clip"), table, indices))


@pytest.mark.parametrize("name", INTEGERS)
def test_indices_of_every_dtype(name: str) -> None:
    table = special_array("f32", (5, 3))
    indices = _indices(name, (7,))
    clamped = [min(max(int(i), 0), 4) for i in indices]
    same_bits(run("gather", table, indices, axis=0), table[clamped])
    same_bits(run("embedding", table, indices), table[clamped])
    same_bits(run("gather_batched", table, indices, axis=0), table[clamped])


@pytest.mark.parametrize("name", ["f32", "f16", "bool", "i64", "c64"])
def test_gather_batched(name: str) -> None:
    table, indices = special_array(name, (2, 3, 5, 4)), _indices("i32", (2, 3, 6))

    def reference(t: Any, i: Any) -> Any:
        take = jax.vmap(jax.vmap(lambda a, b: jnp.take(a, b, axis=0, mode="clip")))
        return take(t, i)

    same_bits(run("gather_batched", table, indices, axis=2), in_jax(reference, table, indices))
    one = indices[:, :, 0]
    same_bits(run("gather_batched", table, one, axis=2), in_jax(reference, table, one))


def test_gathering_nothing() -> None:
    table, none = np.zeros((2, 5), np.float32), np.zeros((0,), np.int32)
    assert run("gather", table, none, axis=1).shape == (2, 0)
    assert run("gather", table[:, :0], none, axis=1).shape == (2, 0)
    assert run("embedding", table[:0], none).shape == (0, 5)


# --- leaves -----------------------------------------------------------------------------------------


@drawn("name", [d.name for d in DTYPES if not d.is_bool and not d.is_complex], of_each=8)
def test_iota(name: str) -> None:
    for shape, axis in (((3, 4), 1), ((300,), 0), ((2, 3, 2), 1), ((0, 2), 0)):
        got = run("iota", shape=shape, axis=axis, dtype=name)
        same_bits(got, in_jax(lambda s=shape, a=axis: jax.lax.broadcasted_iota(dtype(name).numpy, s, a)))


@pytest.mark.parametrize("name", NAMES)
def test_constants_keep_every_bit(name: str) -> None:
    kind = dtype(name)
    bits = np.random.default_rng(0).integers(0, 256, 240 * kind.itemsize, np.uint8)
    bits &= (1 << min(kind.bits, 8)) - 1
    values = bits % 2 == 0 if kind.is_bool else bits.view(kind.numpy)
    splat = np.full((3, 4), values[3])
    for value in (
        values[:1],
        values[:6],
        values[:50].reshape(5, 10),
        values.reshape(12, 20),
        values[0],
        values[:0],
        splat,
    ):
        same_bits(run("constant", value=np.asarray(value)), np.asarray(value))


def test_dim_size() -> None:
    got = run("dim_size", size=(7,))
    assert got.dtype == np.int32 and got.shape == () and got == 7
