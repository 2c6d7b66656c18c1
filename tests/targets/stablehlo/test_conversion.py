"""`cast` from every dtype to every dtype on XLA has exactly the bits of the evaluator."""

from __future__ import annotations

import numpy as np

from rlx.ir.dtype import DTYPES, DType, dtype
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from tests.conformance.compiled_xla import compile_graphs
from tests.drawing import drawn

NAMES = [d.name for d in DTYPES]
SMALLEST_NORMAL = 2.0**-126


def _patterns(kind: DType) -> np.ndarray:
    """All numbers of a dtype of up to 16 bits."""
    if kind.is_bool:
        return np.array([False, True])
    if kind.is_integer:
        return np.arange(int(kind.min), int(kind.max) + 1).astype(kind.numpy)
    word = np.uint16 if kind.itemsize == 2 else np.uint8
    return np.arange(2**kind.bits).astype(word).view(kind.numpy)


def _halfway() -> np.ndarray:
    """The numbers of all narrow floats, the midpoints of adjacent ones, and the neighbours of these midpoints."""
    found = [np.array([0.0, -0.0, np.inf, -np.inf, np.nan, np.copysign(np.nan, -1), 1e300, -1e300])]
    for kind in DTYPES:
        if kind.is_float and kind.bits <= 16:
            numbers = _patterns(kind).astype(np.float64)
            numbers = np.unique(numbers[np.isfinite(numbers)])
            middle = (numbers[1:] + numbers[:-1]) / 2
            beyond = numbers[-1:] * 1.5 - numbers[-2:-1] * 0.5
            step = max(1, len(middle) // 2000)
            found += [numbers[::step], middle[::step], middle[1::step], beyond, -beyond]
    middle = np.concatenate(found)
    return np.concatenate([middle, np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])


def _integers(kind: DType) -> np.ndarray:
    """Integers near powers of two, and near midpoints of adjacent narrow floats."""
    low, high = int(kind.min), int(kind.max)
    powers = {sign * (1 << bit) + step for bit in range(65) for sign in (1, -1) for step in (-1, 0, 1)}
    halfway = [int(x) + step for x in _halfway() if 1 < abs(x) < 2.0**64 for step in (-1, 0, 1)]
    return np.array([v for v in sorted({*powers, *halfway, low, high}) if low <= v <= high], kind.numpy)


def _values(kind: DType) -> np.ndarray:
    if kind.bits <= 16:
        return _patterns(kind)
    if kind.is_integer:
        return _integers(kind)
    parts = _halfway().astype(kind.part.numpy)
    if not kind.is_complex:
        return parts
    numbers = np.empty(parts.shape, kind.numpy)
    numbers.real, numbers.imag = parts, parts[::-1]
    return numbers


def _bits(x: np.ndarray) -> np.ndarray:
    """The bytes of elements, with one pattern for all NaN."""
    if x.dtype.kind == "c":
        return np.concatenate([_bits(np.real(x)), _bits(np.imag(x))], axis=1)
    if x.dtype.kind not in "biu" and dtype(x.dtype).is_float:
        x = np.where(np.isnan(x.astype(np.float64)), np.array(np.nan).astype(x.dtype), x)
    return np.ascontiguousarray(x).view(np.uint8).reshape(x.size, -1)


def _is_subnormal(x: np.ndarray) -> np.ndarray:
    """Whether a part of a number is subnormal, which XLA's CPU client treats as 0."""
    parts = [np.abs(part.astype(np.float64)) for part in ((np.real(x), np.imag(x)) if x.dtype.kind == "c" else (x,))]
    return np.any([(part < SMALLEST_NORMAL) & (part > 0) for part in parts], axis=0)


@drawn("source", NAMES, of_each=5)
@np.errstate(all="ignore")
def test_every_dtype_becomes_every_dtype(source: str) -> None:
    x, graph = _values(dtype(source)), Graph()
    tensor = graph.input("x", x.shape, source)
    graph.set_outputs({f"to_{name}": graph.cast(tensor, name) for name in NAMES if name != source})
    (program,) = compile_graphs([graph])
    assert program.problem is None, program.problem
    counts_as_zero = _is_subnormal(x)
    for output, got, wanted in zip(graph.outputs, program.run([x]), evaluate(graph, {"x": x}), strict=True):
        assert got.dtype == wanted.dtype
        same = np.all(_bits(got) == _bits(wanted), axis=1)
        if output.shape.dtype.name != "f8e8m0fnu":
            same |= counts_as_zero
        wrong = np.flatnonzero(~same)
        assert not len(wrong), f"{output.name} of {x[wrong][:3]}: {got[wrong][:3]} instead of {wanted[wrong][:3]}"


def test_what_xla_folds_is_rounded_as_at_run_time() -> None:
    """Reductions of empty tensors are constants for XLA, but not for RLX's passes."""
    graph, outputs = Graph(), {}
    for wide in ("f32", "f64"):
        x = graph.input(f"x_{wide}", (2, 0), wide)
        zero = graph.sum(x, 1)
        positive = [graph.max(x, 1), graph.min(x, 1), zero + 5.1, zero + 1e30, zero + 2.0**-120]
        for kind in (d for d in DTYPES if d.is_float and d.storage):
            # f8e8m0fnu has only powers of two.
            numbers = positive if kind.min > 0 else [*positive, zero, zero - 7.0, zero - 1e-3]
            outputs |= {f"{kind}_{wide}_{i}": graph.cast(value, kind) for i, value in enumerate(numbers)}
    graph.set_outputs(outputs)
    (program,) = compile_graphs([graph])
    arrays = [np.zeros((2, 0), a.shape.dtype.numpy) for a in graph.inputs]
    wanted = evaluate(graph, {a.name: x for a, x in zip(graph.inputs, arrays, strict=True)})
    for output, got, w in zip(graph.outputs, program.run(arrays), wanted, strict=True):
        assert np.array_equal(_bits(got), _bits(w)), f"{output.name}: {got} instead of {w}"
