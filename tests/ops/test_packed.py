"""Packed weights: graphs decode every format as the package `gguf` does, and products are those of the decoded matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import rlx
from rlx.schemes import SCHEMES


def _raw(seed: int, scheme: str, rows: int, blocks: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (rows, blocks * SCHEMES[scheme].nbytes), np.uint8)


def _decoding(scheme: str) -> rlx.Graph:
    g = rlx.Graph("decoding")
    g.set_outputs({scheme: g.dequantize_packed(g.input("x", ("n", 2 * SCHEMES[scheme].nbytes), "u8"), scheme=scheme)})
    return g


@pytest.mark.parametrize("scheme", SCHEMES)
def test_graphs_decode_every_format(seed: int, scheme: str) -> None:
    """The decomposition, evaluated op by op, has the bits of the NumPy decoder, for NaN too."""
    raw = _raw(seed, scheme, 40, 2)
    decomposed = rlx.passes.run(_decoding(scheme), "rlx-decompose{ops=dequantize_packed}")
    with np.errstate(all="ignore"):
        (result,) = rlx.evaluate(decomposed, {"x": raw})
    expected = SCHEMES[scheme].decode(raw)
    same = (result == expected) | (np.isnan(result) & np.isnan(expected))
    assert same.all(), f"{(~same).sum()} of {same.size} elements differ"


@pytest.mark.parametrize("share", range(3))
def test_programs_decode_every_format(seed: int, share: int) -> None:
    names = list(SCHEMES)[share::3]
    g = rlx.Graph("decoding")
    inputs = {n: g.input(n, (7, 2 * SCHEMES[n].nbytes), "u8") for n in names}
    g.set_outputs({f"{n}_values": g.dequantize_packed(x, scheme=n) for n, x in inputs.items()})
    raw = {n: _raw(seed, n, 7, 2) for n in names}
    for name, result in zip(names, rlx.Session().compile(g).run(raw), strict=True):
        expected = SCHEMES[name].decode(raw[name])
        # IREE may round a product and a sum once; where the product is infinite, the results differ in kind.
        finite = np.isfinite(expected) & (np.abs(expected) < 1e30)
        with np.errstate(all="ignore"):
            largest = np.abs(np.where(finite, expected, 0)).max(-1, keepdims=True)
            close = np.abs(result - expected) <= 1e-5 * np.maximum(largest, 1e-30)
        assert close[finite].all(), name


@pytest.mark.parametrize("activations", ["f32", "i16", "i8"])
def test_products_are_those_of_rounded_rows(seed: int, activations: str) -> None:
    """The rounding is as the record defines it: written again here, in f64 where that is exact."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3, 512)).astype(np.float32)
    x[0, :256] = 0
    x[1, 5] = 100
    w = SCHEMES["q4_k"].encode(rng.standard_normal((6, 512)).astype(np.float32))  # type: ignore[misc]
    with rlx.eager():
        result = rlx.ops.dequant_matmul(x, w, scheme="q4_k", activations=activations)
    rows = x.reshape(3, 2, 256).astype(np.float64)
    if activations != "f32":
        limit = {"i8": 127, "i16": 32767}[activations]
        top = np.abs(rows).max(-1, keepdims=True)
        rows = np.rint(rows * (limit / np.where(top == 0, 1, top))) * top / limit
    expected = rows.reshape(3, 512) @ SCHEMES["q4_k"].decode(w).T.astype(np.float64)
    # A number in the middle between two integers may be rounded to either.
    bound = 1e-5 if activations == "f32" else 2e-2
    np.testing.assert_allclose(np.asarray(result), expected, atol=bound * np.abs(expected).max())


def test_blocks_with_infinity_or_nan_become_nan(seed: int) -> None:
    w = SCHEMES["q8_0"].encode(np.ones((2, 64), np.float32))  # type: ignore[misc]
    for bad in (np.inf, -np.inf, np.nan):
        x = np.ones((2, 64), np.float32)
        x[1, 40] = bad
        for kernels in ("off", "all"):
            g = rlx.Graph("product")
            product = g.dequant_matmul(
                g.input("x", (2, 64)), g.input("w", (2, 68), "u8"), scheme="q8_0", activations="i8"
            )
            g.set_outputs({"y": product})
            (result,) = rlx.Session().compile(g, kernels=kernels).run({"x": x, "w": w})
            assert np.isfinite(result[0]).all() and np.isnan(result[1]).all(), (bad, kernels)


def test_rows_of_experts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, indices = rng.standard_normal((9, 64)).astype(np.float32), rng.integers(0, 4, 9).astype(np.int32)
    w = SCHEMES["q8_0"].encode(rng.standard_normal((4, 5, 64)).astype(np.float32))  # type: ignore[misc]
    with rlx.eager():
        decoded = np.asarray(rlx.ops.dequant_moe_weights(rlx.ops.constant(w), "q8_0"))
        result = rlx.ops.dequant_grouped_matmul(x, w, indices, scheme="q8_0")
    assert decoded.shape == (4, 5, 64)
    expected = np.einsum("mk,mnk->mn", x, decoded[indices])
    np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-4, atol=1e-4)


def test_derivatives_are_those_of_the_decoded_matrix(seed: int) -> None:
    rng = np.random.default_rng(seed)
    w = SCHEMES["q8_0"].encode(rng.standard_normal((5, 64)).astype(np.float32))  # type: ignore[misc]
    g = rlx.Graph("loss")
    x = g.input("x", (3, 64))
    y = g.dequant_matmul(x, g.input("w", (5, 68), "u8"), scheme="q8_0", activations="i8")
    g.set_outputs({"loss": g.sum(y * y)})
    values = {"x": rng.standard_normal((3, 64)).astype(np.float32), "w": w}
    (gradient,) = rlx.evaluate(rlx.grad(g, ["x"]), values)
    decoded = SCHEMES["q8_0"].decode(w)
    with rlx.eager():
        forward = np.asarray(rlx.ops.dequant_matmul(values["x"], w, scheme="q8_0", activations="i8"))
    np.testing.assert_allclose(gradient, 2 * forward @ decoded, rtol=1e-4, atol=1e-4)


def test_rows_are_packed_as_the_scheme_packs_them(seed: int) -> None:
    """By the evaluator, the decomposition, and programs with the kernel and without it."""
    rng = np.random.default_rng(seed)
    x = (rng.standard_normal((40, 3, 96)) * 10.0 ** rng.integers(-9, 6, (40, 3, 1))).astype(np.float32)
    x[0, 0, 32:64] = 0
    x[0, 1, :32] = np.arange(32) - 15.5  # halves, with the scale 1
    x[0, 1, 31] = -127
    expected = SCHEMES["q8_0"].encode(x)  # type: ignore[misc]
    assert expected[0, 1, 2:34].view(np.int8).tolist() == [*range(-16, 0), *range(1, 16), -127]
    # A NaN, an infinity, the largest scale of f16 and one that is larger, and numbers whose scale is 0.
    x = np.concatenate([x, np.ones((1, 3, 96), np.float32)])
    for row, number in enumerate((np.nan, -np.inf, 127 * 65519.0)):
        x[40, row, 40] = number
    x[40, 2, 70], x[40, 2, :32] = 127 * 65521.0, 1e-33
    graph = rlx.Graph("packing")
    graph.set_outputs({"y": graph.quantize_packed(graph.input("x", ("n", 3, 96)), "q8_0")})
    results = [rlx.evaluate(graph, {"x": x})[0]]
    with np.errstate(all="ignore"):
        results += rlx.evaluate(rlx.passes.run(graph, "rlx-decompose{ops=quantize_packed}"), {"x": x})
    results += [rlx.Session().compile(graph, kernels=kernels).run({"x": x})[0] for kernels in ("off", "all")]
    for result in results:
        np.testing.assert_array_equal(result[:40], expected)
        blocks = SCHEMES["q8_0"].decode(result[40]).reshape(3, 3, 32)
        is_nan = np.isnan(blocks).all(-1)
        assert is_nan.tolist() == [[False, True, False], [False, True, False], [False, False, True]]
        assert (blocks[2, 0] == 0).all() and np.isfinite(blocks[~is_nan]).all() and blocks[2, 1, 8] > 8e6


@pytest.mark.parametrize(
    ("dims", "options", "message"),
    [
        ((2, 5, 68), {}, "k must hold floats, got u8"),
        ((2, 5, 67), {"scheme": "q8_0"}, "blocks of 34 bytes"),
        ((2, 5, 34), {"scheme": "q8_0", "head_dim": 16}, "heads of 16 elements do not divide into blocks of 32"),
        ((2, 5, 68), {"scheme": "q9_9"}, "no packed format is called"),
    ],
)
def test_refusals_of_packed_caches(dims: tuple[int, ...], options: dict[str, Any], message: str) -> None:
    g: Any = rlx.Graph("attention")
    sizes: dict[str, Any] = {"num_heads": 2, "head_dim": 32} | options
    q, start = g.input("q", (2, 1, 2 * sizes["head_dim"])), g.input("start", (2,), "i32")
    cache = g.input("k", dims, "u8")
    with pytest.raises(rlx.ShapeError, match=message):
        g.cached_attention(q, cache, cache, start, **sizes)
    floats = g.input("floats", (2, 5, 64))
    with pytest.raises(rlx.ShapeError, match="packed bytes"):
        g.cached_attention(q, floats, floats, start, num_heads=2, head_dim=32, scheme="q8_0")


def test_other_rows_are_not_packed() -> None:
    g: Any = rlx.Graph("packing")
    for dims, scheme, message in (
        ((2, 64), "q4_0", "in the format q8_0, got q4_0"),
        ((2, 40), "q8_0", "rows of blocks of 32 elements"),
        ((2, "n"), "q8_0", "rows of blocks of 32 elements"),
        ((), "q8_0", "rows of blocks of 32 elements"),
    ):
        with pytest.raises(rlx.ShapeError, match=message):
            g.quantize_packed(g.input(f"x{len(g.inputs)}", dims), scheme)


def test_a_packed_cache_has_the_rows_that_are_written(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((2, 3, 64)).astype(np.float32)
    g: Any = rlx.Graph("update")
    cache, new = g.input("cache", (4, 8, 68), "u8"), g.input("rows", (2, 3, 64))
    start, pages = g.constant([5, 1], dtype="i32"), g.constant([2, 0], dtype="i32")
    g.set_outputs({"y": g.update_cache(cache, new, start, pages, scheme="q8_0")})
    with pytest.raises(rlx.ShapeError, match="rows of floats are packed"):
        g.update_cache(cache, cache, start, scheme="q8_0")
    with pytest.raises(rlx.ShapeError, match="operands have different dtypes: u8, f32"):
        g.update_cache(cache, new, start, pages)
    (result,) = rlx.evaluate(g, {"cache": np.zeros((4, 8, 68), np.uint8), "rows": rows})
    packed = SCHEMES["q8_0"].encode(rows)  # type: ignore[misc]
    np.testing.assert_array_equal([result[2, 5:8], result[0, 1:4]], packed)
    result[2, 5:8] = result[0, 1:4] = 0
    assert not result.any()


@pytest.mark.parametrize(
    ("x", "w", "scheme", "message"),
    [
        ((3, 64), (5, 68), "q9_9", "no packed format is called"),
        ((3, 64), (5, 67), "q8_0", "blocks of 34 bytes"),
        ((3, 32), (5, 68), "q8_0", "rows of 32 elements"),
        ((3, 64), (68,), "q8_0", "expected x"),
        ((3, 64), (5, "k"), "q8_0", "must be an integer"),
    ],
)
def test_wrong_shapes(x: tuple[int, ...], w: tuple[int, ...], scheme: str, message: str) -> None:
    g = rlx.Graph("product")
    with pytest.raises(rlx.ShapeError, match=message):
        g.dequant_matmul(g.input("x", x), g.input("w", w, "u8"), scheme=scheme)
