"""Arrays that do not lie at a multiple of 64 bytes are read where they lie, as NumPy's large arrays never do."""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.iree import transfer
from rlx.targets.iree.memory import ALIGNMENT, IMPORT_ALIGNMENT, address, empty_aligned

SHAPE = (512, 256)  # twice the size that is always copied
ROWS = ("n", 256)


def displaced(array: np.ndarray, offset: int) -> np.ndarray:
    """Return a copy at an address of this remainder modulo 64."""
    raw = empty_aligned((array.nbytes + IMPORT_ALIGNMENT,), np.uint8)
    copy = raw[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    assert address(copy) % IMPORT_ALIGNMENT == offset
    return copy


def program(compute: Callable[..., Any], shape: Any, dtype: str = "f32", **options: Any) -> rlx.Program:
    g: Any = rlx.Graph("main")
    g.set_outputs([compute(g, g.input("x", shape, dtype))])
    return rlx.Session("cpu", threads=1).compile(g, **options)


COMPUTE: dict[str, Callable[..., Any]] = {
    "elementwise": lambda g, x: x * 2 + 1,
    "reduction": lambda g, x: g.sum(x, axis=0),
    "kernel": lambda g, x: g.softmax(x),
    "product": lambda g, x: x @ g.transpose(x, (1, 0)),
    "transpose": lambda g, x: g.transpose(x, (1, 0)),
    "slice": lambda g, x: x[3:],
}


@pytest.mark.parametrize("shape", [SHAPE, ROWS], ids=["known", "open"])
@pytest.mark.parametrize("arch", ["host", "x86-64"])
def test_results_do_not_depend_on_the_address(shape: Any, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).standard_normal((600, 256)).astype(np.float32)[: SHAPE[0]]
    if arch != "host" and platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("this machine is not an x86-64")
    for name, compute in COMPUTE.items():
        g: Any = rlx.Graph("main")
        g.set_outputs([compute(g, g.input("x", shape))])
        run = rlx.Session("cpu", threads=1, arch=arch).compile(g)
        (expected,) = run.run({"x": displaced(x, 0)})
        run.run({"x": x})  # the first two runs take copies
        with monkeypatch.context() as patch:
            patch.setattr(transfer.Lender, "_copy", _no_copy)
            for offset in range(0, IMPORT_ALIGNMENT, ALIGNMENT):
                lent = displaced(x, offset)
                np.testing.assert_array_equal(run.run({"x": lent})[0], expected, err_msg=f"{name} at {offset}")
                np.testing.assert_array_equal(lent, x)
        for offset in (4, 8, 20):
            np.testing.assert_array_equal(run.run({"x": displaced(x, offset)})[0], expected)


def _no_copy(*_: Any) -> Any:
    raise AssertionError("copied")


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16", "i8", "u16", "bool", "c64"])
def test_every_size_of_element(dtype: str) -> None:
    run = program(lambda g, x: g.transpose(x, (1, 0)), (600, 1024), dtype)
    numbers = np.random.default_rng(1).integers(0, 2, (600, 1024))
    x = numbers.astype(rlx.dtype(dtype).numpy)
    for offset in (0, 16, 48, 16):
        (got,) = run.run({"x": displaced(x, offset)})
        assert got.tobytes() == x.T.tobytes()


def test_a_donated_array_is_overwritten_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    g: Any = rlx.Graph("main")
    x = g.input("x", SHAPE, donate=True)
    g.set_outputs([x * 2])
    run = rlx.Session("cpu", threads=1).compile(g)
    x = np.random.default_rng(2).standard_normal(SHAPE).astype(np.float32)
    monkeypatch.setattr(transfer.Lender, "_copy", _no_copy)
    for offset in (16, 32, 48):
        lent = displaced(x, offset)
        (got,) = run.run({"x": lent})
        np.testing.assert_array_equal(got, 2 * x)
        kept = got.copy()
        del lent
        np.full(SHAPE, np.nan, np.float32)
        np.testing.assert_array_equal(got, kept)


def test_a_part_of_an_array_and_its_neighbours() -> None:
    """The bytes before and after the argument are neither read nor changed."""
    run = program(lambda g, x: g.sum(x, axis=0), SHAPE)
    size = SHAPE[0] * SHAPE[1]
    block = np.full(size + 64, np.nan, np.float32)
    for start in (4, 8, 12, 20):
        block[:] = np.nan
        x = block[start : start + size].reshape(SHAPE)
        x[...] = 1
        np.testing.assert_array_equal(run.run({"x": x})[0], np.full(SHAPE[1], SHAPE[0], np.float32))
        assert np.isnan(block[:start]).all() and np.isnan(block[start + size :]).all()
