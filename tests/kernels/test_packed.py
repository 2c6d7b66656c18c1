"""The kernels of products with packed weights: a row has the same bits with any number of other rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import rlx
from rlx.kernels.library.packed_formats import FORMATS
from rlx.kernels.library.packed_layouts import find_format
from rlx.ops.quantization.packed import DequantMatmul
from rlx.schemes import SCHEMES as ALL
from rlx.schemes import find_scheme, registry
from tests.conformance.compiled import Program, contiguous
from tests.conformance.levels import at_any_level
from tests.kernels.equal_rows import bits, check_parts, check_single_rows, compiled
from tests.kernels.packed_samples import FLOATS, LAYOUTS, SCHEMES, products

_COLUMNS = 21
_ALIKE = (*FORMATS, "int4_block128_asym", "affine8_block64_bf16", "int8_block32")


def _programs(
    scheme: str, rows: Sequence[int | str], blocks: int, level: str, activations: str = "i8"
) -> list[Program]:
    packing = find_scheme(scheme)
    graphs = []
    for count in rows:
        g = rlx.Graph("product")
        x = g.input("x", (count, blocks * packing.block))
        w = g.input("w", (_COLUMNS, blocks * packing.nbytes), "u8")
        g.set_outputs([g.dequant_matmul(x, w, scheme=scheme, activations=activations)])
        graphs.append(g)
    return compiled(graphs, level)


def _values(scheme: str, rows: int, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    packing, rng = find_scheme(scheme), np.random.default_rng(blocks)
    # Without the top bits, so that the scales are finite.
    w = rng.integers(0, 64, (_COLUMNS, blocks * packing.nbytes)).astype(np.uint8)
    return rng.standard_normal((rows, blocks * packing.block)).astype(np.float32), w


@at_any_level()
@pytest.mark.parametrize("blocks", [3, 13])
@pytest.mark.parametrize("scheme", _ALIKE)
def test_bits_of_a_row_among_few(scheme: str, blocks: int, level: str) -> None:
    """Generation relies on it: batches give the texts of single prompts."""
    x, w = _values(scheme, 8, blocks)
    one, three, eight = _programs(scheme, (1, 3, 8), blocks, level)
    together = bits(eight, x, w)
    check_single_rows(one, together, x, w)
    np.testing.assert_array_equal(bits(three, x[5:], w), together[5:])


@at_any_level()
@pytest.mark.parametrize("scheme", _ALIKE)
def test_bits_of_a_row_among_many(scheme: str, level: str) -> None:
    """A prompt may be computed in parts of any size."""
    x, w = _values(scheme, 141, 3)
    (program,) = _programs(scheme, ("n",), 3, level)
    check_parts(program, x, w)


@at_any_level()
@pytest.mark.parametrize("activations", ["i16", "f32"])
@pytest.mark.parametrize("scheme", ["q4_k", "q8_0"])
def test_bits_of_a_row_with_exact_activations(scheme: str, activations: str, level: str) -> None:
    x, w = _values(scheme, 8, 3)
    one, eight = _programs(scheme, (1, 8), 3, level, activations)
    together = bits(eight, x, w)
    check_single_rows(one, together, x, w)


def test_rows_that_do_not_fit_at_once() -> None:
    """Long rows are rounded in several passes, with the same bits."""
    x, w = _values("q4_k", 8, 72)
    one, eight = _programs("q4_k", (1, 8), 72, "host")
    together = bits(eight, x, w)
    check_single_rows(one, together, x, w)


def test_formats_without_kernels() -> None:
    others = {name for name, scheme in ALL.items() if scheme.layout is None and find_format(name) is None}
    assert others == registry.WITHOUT_KERNELS


def test_samples_have_each_format() -> None:
    assert {case.attributes["scheme"] for case in products()} == {*SCHEMES, *LAYOUTS, *FLOATS}


@at_any_level("aarch64")
@pytest.mark.parametrize("scheme", LAYOUTS)
def test_layouts(scheme: str, level: str) -> None:
    """Products with encoded numbers, for one row, a few, and many."""
    packing, rng = find_scheme(scheme), np.random.default_rng(1)
    assert packing.encode is not None
    w = packing.encode(rng.standard_normal((_COLUMNS, 5 * packing.block)).astype(np.float32))
    x = rng.standard_normal((19, 5 * packing.block)).astype(np.float32)
    cases = [(1, "i8"), (7, "i8"), (19, "i8"), (3, "f32")]
    size = np.abs(x) @ np.abs(packing.decode(w)).T
    for rows, activations in cases:
        (program,) = _programs(scheme, (rows,), 5, level, activations)
        expected = DequantMatmul().evaluate(x[:rows], w, scheme=scheme, activations=activations)
        (result,) = program.run(contiguous([x[:rows], w]))
        # The rounding errors are those of the terms. Most terms may cancel.
        assert (np.abs(result - expected) <= 1e-6 * size[:rows]).all(), (rows, activations)


@at_any_level("x86-64", "aarch64")
@pytest.mark.parametrize("scheme", FLOATS)
def test_floats(scheme: str, level: str) -> None:
    """All codes except NaN and infinity; a row has the same bits among a few others."""
    packing, rng = find_scheme(scheme), np.random.default_rng(1)
    w = rng.integers(0, 256, (_COLUMNS, 6, packing.nbytes), np.uint8)
    largest = 0x7E if "e4m3" in scheme else 0x7B
    w[..., 4:] = np.where(w[..., 4:] & 127 > largest, 0, w[..., 4:])
    w[..., :4] = rng.standard_normal((_COLUMNS, 6, 1)).astype("<f4").view(np.uint8)
    w = w.reshape(_COLUMNS, -1)
    x = rng.standard_normal((19, 6 * packing.block)).astype(np.float32)
    size = np.abs(x) @ np.abs(packing.decode(w)).T
    results: dict[tuple[int, str], np.ndarray] = {}
    for rows, activations in [(1, "f32"), (7, "f32"), (19, "f32"), (5, "i8")]:
        (program,) = _programs(scheme, (rows,), 6, level, activations)
        expected = DequantMatmul().evaluate(x[:rows], w, scheme=scheme, activations=activations)
        (result,) = program.run(contiguous([x[:rows], w]))
        assert (np.abs(result - expected) <= 1e-6 * size[:rows]).all(), (rows, activations)
        results[rows, activations] = result
    np.testing.assert_array_equal(results[1, "f32"][0], results[7, "f32"][0])


@pytest.mark.parametrize("rows", [1, 9])
def test_floats_that_are_not_finite(rows: int) -> None:
    for scheme, codes in (("fp8_e4m3_block32", [0x7F, 0xFF]), ("fp8_e5m2_block32", [0x7C, 0xFC, 0x7E, 0xFF])):
        packing = find_scheme(scheme)
        assert packing.encode is not None
        w = packing.encode(np.ones((_COLUMNS, 64), np.float32))
        for row, code in enumerate(codes):
            w[row, 4 + 11 * row] = code
        x = np.ones((rows, 64), np.float32)
        (program,) = _programs(scheme, (rows,), 2, "host", "f32")
        (result,) = program.run(contiguous([x, w]))
        np.testing.assert_allclose(result, x @ packing.decode(w).T, rtol=1e-6)


@at_any_level("x86-64", "x86-64-v4")
@pytest.mark.parametrize("activations", ["i8", "i16", "f32"])
@pytest.mark.parametrize("rows", [1, 8, 19])
def test_mxfp4(rows: int, activations: str, level: str) -> None:
    """All elements, with scales from 2^-62 to 2^61."""
    packing, rng = find_scheme("mxfp4"), np.random.default_rng(rows)
    w = rng.integers(0, 256, (_COLUMNS, 5, packing.nbytes)).astype(np.uint8)
    w[..., 0] = rng.integers(66, 190, (_COLUMNS, 5))
    w = w.reshape(_COLUMNS, -1)
    x = rng.standard_normal((rows, 5 * packing.block)).astype(np.float32)
    (program,) = _programs("mxfp4", (rows,), 5, level, activations)
    expected = DequantMatmul().evaluate(x, w, scheme="mxfp4", activations=activations)
    # The rounding errors are those of the terms. Most terms may cancel.
    size = np.abs(x) @ np.abs(packing.decode(w)).T
    (result,) = program.run(contiguous([x, w]))
    assert (np.abs(result - expected) <= 2e-6 * size).all()
