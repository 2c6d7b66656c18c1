"""Every dtype in CPU programs: inputs, parameters, states, constants and results, and casts of storage floats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.ir import dlpack
from rlx.ir.dtype import DTYPES, DType
from rlx.ir.packing import pack, unpack
from rlx.targets.artifacts.parameters import packed
from tests.conformance.levels import at_any_level
from tests.drawing import drawn

STORAGE_FLOATS = [kind for kind in DTYPES if kind.storage and kind.is_float]
PACKED = [kind for kind in DTYPES if kind.packed]


def _any(kind: DType, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Elements with random bits."""
    raw = np.random.default_rng(seed).integers(0, 256, (*shape, kind.itemsize), dtype=np.uint8)
    if kind.is_bool or kind.packed:
        raw &= (1 << (1 if kind.is_bool else kind.bits)) - 1
    return raw.view(kind.numpy).reshape(shape)


def _compiled(graph: rlx.Graph, level: str) -> Any:
    return rlx.Session("cpu", arch=level).compile(graph)


def _stored(shape: tuple[int, ...]) -> tuple[rlx.Graph, dict[str, np.ndarray]]:
    """A graph with an input, a parameter, a constant and a state of every dtype."""
    graph, arrays, results = rlx.Graph("main"), dict[str, np.ndarray](), []
    for i, kind in enumerate(DTYPES):
        name = f"x_{kind.name}"
        x, arrays[name] = graph.input(name, shape, kind), _any(kind, shape, i)
        w = graph.param(f"w_{kind.name}", shape, kind, value=_any(kind, shape, 100 + i))
        state = graph.state(f"s_{kind.name}", shape, kind, init=1)
        results.append(graph.concat([x, w, graph.constant(_any(kind, shape, 200 + i)), state], 0))
        # A parameter that is computed from another one when the program is loaded.
        results.append(graph.transpose(w, list(range(len(shape)))[::-1]))
        graph.update(state, x)
    graph.set_outputs(results)
    return graph, arrays


@at_any_level()
@drawn("shape", [(3, 5), (4, 16)])
def test_stored(shape: tuple[int, ...], level: str, tmp_path: Path) -> None:
    graph, arrays = _stored(shape)
    expected = [(a.dtype, a.shape, a.tobytes()) for a in rlx.evaluate(graph, arrays)]
    program = _compiled(graph, level)
    assert [(a.dtype, a.shape, a.tobytes()) for a in program(arrays)] == expected
    for joined, kind in zip(
        program(arrays)[::2], DTYPES, strict=True
    ):  # the second run reads the states stored by the first run
        assert joined[3 * shape[0] :].tobytes() == arrays[f"x_{kind.name}"].tobytes()
    program.save(tmp_path / "program.rlxa", params=True)
    loaded = rlx.load(tmp_path / "program.rlxa")
    on_device = loaded.run_device(arrays)
    assert [(a.dtype, a.shape, np.asarray(a).tobytes()) for a in on_device] == expected
    for result in on_device:
        kind = rlx.dtype(result.dtype)
        if kind.packed:
            with pytest.raises(rlx.Error, match=f"is {kind.name}, which DLPack") as problem:
                np.from_dlpack(result)
            assert isinstance(problem.value, BufferError)
        else:
            found = dlpack.read(result, "x")
            assert found.dtype == result.dtype and found.tobytes() == np.asarray(result).tobytes()
        if kind.is_numpys_own:
            assert np.from_dlpack(result).tobytes() == np.asarray(result).tobytes()


@pytest.mark.parametrize("kind", DTYPES, ids=str)
def test_packed_arrays(kind: DType) -> None:
    for shape in ((), (1,), (5,), (3, 7), (2, 8), (0, 3)):
        array = _any(kind, shape, 0)
        content = pack(array)
        assert content.dtype == np.uint8 and content.size == kind.nbytes(array.size)
        assert unpack(content, kind, shape).tobytes() == array.tobytes()
    archive = packed({"w": _any(kind, (100, 100), 1)})
    assert kind.nbytes(10_000) <= archive.size <= kind.nbytes(10_000) + 4096  # it ends with a page
    if kind.packed:  # the first element is in the lowest bits
        first = np.zeros(8 // kind.bits, np.uint8)
        first[0] = 1
        assert pack(first.view(kind.numpy)).tolist() == [1]


@at_any_level()
def test_products_of_packed_parameters(level: str) -> None:
    """Products of packed parameters, also with rows that do not fill whole bytes, a large constant, and gathered rows."""
    graph, results = rlx.Graph("main"), []
    for i, kind in enumerate(PACKED):
        for n in (32, 7):
            w = graph.param(f"w{i}_{n}", (40, n), kind, value=_any(kind, (40, n), i))
            x = graph.input(f"x{i}_{n}", (3, 40))
            results.append(graph.matmul(x, graph.cast(w, "f32")))
            results.append(graph.gather(w, graph.constant(np.array([39, 0, 7])), axis=0))
        results.append(graph.cast(graph.constant(_any(kind, (40, 33), 50 + i)), "i32"))
    graph.set_outputs(results)
    rng = np.random.default_rng(0)
    arrays = {a.name: rng.integers(-3, 4, (3, 40)).astype(np.float32) for a in graph.arguments if a.kind == "input"}
    for got, expected in zip(_compiled(graph, level)(arrays), rlx.evaluate(graph, arrays), strict=True):
        np.testing.assert_array_equal(got, expected)  # sums of small numbers are exact


# --- casts of storage floats ----------------------------------------------------------------------


def _numbers(kind: DType) -> np.ndarray:
    """The non-negative finite numbers of a float dtype in order, and the number that would follow."""
    values = np.arange(1 << kind.bits, dtype=np.uint8).view(kind.numpy).astype(np.float64)
    found = np.unique(np.abs(values[np.isfinite(values)]))
    layout = kind.float_format
    assert layout is not None
    return np.append(found, found[-1] * 2 if not layout.mantissa else 2 * found[-1] - found[-2])


def _corners(kind: DType, of: type[np.floating[Any]]) -> np.ndarray:
    """Numbers of both signs, midpoints of adjacent ones with their neighbours, and numbers out of range."""
    numbers = _numbers(kind)
    halves = (numbers[1:] + numbers[:-1]) / 2
    with np.errstate(over="ignore"):
        near = np.concatenate([numbers, halves]).astype(of)
    near = np.concatenate(
        [near, np.nextafter(near, of(0)), np.nextafter(near, of(np.inf)), np.array([np.inf, np.nan], of)]
    )
    near = np.concatenate([near, np.random.default_rng(0).normal(size=1000).astype(of)])
    return np.concatenate([near, -near])


def _nearest(kind: DType, x: np.ndarray) -> np.ndarray:
    """The codes of the numbers nearest to finite non-zero numbers, without sign, by comparison with all midpoints."""
    numbers = _numbers(kind).astype(np.longdouble)
    size = np.abs(x.astype(np.longdouble))
    halves = (numbers[1:] + numbers[:-1]) / 2
    low, high = np.searchsorted(halves, size, "left"), np.searchsorted(halves, size, "right")
    layout = kind.float_format
    assert layout is not None
    up = (low % 2 == 1) if layout.mantissa else np.ones(low.shape, bool)  # ties to even; up without mantissa
    return np.where(up, high, low)


@at_any_level()
def test_decoding_and_encoding(level: str) -> None:
    """All codes, all f16 numbers, and f32 numbers near all numbers and midpoints, compared with ml_dtypes."""
    graph, arrays, results, expected = rlx.Graph("main"), dict[str, np.ndarray](), [], []
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    for kind in STORAGE_FLOATS:
        for name, array in (
            ("codes", np.arange(1 << kind.bits, dtype=np.uint8).view(kind.numpy)),
            ("f16", halves),
            ("f32", _corners(kind, np.float32)),
        ):
            x = graph.input(f"{kind.name}_{name}", array.shape, array.dtype)
            arrays[f"{kind.name}_{name}"] = array
            for target in ("f32", "f64", "f16") if name == "codes" else (kind,):
                results.append(graph.cast(x, target))
                with np.errstate(all="ignore"):
                    expected.append(array.astype(np.float32).astype(rlx.dtype(target).numpy))
    graph.set_outputs(results)
    with np.errstate(all="ignore"):
        found = _compiled(graph, level)(arrays)
    for got, wanted in zip(found, expected, strict=True):
        assert got.dtype == wanted.dtype
        if rlx.dtype(got.dtype).storage:  # the sign of NaN as well
            np.testing.assert_array_equal(got.view(np.uint8), wanted.view(np.uint8))
        else:
            np.testing.assert_array_equal(got, wanted)
            np.testing.assert_array_equal(np.signbit(got[wanted == 0]), np.signbit(wanted[wanted == 0]))


@at_any_level()
def test_wide_numbers_are_rounded_once(level: str) -> None:
    """f64 and integers, compared with a search for the nearest number."""
    graph, arrays, results = rlx.Graph("main"), dict[str, np.ndarray](), []
    rng = np.random.default_rng(0)
    for kind in STORAGE_FLOATS:
        corners = _corners(kind, np.float64)
        least = 2.0**-126 if kind.name == "f8e8m0fnu" else 0.0  # ml_dtypes rounds up between the two smallest numbers
        corners = corners[np.isfinite(corners) & (np.abs(corners) > least)]
        whole = np.unique(np.trunc(np.clip(corners, -(2.0**62), 2.0**62)).astype(np.int64))
        whole = np.concatenate(
            [whole + step for step in (-1, 0, 1)] + [rng.integers(1, 2**62, 500) >> rng.integers(0, 62, 500)]
        )
        for name in ("f64", "i64", "u64", "i32", "u32", "i16"):
            given = corners if name == "f64" else whole
            if name != "f64":
                limits = np.iinfo(rlx.dtype(name).numpy)
                given = given[(given >= limits.min) & (given <= int(min(limits.max, 2**63 - 1))) & (given != 0)]
            array = given.astype(rlx.dtype(name).numpy)
            if kind.name == "f8e8m0fnu":
                array = array[array > 0]
            key = f"{kind.name}_{name}"
            arrays[key] = array
            results.append((kind, array, graph.cast(graph.input(key, array.shape, array.dtype), kind)))
    graph.set_outputs([result for _, _, result in results])
    for got, (kind, array, _) in zip(_compiled(graph, level)(arrays), results, strict=True):
        layout = kind.float_format
        assert layout is not None
        codes, count = _nearest(kind, array), len(_numbers(kind)) - 1
        sizes = got.view(np.uint8) & ((1 << layout.exponent + layout.mantissa) - 1)
        inside = codes < count
        np.testing.assert_array_equal(sizes[inside], codes[inside])
        beyond = got[~inside].astype(np.float64)
        if layout.special == "finite":
            assert (np.abs(beyond) == kind.max).all()
        elif layout.special == "ieee":
            assert np.isinf(beyond).all()
        else:
            assert np.isnan(beyond).all()
        signed = inside & ((codes != 0) | (layout.special != "fnuz"))
        assert (np.signbit(got.astype(np.float64)) == (array < 0))[signed].all()


@drawn("device", ["cpu", "xla"])
def test_reductions_of_nothing(device: str) -> None:
    """Compilers fold reductions of empty tensors to constants, with their own conversions."""
    graph, arrays, results = rlx.Graph("main"), dict[str, np.ndarray](), []
    for kind in (kind for kind in DTYPES if not kind.is_bool):
        name, shape = kind.name, (0, 3)
        x, arrays[name] = graph.input(name, shape, kind), np.zeros(shape, kind.numpy)
        for found in (graph.sum(x, 0), graph.prod(x, 0)):
            results += [found, graph.cast(found, "c128" if kind.is_complex else "f64")]
        joined = graph.concat([x, graph.cast(graph.zeros((1, 3)), kind)], 0)
        results += [joined, graph.cast(joined, "c64" if kind.is_complex else "f32")]
    graph.set_outputs(results)
    expected = rlx.evaluate(graph, arrays)
    for got, wanted in zip(rlx.Session(device).compile(graph)(arrays), expected, strict=True):
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got.astype(np.complex128), wanted.astype(np.complex128))
