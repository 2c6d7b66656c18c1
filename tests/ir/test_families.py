"""Families of dtypes: code for floats or integers also accepts those of ml_dtypes, whose kind is "V" in NumPy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import helper

import rlx
from rlx.ir.dtype import DTYPES, DType, family
from rlx.ir.packing import pack
from rlx.ir.python_values import given_array
from rlx.quantization.bit_widths import _likeness
from rlx.runtime.tuning import _scaled
from tests.importers.onnx_dtypes import NUMBERS

FLOATS = [d for d in DTYPES if d.is_float and d.has_zero]
INTEGERS = [d for d in DTYPES if d.is_integer]


def test_families() -> None:
    assert all(family(d.numpy) == d.kind for d in DTYPES)
    assert family(np.dtype(np.longdouble)) == "float" and family(np.dtype(np.clongdouble)) == "complex"
    for other in ("O", "S3", "U3", "V2", "M8[s]", [("a", "f4")]):
        assert family(np.dtype(other)) == ""


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_values_without_axes_are_given_for_wider_dtypes(kind: DType) -> None:
    for wanted in (rlx.f32, rlx.c64):
        found = given_array(kind.numpy.type(0.5), wanted, "x")
        assert found.dtype == wanted.numpy and found == 0.5


@pytest.mark.parametrize("kind", INTEGERS, ids=str)
def test_integers_without_axes_are_given_for_others_and_index(kind: DType) -> None:
    one = np.ones((), kind.numpy)
    for wanted in (rlx.i32, rlx.u8, rlx.f32, rlx.i4):
        assert given_array(one, wanted, "x").dtype == wanted.numpy
    g: Any = rlx.Graph()
    x = g.input("x", (3, 2))
    g.set_outputs([x[np.array([1, 0], kind.numpy)]])
    np.testing.assert_array_equal(
        rlx.evaluate(g, {"x": np.arange(6, dtype=np.float32).reshape(3, 2)})[0], [[2, 3], [0, 1]]
    )


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_scales_of_any_float(kind: DType) -> None:
    g: Any = rlx.Graph()
    x = g.input("x", (4,))
    g.set_outputs([g.quantize(x, scale=np.ones((), kind.numpy) / kind.numpy.type(2), zero_point=0)])
    np.testing.assert_array_equal(rlx.evaluate(g, {"x": np.array([0, 1, 2, -3], np.float32)})[0], [0, 2, 4, -6])
    with pytest.raises(rlx.Error, match="scale"):
        g.quantize(x, scale=-np.ones((), kind.numpy), zero_point=0)


@pytest.mark.parametrize("kind", FLOATS, ids=str)
def test_outputs_of_any_float_are_compared_as_numbers(kind: DType) -> None:
    wanted, near = np.array([1, 1.5, 2], kind.numpy), np.array([1, 1.5, 3], kind.numpy)
    exact, other = wanted.astype(np.float64), near.astype(np.float64)
    cosine = float(exact @ other) / float(np.linalg.norm(exact) * np.linalg.norm(other))
    assert _likeness(wanted, near) == pytest.approx(cosine)
    assert _likeness(wanted, wanted) == pytest.approx(1)


@pytest.mark.parametrize("kind", DTYPES, ids=str)
def test_random_weights_of_integers_are_not_scaled(kind: DType) -> None:
    weight = np.ones((4, 4), kind.numpy)
    assert (np.abs(_scaled(weight)).astype(np.float64) == (0.5 if kind.is_inexact else 1)).all()


class Case(NamedTuple):
    """A dtype, and numbers that it cannot represent."""

    kind: DType
    wrong: list[int] | list[float]


BEYOND = [Case(d, [int(d.max) + 1]) for d in INTEGERS] + [Case(d, [float(d.max) * 4]) for d in FLOATS if d.bits < 64]


@pytest.mark.parametrize("case", [c for c in BEYOND if c.kind in NUMBERS], ids=lambda c: str(c.kind))
def test_constants_of_onnx_fit_their_dtype(case: Case) -> None:
    number = NUMBERS[case.kind]
    read, given = (helper.make_tensor_value_info(n, number, [1]) for n in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [read], [given])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)]).SerializeToString()
    (found,) = rlx.evaluate(rlx.from_onnx(data, constants={"x": [1]}), {})
    assert found.dtype == case.kind.numpy and found == 1
    with pytest.raises(rlx.Error, match=f"constants: input 'x' is {case.kind}: .* does not fit"):
        rlx.from_onnx(data, constants={"x": case.wrong})


@pytest.mark.parametrize("kind", [d for d in NUMBERS if not d.is_complex], ids=str)
def test_initialisers_of_floats_are_parameters(kind: DType) -> None:
    number = NUMBERS[kind]
    array = np.array([1, 1, 1]).astype(kind.numpy)
    tensor = helper.make_tensor("w", number, [3], pack(array).tobytes(), raw=True)
    given = helper.make_tensor_value_info("y", number, [3])
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [given], [tensor])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)]).SerializeToString()
    assert [p.name for p in rlx.from_onnx(data).params] == (["w"] if kind.is_float else [])


@pytest.mark.parametrize("kind", [d for d in FLOATS if not d.storage], ids=str)
def test_calibration_refuses_nan_of_any_float(kind: DType) -> None:
    g: Any = rlx.Graph()
    x = g.input("x", (2, 4), kind)
    g.set_outputs([g.matmul(g.cast(x, "f32"), g.param("w", (4, 3)))])
    batch = np.full((2, 4), np.nan, kind.numpy)
    with pytest.raises(rlx.Error, match="batch 1: input 'x' holds NaN"):
        rlx.calibrate(g, [{"x": batch}], params={"w": np.ones((4, 3), np.float32)})
