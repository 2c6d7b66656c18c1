"""`rlx.from_stablehlo` of windows, scatters and sorts with unusual orders or regions, of tuples and CHLO functions."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.special

import rlx
from tests.conformance.compiled import compile_graphs
from tests.importers.modules import values

RANDOM = np.random.default_rng(5)
JOINS: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "maximum": np.maximum,
    "subtract": lambda a, b: a - b,  # it keeps neither argument
}


def f32(numbers: Any) -> np.ndarray:
    return np.array(numbers, np.float32)


def selecting(direction: str, join: str, source: tuple[int, ...], window: tuple[int, ...]) -> str:
    dims = "x".join(map(str, source))
    return f"""func.func @f(%x: tensor<3x4x5xi64>, %y: tensor<{dims}xi64>, %i: tensor<i64>) -> tensor<3x4x5xi64> {{
      %0 = "stablehlo.select_and_scatter"(%x, %y, %i) ({{
      ^bb0(%a: tensor<i64>, %b: tensor<i64>):
        %1 = stablehlo.compare {direction}, %a, %b : (tensor<i64>, tensor<i64>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      }}, {{
      ^bb0(%a: tensor<i64>, %b: tensor<i64>):
        %1 = stablehlo.{join} %a, %b : tensor<i64>
        stablehlo.return %1 : tensor<i64>
      }}) {{window_dimensions = array<i64: {", ".join(map(str, window))}>}}
        : (tensor<3x4x5xi64>, tensor<{dims}xi64>, tensor<i64>) -> tensor<3x4x5xi64>
      return %0 : tensor<3x4x5xi64> }}"""


@pytest.mark.parametrize("direction", ["GE", "GT", "LE"])
@pytest.mark.parametrize("join", JOINS)
def test_windows_select_the_first_of_equal_elements(direction: str, join: str) -> None:
    """Elements are ordered over all axes. Any region combines the values scattered to one position."""
    window, source = (2, 3, 2), (2, 2, 4)
    x, y = RANDOM.integers(0, 3, (3, 4, 5)), RANDOM.integers(-9, 9, source)
    compare = {"GE": np.greater_equal, "GT": np.greater, "LE": np.less_equal}[direction]
    wanted = np.full(x.shape, 7)
    for place in itertools.product(*map(range, source)):
        cells = [tuple(np.add(place, step)) for step in itertools.product(*map(range, window))]
        chosen = cells[0]
        for cell in cells[1:]:
            chosen = chosen if compare(x[chosen], x[cell]) else cell
        wanted[chosen] = JOINS[join](wanted[chosen], y[place])
    graph = rlx.from_stablehlo(selecting(direction, join, source, window))
    np.testing.assert_array_equal(values(graph, x, y, np.array(7))[0], wanted)


def test_a_window_joins_its_elements_in_their_order() -> None:
    """The region is associative but not commutative: 2·2 matrices as four tensors."""
    pairs = [(f"%a{r}{k}", f"%b{k}{c}") for r in "01" for c in "01" for k in "01"]
    products = "".join(f"%p{i} = stablehlo.multiply {a}, {b} : tensor<i64>\n" for i, (a, b) in enumerate(pairs))
    sums = "".join(f"%s{i} = stablehlo.add %p{2 * i}, %p{2 * i + 1} : tensor<i64>\n" for i in range(4))
    names = [f"{r}{c}" for r in "01" for c in "01"]
    arguments = ", ".join(f"%{side}{n}: tensor<i64>" for side in "ab" for n in names)
    types, results = ", ".join(["tensor<3x4xi64>"] * 4), ", ".join(["tensor<2x2xi64>"] * 4)
    text = f"""func.func @f({", ".join(f"%x{n}: tensor<3x4xi64>" for n in names)}) -> ({results}) {{
      %0 = stablehlo.constant dense<0> : tensor<i64>
      %1 = stablehlo.constant dense<1> : tensor<i64>
      %r:4 = "stablehlo.reduce_window"({", ".join(f"%x{n}" for n in names)}, %1, %0, %0, %1) ({{
      ^bb0({arguments}):
        {products} {sums} stablehlo.return %s0, %s1, %s2, %s3 : tensor<i64>, tensor<i64>, tensor<i64>, tensor<i64>
      }}) {{window_dimensions = array<i64: 2, 3>}} : ({types}, {", ".join(["tensor<i64>"] * 4)}) -> ({results})
      return %r#0, %r#1, %r#2, %r#3 : {results} }}"""
    x = RANDOM.integers(-3, 4, (3, 4, 2, 2))
    graph = rlx.from_stablehlo(text)
    found = values(graph, *(x[..., r, c] for r in (0, 1) for c in (0, 1)))
    for i, j in itertools.product(range(2), range(2)):
        wanted = np.linalg.multi_dot([x[i + k, j + m] for k in range(2) for m in range(3)])
        np.testing.assert_array_equal([f[i, j] for f in found], wanted.ravel())


def test_regions_may_compute_in_a_wider_dtype() -> None:
    text = """func.func @f(%x: tensor<4xf32>, %i: tensor<3x1xi32>, %u: tensor<3xf32>) -> tensor<4xf64> {
      %0 = "stablehlo.scatter"(%x, %i, %u) ({
      ^bb0(%a: tensor<f64>, %b: tensor<f64>):
        %1 = stablehlo.multiply %a, %b : tensor<f64>
        stablehlo.return %1 : tensor<f64>
      }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0],
          index_vector_dim = 1>} : (tensor<4xf32>, tensor<3x1xi32>, tensor<3xf32>) -> tensor<4xf64>
      return %0 : tensor<4xf64> }"""
    x, u = f32([3e38, 2, 3, 4]), f32([1e30, 3, 1e30])
    (found,) = values(rlx.from_stablehlo(text), x, np.array([[0], [2], [0]], np.int32), u)
    np.testing.assert_allclose(found, [float(x[0]) * float(u[0]) * float(u[2]), 2, 9, 4])


def test_the_largest_elements_stand_in_the_total_order() -> None:
    """NaN is above all numbers, -NaN below. The first of equal elements is selected, and true is above false."""
    text = "func.func @f(%x: tensor<6xTYPE>) -> (tensor<4xTYPE>, tensor<4xi32>) {\n %v, %i = chlo.top_k(%x, k = 4)"
    text += " : tensor<6xTYPE> -> (tensor<4xTYPE>, tensor<4xi32>)\n return %v, %i : tensor<4xTYPE>, tensor<4xi32> }"
    x = f32([1, np.inf, -np.nan, np.nan, 1, -np.inf])
    for kind, array in (("f32", x), ("f64", x.astype(np.float64)), ("f16", x.astype(np.float16))):
        found, places = values(rlx.from_stablehlo(text.replace("TYPE", kind)), array)
        assert places.tolist() == [3, 1, 0, 4]
        np.testing.assert_array_equal(found, array[places])
    found, places = values(rlx.from_stablehlo(text.replace("TYPE", "i1")), np.array([0, 1, 0, 0, 1, 1], bool))
    assert places.tolist() == [1, 4, 5, 0]


def test_tuples_inside_of_a_function() -> None:
    text = """func.func @f(%x: tensor<2xf32>, %y: tensor<i32>) -> (tensor<i32>, tensor<2xf32>) {
      %0 = stablehlo.tuple %y : tuple<tensor<i32>>
      %1 = stablehlo.tuple %x, %0 : tuple<tensor<2xf32>, tuple<tensor<i32>>>
      %2 = stablehlo.get_tuple_element %1[1] : (tuple<tensor<2xf32>, tuple<tensor<i32>>>) -> tuple<tensor<i32>>
      %3 = stablehlo.get_tuple_element %2[0] : (tuple<tensor<i32>>) -> tensor<i32>
      %4 = stablehlo.get_tuple_element %1[0] : (tuple<tensor<2xf32>, tuple<tensor<i32>>>) -> tensor<2xf32>
      return %3, %4 : tensor<i32>, tensor<2xf32> }"""
    number, vector = values(rlx.from_stablehlo(text), f32([1, 2]), np.array(5, np.int32))
    assert number == 5 and vector.tolist() == [1, 2]
    with pytest.raises(rlx.Error, match="tuple<tensor<f32>> cannot be imported"):
        rlx.from_stablehlo(
            "func.func @f(%x: tensor<f32>) -> tuple<tensor<f32>> { %0 = stablehlo.tuple %x : tuple<tensor<f32>> "
            "return %0 : tuple<tensor<f32>> }"
        )


def unary(op: str, dtype: str, size: int) -> rlx.Graph:
    type_ = f"tensor<{size}x{dtype}>"
    return rlx.from_stablehlo(f"func.func @f(%x: {type_}) -> {type_} {{ %0 = {op} : {type_}\n return %0 : {type_} }}")


@pytest.mark.parametrize(("dtype", "tolerance"), [("f32", 3e-7), ("f64", 1e-13)])
def test_a_bessel_function(dtype: str, tolerance: float) -> None:
    ends = [0, -0.0, 8, -8, np.nextafter(8, 9), np.inf, -np.inf, np.nan]
    x = np.array(
        [*np.linspace(-20, 20, 81), *np.logspace(-30, 30, 41), *ends], rlx.f64.numpy if dtype == "f64" else "f4"
    )
    type_ = f"tensor<{x.size}x{dtype}>"
    text = (
        f"func.func @f(%x: {type_}) -> {type_} {{ %0 = chlo.bessel_i1e %x : {type_} -> {type_}\n return %0 : {type_} }}"
    )
    graph = rlx.from_stablehlo(text)
    for found in (values(graph, x)[0], compile_graphs([graph])[0].run([x])[0]):
        np.testing.assert_allclose(found, scipy.special.i1e(x.astype(np.float64)), rtol=tolerance, atol=1e-38)


def test_a_reduced_precision_keeps_derivatives() -> None:
    """Derivatives lose the same number of bits, as in JAX. NaN is not representable without fraction bits."""
    graph = unary("stablehlo.reduce_precision %x, format = e5m4", "f32", 3)
    (found,) = rlx.evaluate(
        rlx.vjp(graph, ["arg0"]), {"arg0": np.ones(3, "f4"), "cotangent_out0": f32([1, 1.01, 1e-9])}
    )[1:]
    assert found.tolist() == [1, 1, 0]
    x = f32([np.nan, 1.4, np.inf, -1.6])
    (found,) = values(unary("stablehlo.reduce_precision %x, format = e8m0", "f32", 4), x)
    assert np.abs(found).tolist() == [np.inf, 1, np.inf, 2]


@pytest.mark.parametrize("dtype", ["i8", "i16", "i32", "i64", "u8", "u32", "u64", "i4", "u4", "i2", "u2"])
def test_the_upper_half_of_a_product(dtype: str) -> None:
    """Extremes, values around halves of words, and random values."""
    kind = rlx.dtype(dtype)
    half = 2 ** (kind.bits // 2)
    low, high = int(kind.min), int(kind.max)
    ends = {
        n for n in (low, low + 1, -half, -2, -1, 0, 1, half - 1, half, half + 1, high - 1, high) if low <= n <= high
    }
    drawn = {low + int(RANDOM.integers(2**63)) * 2 % (high - low) for _ in range(20)}
    pool = sorted(ends | drawn)
    a, b = (np.array(c, object).astype(kind.numpy) for c in zip(*itertools.product(pool, pool), strict=True))
    type_ = f"tensor<{a.size}x{dtype.replace('u', 'ui')}>"
    text = f'func.func @f(%a: {type_}, %b: {type_}) -> {type_} {{ %0 = "chlo.mulhi"(%a, %b) : ({type_}, {type_}) -> {type_}\n'
    graph = rlx.from_stablehlo(text + f"return %0 : {type_} }}")
    wanted = [int(x) * int(y) >> kind.bits for x, y in itertools.product(pool, pool)]
    for (found,) in (values(graph, a, b), compile_graphs([graph])[0].run([a, b])):
        assert [int(v) for v in found] == wanted


COUNTERS = [
    *[
        ("i8", "SIGNED", first, last, step)
        for first, last, step in ((100, 127, 5), (0, 127, 1), (-128, 127, 85), (3, 2, 1))
    ],
    *[("ui8", "UNSIGNED", first, last, step) for first, last, step in ((250, 255, 3), (0, 255, 5), (200, 201, 250))],
]


@pytest.mark.parametrize("direction", ["LT", "LE"])
@pytest.mark.parametrize(("kind", "order", "first", "last", "step"), COUNTERS)
def test_counters_that_wrap_around_go_on(
    direction: str, kind: str, order: str, first: int, last: int, step: int
) -> None:
    """The number of steps is known only if the counter reaches its limit within its type."""
    graph = rlx.from_stablehlo(f"""func.func @f() -> (tensor<{kind}>, tensor<i32>) {{
      %f = stablehlo.constant dense<{first}> : tensor<{kind}>
      %z = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.while(%c = %f, %n = %z) : tensor<{kind}>, tensor<i32>
       cond {{
        %l = stablehlo.constant dense<{last}> : tensor<{kind}>
        %1 = stablehlo.compare {direction}, %c, %l, {order} : (tensor<{kind}>, tensor<{kind}>) -> tensor<i1>
        %m = stablehlo.constant dense<1000> : tensor<i32>
        %2 = stablehlo.compare LT, %n, %m, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>
        %3 = stablehlo.and %1, %2 : tensor<i1>
        stablehlo.return %{"1" if direction == "LT" else "3"} : tensor<i1>
      }} do {{
        %s = stablehlo.constant dense<{step}> : tensor<{kind}>
        %4 = stablehlo.add %c, %s : tensor<{kind}>
        %o = stablehlo.constant dense<1> : tensor<i32>
        %5 = stablehlo.add %n, %o : tensor<i32>
        stablehlo.return %4, %5 : tensor<{kind}>, tensor<i32>
      }}
      return %r#0, %r#1 : tensor<{kind}>, tensor<i32> }}""")
    width = np.dtype(np.int8 if kind == "i8" else np.uint8)
    counter, steps = width.type(first), 0
    with np.errstate(over="ignore"):
        while (counter <= last if direction == "LE" else counter < last) and (direction == "LT" or steps < 1000):
            counter, steps = (np.array([counter]) + np.array([step], np.int64).astype(width))[0], steps + 1
    assert [int(v) for v in rlx.evaluate(graph, {})] == [int(counter), steps]


def test_an_artifact_of_a_newer_version_says_so() -> None:
    """The error mentions the version if the artifact contains unknown parts.

    The version alone is not an error, and errors about damaged data do not mention it.
    """
    library = rlx.mlir.stablehlo()
    newest = library.get_current_version()
    text = "func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> { %0 = stablehlo.tanh %x : tensor<2xf32>\n"
    artifact = library.serialize_portable_artifact_str(text + "return %0 : tensor<2xf32> }", newest)
    later = artifact.replace(newest.encode(), b"9" + newest[1:].encode())
    assert [o.shape for o in rlx.from_stablehlo(later).outputs] == [rlx.Shape((2,), rlx.f32)]
    unknown = (b"tanh_v", b"tank_v")
    with pytest.raises(
        rlx.Error, match=rf"of StableHLO 9{newest[1:]}, newer than the {newest} that can be read"
    ) as caught:
        rlx.from_stablehlo(later.replace(*unknown))
    assert newest in (caught.value.hint or "")
    with pytest.raises(rlx.Error, match="not valid bytecode"):
        rlx.from_stablehlo(artifact.replace(*unknown))
