"""`rlx.from_stablehlo` of windows scattered partly out of bounds, and of sorts by long functions of their elements."""

from __future__ import annotations

import itertools
import time
from typing import Any

import numpy as np
import pytest

import rlx
from tests.importers.modules import values

JOINS: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "maximum": np.maximum,
    "subtract": lambda a, b: a - b,  # not a known kind: one update after the other
}


def scattering(join: str, window: tuple[int, int], count: int) -> str:
    updates = f"{count}x{window[0]}x{window[1]}"
    return f"""func.func @f(%x: tensor<4x5xi64>, %i: tensor<{count}x2xi64>, %u: tensor<{updates}xi64>) -> tensor<4x5xi64> {{
      %0 = "stablehlo.scatter"(%x, %i, %u) ({{
      ^bb0(%a: tensor<i64>, %b: tensor<i64>):
        %1 = stablehlo.{join} %a, %b : tensor<i64>
        stablehlo.return %1 : tensor<i64>
      }}) {{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [1, 2],
          scatter_dims_to_operand_dims = [1, 0], index_vector_dim = 1>}}
        : (tensor<4x5xi64>, tensor<{count}x2xi64>, tensor<{updates}xi64>) -> tensor<4x5xi64>
      return %0 : tensor<4x5xi64> }}"""


@pytest.mark.parametrize("join", JOINS)
@pytest.mark.parametrize("window", [(1, 1), (1, 3), (2, 2), (4, 5)])
def test_a_window_that_is_not_inside_is_dropped_as_a_whole(join: str, window: tuple[int, int]) -> None:
    """A window is dropped as in XLA at all positions: before and after both axes, and at the limits of the index type."""
    places = [*itertools.product(range(-2, 7), range(-2, 6)), (2**63 - 1, 0), (0, -(2**63)), (2**63 - 2, 2**63 - 1)]
    rng = np.random.default_rng(0)
    x, u = rng.integers(-9, 9, (4, 5)), rng.integers(-9, 9, (len(places), *window))
    wanted = x.copy()
    for (column, row), update in zip(places, u, strict=True):
        if 0 <= row <= 4 - window[0] and 0 <= column <= 5 - window[1]:
            part = wanted[row : row + window[0], column : column + window[1]]
            part[...] = JOINS[join](part, update)
    (found,) = values(rlx.from_stablehlo(scattering(join, window, len(places))), x, np.array(places), u)
    np.testing.assert_array_equal(found, wanted)


def test_xla_drops_the_same_windows() -> None:
    jax = pytest.importorskip("jax")
    lax = jax.lax
    numbers = lax.ScatterDimensionNumbers(
        update_window_dims=(1, 2), inserted_window_dims=(), scatter_dims_to_operand_dims=(1, 0)
    )
    starts = np.array(list(itertools.product(range(-2, 6), range(-2, 5))), np.int32)
    x, u = np.zeros((4, 5), np.float32), np.random.default_rng(1).standard_normal((len(starts), 2, 3), np.float32)
    for function in (lax.scatter_add, lax.scatter_max):

        def scattered(x: Any, i: Any, u: Any, function: Any = function) -> Any:
            return function(x, i, u, numbers, mode=lax.GatherScatterMode.FILL_OR_DROP)

        (found,) = values(rlx.from_jax(scattered, x, starts, u), x, starts, u)
        np.testing.assert_allclose(found, np.asarray(jax.jit(scattered)(x, starts, u)), rtol=1e-5, atol=1e-5)


def sorting(first: str, second: str, size: int = 4, more: str = "") -> str:
    """Return a sort by `first` of %a and `second` of %b. These define %left and %right."""
    type_ = f"tensor<{size}xf32>"
    return f"""func.func @f(%x: {type_}, %y: tensor<f32>, %z: tensor<f32>) -> {type_} {{
      {more}
      %0 = "stablehlo.sort"(%x) ({{
      ^bb0(%a: tensor<f32>, %b: tensor<f32>):
        {first}
        {second}
        %c = stablehlo.compare LT, %left, %right : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %c : tensor<i1>
      }}) {{dimension = 0 : i64, is_stable = true}} : ({type_}) -> {type_}
      return %0 : {type_} }}"""


def doubled(argument: str, times: int, last: str) -> str:
    names = [argument, *(f"{argument}{n}" for n in range(times)), last]
    return "\n".join(f"{b} = stablehlo.add {a}, {a} : tensor<f32>" for a, b in itertools.pairwise(names))


def test_a_long_comparison_of_shared_operands_takes_no_longer() -> None:
    """The region has more lines than any recursion depth, and an exponential number of paths."""
    start = time.monotonic()
    graph = rlx.from_stablehlo(sorting(doubled("%a", 60, "%left"), doubled("%b", 60, "%right"), 600))
    assert time.monotonic() - start < 20
    x = np.random.default_rng(2).standard_normal(600).astype(np.float32)
    zero = np.zeros((), np.float32)
    np.testing.assert_array_equal(values(graph, x, zero, zero)[0], np.sort(x))
    rlx.from_stablehlo(sorting(doubled("%a", 1100, "%left"), doubled("%b", 1100, "%right"), 600))


@pytest.mark.parametrize(
    ("first", "second", "order"),
    [
        ("stablehlo.add %a, %y", "stablehlo.add %b, %z", lambda a, b, y, z: a + y < b + z),
        ("stablehlo.add %a, %y", "stablehlo.add %b, %y", lambda a, b, y, z: a + y < b + y),
        ("stablehlo.subtract %a, %y", "stablehlo.subtract %y, %b", lambda a, b, y, z: a - y < y - b),
        ("stablehlo.negate %a", "stablehlo.cosine %b", lambda a, b, y, z: -a < np.cos(b)),
    ],
)
def test_sides_that_only_look_alike_are_no_key(first: str, second: str, order: Any) -> None:
    """Values from outside of the region are compared by identity. If the sides are not one key, all pairs are compared."""

    def line(name: str, code: str) -> str:
        return f"{name} = {code} : tensor<f32>"

    x, y, z = (np.array(v, np.float32) for v in ([0.5, -1, 2, 0.25], 0.3, 5))
    graph = rlx.from_stablehlo(sorting(line("%left", first), line("%right", second)))
    (found,) = values(graph, x, y, z)
    before = np.array([[order(b, a, y, z) for b in x] for a in x])  # [i, j]: whether j comes before i
    earlier = np.tri(4, k=-1, dtype=bool)
    wanted = x[np.argsort((before | (earlier & ~before.T)).sum(1), kind="stable")]
    np.testing.assert_array_equal(found, wanted)
