"""Kernels whose code is shared by cases of different sizes: with a plan, numbers and open axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx
from rlx.kernels.buffer import Buffer
from rlx.kernels.case import KernelCase
from rlx.kernels.kernel import Kernel


class Rotated(rlx.CustomOp, name="shared.rotated"):
    """The rows of a matrix, rotated by some positions."""

    def infer(self, x: rlx.Shape, *, by: int = 1) -> rlx.Shape:
        return x

    def evaluate(self, x: np.ndarray, *, by: int = 1) -> np.ndarray:
        return np.roll(x, -by, axis=1)


def _numbers(case: KernelCase) -> dict[str, int]:
    return {"by": case.attributes["by"] % max(1, case.results[0].static[1]), "rows": case.results[0].static[0]}


@rlx.kernel(
    Rotated,
    name="shared_rotated",
    pays=lambda case: case.results[0].dims[0] != 7,
    plan=lambda case: 4 if case.attributes["by"] > 100 else 1,
    numbers=_numbers,
    open_axes=lambda case: [[(0, 0), (1, 0)], [(0, 1), (1, 1)]],
)
def rotated(k: Kernel, x: Buffer, y: Buffer, *, plan: int, by: Any, rows: Any) -> None:
    """Read the columns before and after the seam."""
    assert plan in (1, 4)
    size = x.shape[1]
    for i in k.parallel(rows, plan):
        for c in k.vectors(size - by):
            y[i, c] = x[i, c + by]
        for j in k.range(by):
            y[i, size - by + j] = x[i, j]


_SIZES = ((1, 5, 2), (3, 17, 9), (9, 64, 64), (4, 33, 101), (2, 3, 500), (1, 1, 0))


def _graph(sizes: Sequence[tuple[int, int, int]]) -> tuple[rlx.Graph, list[np.ndarray]]:
    g, rng = rlx.Graph("rotated"), np.random.default_rng(0)
    arrays = [rng.standard_normal((rows, columns)).astype(np.float32) for rows, columns, _ in sizes]
    xs = [g.input(f"x{i}", array.shape) for i, array in enumerate(arrays)]
    g.set_outputs([g.custom(Rotated, x, by=by) for x, (_, _, by) in zip(xs, sizes, strict=True)])
    return g, arrays


def _executables(g: rlx.Graph, choice: str) -> int:
    """The number of executables that a graph needs."""
    cpu = "cpu=x86-64-v3"
    steps = f'rlx-iree-kernels{{{cpu} choice="{choice}"}},rlx-to-linalg,rlx-iree-emit-kernels{{{cpu}}}'
    return str(rlx.passes.run(g, f"builtin.module({steps})")).count('"stream.executable.export"')


def test_numbers_and_open_sizes() -> None:
    g, arrays = _graph(_SIZES)
    assert _executables(g, "off +shared_rotated") == 2  # one for each plan
    wanted = [np.roll(a, -by, axis=1) for a, (_, _, by) in zip(arrays, _SIZES, strict=True)]
    program = rlx.Session("cpu").compile(g, kernels="off +shared_rotated")
    for got, array in zip(program.run({f"x{i}": a for i, a in enumerate(arrays)}), wanted, strict=True):
        np.testing.assert_array_equal(got, array)
    for array, (_, _, by), result in zip(arrays, _SIZES, wanted, strict=True):
        np.testing.assert_array_equal(rotated.run(array, by=by), result)


class Inverse(rlx.CustomOp, name="shared.inverse"):
    """A number over another, which may be a zero with a sign."""

    def infer(self, x: rlx.Shape, *, divisor: float) -> rlx.Shape:
        return x

    def evaluate(self, x: np.ndarray, *, divisor: float) -> np.ndarray:
        with np.errstate(all="ignore"):
            return x / np.float32(divisor)


@rlx.kernel(Inverse, name="shared_inverse", plan=lambda case: 1 if case.attributes["divisor"] else True)
def inverse(k: Kernel, x: Buffer, y: Buffer, *, plan: int, divisor: float) -> None:
    for i in k.range(x.shape[0]):
        y[i] = x[i] / k.constant(divisor, rlx.f32)


def test_equal_numbers_of_different_meaning_do_not_share_code() -> None:
    g = rlx.Graph("signs")
    x = g.input("x", (2,))
    divisors = (0.0, -0.0, 1.0, 0.0)
    g.set_outputs([g.custom(Inverse, x, divisor=d) for d in divisors])
    assert _executables(g, "all") == 3
    values = {"x": np.ones(2, np.float32)}
    for result, divisor in zip(rlx.Session("cpu").compile(g, kernels="all").run(values), divisors, strict=True):
        np.testing.assert_array_equal(result, Inverse().evaluate(values["x"], divisor=divisor))


def test_symbols_with_the_names_of_open_sizes() -> None:
    g = rlx.Graph("names")
    x = g.input("x", ("open0", 3, "number_rows"))
    g.set_outputs([g.softmax(x, 2), g.sum(x, 2)])
    values = {"x": np.linspace(-2, 2, 5 * 3 * 300, dtype=np.float32).reshape(5, 3, 300)}
    results = rlx.Session("cpu").compile(g, kernels="all").run(values)
    for result, expected in zip(results, rlx.evaluate(g, values), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def _convolutions() -> rlx.Graph:
    """Convolutions of images and channels of many sizes."""
    g = rlx.Graph("network")
    results: list[Any] = []
    for size in (56, 33, 28, 14, 64):
        for channels, more in ((3, 64), (64, 64), (96, 17), (512, 130)):
            x = g.input(f"x{len(results)}", (1, channels, size, size))
            for taps in (1, 3):
                w = g.param(f"w{len(results)}", (more, channels, taps, taps))
                results.append(g.conv(x, w, padding=taps // 2))
    g.set_outputs(results)
    return g


def test_convolutions_share_code() -> None:
    assert _executables(_convolutions(), "auto") == 2


def test_depthwise_convolutions_and_pools_share_code() -> None:
    g = rlx.Graph("network")
    results: list[Any] = []
    for channels in (8, 24, 96):
        x = g.input(f"x{channels}", (2, channels, 28, 28))
        results += [g.conv(x, g.param(f"w{channels}", (channels, 1, 3, 3)), padding=1, groups=channels)]
        results += [g.max_pool(x, (3, 3), (2, 2), 1)]
    g.set_outputs(results)
    assert _executables(g, "auto") == 2


def test_constants_are_visited_once() -> None:
    g = rlx.Graph("squares")
    y = g.constant(np.linspace(0.5, 1.0, 70_000, dtype=np.float32).reshape(7, 10_000))  # too large to be evaluated
    for _ in range(60):
        y = y * y
    g.set_outputs([g.softmax(g.softmax(g.input("x", (7, 10_000)), 1) + g.softmax(y, 1), 1)])
    assert _executables(g, "auto") >= 1
