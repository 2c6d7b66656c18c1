"""Casts and quantisation of `rlx.from_onnx`, for all pairs of dtypes, compared with rounding by a dtype's values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx.reference
import pytest
from onnx import TensorProto, helper

import rlx
from rlx.ir.dtype import DType
from tests.importers.onnx_dtypes import NUMBERS
from tests.importers.test_onnx_contrib import run_by_onnxruntime

OPSET = 25


SOURCES = [d for d in NUMBERS if d.is_float or d.is_integer]
NARROW = [d for d in NUMBERS if d.is_float and d.bits <= 16 and d.name != "f8e8m0fnu"]
SATURATING = ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz")  # the f8 dtypes of ONNX
MODES = ("up", "down", "nearest")


def model(nodes: Any, inputs: dict[str, tuple[DType, Any]], outputs: dict[str, DType], opset: int = OPSET) -> bytes:
    read = [helper.make_tensor_value_info(n, NUMBERS[d], dims) for n, (d, dims) in inputs.items()]
    given = [helper.make_tensor_value_info(n, NUMBERS[d], None) for n, d in outputs.items()]
    graph = helper.make_graph(nodes, "g", read, given)
    imports = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()


def codes_of(kind: DType) -> np.ndarray:
    """Return all values of a dtype of at most 16 bits; for wider ones, neighbours of narrow values, and extremes."""
    if kind.bits <= 16:
        width = np.uint16 if kind.bits == 16 else np.uint8
        return np.arange(1 << kind.bits, dtype=width).view(kind.numpy)
    if kind.is_integer:
        powers = [s * (2**k) + d for k in range(kind.bits) for d in (-1, 0, 1) for s in (1, -1)]
        halves = [s * (3 * 2**k + d) for k in range(1, kind.bits - 2) for d in (-1, 0, 1) for s in (1, -1)]
        kept = {int(kind.min), int(kind.max), *(n for n in powers + halves if kind.min <= n <= kind.max)}
        return np.array(sorted(kept), kind.numpy)
    exponents = np.arange(-1074, 1024) if kind.bits == 64 else np.arange(-149, 128)
    with np.errstate(all="ignore"):
        steps = np.array([1, 1.0625, 1.125, 1.1875, 1.25, 1.5, 1.75, 1.875, 1.9375], np.float64)
        near = np.ldexp(steps[:, None], exponents).astype(kind.numpy).reshape(-1)
        near = np.concatenate(
            [near, np.nextafter(near, near.dtype.type(0)), np.nextafter(near, near.dtype.type(np.inf))]
        )
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan], kind.numpy)
    return np.concatenate([near, -near, special])


def widened(x: np.ndarray) -> np.ndarray:
    """Return values as f64. NumPy warns about some NaN."""
    with np.errstate(invalid="ignore"):
        return x.astype(np.float64)


def exact(x: np.ndarray) -> list[Any]:
    """Return values as Python integers or floats, which represent each of them exactly."""
    return [int(v) for v in x.tolist()] if x.dtype.kind in "iu" else widened(x).tolist()


def wide_of(x: np.ndarray, kind: DType) -> np.ndarray:
    """Return values as f64, exact or with a sticky lowest bit for longer 64-bit integers, which preserves rounding."""
    if not kind.is_integer:
        return widened(x)
    values = [int(v) for v in x.astype(object)] if kind.bits >= 8 else x.astype(np.int64).tolist()
    cut = [
        v if abs(v) < 1 << 52 else (abs(v) >> 12 << 12 | (0x800 if abs(v) & 0xFFF else 0)) * (1 if v > 0 else -1)
        for v in values
    ]
    return np.array([float(v) for v in cut], np.float64)


def rounded(x: np.ndarray, kind: DType, saturate: bool) -> np.ndarray:
    """Round f64 once to a float of at most 16 bits, ties to the even code, by a search among all its values."""
    codes = np.arange(1 << kind.bits, dtype=np.uint16 if kind.bits == 16 else np.uint8)
    values = widened(codes.view(kind.numpy))
    sign = 1 << (kind.bits - 1)
    ascending = np.flatnonzero(np.isfinite(values) & (codes < sign))
    steps = values[ascending]
    beyond = 2 * steps[-1] - steps[-2]  # the next value beyond the range
    limits = np.append(steps, beyond)
    middles = (limits[1:] + limits[:-1]) / 2
    size = np.abs(x)
    at = np.searchsorted(middles, size, side="left")
    is_tie = (at < len(middles)) & (size == middles[np.minimum(at, len(middles) - 1)])
    at = np.where(is_tie & (at % 2 == 1), at + 1, at)
    is_over = at >= len(steps)
    result = steps[np.minimum(at, len(steps) - 1)]
    if not saturate:
        result = np.where(is_over, np.inf, result)
    with np.errstate(invalid="ignore"):
        return np.where(np.isnan(x), np.nan, np.copysign(result, x)).astype(kind.numpy)


def same(mine: np.ndarray, wanted: np.ndarray, source: np.ndarray, what: str) -> None:
    """Compare values, including signs of zero. All NaN are equal."""
    assert mine.dtype == wanted.dtype, what
    a, b = widened(mine), widened(wanted)
    differs = ~((a == b) & (np.signbit(a) == np.signbit(b)) | (np.isnan(a) & np.isnan(b)))
    first = np.flatnonzero(differs)[:5]
    assert not differs.any(), f"{what}: {differs.sum()}: {source[first]} gives {mine[first]}, and not {wanted[first]}"


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_floats_are_rounded_once(source: DType) -> None:
    nodes, outputs = [], {}
    for kind in NARROW:
        for saturate in (0, 1):
            name = f"{kind}_{saturate}"
            nodes.append(helper.make_node("Cast", ["x"], [name], to=NUMBERS[kind], saturate=saturate))
            outputs[name] = kind
    x = codes_of(source)
    results = rlx.evaluate(rlx.from_onnx(model(nodes, {"x": (source, x.shape)}, outputs)), {"x": x})
    for (name, kind), mine in zip(outputs.items(), results, strict=True):
        saturates = (name.endswith("1") and kind.name in SATURATING) or kind.name == "f4e2m1fn"
        wanted = rounded(wide_of(x, source), kind, saturates)
        if kind.name == "f4e2m1fn":  # the dtype has no NaN
            is_number = ~np.isnan(widened(x))
            mine, wanted = mine[is_number], wanted[is_number]
        same(mine, wanted, x, f"{source} to {name}")


INTEGERS = [d for d in NUMBERS if d.is_integer]
OF_ONNXRUNTIME = ("f32", "f64", "f16")  # other floats are not supported, nor cast to packed integers


@pytest.mark.parametrize("source", [d for d in NUMBERS if d.is_float], ids=str)
def test_floats_are_truncated(source: DType) -> None:
    """Casts to integers are compared for representable values; others are undefined. All but 0, also NaN, are true."""
    x = codes_of(source)
    kinds = [*INTEGERS, rlx.dtype("bool")]

    def casts(to: list[DType]) -> bytes:
        nodes = [helper.make_node("Cast", ["x"], [k.name], to=NUMBERS[k]) for k in to]
        return model(nodes, {"x": (source, x.shape)}, {k.name: k for k in to})

    # ml_dtypes, and therefore the reference, cannot cast f8e8m0fnu to packed integers.
    known = [k for k in kinds if not k.packed or source.name != "f8e8m0fnu"]
    evaluator: Any = onnx.reference.ReferenceEvaluator(onnx.load_from_string(casts(known)))
    with np.errstate(invalid="ignore"):
        wanted = dict(zip(known, evaluator.run(None, {"x": x}), strict=True))
    numbers = widened(x)
    exactly = [0 if not math.isfinite(v) else int(v) for v in numbers.tolist()]
    results = dict(zip(kinds, rlx.evaluate(rlx.from_onnx(casts(kinds)), {"x": x}), strict=True))
    others: dict[DType, np.ndarray] = {}
    if source.name in OF_ONNXRUNTIME:
        wide = [k for k in kinds if not k.packed]
        others = dict(zip(wide, run_by_onnxruntime(casts(wide), {"x": x}), strict=True))
    for kind, mine in results.items():
        assert mine.dtype == kind.numpy
        inside = np.ones(x.shape, bool)
        if not kind.is_bool:
            inside = np.isfinite(numbers) & np.array([kind.min <= v <= kind.max for v in exactly])
            assert [int(v) for v in mine[inside]] == [v for v, ok in zip(exactly, inside, strict=True) if ok]
        for judge in (wanted, others):
            if kind in judge:
                np.testing.assert_array_equal(mine[inside], judge[kind][inside], err_msg=kind.name)


def power(value: Any, saturate: bool, mode: str) -> float:
    """Return a number as a power of two, by the table of the specification."""
    if math.isnan(value):
        return math.nan
    size, exponent = abs(value), -(10**6)
    if math.isinf(size):
        exponent = 10**6
    elif size:
        exponent = size.bit_length() - 1 if isinstance(size, int) else math.frexp(size)[1] - 1
        low = 2**exponent if isinstance(size, int) else math.ldexp(1.0, exponent)
        goes_up = {"up": size > low, "down": False, "nearest": 2 * size >= 3 * low}
        exponent += goes_up[mode]
    inside = min(max(exponent, -127), 127)
    return math.ldexp(1.0, inside) if saturate or inside == exponent else math.nan


@pytest.mark.parametrize("source", SOURCES, ids=str)
def test_powers_of_two(source: DType) -> None:
    kind = rlx.dtype("f8e8m0fnu")
    x = codes_of(source)
    if source is kind:
        x = x[:0]  # a cast to the same dtype changes nothing
    cases = [(mode, saturate) for mode in MODES for saturate in (0, 1)]
    nodes = [
        helper.make_node("Cast", ["x"], [f"{m}_{s}"], to=NUMBERS[kind], round_mode=m, saturate=s) for m, s in cases
    ]
    g = rlx.from_onnx(model(nodes, {"x": (source, x.shape)}, {f"{m}_{s}": kind for m, s in cases}))
    for (mode, saturate), mine in zip(cases, rlx.evaluate(g, {"x": x}), strict=True):
        with np.errstate(invalid="ignore"):
            wanted = np.array([power(v, bool(saturate), mode) for v in exact(x)]).astype(kind.numpy)
        same(mine, wanted, x, f"{source}, {mode}, saturate={saturate}")


def quantised(
    x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None, opset: int, **attributes: Any
) -> tuple[bytes, dict[str, np.ndarray]]:
    feeds = {"x": x, "scale": scale} | ({} if zero is None else {"zero": zero})
    output = DTYPES_BY_NUMBER.get(attributes.get("output_dtype", 0), rlx.dtype("u8" if zero is None else zero.dtype))
    node = helper.make_node("QuantizeLinear", list(feeds), ["y"], **attributes)
    return model([node], {n: (rlx.dtype(a.dtype), a.shape) for n, a in feeds.items()}, {"y": output}, opset), feeds


DTYPES_BY_NUMBER = {n: d for d, n in NUMBERS.items()}
PRECISIONS = (None, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
def test_the_division_has_its_precision(name: str, precision: int | None) -> None:
    kind = rlx.dtype(name)
    x = np.random.default_rng(0).normal(0, 40, 4096).astype(kind.numpy)
    scale = np.array(0.37, kind.numpy)
    for zero in ("i8", "u16", "i4"):
        for opset in (21, 23, 25):
            if precision is not None and opset < 23:
                continue
            given: dict[str, Any] = {} if precision is None else {"precision": precision}
            data, feeds = quantised(x, scale, np.array(3, rlx.dtype(zero).numpy), opset, **given)
            wide = np.float32 if opset < 23 else kind.numpy
            wide = wide if precision is None else DTYPES_BY_NUMBER[precision].numpy
            quotient = x.astype(wide) / scale.astype(wide)
            limits = rlx.dtype(zero)
            wanted = np.clip(np.rint(quotient.astype(np.float64)) + 3, limits.min, limits.max).astype(limits.numpy)
            np.testing.assert_array_equal(rlx.evaluate(rlx.from_onnx(data), feeds)[0], wanted)
            if name == "f16" and zero == "i8" and precision in (None, TensorProto.FLOAT):  # it lacks the other cases
                np.testing.assert_array_equal(run_by_onnxruntime(data, feeds)[0], wanted)


@pytest.mark.parametrize("kind", [d for d in NUMBERS if (d.storage or d.bits <= 16) and d.name != "f8e8m0fnu"], ids=str)
def test_output_dtype_of_quantize(kind: DType) -> None:
    """Without a zero point, `output_dtype` determines the dtype."""
    x = np.random.default_rng(0).normal(0, 40, 512).astype(np.float32)
    data, feeds = quantised(x, np.array(0.37, np.float32), None, OPSET, output_dtype=NUMBERS[kind])
    if not kind.is_integer and not kind.storage:
        with pytest.raises(rlx.UnsupportedError, match=f"QuantizeLinear to {kind} cannot be imported"):
            rlx.from_onnx(data)
        return
    (got,) = rlx.evaluate(rlx.from_onnx(data), feeds)
    evaluator: Any = onnx.reference.ReferenceEvaluator(onnx.load_from_string(data))
    wanted = evaluator.run(None, feeds)[0]
    same(got, wanted, x, str(kind))


@pytest.mark.parametrize("output", ["f32", "f16", "bf16", None])
@pytest.mark.parametrize("scale", ["f32", "f16", "bf16", "f8e8m0fnu"])
def test_output_dtype_of_dequantize(scale: str, output: str | None) -> None:
    kind = rlx.dtype(output or scale)
    x = np.arange(-128, 128, dtype=np.int8)
    feeds = {"x": x, "scale": np.array(0.25, rlx.dtype(scale).numpy), "zero": np.array(5, np.int8)}
    given: dict[str, Any] = {} if output is None else {"output_dtype": NUMBERS[kind]}
    node = helper.make_node("DequantizeLinear", list(feeds), ["y"], **given)
    data = model([node], {n: (rlx.dtype(a.dtype), a.shape) for n, a in feeds.items()}, {"y": kind})
    if kind.storage:
        with pytest.raises(rlx.UnsupportedError, match=r"to f8e8m0fnu cannot be imported(?s:.*)output_dtype"):
            rlx.from_onnx(data)
        return
    (got,) = rlx.evaluate(rlx.from_onnx(data), feeds)
    same(got, ((x.astype(np.float32) - 5) * np.float32(0.25)).astype(kind.numpy), x, f"{scale} to {output}")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"output_dtype": TensorProto.UINT8}, "to u8 with a zero point of i8 cannot be imported"),
        ({"precision": TensorProto.INT32}, "with the precision i32 cannot be imported"),
        ({"precision": TensorProto.FLOAT8E5M2}, "with the precision f8e5m2 cannot be imported"),
    ],
)
def test_what_quantize_refuses(given: dict[str, int], message: str) -> None:
    data, _ = quantised(np.ones(2, np.float32), np.array(1, np.float32), np.array(0, np.int8), OPSET, **given)
    with pytest.raises(rlx.UnsupportedError, match=message):
        rlx.from_onnx(data)


def test_compiled() -> None:
    """The f64 bits for rounding to powers of two, and a division in f16, compiled for the CPU."""
    x = np.random.default_rng(0).normal(0, 40, 256).astype(np.float16)
    scale, kind = np.array(0.37, np.float16), rlx.dtype("f8e8m0fnu")
    nodes = [helper.make_node("Cast", ["x"], [mode], to=NUMBERS[kind], round_mode=mode) for mode in MODES]
    nodes.append(helper.make_node("QuantizeLinear", ["x", "scale"], ["y"], output_dtype=TensorProto.INT8))
    inputs = {"x": (rlx.f16, x.shape), "scale": (rlx.f16, ())}
    g = rlx.from_onnx(model(nodes, inputs, {**dict.fromkeys(MODES, kind), "y": rlx.i8}))
    feeds = {"x": x, "scale": scale}
    for mine, wanted in zip(rlx.Session("cpu").compile(g).run(feeds), rlx.evaluate(g, feeds), strict=True):
        np.testing.assert_array_equal(mine.view(np.uint8), wanted.view(np.uint8))
