"""Padding and triangles against NumPy, PyTorch and JAX: the same elements, bit for bit."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from rlx.ir.dtype import DTYPES, WITH_ZERO, dtype
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.op.signature import functions
from tests.drawing import drawn
from tests.ops.references import in_jax, run, same_bits, special_array

NAMES = [d.name for d in DTYPES]
_NUMPY = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _padded(x: np.ndarray, padding: Any, **options: Any) -> np.ndarray:
    """Return the result of the method on the evaluator."""
    g = rlx.Graph()
    g.set_outputs([g.pad(g.input("x", rlx.Shape(x.shape, dtype(x.dtype))), padding, **options)])
    return evaluate(g, {"x": x})[0]


@drawn("name", NAMES, of_each=4)
@pytest.mark.parametrize("mode", _NUMPY)
def test_pad(mode: str, name: str) -> None:
    x = special_array(name, (4, 5, 3))
    low, high = (3, 0, 2), (1, 4, 1)
    got = run("pad", x, low=low, high=high, mode=mode, value=1.0)
    pairs = list(zip(low, high, strict=True))
    given = {"constant_values": x.dtype.type(1)} if mode == "constant" else {}
    # JAX has its own padding, for every dtype.
    same_bits(got, in_jax(lambda v: jnp.pad(v, pairs, mode=_NUMPY[mode], **given), x))


@pytest.mark.parametrize("padding", [2, (1, 3), [(1, 3)], [(0, 2), (1, 0)], np.array([[0, 2], [1, 0]]), [(1,), (2,)]])
def test_padding_is_written_as_in_numpy(padding: Any) -> None:
    x = special_array("f32", (4, 5))
    same_bits(_padded(x, padding), np.pad(x, padding))
    same_bits(_padded(x, padding, mode="reflect"), np.pad(x, padding, "reflect"))


@pytest.mark.parametrize(
    "padding", [(1, 2, 3), [(1, 2, 3)] * 2, [(1, 2)] * 3, [1, (2, 3)], -1, 1.5, [(1, -1)] * 2, [], None]
)
def test_padding_that_is_none(padding: Any) -> None:
    with pytest.raises(rlx.Error, match=r"rlx\.pad"):
        _padded(special_array("f32", (4, 5)), padding)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, -0.0, 1e-45, 3e38])
def test_every_bit_of_the_value_counts(value: float) -> None:
    x = np.ones((2, 2), np.float32)
    same_bits(_padded(x, 1, value=value), np.pad(x, 1, constant_values=np.float32(value)))


def test_the_value_has_to_be_of_the_dtype() -> None:
    for name, value in (("i32", 0.5), ("u8", -1), ("i8", 128), ("i64", np.nan), ("bool", 2), ("i32", np.inf)):
        with pytest.raises(rlx.ShapeError, match="does not fit"):
            _padded(special_array(name, (2, 2)), 1, value=value)
    assert _padded(np.zeros((1,), bool), 1, value=True).tolist() == [True, False, True]


def test_pad_of_nothing_and_by_nothing() -> None:
    empty = np.zeros((0, 2), np.float32)
    assert _padded(empty, [(2, 1), (0, 0)], value=3).tolist() == [[3.0, 3.0]] * 3
    for mode in ("reflect", "replicate", "circular"):
        assert _padded(empty, 0, mode=mode).shape == (0, 2)
        with pytest.raises(rlx.ShapeError, match="axis 0"):
            _padded(empty, [(1, 0), (0, 0)], mode=mode)
    x = np.ones((3,), np.float32)
    assert _padded(x, 2, mode="reflect").shape == (7,) and _padded(x, 3, mode="circular").shape == (9,)
    with pytest.raises(rlx.ShapeError, match="cannot add 3"):
        _padded(x, 3, mode="reflect")
    with pytest.raises(rlx.ShapeError, match="cannot add 4"):
        _padded(x, 4, mode="circular")
    assert _padded(np.array(3, np.float32), 2).tolist() == 3.0


def test_symbolic_padding() -> None:
    g = rlx.Graph()
    x = g.input("x", ("n", 2))
    g.set_outputs([g.pad(x, [(0, "n"), (1, 0)]), g.pad(x, [("n", 1), (0, 0)], mode="circular")])
    assert [str(o.shape) for o in g.outputs] == ["f32[2*n, 3]", "f32[2*n+1, 2]"]
    value = np.arange(6, dtype=np.float32).reshape(3, 2)
    padded, wrapped = evaluate(g, {"x": value})
    same_bits(padded, np.pad(value, [(0, 3), (1, 0)]))
    same_bits(wrapped, np.pad(value, [(3, 1), (0, 0)], "wrap"))
    g = rlx.Graph()
    g.set_outputs([g.pad(g.input("x", ("n",)), (2, 0), mode="reflect")])
    with pytest.raises(rlx.ShapeError, match="cannot add 2 to axis 0"):
        evaluate(g, {"x": np.ones(2, np.float32)})


# --- triangles --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_ZERO)
@pytest.mark.parametrize("upper", [False, True])
def test_triangular(upper: bool, name: str) -> None:
    for shape in ((4, 6), (2, 5, 3), (0, 3), (3, 0)):
        x = special_array(name, shape)
        for diagonal in (0, 1, -2, 9, -9):
            got = run("triangular", x, upper=upper, diagonal=diagonal)
            same_bits(got, (np.triu if upper else np.tril)(x, diagonal))


@pytest.mark.parametrize("diagonal", [2**31, 2**63 - 1, -(2**63)])
def test_diagonals_far_away(diagonal: int) -> None:
    from tests.conformance.functions import decompose, evaluate_function, merged, primitives

    for upper in (False, True):
        g = rlx.Graph()
        g.set_outputs([g.triangular(g.input("x", (2, 3)), upper=upper, diagonal=diagonal)])
        module = merged([g])
        decompose(module, primitives())
        x = np.ones((2, 3), np.float32)
        (got,) = evaluate_function(functions(module)[0], [x], {})
        assert (got == float(upper == (diagonal < 0))).all()
        same_bits(got, run("triangular", x, upper=upper, diagonal=diagonal))
