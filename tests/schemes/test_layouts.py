"""Formats by fields: every bit pattern against a scalar decoder that follows the text of `layouts.py`; names; edges."""

from __future__ import annotations

import itertools
import struct

import ml_dtypes
import numpy as np
import pytest

from rlx.schemes import SCHEMES, find_scheme
from rlx.schemes.layouts import SCALES, IntegerLayout
from rlx.support.errors import Error
from tests.drawing import graph_seed

_PLANES = {2: [2], 3: [2, 1], 4: [4], 5: [4, 1], 6: [4, 2], 8: [8]}
INTEGERS = [
    *(f"int{bits}_block{block}{zero}" for bits in (4, 8) for block in (32, 64, 128) for zero in ("", "_asym")),
    *(f"affine{bits}_block{block}" for bits in (2, 3, 4, 5, 6, 8) for block in (32, 64, 128)),
]
FLOATS = [f"fp8_{kind}_block{block}" for kind in ("e4m3", "e5m2") for block in (32, 64, 128)]


def _bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def _number(stored: bytes, at: int, kind: str) -> tuple[np.float32, int]:
    """Return a number of a kind at a position, and the position after it."""
    if kind == "f32":
        return np.float32(struct.unpack_from("<f", stored, at)[0]), at + 4
    if kind == "bf16":
        return np.frombuffer(b"\0\0" + stored[at : at + 2], "<f4")[0], at + 2
    return np.float32(np.frombuffer(stored[at : at + 2], "<f2")[0]), at + 2


def _integers(stored: bytes, bits: int, block: int) -> list[int]:
    """Return the integers of a block: of each plane, the bits of 32 elements are in `4·bits` bytes."""
    result, at = [0] * block, 0
    low = 0
    for width in _PLANES[bits]:
        count = 4 * width
        for i in range(block):
            byte = stored[at + i // 32 * count + i % 32 % count]
            result[i] |= (byte >> i % 32 // count * width & (1 << width) - 1) << low
        at, low = at + block * width // 8, low + width
    return result


def _decoded(stored: bytes, name: str, kind: str) -> list[np.float32]:
    parts = name.split("_")
    block, bits = int(parts[1].removeprefix("block")), int(parts[0][-1])
    scale, at = _number(stored, 0, kind)
    second = np.float32(0)
    if "affine" in name or "asym" in name:
        second, at = _number(stored, at, kind if "affine" in name else "f16")
    steps = [np.float32(q) for q in _integers(stored[at:], bits, block)]
    if "affine" in name:
        return [q * scale + second for q in steps]
    if bits == 8:
        steps = [q - np.float32(256) * (q > 127) for q in steps]
    elif "asym" not in name:
        steps = [q - np.float32(8) for q in steps]
    return [(q - second) * scale for q in steps]


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name: str, kind: str, seed: int) -> None:
    """Random bytes, among which are scales of NaN and infinity."""
    scheme = find_scheme(name if kind == "f16" else f"{name}_{kind}")
    rng = np.random.default_rng(graph_seed(seed, scheme.nbytes))
    stored = rng.integers(0, 256, (40, scheme.nbytes), dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = np.array([_decoded(row.tobytes(), name, kind) for row in stored], np.float32)
    decoded = scheme.decode(stored)
    assert decoded.shape == expected.shape
    np.testing.assert_array_equal(np.isnan(decoded), np.isnan(expected))
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(_bits(decoded[numbers]), _bits(expected[numbers]))


def _float(code: int, kind: str) -> float:
    """Return an 8-bit float as the OCP specification defines it."""
    wide, bias, digits = (4, 7, 3) if kind == "e4m3" else (5, 15, 2)
    sign = -1.0 if code >> 7 else 1.0
    exponent, fraction = code >> digits & (1 << wide) - 1, code & (1 << digits) - 1
    if kind == "e4m3" and code & 127 == 127:
        return np.nan
    if kind == "e5m2" and exponent == 31:
        return sign * np.inf if not fraction else np.nan
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - bias - digits)
    return sign * (1 + fraction / 2.0**digits) * 2.0 ** (exponent - bias)


@pytest.mark.parametrize("name", FLOATS)
def test_floats(name: str, seed: int) -> None:
    """All codes, with random scales."""
    scheme, kind = SCHEMES[name], name.split("_")[1]
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(256), rng.integers(0, 256, 256)]).astype(np.uint8).reshape(-1, scheme.block)
    scales = rng.standard_normal(len(codes)).astype("<f4")
    stored = np.concatenate([scales[:, None].view(np.uint8), codes], axis=-1)
    elements = np.array([[_float(int(code), kind) for code in row] for row in codes], np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(scheme.decode(stored), elements * scales[:, None])


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize("kind", ["f16", "bf16", "f32"])
def test_packing_is_the_inverse_of_decoding(name: str, kind: str, seed: int) -> None:
    layout = find_scheme(name if kind == "f16" else f"{name}_{kind}").layout
    assert isinstance(layout, IntegerLayout)
    rng = np.random.default_rng(seed)
    low = -128 if layout.is_signed else 0
    steps = rng.integers(low, low + (1 << layout.bits), (3, 5, layout.block))
    scales = np.exp2(rng.integers(-5, 5, (3, 5))).astype(layout.scale.dtype)
    seconds = None if layout.second is None else rng.integers(-9, 9, (3, 5)).astype(layout.second)
    stored = layout.pack(steps.astype(np.int8 if layout.is_signed else np.uint8), scales, seconds)
    factors = scales.astype(np.float64)[..., None]
    others = np.zeros((3, 5, 1)) if seconds is None else seconds.astype(np.float64)[..., None]
    is_affine = layout.kind == "affine"
    expected = steps * factors + others if is_affine else (steps - layout.offset - others) * factors
    decoded = find_scheme(name if kind == "f16" else f"{name}_{kind}").decode(stored.reshape(3, -1))
    np.testing.assert_array_equal(decoded.reshape(expected.shape), expected)


@pytest.mark.parametrize(("kind", "size"), [("bf16", 1e30), ("f32", 1e30), ("bf16", 1e-30), ("f32", 1e-30)])
@pytest.mark.parametrize("name", ["int4_block32", "int8_block128_asym", "affine4_block64"])
def test_scales_beyond_those_of_f16(name: str, kind: str, size: float, seed: int) -> None:
    x = np.float32(size) * np.random.default_rng(seed).standard_normal((8, 256)).astype(np.float32)
    for own, fits in ((f"{name}_{kind}", True), (name, size < 1)):
        encode = find_scheme(own).encode
        assert encode is not None
        if fits:
            exact = x.astype(np.float64)
            error = np.linalg.norm(find_scheme(own).decode(encode(x)) - exact) / np.linalg.norm(exact)
            assert error < 0.11 if own != name else error == 1
        else:
            with pytest.raises(Error, match=r"in f16, and .* is too large for it; .*scales in f32"):
                encode(x)


def test_the_largest_element_of_floats_is_exact(seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((4, 128)).astype(np.float32)
    for name, dtype in (("fp8_e4m3_block128", ml_dtypes.float8_e4m3fn), ("fp8_e5m2_block128", ml_dtypes.float8_e5m2)):
        encode = SCHEMES[name].encode
        assert encode is not None
        stored = encode(x)
        codes = stored[:, 4:].view(dtype).astype(np.float32)
        assert (np.abs(codes).max(-1) == float(ml_dtypes.finfo(dtype).max)).all()
        np.testing.assert_allclose(np.abs(SCHEMES[name].decode(stored)).max(-1), np.abs(x).max(-1), rtol=1e-6)


def test_names() -> None:
    """Formats with scales in f16 are listed, and the others are found."""
    assert {*INTEGERS, *FLOATS} == {name for name, scheme in SCHEMES.items() if scheme.layout is not None}
    for name, kind in itertools.product(INTEGERS, ("bf16", "f32")):
        scheme = find_scheme(f"{name}_{kind}".upper())
        assert scheme.name == f"{name}_{kind}" and scheme.name in SCHEMES and scheme.name not in [*SCHEMES]
        more = (SCALES[kind].nbytes - 2) * (2 if name.startswith("affine") else 1)
        assert scheme.nbytes == SCHEMES[name].nbytes + more
    for name in (
        "int4_block16",
        "int5_block32",
        "affine7_block32",
        "fp8_e4m3_block32_bf16",
        "int4_block32_f16",
        "int4",
    ):
        assert name not in SCHEMES
        with pytest.raises(Error, match="no packed format is called"):
            find_scheme(name)
