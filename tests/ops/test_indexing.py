"""Indexing of tensors, against NumPy with the same index."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.graph.evaluate import evaluate
from tests.drawing import drawn

_BOUNDS = (None, 0, 1, 3, 6, 7, 9, -1, -3, -7, -9)


def _check(x: np.ndarray, dims: tuple[Any, ...], indices: list[Any]) -> None:
    g = rlx.Graph()
    tensor = g.input("x", dims)
    g.set_outputs([tensor[index] for index in indices])
    for index, got in zip(indices, evaluate(g, {"x": x}), strict=True):
        assert got.shape == x[index].shape and np.array_equal(got, x[index]), f"{index} of {x.shape}"


@pytest.mark.parametrize("step", [1, 2, 9, -1, -2, -3, -9])
def test_slices(step: int) -> None:
    x = np.arange(35, dtype=np.float32).reshape(5, 7)
    _check(x, x.shape, [np.s_[1:, start:stop:step] for start, stop in product(_BOUNDS, _BOUNDS)])


@pytest.mark.parametrize("size", [0, 1, 5, 6])
def test_slices_of_symbolic_axes(size: int) -> None:
    x = np.arange(size * 4, dtype=np.float32).reshape(size, 4)
    indices: list[Any] = [np.s_[::-1], np.s_[::-2], np.s_[::-1, ::-3], np.s_[::3], np.s_[::-1, None, 2]]
    indices += [np.s_[::-1, [1, 3]], np.s_[..., ::-1]]
    if size >= 5:
        indices += [np.s_[4:1:-1], np.s_[-2::-2], np.s_[:-3:-1], np.s_[1:-1], np.s_[-1], np.s_[-3:-1:2]]
    _check(x, ("n", 4), indices)


def test_other_entries() -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    indices: list[Any] = [0, -1, np.s_[..., 1], np.s_[:, None, 2], np.s_[1, ..., ::-1], (), np.s_[:, [2, 0, 0]], None]
    _check(x, x.shape, [*indices, np.s_[::-1, 1, np.array([[3, 1]])]])


def _entries(draw: random.Random, shape: tuple[int, ...], symbolic: bool) -> tuple[Any, ...]:
    """Return a random index: for each axis an integer, a slice, or, once, an integer or boolean array; new axes; `...`."""
    entries: list[Any] = []
    array_at = draw.choice([None, *range(len(shape))])
    axis = 0
    while axis < len(shape):
        size = shape[axis]
        if draw.random() < 0.2:
            entries.append(None)
        if axis == array_at:
            ends = (-size, size - 1) if size else (0, -1)
            dims = tuple(draw.randint(0, 3) for _ in range(draw.randint(1, 2)))
            count = int(np.prod(dims)) if size else 0
            array = np.array([draw.randint(*ends) for _ in range(count)], draw.choice(["i1", "i4", "i8"]))
            array = array.reshape(dims) if size else array
            choice = draw.randint(0, 3)
            if choice == 0 and not (symbolic and axis == 0):
                entries.append(np.array([draw.random() < 0.5 for _ in range(size)], bool))
            elif choice == 1 and not symbolic and axis + 2 <= len(shape):
                entries.append(np.random.default_rng(draw.randint(0, 99)).random(shape[axis : axis + 2]) < 0.5)
                axis += 1
            else:
                entries.append(array.tolist() if choice == 2 and array.ndim == 1 else array)
        elif size and draw.random() < 0.4:
            entries.append(draw.choice([int, np.int64, np.array])(draw.randint(-size, size - 1)))
        elif symbolic and axis == 0:
            entries.append(
                draw.choice([np.s_[:], np.s_[::2], np.s_[::-1], np.s_[1:], np.s_[:-1], np.s_[4:2], np.s_[-2:]])
            )
        else:
            bound = [None, *range(-size - 2, size + 3)]
            entries.append(slice(draw.choice(bound), draw.choice(bound), draw.choice([None, 1, 2, -1, -3])))
        axis += 1
    if draw.random() < 0.3:
        entries.insert(draw.randint(0, len(entries)), ...)
    while entries and isinstance(entries[-1], slice) and entries[-1] == slice(None) and draw.random() < 0.5:
        entries.pop()
    return tuple(entries)


@pytest.mark.parametrize(
    ("shape", "symbolic"), [((4,), False), ((3, 5), False), ((2, 3, 4), False), ((0, 3), False), ((5, 4, 3), True)]
)
def test_random_indices(shape: tuple[int, ...], symbolic: bool) -> None:
    draw = random.Random(str(shape))
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    dims = ("n", *shape[1:]) if symbolic else shape
    _check(x, dims, [_entries(draw, shape, symbolic) for _ in range(150)])


def _given(x: np.ndarray, dims: tuple[Any, ...], values: dict[str, np.ndarray]) -> tuple[Any, Any, dict[str, Any]]:
    g: Any = rlx.Graph()
    tensors = {name: g.input(name, v.shape, dtype=rlx.dtype(v.dtype)) for name, v in values.items()}
    return g, g.input("x", dims), tensors


@pytest.mark.parametrize("dims", [(300, 4), ("n", 4)])
@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8", "uint32"])
def test_tensors_count_from_the_end_once_and_are_clamped_then(dtype: str, dims: tuple[Any, ...]) -> None:
    size = 300
    x = np.arange(size * 4, dtype=np.float32).reshape(size, 4)
    limits = np.iinfo(dtype)
    wide = np.array([0, 1, 127, 299, 300, 1000, -1, -2, -128, -300, -301, -9999, limits.min, limits.max], object)
    i = np.array([v for v in wide if limits.min <= v <= limits.max]).astype(dtype)
    expected = [max(0, min(int(v) + size if v < 0 else int(v), size - 1)) for v in i]
    g, tensor, given = _given(x, dims, {"i": i, "k": i[-1]})
    g.set_outputs([tensor[given["i"]], tensor[given["k"], 1], tensor[::-1, given["k"]], tensor[given["k"], given["k"]]])
    values = {"x": x, "i": i, "k": i[-1]}
    k, column = expected[-1], max(0, min(int(i[-1]) + 4 if i[-1] < 0 else int(i[-1]), 3))
    wanted = [x[expected], x[k, 1], x[::-1, column], x[k, column]]
    for got, want in zip(evaluate(g, values), wanted, strict=True):
        assert np.array_equal(got, want)


@drawn("device", ["cpu", "xla"])
def test_compiled_indices(device: str) -> None:
    x = np.arange(60, dtype=np.float32).reshape(5, 4, 3)
    i, k = np.array([[0, -1], [-5, 7]], np.int32), np.array(-2, np.int8)
    g, tensor, given = _given(x, ("n", 4, 3), {"i": i, "k": k})
    mask = np.array([True, False, True, True])
    constant = [
        np.s_[[-1, 2]],
        np.s_[[-1, -5], ::-1, 1],
        np.s_[[1, 3], :, 2],
        np.s_[:, ::-1, 2],
        np.s_[0, :, [1, -1]],
        np.s_[:, mask],
    ]
    g.set_outputs([tensor[given["i"]], tensor[::2, given["k"]], *(tensor[c] for c in constant)])
    values = {"x": x, "i": i, "k": k}
    wanted = [x[np.array([[0, 4], [0, 4]])], x[::2, 2], *(x[c] for c in constant)]
    for got, want in zip(rlx.Session(device).compile(g).run(values), wanted, strict=True):
        assert got.shape == want.shape and np.array_equal(got, want)


def test_positions_in_an_axis_of_symbolic_size_are_checked_when_it_is_known() -> None:
    for positions in ([0, 4], [-5, -1], [-5, 0], [4, -1], np.array([4], np.uint8)):
        g: Any = rlx.Graph()
        g.set_outputs([g.input("x", ("n", 2))[positions]])
        x = np.arange(10, dtype=np.float32).reshape(5, 2)
        assert np.array_equal(evaluate(g, {"x": x})[0], x[positions])
        with pytest.raises(rlx.ShapeError, match=r"test_indexing.py:\d+: .*does not fit axis 0 of size n .for n = 4"):
            evaluate(g, {"x": x[:4]})


def test_indices_that_are_refused() -> None:
    g: Any = rlx.Graph()
    x, n, t, f, b = (
        g.input(name, dims, dtype=kind)
        for name, dims, kind in (
            ("x", (2, 3), "f32"),
            ("n", ("n", 3), "f32"),
            ("t", (), "i32"),
            ("f", (2,), "f32"),
            ("b", (2, 3), "bool"),
        )
    )
    cases: list[tuple[Any, Any, str]] = [
        (x, np.s_[::0], "step must not be 0"),
        (x, np.s_[::1.5], "step of a slice is an integer"),
        (x, 5, "index 5 is out of range for axis 0 of size 2"),
        (x, (0, -4), "index -4 is out of range for axis 1 of size 3"),
        (x, 2**70, "out of range"),
        (x, np.s_[:, [0, 7]], "index 7 is out of range for axis 1 of size 3"),
        (x, np.array([[-3]]), "index -3 is out of range for axis 0 of size 2"),
        (x, np.array([2**63], np.uint64), "out of range for axis 0"),
        (n, np.array([2**63], np.uint64), "at most"),
        (x, (0, 0, 0), "3 indices"),
        (x, (..., ...), "one ellipsis"),
        (x, True, "booleans"),
        (x, np.array(False), "booleans"),
        (x, [True, False, True], r"has to have the sizes of the axes from 0 on, which are \[2"),
        (n, [True, False, True], r"which are \[n\]"),
        (x, np.ones((3, 2), bool), r"which are \[2, 3\]"),
        (x, ([0, 1], [1, 0, 2]), "do not broadcast"),
        (x, np.s_[t : t * 2], "sizes may not depend on values"),
        (x, b, "shape that depends on values"),
        (x, f, "of integers, not f32"),
        (x, 1.0, "not 1.0"),
        (x, [0.0], "an index is an integer"),
        (x, np.array([]), "an index is an integer"),
        (x, "n", "not 'n'"),
        (x, [[0], [0, 1]], "is no array"),
        (x, np.ma.masked_array([0, 1], mask=[False, True]), "plain array, got a masked one"),
        (x, np.ma.masked_array(1, mask=True), "plain array, got a masked one"),
        (x, np.ma.masked_array([True, False], mask=[False, True]), "plain array, got a masked one"),
        (x, [np.ma.masked_array([0, 1], mask=[False, True])], "plain array, got a masked one"),
        (x, np.s_[t:], "sizes may not depend on values"),
        (x, np.s_[: t + 1], "sizes may not depend on values"),
        (x, np.s_[::t], "sizes may not depend on values"),
        (n, np.s_[1.5:], "bound of a slice is an integer"),
        (x, np.s_["a":], "bound of a slice is an integer"),
    ]
    for tensor, index, reason in cases:
        with pytest.raises(rlx.ShapeError, match=reason) as caught:
            tensor[index]
        assert "test_indexing.py" in (caught.value.location or ""), index
