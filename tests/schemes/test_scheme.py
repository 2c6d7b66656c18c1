"""The interface of packed formats: names, shapes, dtypes and errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from rlx.schemes import SCHEMES, Scheme, find_scheme
from rlx.schemes.registry import scheme_of_ggml_type
from rlx.support.errors import Error
from tests.drawing import graph_seed

NAMES = sorted(SCHEMES)
ENCODED = sorted(name for name, scheme in SCHEMES.items() if scheme.encode is not None)


def random_bytes(scheme: Scheme, seed: int, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(graph_seed(seed, scheme.nbytes))
    return rng.integers(0, 256, (*shape[:-1], shape[-1] * scheme.nbytes), dtype=np.uint8)


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(graph_seed(seed, len(shape))).standard_normal(shape, np.float32)


def encode(scheme: Scheme, values: np.ndarray, importance: np.ndarray | None = None) -> np.ndarray:
    assert scheme.encode is not None
    return scheme.encode(values, importance)


def test_names_are_found_in_any_case() -> None:
    assert find_scheme("Q4_K") is find_scheme("q4_k") is SCHEMES["q4_K"]
    assert "IQ4_XS" in SCHEMES
    assert all(name == name.lower() == SCHEMES[name].name for name in SCHEMES)
    assert "q4_0" in repr(SCHEMES)


@pytest.mark.parametrize("name", ["q9_9", "", "q4", "f32", 4, None])
def test_unknown_names(name: object) -> None:
    with pytest.raises(Error, match=r"no packed format is called .*known are .*q4_k"):
        find_scheme(name)  # type: ignore[arg-type]
    assert name not in SCHEMES


def test_formats_have_distinct_numbers_of_ggml() -> None:
    numbers = [scheme.ggml_type for scheme in SCHEMES.values() if scheme.ggml_type is not None]
    assert len({*numbers}) == len(numbers)
    assert all(scheme_of_ggml_type(number).ggml_type == number for number in numbers)  # type: ignore[union-attr]
    assert scheme_of_ggml_type(0) is None
    assert scheme_of_ggml_type(10_000) is None


@pytest.mark.parametrize(("name", "bits"), [("q4_0", 4.5), ("q6_k", 6.5625), ("iq1_s", 1.5625), ("mxfp4", 4.25)])
def test_bits_per_element(name: str, bits: float) -> None:
    assert SCHEMES[name].bits_per_element == bits
    assert SCHEMES[name].row_bytes(1024) == 1024 * bits / 8


@pytest.mark.parametrize("name", NAMES)
def test_leading_axes(name: str, seed: int) -> None:
    scheme = SCHEMES[name]
    stored = random_bytes(scheme, seed, 2, 3, 4, 2)
    decoded = scheme.decode(stored)
    assert decoded.shape == (2, 3, 4, 2 * scheme.block)
    assert decoded.dtype == np.float32
    assert decoded.flags.writeable
    np.testing.assert_array_equal(decoded[1, 2, 3], scheme.decode(stored[1, 2, 3]))
    if scheme.encode is not None:
        values = normal(seed, *decoded.shape)
        packed = scheme.encode(values)
        assert packed.shape == stored.shape
        np.testing.assert_array_equal(packed[1, 2, 3], scheme.encode(values[1, 2, 3]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(0, 2), (3, 0), (2, 0, 1), (0,)])
def test_no_blocks(name: str, shape: tuple[int, ...]) -> None:
    scheme = SCHEMES[name]
    sizes = (*shape[:-1], shape[-1] * scheme.block)
    stored = np.empty((*shape[:-1], shape[-1] * scheme.nbytes), np.uint8)
    assert scheme.decode(stored).shape == sizes
    if scheme.encode is not None:
        for importance in (None, np.ones(sizes[-1])):
            assert scheme.encode(np.empty(sizes, np.float32), importance).shape == stored.shape


@pytest.mark.parametrize("name", NAMES)
def test_sizes_that_do_not_divide(name: str) -> None:
    scheme = SCHEMES[name]
    with pytest.raises(Error, match=rf"{name} has blocks of {scheme.nbytes} bytes, and a row has {scheme.nbytes + 1}"):
        scheme.decode(np.zeros((2, scheme.nbytes + 1), np.uint8))
    wrong = scheme.block + scheme.block // 2
    message = rf"{name} stores rows in blocks of {scheme.block} elements, and a row has {wrong}"
    with pytest.raises(Error, match=message):
        scheme.row_bytes(wrong)
    if scheme.encode is not None:
        # Two rows together would divide.
        with pytest.raises(Error, match=message):
            scheme.encode(np.zeros((2, wrong), np.float32))
        with pytest.raises(Error, match=r"blocks"):
            scheme.encode(np.float32(1))  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.float32, bool])
def test_decoding_other_dtypes(dtype: type) -> None:
    with pytest.raises(Error, match=r"q4_0 decodes an array of u8, got "):
        SCHEMES["q4_0"].decode(np.zeros((2, 18), dtype))
    with pytest.raises(Error, match=r"decodes an array of u8"):
        SCHEMES["q4_0"].decode(np.array(1, np.uint8))


@pytest.mark.parametrize("dtype", [np.complex64, "S1", "U1", object, "M8[s]"])
def test_encoding_other_dtypes(dtype: str | type) -> None:
    with pytest.raises(Error, match=r"q8_0 encodes an array of real numbers"):
        encode(SCHEMES["q8_0"], np.zeros((2, 32), dtype))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64, ">f4", np.int32])
def test_encoding_converts_real_numbers(dtype: str | type, seed: int) -> None:
    x = (10 * normal(seed, 4, 256)).astype(dtype)
    for name in ("q4_k", "q8_0", "iq4_nl"):
        np.testing.assert_array_equal(encode(SCHEMES[name], x), encode(SCHEMES[name], x.astype(np.float32)))


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_numbers_that_are_not_finite(name: str, value: float) -> None:
    x = np.zeros((300, 512))
    x[299, 511] = value
    with pytest.raises(Error, match=rf"{name} stores finite numbers"):
        encode(SCHEMES[name], x)


@pytest.mark.parametrize("importance", [np.ones((1, 512)), np.ones(256), np.ones(512, complex), np.float32(1)])
def test_importance_of_another_shape_or_dtype(importance: np.ndarray) -> None:
    for name in ("q4_k", "q8_0"):
        with pytest.raises(Error, match=r"the importance has one real number for each of the 512 columns"):
            encode(SCHEMES[name], np.zeros((3, 512), np.float32), importance)


@pytest.mark.parametrize("value", [-1, np.nan, np.inf, 1e300])
def test_importance_that_is_not_a_weight(value: float) -> None:
    importance = np.ones(512)
    importance[511] = value
    with pytest.raises(Error, match=r"importance of columns is finite and not negative"):
        encode(SCHEMES["q4_k"], np.zeros((3, 512), np.float32), importance)


@pytest.mark.parametrize("name", NAMES)
def test_arrays_that_are_not_contiguous(name: str, seed: int) -> None:
    scheme = SCHEMES[name]
    stored = random_bytes(scheme, seed, 5, 2)
    wide = np.stack([stored, ~stored], axis=-1)
    wide.flags.writeable = False
    np.testing.assert_array_equal(scheme.decode(wide[..., 0]), scheme.decode(stored))
    np.testing.assert_array_equal(scheme.decode(stored[::-2]), scheme.decode(stored)[::-2])
    if scheme.encode is not None:
        x = normal(seed, 5, 512)
        transposed = np.asfortranarray(x)
        transposed.flags.writeable = False
        importance = np.stack([np.exp(x[0]), x[0]])
        packed = scheme.encode(x, np.exp(x[0]))
        np.testing.assert_array_equal(scheme.encode(transposed, np.asfortranarray(importance)[0]), packed)


@pytest.mark.parametrize("name", ENCODED)
def test_operands_are_not_written(name: str, seed: int) -> None:
    x, importance = normal(seed, 4, 512), np.ones(512, np.float32)
    x.flags.writeable = importance.flags.writeable = False
    stored = encode(SCHEMES[name], x, importance)
    stored.flags.writeable = False
    SCHEMES[name].decode(stored)


@pytest.mark.parametrize("name", NAMES)
def test_decoding_in_groups(name: str, seed: int) -> None:
    """More blocks than are decoded at once: each equals the block on its own."""
    scheme = SCHEMES[name]
    count = (1 << 19) // scheme.block + 3
    stored = np.tile(random_bytes(scheme, seed, 1, 3), (1, count // 3 + 1))
    expected = scheme.decode(stored[:, : 3 * scheme.nbytes])
    decoded = scheme.decode(stored).reshape(-1, 3 * scheme.block)
    np.testing.assert_array_equal(decoded.view(np.uint32), np.broadcast_to(expected.view(np.uint32), decoded.shape))


def test_no_warnings(seed: int, recwarn: pytest.WarningsRecorder) -> None:
    for scheme in SCHEMES.values():
        scheme.decode(random_bytes(scheme, seed, 64, 1))
        if scheme.encode is not None:
            scheme.encode(np.float32(1e-44) * normal(seed, 2, 512))
    assert not recwarn.list
