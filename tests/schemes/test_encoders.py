"""Encoders of packed formats: bytes against the `gguf` package where it has an encoder, errors elsewhere."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from rlx.schemes import SCHEMES, Scheme
from rlx.support.errors import Error
from tests.drawing import graph_seed

ENCODED = sorted(name for name, scheme in SCHEMES.items() if scheme.encode is not None)
_IN_GGUF = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "tq1_0", "tq2_0", "mxfp4"]
# Relative errors of ggml's encoders on normal numbers, without importance.
_GGML = {
    **{"q4_0": 0.0859, "q8_0": 0.0053, "q2_k": 0.293, "q3_k": 0.149, "q4_k": 0.0711, "q5_k": 0.0361, "q6_k": 0.0176},
    **{"iq4_xs": 0.0772, "mxfp4": 0.114, "nvfp4": 0.096},
}
# Those of this package where ggml's are not known, rounded up.
_OWN = {
    **{"q1_0": 0.605, "q4_1": 0.079, "q5_0": 0.0435, "q5_1": 0.0385, "q8_1": 0.0055, "q8_k": 0.0071},
    **{"iq4_nl": 0.0755, "q2_0": 0.73, "tq1_0": 0.82, "tq2_0": 0.82},
    **{"iq2_xxs": 0.333, "iq2_xs": 0.29, "iq2_s": 0.243, "iq3_xxs": 0.18, "iq3_s": 0.1325},
}
# Those of layouts with blocks of 32, 64 and 128.
_OF_LAYOUTS = {
    **{"int4_block{}": (0.087, 0.096, 0.1045), "int4_block{}_asym": (0.082, 0.0925, 0.102)},
    **{"int8_block{}": (0.0055, 0.0061, 0.0066), "int8_block{}_asym": (0.0049, 0.0055, 0.006)},
    **{"affine2_block{}": (0.4, 0.455, 0.51), "affine3_block{}": (0.17, 0.195, 0.217)},
    **{"affine4_block{}": (0.079, 0.091, 0.101), "affine5_block{}": (0.0385, 0.044, 0.049)},
    **{"affine6_block{}": (0.019, 0.0216, 0.0241), "affine8_block{}": (0.0047, 0.0054, 0.006)},
    **{"fp8_e4m3_block{}": (0.0243, 0.0253, 0.026), "fp8_e5m2_block{}": (0.0485, 0.0506, 0.052)},
}
_LAYOUTS = {
    pattern.format(block): error
    for pattern, errors in _OF_LAYOUTS.items()
    for block, error in zip((32, 64, 128), errors, strict=True)
}
_OWN |= _LAYOUTS
# With an importance of ones. That of Q4_0 is ggml's.
_SEARCHED = {
    **{"q4_0": 0.0817, "q4_1": 0.071, "q5_0": 0.041, "q5_1": 0.0345, "q2_0": 0.365},
    **{"mxfp4": 0.1125, "nvfp4": 0.0845},
}
# Formats that ignore the importance.
_FIXED = {"q8_0", "q8_1", "q8_k", "tq1_0", "tq2_0", *_LAYOUTS}
# Formats that choose groups of 4 or 8 elements together.
_CODEBOOKS = {"iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s"}


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(graph_seed(seed, sum(shape))).standard_normal(shape, np.float32)


def encoded(scheme: Scheme, x: np.ndarray, importance: np.ndarray | None = None) -> np.ndarray:
    assert scheme.encode is not None
    stored = scheme.encode(x, importance)
    assert stored.dtype == np.uint8
    assert stored.shape == (*x.shape[:-1], scheme.row_bytes(x.shape[-1]))
    return stored


def approximated(scheme: Scheme, x: np.ndarray, importance: np.ndarray | None = None) -> np.ndarray:
    return scheme.decode(encoded(scheme, x, importance))


def relative_error(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.linalg.norm(x.astype(np.float64) - y) / np.linalg.norm(x.astype(np.float64)))


def _awkward(seed: int) -> np.ndarray:
    """Return rows with ties, constants, zeros of both signs, and numbers of very different sizes."""
    rng = np.random.default_rng(graph_seed(seed, 7))
    x = rng.standard_normal((96, 512)).astype(np.float32)
    rows = [
        x,
        x * np.exp2(rng.integers(-8, 12, x.shape)).astype(np.float32),
        rng.integers(-16, 17, x.shape) / np.float32(2),
        np.sign(x) * np.float32(0.37),
        np.broadcast_to(x[:, :1], x.shape),
        np.where(rng.random(x.shape) < 0.98, np.copysign(np.float32(0), x), x),
        np.float32(2) ** rng.integers(-3, 4, x.shape),
        np.nextafter(np.float32(2) ** rng.integers(-3, 4, x.shape), np.float32(0)),
        np.abs(x) + 3,
    ]
    return np.concatenate(rows).astype(np.float32)


@pytest.mark.parametrize("name", _IN_GGUF)
def test_bytes_equal_those_of_gguf(name: str, seed: int) -> None:
    x = _awkward(seed)
    with np.errstate(all="ignore"):
        expected = gguf.quants.quantize(x, gguf.GGMLQuantizationType[name.upper()])
    np.testing.assert_array_equal(encoded(SCHEMES[name], x), expected)


def test_halves_are_rounded_away_from_zero_and_nothing_below() -> None:
    """The sum of a half and the largest number below it is 1 in f32."""
    below = np.nextafter(np.float32(0.5), np.float32(0))
    x = np.zeros(32, np.float32)
    x[:5] = 127, 0.5, -0.5, below, -below
    np.testing.assert_array_equal(approximated(SCHEMES["q8_0"], x)[:5], [127, 1, -1, 0, 0])


@pytest.mark.parametrize("name", ENCODED)
def test_errors_on_normal_numbers(name: str, seed: int) -> None:
    scheme, x = SCHEMES[name], normal(seed, 24 if name in _CODEBOOKS else 256, 1024)
    error = relative_error(x, approximated(scheme, x))
    assert error < 1.02 * (_GGML | _OWN)[name]
    searched = relative_error(x, approximated(scheme, x, np.ones(1024, np.float32)))
    assert searched < 1.02 * (_GGML | _OWN | _SEARCHED)[name]
    assert searched <= error


@pytest.mark.parametrize("name", ENCODED)
def test_importance(name: str, seed: int) -> None:
    """The weighted error is smaller with the weights than without. Their unit has no effect."""
    scheme, x = SCHEMES[name], normal(seed, 16 if name in _CODEBOOKS else 64, 1024)
    importance = np.exp(2 * normal(seed, 1024))
    stored = encoded(scheme, x, importance)
    if name in _FIXED:
        np.testing.assert_array_equal(stored, encoded(scheme, x))
        return
    root = np.sqrt(importance)
    error = relative_error(x * root, scheme.decode(stored) * root)
    equally = np.ones_like(importance)
    assert error < 0.99 * relative_error(x * root, approximated(scheme, x, equally) * root)
    np.testing.assert_array_equal(stored, encoded(scheme, x, importance * np.float32(2**20)))
    np.testing.assert_array_equal(encoded(scheme, x, 0 * equally), encoded(scheme, x, equally))


@pytest.mark.parametrize("name", ENCODED)
def test_zeros(name: str) -> None:
    scheme = SCHEMES[name]
    x = np.zeros((2, scheme.block), np.float32)
    for importance in (None, np.ones(scheme.block)):
        np.testing.assert_array_equal(approximated(scheme, x, importance), x)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", ENCODED)
def test_constant_blocks(name: str, sign: int, seed: int) -> None:
    scheme = SCHEMES[name]
    x = np.repeat(sign * np.abs(normal(seed, 64, 1)) - sign * np.float32(-0.1), scheme.block, axis=-1)
    coarse = {"mxfp4": 0.26, "nvfp4": 0.07}
    if name in _CODEBOOKS:
        # Not all groups of equal elements are in the codebooks.
        assert relative_error(x, approximated(scheme, x)) < 0.35
        return
    for importance in (None, np.ones(scheme.block)):
        np.testing.assert_allclose(approximated(scheme, x, importance), x, rtol=coarse.get(name, 1e-3))


@pytest.mark.parametrize("name", ENCODED)
def test_powers_of_two_scale_the_blocks(name: str, seed: int) -> None:
    """The steps do not depend on the unit, as long as the scales are normal numbers."""
    scheme, x = SCHEMES[name], normal(seed, 8, 512)
    factors = (2, 0.5) if name == "nvfp4" else (2**8, 2**-3)
    expected = approximated(scheme, x)
    for factor in map(np.float32, factors):
        assert relative_error(expected, approximated(scheme, x * factor) / factor) < 2e-3


@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-12, 1e-20, 1e-38, 1e-45])
@pytest.mark.parametrize("name", ENCODED)
def test_tiny_numbers(name: str, size: float, seed: int) -> None:
    """Numbers below the smallest f16 scale become zero, or about as small ones."""
    scheme, x = SCHEMES[name], np.float32(size) * normal(seed, 4, 512)
    for importance in (None, np.ones(512)):
        y = approximated(scheme, x, importance)
        assert np.isfinite(y).all()
        # One step of the smallest scale, times the integers of the superblock.
        assert np.abs(y).max() < 1.3 * np.abs(x).max() + 1e-5


@pytest.mark.parametrize("size", [1e12, 1e20, 1e37])
@pytest.mark.parametrize("name", ENCODED)
def test_huge_numbers(name: str, size: float, seed: int) -> None:
    scheme, x = SCHEMES[name], np.float32(size) * np.clip(normal(seed, 4, 512), -3, 3)
    for importance in (None, np.ones(512)):
        if name in ("mxfp4", "q8_k") or name.startswith("fp8"):
            assert relative_error(x, approximated(scheme, x, importance)) < 0.13
        else:
            with pytest.raises(Error, match=r"scale"):
                encoded(scheme, x, importance)


@pytest.mark.parametrize("name", sorted({*ENCODED} - {"q1_0", "q2_0", "tq1_0", "tq2_0"}))
def test_one_outlier(name: str, seed: int) -> None:
    scheme, x = SCHEMES[name], normal(seed, 16, 512) / 100
    x[:, 77] = 300
    x[:, 300] = -300
    # The codebooks do not have zero: their smallest magnitudes are up to 0.19 of the largest one.
    at_outliers, elsewhere = {"mxfp4": (0.17, 0.01), "q2_k": (0.08, 0.17)}.get(name, (0.08, 0.08))
    if name in _CODEBOOKS:
        at_outliers, elsewhere = 0.1, 0.22
    for importance in (None, np.ones(512)):
        wrong = np.abs(approximated(scheme, x, importance) - x) / 300
        assert wrong[:, [77, 300]].max() < at_outliers
        assert np.delete(wrong, [77, 300], axis=-1).max() < elsewhere


@pytest.mark.parametrize("name", ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs", "iq3_s"])
def test_sub_blocks_have_scales_of_their_own(name: str, seed: int) -> None:
    """The errors of small sub-blocks are relative to these, not to the superblock."""
    x = normal(seed, 32, 8, 32)
    x[:, ::2] /= 4
    error = relative_error(x[:, ::2], approximated(SCHEMES[name], x.reshape(32, 256)).reshape(x.shape)[:, ::2])
    assert error < 1.3 * (_GGML | _OWN)[name]


def _representable(scheme: Scheme, seed: int) -> np.ndarray:
    """Return decoded blocks whose largest steps occur, so that their scales can be found again."""
    rng = np.random.default_rng(graph_seed(seed, scheme.nbytes))
    name, block, shape = scheme.name, scheme.block, (64, scheme.block)
    scales = rng.integers(1, 2000, (64, 1)).astype(np.float16).astype(np.float32) / 1024
    if name in ("q8_0", "q8_1", "q8_k"):
        steps = rng.integers(-127, 128, shape)
        steps[:, block // 2] = 127
    elif name in ("q4_0", "q5_0"):
        least = -8 if name == "q4_0" else -16
        steps = rng.integers(least, -least, shape)
        steps[:, 5] = least
    elif name in ("q4_1", "q5_1"):
        largest = 15 if name == "q4_1" else 31
        steps = rng.integers(0, largest + 1, shape)
        steps[:, 4:6] = 0, largest
        return (steps * scales + rng.choice([-4, -2, -1, 0, 0.5, 4], (64, 1)) * scales).astype(np.float32)
    elif name == "q1_0":
        steps = rng.choice([-1, 1], shape)
    elif name == "mxfp4":
        steps = rng.choice([0, 0.5, 1, 1.5, 2, 3, 4, 6], shape) * rng.choice([-1, 1], shape)
        steps[:, 3] = 4
        scales = np.exp2(rng.integers(-100, 100, (64, 1)))
    elif name == "nvfp4":
        steps = rng.choice([0, 0.5, 1, 1.5, 2, 3, 4, 6], shape) * rng.choice([-1, 1], shape)
        steps[:, ::16] = 6
        scales = rng.integers(8, 16, (64, 1)) * np.exp2(rng.integers(-9, 5, (64, 1)))
    else:
        steps = rng.integers(-1, 2, shape)
        steps[:, 2] = 1
    return (steps * scales).astype(np.float32)


@pytest.mark.parametrize(
    "name",
    ["q1_0", "q2_0", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q8_1", "q8_k", "tq1_0", "tq2_0", "mxfp4", "nvfp4"],
)
def test_representable_numbers_are_exact(name: str, seed: int) -> None:
    x = _representable(SCHEMES[name], seed)
    np.testing.assert_array_equal(approximated(SCHEMES[name], x), x)


@pytest.mark.parametrize("name", ["q2_0", "q4_0", "q4_1", "q5_0", "q5_1", "mxfp4", "nvfp4"])
def test_searches_find_representable_numbers(name: str, seed: int) -> None:
    x = _representable(SCHEMES[name], seed)
    y = approximated(SCHEMES[name], x, np.ones(x.shape[-1]))
    assert relative_error(x, y) < 1e-6


def test_sums_of_q8_formats(seed: int) -> None:
    """The blocks have the sums of their steps, which products with other blocks use."""
    x = normal(seed, 8, 256)
    stored = encoded(SCHEMES["q8_1"], x).reshape(-1, 36)
    scales, sums = np.ascontiguousarray(stored[:, :4]).view(np.float16).astype(np.float32).T
    steps = stored[:, 4:].view(np.int8).sum(-1)
    np.testing.assert_allclose(sums, steps * scales, rtol=2e-3, atol=1e-4)
    stored = encoded(SCHEMES["q8_k"], x)
    sums = np.ascontiguousarray(stored[:, 260:]).view("<i2")
    np.testing.assert_array_equal(sums, stored[:, 4:260].view(np.int8).reshape(8, 16, 16).sum(-1))


@pytest.mark.parametrize("name", sorted({*ENCODED} - _CODEBOOKS))
def test_elements_are_rounded_to_the_nearest(name: str, seed: int) -> None:
    """No other level of the same sub-block is nearer. Some formats of ggml round with a scale that is not f16 yet."""
    scheme, x = SCHEMES[name], normal(seed, 128, 512)
    size = 16 if name in ("q2_k", "q3_k", "q6_k", "nvfp4") else 32
    x, y = x.reshape(-1, size), approximated(scheme, x).reshape(-1, size)
    least = np.abs(x[:, :, None] - y[:, None, :]).min(-1)
    assert (np.abs(x - y) - least).max() < (1e-5 if "k" in name or "iq" in name else 1e-3 * np.abs(x).max())


def test_numbers_too_small_for_nvfp4_are_zero_bytes(seed: int) -> None:
    """The smallest scale is 2**-9, of elements up to 6."""
    assert not encoded(SCHEMES["nvfp4"], np.clip(normal(seed, 8, 64), -5, 5) / 1024).any()


@pytest.mark.parametrize("name", ENCODED)
def test_blocks_are_independent(name: str, seed: int) -> None:
    """Blocks are encoded in groups. Each has its own columns of the importance."""
    scheme, x = SCHEMES[name], normal(seed, 90, 768)
    importance = np.exp(normal(seed, 768))
    stored = encoded(scheme, x, importance).reshape(90, -1, scheme.nbytes)
    last = 768 // scheme.block - 1
    for row in range(0, 90, 15 if name in _CODEBOOKS else 3):
        block = last * (row % 2)
        part = slice(block * scheme.block, (block + 1) * scheme.block)
        np.testing.assert_array_equal(stored[row, block], encoded(scheme, x[row, part], importance[part]))
