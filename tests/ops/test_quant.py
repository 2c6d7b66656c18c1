"""Quantisation against loops written from the formulas, PyTorch, and ONNX's reference implementation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product as cartesian
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import dtype
from rlx.ir.graph.builder import Tensor
from tests.ops.references import FLOATS, random, run, samples_of

BYTES = ("i8", "u8")
_SCALES = (0.25, 0.1, 3.0, 1e-30, 1e30)


def _f32(value: float) -> np.ndarray:
    return np.array(value, np.float32)


def _i32(value: int) -> np.ndarray:
    return np.array(value, np.int32)


def _wide(x: np.ndarray) -> Any:
    return np.float64 if x.dtype == np.float64 else np.float32


def _positions(x: np.ndarray, axis: int | None) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield every index of x with the index of its scale."""
    for index in np.ndindex(*x.shape):
        yield index, () if axis is None else (index[axis],)


def _step(quotient: float) -> float:
    """Return the nearest integer, with halves to even; NaN and infinities are unchanged."""
    return float(round(quotient)) if math.isfinite(quotient) else quotient


def _quantized(x: np.ndarray, scale: np.ndarray, zero_point: np.ndarray, axis: int | None, kind: str) -> np.ndarray:
    """Compute `saturate(round(x/scale) + zero_point)`, one number at a time."""
    to, wide = dtype(kind), _wide(x)
    result = np.zeros(x.shape, to.numpy)
    for index, own in _positions(x, axis):
        with np.errstate(all="ignore"):
            step = _step(float(wide(x[index]) / wide(scale[own])))
        total = int(zero_point[own]) if math.isnan(step) else step + int(zero_point[own])
        result[index] = int(min(max(total, to.min), to.max))
    return result


def _fake_quantized(x: np.ndarray, scale: np.ndarray, axis: int | None, bits: int) -> np.ndarray:
    """Compute `clamp(round(x/scale), -qmax, qmax)·scale`, one number at a time."""
    most, wide = {8: 127, 4: 7, 2: 1}[bits], _wide(x)
    result = np.zeros(x.shape, wide)
    for index, own in _positions(x, axis):
        if scale[own] != 0:
            with np.errstate(all="ignore"):
                step = _step(float(wide(x[index]) / scale[own]))
                result[index] = wide(step if math.isnan(step) else min(max(step, -most), most)) * scale[own]
    return result.astype(x.dtype)


def _same(got: np.ndarray, expected: np.ndarray) -> None:
    """Check that arrays are equal, with NaN at the same positions."""
    assert got.dtype == expected.dtype and got.shape == expected.shape
    different = (got != expected) & ~((got != got) & (expected != expected))
    assert not different.any(), (got[different][:5], expected[different][:5])


# --- quantize and dequantize ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("name", FLOATS)
def test_quantize(name: str, kind: str) -> None:
    """The operands include special values, and exact ties if the scale is a power of two."""
    x = samples_of(name, low=-60, high=60)
    x = np.concatenate([x, (np.arange(-80, 80) / 8).astype(x.dtype)])
    to = dtype(kind)
    for scale, zero_point in cartesian(_SCALES, (0, to.min, to.max, 17)):
        got = run("quantize", x, _f32(scale), _i32(int(zero_point)), axis=None, dtype=to)
        _same(got, _quantized(x, _f32(scale), _i32(int(zero_point)), None, kind))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_quantize_along_an_axis(axis: int) -> None:
    x = random("f32", (2, 5, 3), low=-30, high=30)
    scale = random("f32", (x.shape[axis],), low=0.05, high=0.3)
    zero_point = random("i32", scale.shape, low=-40, high=40)
    for kind in BYTES:
        got = run("quantize", x, scale, zero_point, axis=axis, dtype=dtype(kind))
        in_range = np.clip(zero_point, int(dtype(kind).min), int(dtype(kind).max))
        _same(got, _quantized(x, scale, in_range, axis, kind))
        back = run("dequantize", got, scale, zero_point, axis=axis)
        parts = [
            run("dequantize", got.take(i, axis), scale[i : i + 1].reshape(()), zero_point[i : i + 1].reshape(()))
            for i in range(x.shape[axis])
        ]
        _same(back, np.stack(parts, axis))


def test_quantize_by_hand() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 127.4, 127.5, 1e9, -1e9, np.inf, -np.inf, np.nan], np.float32)
    signed = run("quantize", x, _f32(1), _i32(0), dtype=rlx.i8)
    assert signed.tolist() == [0, 2, 2, 0, -2, 127, 127, 127, -128, 127, -128, 0]
    shifted = run("quantize", x, _f32(1), _i32(100), dtype=rlx.u8)
    assert shifted.tolist() == [100, 102, 102, 100, 98, 227, 228, 255, 0, 255, 0, 100]


@pytest.mark.parametrize("kind", BYTES)
def test_dequantize(kind: str) -> None:
    to = dtype(kind)
    every = np.arange(to.min, int(to.max) + 1).astype(to.numpy)
    for scale, zero_point in cartesian(_SCALES, (0, int(to.min), int(to.max), 17)):
        got = run("dequantize", every, _f32(scale), _i32(zero_point))
        expected = [np.float32(int(q) - zero_point) * np.float32(scale) for q in every]
        _same(got, np.array(expected, np.float32))


@pytest.mark.parametrize("kind", BYTES)
def test_integers_survive_the_way_there_and_back(kind: str) -> None:
    to, rng = dtype(kind), np.random.default_rng(0)
    every = np.arange(to.min, int(to.max) + 1).astype(to.numpy)
    for _ in range(200):
        scale, zero_point = _f32(10.0 ** rng.uniform(-30, 30)), _i32(int(rng.integers(int(to.min), int(to.max) + 1)))
        floats = run("dequantize", every, scale, zero_point)
        _same(run("quantize", floats, scale, zero_point, dtype=to), every)


@pytest.mark.parametrize("kind", BYTES)
@pytest.mark.parametrize("name", FLOATS)
def test_floats_come_back_within_half_a_step(name: str, kind: str) -> None:
    to, rng = dtype(kind), np.random.default_rng(1)
    for _ in range(50):
        scale, zero_point = (
            float(np.float32(10.0 ** rng.uniform(-3, 2))),
            int(rng.integers(int(to.min), int(to.max) + 1)),
        )
        low, high = (to.min - zero_point) * scale, (to.max - zero_point) * scale
        x = rng.uniform(low, high, 100).astype(dtype(name).numpy)
        x = x[(x.astype(np.float64) >= low) & (x.astype(np.float64) <= high)]
        q = run("quantize", x, _f32(scale), _i32(zero_point), dtype=to)
        error = np.abs(run("dequantize", q, _f32(scale), _i32(zero_point)).astype(np.float64) - x.astype(np.float64))
        assert error.max() <= scale / 2 + 1e-6 * max(-low, high)


def _in_onnx(op: str, *operands: np.ndarray, **attributes: Any) -> np.ndarray:
    """Run one node with ONNX's reference implementation."""
    onnx = pytest.importorskip("onnx")
    reference = pytest.importorskip("onnx.reference")
    helper, kind_of = onnx.helper, onnx.helper.np_dtype_to_tensor_dtype
    names = [f"x{i}" for i in range(len(operands))]
    inputs = [helper.make_tensor_value_info(n, kind_of(a.dtype), a.shape) for n, a in zip(names, operands, strict=True)]
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph([node], "one", inputs, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    return reference.ReferenceEvaluator(model).run(None, dict(zip(names, operands, strict=True)))[0]


@pytest.mark.parametrize("axis", [None, 0, 2])
@pytest.mark.parametrize("kind", BYTES)
def test_quantize_in_onnx(kind: str, axis: int | None) -> None:
    x = random("f32", (3, 4, 5), low=-30, high=30)
    scale = random("f32", () if axis is None else (x.shape[axis],), low=0.05, high=0.3)
    zero_point = random(kind, scale.shape, low=0, high=40)
    options = {} if axis is None else {"axis": axis}
    expected = _in_onnx("QuantizeLinear", x, scale, zero_point, **options)
    got = run("quantize", x, scale, zero_point.astype(np.int32), axis=axis, dtype=dtype(kind))
    _same(got, expected)
    back = run("dequantize", got, scale, zero_point.astype(np.int32), axis=axis)
    _same(back, _in_onnx("DequantizeLinear", expected, scale, zero_point, **options))


# --- fake quantisation ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("axis", [None, 0, 2])
def test_fake_quantize(axis: int | None, name: str, bits: int) -> None:
    """Every mode is compared with loops. The scale is computed in f64 there and may differ by an ulp."""
    x = random(name, (3, 4, 5))
    wide, most = _wide(x), 2 ** (bits - 1) - 1
    others = tuple(i for i in range(3) if i != axis)
    largest = np.abs(x.astype(np.float64)).max(others) / most
    state = np.asarray(random("f64", largest.shape, low=0.1, high=0.4), wide)
    expected = {"per_batch": largest, "ema": 0.9 * state + 0.1 * largest, "fixed": state}
    for mode, scale in expected.items():
        operand = None if mode == "per_batch" else state
        got, used = run("fake_quantize", x, operand, bits=bits, axis=axis, scale_mode=mode, decay=0.9)
        assert used.dtype == wide and used.shape == state.shape
        np.testing.assert_allclose(used, scale, rtol=4 * np.finfo(wide).eps, atol=0)
        _same(got, _fake_quantized(x, used, axis, bits))


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("name", FLOATS)
def test_fake_quantize_lsq(name: str, bits: int) -> None:
    x = samples_of(name, low=-30, high=30)
    for scale in (0.25, 0.1, 3.0, 0.0):
        own = np.array(scale, _wide(x))
        _same(run("fake_quantize_lsq", x, own, bits=bits), _fake_quantized(x, own, None, bits))
    rows = x[: len(x) // 5 * 5].reshape(-1, 5)
    scales = random("f64", (5,), low=0.1, high=2).astype(_wide(x))
    _same(run("fake_quantize_lsq", rows, scales, bits=bits, axis=1), _fake_quantized(rows, scales, 1, bits))


def test_the_straight_through_estimator_does_not_change_the_value() -> None:
    x = random("f32", (6, 7))
    results = [
        run("fake_quantize", x, None, bits=4, ste=ste, decay=decay)[0].tobytes()
        for ste in ("identity", "clipped_identity", "tanh", "hard_tanh")
        for decay in (0.0, 0.5, 1.0)
    ]
    assert len(set(results)) == 1


def test_fake_quantize_of_special_tensors() -> None:
    for empty in (np.zeros((2, 3), np.float32), np.zeros((0, 3), np.float32)):
        got, scale = run("fake_quantize", empty, None, bits=8)
        assert not got.any() and scale == 0
    _, scales = run("fake_quantize", np.zeros((2, 0), np.float32), None, bits=8, axis=0)
    assert scales.tolist() == [0, 0]
    got, scale = run("fake_quantize", np.array([1, np.nan, -2], np.float32), None, bits=8)
    assert np.isnan(got).all() and np.isnan(scale)
    got, scales = run("fake_quantize", np.array([[1, np.nan], [-2, 0.5]], np.float32), None, bits=2, axis=0)
    assert np.isnan(got[0]).all() and got[1].tolist() == [-2, 0] and scales[1] == 2
    assert run("fake_quantize_lsq", np.array([1, np.nan, np.inf], np.float32), _f32(0), bits=8).tolist() == [0, 0, 0]
    clamped = run("fake_quantize_lsq", np.array([-np.inf, -9, 9, np.inf], np.float32), _f32(0.5), bits=4)
    assert clamped.tolist() == [-3.5, -3.5, 3.5, 3.5]


# --- user calls -----------------------------------------------------------------------------------------


def _only_output(g: rlx.Graph, result: Any, **inputs: np.ndarray) -> np.ndarray:
    g.set_outputs([result])
    return rlx.evaluate(g, inputs)[0]


def test_scales_may_be_numbers_lists_arrays_or_tensors() -> None:
    x = random("f32", (4, 3), low=-9, high=9)
    scales, zeros = [0.1, 0.2, 0.3], [1, -2, 3]
    expected = _quantized(x, np.array(scales, np.float32), np.array(zeros, np.int32), 1, "i8")

    def graph() -> tuple[Any, Tensor]:
        g = rlx.Graph()
        return g, g.input("x", x.shape)

    for given, points in (
        (scales, zeros),
        (np.array(scales), np.array(zeros)),
        (tuple(scales), np.array(zeros, np.int8)),
    ):
        g, t = graph()
        _same(_only_output(g, g.quantize(t, given, points, axis=-1), x=x), expected)
        g, t = graph()
        _same(_only_output(g, g.quantize_per_channel(t, given, 1, points), x=x), expected)
    g, t = graph()
    tensors = g.param("s", (3,), "f32"), g.cast(g.constant(zeros), "i64")
    weights = {"s": np.array(scales, np.float32)}
    _same(_only_output(g, g.quantize(t, *tensors, axis=1), x=x, **weights), expected)
    g, t = graph()
    q = g.quantize(t, 0.1, 128, dtype="u8")
    assert q.shape == rlx.Shape((4, 3), "u8")
    back = _only_output(g, g.dequantize(q, 0.1, 128), x=x)
    _same(back, (_quantized(x, _f32(0.1), _i32(128), None, "u8") - np.float32(128)) * np.float32(0.1))


def test_one_scale_for_all_positions_of_a_symbolic_axis() -> None:
    g = rlx.Graph()
    x = g.input("x", ("n", 3))
    q = g.quantize(x, 0.5, axis=0)
    values = random("f32", (5, 3), low=-9, high=9)
    _same(_only_output(g, q, x=values), _quantized(values, _f32(0.5), _i32(0), None, "i8"))


def test_fake_quantize_gives_the_state_where_there_is_one() -> None:
    g = rlx.Graph()
    x = g.input("x", (4, 3), "f16")
    assert isinstance(g.fake_quantize(x, bits=4), Tensor)
    assert isinstance(g.fake_quantize(x, 0.1, scale_mode="fixed"), Tensor)
    result, state = g.fake_quantize(x, [0.1, 0.2, 0.3], axis=-1, scale_mode="ema", decay=0.5)
    assert result.shape == rlx.Shape((4, 3), "f16") and state.shape == rlx.Shape((3,), "f32")


_MISTAKES: list[tuple[Any, str]] = [
    (lambda g, x: g.quantize(x, 0.0), "positive"),
    (lambda g, x: g.quantize(x, [0.1, -0.1, 0.1], axis=1), "positive"),
    (lambda g, x: g.quantize(x, 1e-60), "positive"),
    (lambda g, x: g.quantize(x, float("nan")), "positive"),
    (lambda g, x: g.quantize(x, 0.1, 128), "outside i8"),
    (lambda g, x: g.quantize(x, 0.1, -1, dtype="u8"), "outside u8"),
    (lambda g, x: g.quantize(x, 0.1, 0.5), "must be integers"),
    (lambda g, x: g.quantize(x, 0.1, dtype="i16"), "i8 or u8"),
    (lambda g, x: g.quantize(x, [0.1, 0.2]), "must be a scalar"),
    (lambda g, x: g.quantize(x, [0.1, 0.2], axis=1), "one for each position of axis 1"),
    (lambda g, x: g.quantize(x, 0.1, axis=2), "out of range"),
    (lambda g, x: g.quantize(x, g.constant([1])), "must hold f32"),
    (lambda g, x: g.dequantize(x, 0.1), "operand 'x' is f32"),
    (lambda g, x: g.dequantize(g.cast(x, "u8"), 0.1, 256), "outside u8"),
    (lambda g, x: g.fake_quantize(x, bits=1), "bits"),
    (lambda g, x: g.fake_quantize(x, bits=17), "bits"),
    (lambda g, x: g.fake_quantize(x, decay=1.5), "decay"),
    (lambda g, x: g.fake_quantize(x, 0.1), "takes no state"),
    (lambda g, x: g.fake_quantize(x, scale_mode="ema"), "needs a state"),
    (lambda g, x: g.fake_quantize(x, ste="none"), "ste"),
    (lambda g, x: g.emit("fake_quantize_lsq", (g.cast(x, "f16"), g.cast(g.constant(1.0), "f16")), bits=8), "be f32"),
    (lambda g, x: g.q_matmul(*_bytes(g, x), g.constant([1, 2, 3]), float("inf")), "multiplier"),
    (lambda g, x: g.q_matmul(*_bytes(g, x), g.constant([1, 2, 3]), 1.0, w_zero_point=128), "w_zero_point"),
    (lambda g, x: g.q_matmul(*_bytes(g, x), g.constant([1, 2]), 1.0), "'bias'"),
    (lambda g, x: g.q_conv2d(*_bytes(g, x), g.constant([1, 2, 3]), 1.0), "must be"),
]


def _bytes(g: rlx.Graph, x: Tensor) -> tuple[Tensor, Tensor]:
    q = g.cast(x, "i8")
    return q, g.transpose(q)


@pytest.mark.parametrize(("call", "told"), _MISTAKES, ids=[told for _, told in _MISTAKES])
def test_mistakes_are_told(call: Any, told: str) -> None:
    g = rlx.Graph()
    x = g.input("x", (3, 3))
    with pytest.raises(rlx.Error, match=told):
        call(g, x)
