"""Packed weights: graphs decode every format as the package `gguf` does, and products are those of the decoded matrix."""

from __future__ import annotations

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
