"""Search functions and tensor products with NumPy's names, against NumPy and JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rlx
from rlx.support.errors import ShapeError
from tests.drawing import drawn
from tests.functions.test_spectral import built

RANDOM = np.random.default_rng(3)


def _ints(*dims: int) -> np.ndarray:
    return RANDOM.integers(-4, 5, dims).astype(np.float32)


X, COUNTS = _ints(3, 4), np.array([0, 3, 3, 1], np.int32)
SPECIAL = X.copy()
SPECIAL[0, 0] = SPECIAL[1, 1] = np.nan
SPECIAL[2, 2] = np.inf
ROW = np.sort(np.array([1, 2, 2, 3, 5, np.inf, np.nan, np.nan], np.float32))
SOUGHT = np.array([[0, 1, 2, 2.5], [5, 9, np.inf, np.nan]], np.float32)
POINTS, VALUES = np.array([0, 1, 3], np.float32), np.array([1, 5, -1], np.float32)
AT = np.array([-1, 0, 0.5, 1, 2, 3, 4], np.float32)
RISING = np.array([[-np.inf, 1, 2, 1000, -5], [3, np.nan, 1, 2, 3]], np.float32)
PLACES = RANDOM.integers(-5, 4, (3, 1, 7))
CUBE = _ints(3, 4, 5)
ONCE = np.stack([RANDOM.permutation(4)[:2] for _ in range(15)]).reshape(3, 5, 2).swapaxes(1, 2)


def _put(m: Any, x: Any, i: Any, v: Any) -> Any:
    if m is np:
        x = x.copy()
        np.put_along_axis(x, i, v, 1)
        return x
    return m.put_along_axis(x, i, v, axis=1)


# Calls, where `m` is the library or the graph, and their operands.
NUMPY: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    **{
        f"searchsorted {side} {n}": (lambda m, a, v, side=side: m.searchsorted(a, v, side=side), [ROW[:n], SOUGHT])
        for side in ("left", "right")
        for n in (0, 1, 2, 5, 8)
    },
    **{
        f"digitize {right} {step}": (
            lambda m, v, a, right=right: m.digitize(v, a, right=right),
            [SOUGHT, ROW[:5][::step]],
        )
        for right in (False, True)
        for step in (1, -1)
    },
    "bincount": (lambda m, x: m.bincount(x, minlength=6), [COUNTS]),
    "bincount weights": (lambda m, x, w: m.bincount(x, w, minlength=4), [COUNTS, VALUES[[0, 1, 2, 0]]]),
    "isin": (lambda m, x: m.isin(x, np.array([1, 2], np.float32)), [X]),
    "isin invert": (lambda m, x: m.isin(x, np.array([1, 2], np.float32), invert=True), [X]),
    "histogram": (lambda m, x: m.histogram(x), [X]),
    "histogram range": (lambda m, x: m.histogram(x, bins=3, range=(-1, 1)), [X]),
    "histogram density": (lambda m, x: m.histogram(x, 4, density=True), [X]),
    "histogram borders": (lambda m, x: m.histogram(x, [-2.0, 0.0, 1.0, 2.0]), [X]),
    "interp": (lambda m, x, xp, fp: m.interp(x, xp, fp), [AT, POINTS, VALUES]),
    "interp ends": (lambda m, x, xp, fp: m.interp(x, xp, fp, left=9, right=8), [AT, POINTS, VALUES]),
    "take": (lambda m, x, i: m.take(x, i, axis=1), [CUBE, np.array([[0, -1], [2, 1]])]),
    "take all": (lambda m, x, i: m.take(x, i), [CUBE, np.array([[0, -1], [20, 1]])]),
    "take_along_axis": (lambda m, x, i: m.take_along_axis(x, i, axis=-1), [CUBE, PLACES]),
    "take_along_axis 0": (lambda m, x, i: m.take_along_axis(x, i, axis=0), [CUBE, np.clip(PLACES[:, :, :5], -3, 2)]),
    "put_along_axis": (_put, [CUBE, ONCE, _ints(3, 2, 5)]),
    "unravel_index": (lambda m, i: m.unravel_index(i, (3, 4, 5)), [np.array([[0, 59], [17, 3]])]),
    "ravel_multi_index": (lambda m, i, k: m.ravel_multi_index((i, k), (7, 3)), [np.array([6, 2]), np.array([0, 2])]),
    "dot": (lambda m, a, b: m.dot(a, b), [_ints(2, 3), _ints(5, 3, 4)]),
    "dot vector": (lambda m, a, b: m.dot(a, b), [_ints(2, 3), _ints(3)]),
    "inner": (lambda m, a, b: m.inner(a, b), [_ints(2, 3), _ints(4, 3)]),
    "vdot": (lambda m, a, b: m.vdot(a, b), [(_ints(2, 3) + 1j * _ints(2, 3)).astype(np.complex64)] * 2),
    "vecdot": (lambda m, a, b: m.vecdot(a, b), [_ints(2, 3), _ints(1, 3)]),
    "tensordot": (lambda m, a, b: m.tensordot(a, b), [_ints(2, 3, 4), _ints(3, 4, 5)]),
    "tensordot axes": (lambda m, a, b: m.tensordot(a, b, axes=([0, 2], [1, -1])), [_ints(2, 3, 4), _ints(5, 2, 4)]),
    "kron": (lambda m, a, b: m.kron(a, b), [_ints(2, 3), _ints(4)]),
    "cross": (lambda m, a, b: m.cross(a, b), [_ints(2, 3), _ints(1, 3)]),
    "cross axis": (lambda m, a, b: m.cross(a, b, axis=0), [_ints(3, 2), _ints(3, 2)]),
    "trace": (lambda m, a: m.trace(a, 1, axis1=0, axis2=2), [_ints(3, 4, 2)]),
}
JAX: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    **{f"nonzero {n}": (lambda m, x, n=n: m.nonzero(x, size=n, fill_value=7), [X]) for n in (3, 12, 15)},
    "argwhere": (lambda m, x: m.argwhere(x, size=9), [X]),
    "flatnonzero": (lambda m, x: m.flatnonzero(x, size=9), [X]),
    "unique": (lambda m, x: m.unique(x, size=5), [X]),
    "unique all": (lambda m, x: m.unique(x, True, True, True, size=12), [SPECIAL]),
    "unique fill": (lambda m, x: m.unique(x, True, True, True, size=12, fill_value=9), [SPECIAL]),
    "index_add": (
        lambda m, x, i, u: x.at[:, i].add(u) if m is jnp else m.index_add(x, i, u, axis=1),
        [CUBE, np.array([0, 3, 0, -1]), _ints(3, 4, 5)],
    ),
    **{
        f"logcumsumexp {axis}": (
            lambda m, x, a=axis: jax.lax.cumlogsumexp(x, a) if m is jnp else m.logcumsumexp(x, axis=a),
            [RISING],
        )
        for axis in (0, 1)
    },
}
SUBSCRIPTS: dict[str, list[tuple[int, ...]]] = {
    "ij,jk->ik": [(2, 3), (3, 4)],
    "ij,jk": [(2, 3), (3, 4)],
    "bij,bjk->bik": [(5, 2, 3), (5, 3, 4)],
    "ii->i": [(3, 3)],
    "ii": [(3, 3)],
    "...ij,...jk->...ik": [(5, 1, 2, 3), (7, 3, 4)],
    "i,j->ij": [(3,), (4,)],
    "ij->ji": [(2, 3)],
    "ij,kj,kl,lm->im": [(2, 3), (4, 3), (4, 5), (5, 6)],
    "ijk->": [(2, 3, 4)],
    "i,i,i": [(3,), (3,), (3,)],
    "bhqd,bhkd->bhqk": [(2, 3, 4, 5), (2, 3, 6, 5)],
    "iij,jkk->ik": [(3, 3, 2), (2, 4, 4)],
    "ab,ab->b": [(1, 3), (4, 3)],
    "a...,a->...": [(3, 2, 2), (3,)],
    ",ij->ij": [(), (2, 3)],
    "iii->": [(2, 2, 2)],
    "...->...": [(2, 3)],
}
for _text, _dims in SUBSCRIPTS.items():
    NUMPY[f"einsum {_text}"] = (lambda m, *x, t=_text: m.einsum(t, *x), [_ints(*d) for d in _dims])


def _check(got: list[np.ndarray], expected: Any) -> None:
    wanted = list(expected) if isinstance(expected, (list, tuple)) else [expected]
    assert len(got) == len(wanted)
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NUMPY)
def test_gives_what_numpy_gives(name: str) -> None:
    call, operands = NUMPY[name]
    _check(built(call, *operands), call(np, *operands))


@drawn("name", JAX, of_each=4)
def test_gives_what_jax_gives(name: str) -> None:
    call, operands = JAX[name]
    _check(built(call, *operands), call(jnp, *map(jnp.asarray, operands)))


@drawn("device", ["cpu", "xla"])
@drawn("share", range(3))
def test_compiled_as_evaluated(device: str, share: int) -> None:
    """Every call of a share, compiled in one module."""
    g: Any = rlx.Graph()
    values: dict[str, np.ndarray] = {}
    outputs, expected = [], []
    for number, (call, operands) in enumerate([*NUMPY.values(), *JAX.values()][share::3]):
        tensors = []
        for place, array in enumerate(operands):
            name = f"x{number}_{place}"
            values[name] = array
            tensors.append(g.input(name, array.shape, dtype=array.dtype))
        result = call(g, *tensors)
        outputs += list(result) if isinstance(result, (list, tuple)) else [result]
    g.set_outputs(outputs)
    expected = rlx.evaluate(g, values)
    for got, want in zip(rlx.Session(device).compile(g).run(values), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_einsum_with_lists_and_its_errors() -> None:
    x, y = _ints(2, 3), _ints(3, 4)
    np.testing.assert_array_equal(built(lambda g, a, b: g.einsum(a, [0, 1], b, [1, 2], [0, 2]), x, y)[0], x @ y)
    np.testing.assert_array_equal(built(lambda g, a, b: rlx.ops.einsum("ij,jk", a, b), x, y)[0], x @ y)
    for subscripts, message in {
        "ij,jk->il": "label 'l' of the result is that of no operand",
        "ij": "1 operands, and 2 were given",
        "i,jk": "the labels 'i' do not fit",
        "ij,jk->ii": "occurs twice in the result",
        "ij;jk": "subscripts are letters",
        "ij,ik": "label 'i' has size 2 and",
    }.items():
        with pytest.raises(ShapeError, match=message):
            built(lambda g, a, b: g.einsum(subscripts, a, b), x, y)  # noqa: B023
    with pytest.raises(ShapeError, match=r"expected subscripts.* not <Tensor"):
        built(lambda g, a, b: g.einsum(a, b), x, y)


@pytest.mark.parametrize("size", [1 << 17, 1 << 62])
def test_a_long_axis_is_not_iterated_over(size: int) -> None:
    """Each element would be an op, so an accidental iteration would not end."""
    g: Any = rlx.Graph()
    x = g.input("x", (size, 2))
    for use in (list, lambda t: (*t,), lambda t: g.einsum(t, t)):
        with pytest.raises(rlx.Error, match=r"slices, each an op|expected subscripts"):
            use(x)


def test_symbolic_sizes() -> None:
    g: Any = rlx.Graph()
    x, row = g.input("x", ("n", 3)), g.input("row", ("m",))
    g.set_outputs(
        [
            g.einsum("ni,nj->ij", x, x),
            g.searchsorted(row, x),
            g.flatnonzero(x, size=6),
            g.logcumsumexp(row),
            x.at[:, 1].set(0),
            x.at[g.argmax(row)].add(1),
            g.dynamic_slice_in_dim(x, g.argmax(row), 2),
        ]
    )
    a, r = _ints(5, 3), np.array([-2, 0, 1, 3], np.float32)
    got = rlx.evaluate(g, {"x": a, "row": r})
    changed, added = a.copy(), a.copy()
    changed[:, 1] = 0
    added[3] += 1
    found = jnp.flatnonzero(a, size=6)
    wanted = [a.T @ a, np.searchsorted(r, a), found, np.logaddexp.accumulate(r), changed, added, a[3:5]]
    for mine, theirs in zip(got, wanted, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)


def test_sizes_that_are_missing_are_asked_for() -> None:
    g: Any = rlx.Graph()
    x = g.input("x", (3,), dtype="i32")
    for name in ("nonzero", "flatnonzero", "argwhere", "unique", "bincount"):
        with pytest.raises(ShapeError, match=rf"{name}: how many there are depends on values") as caught:
            getattr(g, name)(x)
        assert f"{name}(x, " in (caught.value.hint or "")


def test_a_histogram_counts_every_element() -> None:
    """The greatest element is in the last interval, whatever the rounding of the edges."""
    g: Any = rlx.Graph()
    rows = np.random.default_rng(5).standard_normal((60, 11)).astype(np.float32)
    x = g.input("x", rows.shape)
    g.set_outputs([g.stack([g.sum(g.histogram(x[n], bins=2 + n % 9)[0]) for n in range(len(rows))])])
    np.testing.assert_array_equal(rlx.evaluate(g, {"x": rows})[0], 11)
