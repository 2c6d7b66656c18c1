"""Storage floats on XLA: loops do not change any code, and casts of small numbers are correct."""

from __future__ import annotations

from typing import Any

import numpy as np

import rlx
from rlx.ir.dtype import DTYPES


def test_rows_of_storage_dtypes() -> None:
    """XLA reads and stacks rows of f8e5m2fnuz through f16, which changes small numbers."""
    g: Any = rlx.Graph("main")
    kinds = [kind for kind in DTYPES if kind.storage]
    arrays, results = dict[str, np.ndarray](), []
    for kind in kinds:
        codes = (
            np.arange(1 << kind.bits, dtype=np.uint8)
            if kind.is_float
            else np.arange(1 << kind.bits - 1, dtype=np.uint8)
        )
        arrays[kind.name] = np.resize(codes, (16, 16)).view(kind.numpy)
        x = g.input(kind.name, arrays[kind.name].shape, kind)
        last, rows = g.scan(lambda carry, row: (row, carry), x[0], x)
        results += [last, rows]
    g.set_outputs(results)
    found = [np.asarray(array) for array in rlx.Session("xla").compile(g).run(arrays)]
    for i, kind in enumerate(kinds):
        x = arrays[kind.name]
        for got, wanted in ((found[2 * i], x[-1]), (found[2 * i + 1], np.concatenate([x[:1], x[:-1]]))):
            assert got.dtype == wanted.dtype
            np.testing.assert_array_equal(got.astype(np.float64), wanted.astype(np.float64), err_msg=kind.name)


def test_parts_that_loops_read_and_write() -> None:
    g: Any = rlx.Graph("main")
    kinds = [kind for kind in DTYPES if kind.storage and kind.is_float]
    arrays, results = dict[str, np.ndarray](), []
    for kind in kinds:
        arrays[kind.name] = np.resize(np.arange(1 << kind.bits, dtype=np.uint8), (16, 16)).view(kind.numpy)
        x = g.input(kind.name, (16, 16), kind)

        def body(i: Any, moved: Any, x: Any = x) -> Any:
            row = g.dynamic_slice(x, [i, 0], [1, 16])
            return i + 1, g.dynamic_update_slice(moved, row, [15 - i, 0])

        results += [g.while_(lambda i, _: i < 16, body, g.constant(np.int32(0)), x[::-1])[1], x[::-1]]
    g.set_outputs(results)
    found = [np.asarray(array, np.float64) for array in rlx.Session("xla").compile(g).run(arrays)]
    for i, kind in enumerate(kinds):
        np.testing.assert_array_equal(found[2 * i], arrays[kind.name][::-1].astype(np.float64), err_msg=kind.name)


def test_casts_to_powers_of_two() -> None:
    """f8e8m0fnu has numbers that are subnormal in f32, which XLA treats as 0."""
    g: Any = rlx.Graph("main")
    powers = 2.0 ** np.arange(-151, 129)
    numbers = np.concatenate(
        [[0.0, -0.0, -1.0, np.inf, -np.inf, np.nan], powers, powers * 1.25, powers * 1.5, powers * 1.75]
    )
    arrays, inputs = dict[str, np.ndarray](), []
    for name in ("f32", "f64", "f16", "i32", "u8"):
        kind = rlx.dtype(name)
        with np.errstate(over="ignore", invalid="ignore"):
            whole = numbers if kind.is_float else np.clip(np.nan_to_num(numbers), kind.min, kind.max)
            arrays[name] = np.unique(whole.astype(kind.numpy))
        inputs.append(g.input(name, arrays[name].shape, kind))
    g.set_outputs([g.cast(g.cast(x, "f8e8m0fnu"), "f64") for x in inputs])
    found = rlx.Session("xla").compile(g).run(arrays)
    for name, got, wanted in zip(arrays, found, rlx.evaluate(g, arrays), strict=True):
        np.testing.assert_array_equal(got, wanted, err_msg=name)
