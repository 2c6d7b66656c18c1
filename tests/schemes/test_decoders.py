"""Decoders of packed formats, bit for bit: against the `gguf` package, or a scalar reference where it has none."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

import gguf
import numpy as np
import pytest

from rlx.schemes import SCHEMES, Scheme
from rlx.schemes.blocks import Blocks, NumpyBlocks
from rlx.schemes.registry import scheme_of_ggml_type
from tests.drawing import graph_seed

_BLOCKS = 1024
_NOT_IN_GGUF = {"q1_0", "q2_0", "q8_1", "q8_k"}
# The package counts 8 bytes of scales for Q8_1. Ggml has two f16 numbers there.
_OTHER_SIZES = {"q8_1"}


def random_blocks(scheme: Scheme, seed: int, count: int = _BLOCKS) -> np.ndarray:
    """Return blocks of random bytes. All bits of their scales occur, those of NaN and infinity too."""
    rng = np.random.default_rng(graph_seed(seed, scheme.block * scheme.nbytes))
    return rng.integers(0, 256, (count, scheme.nbytes), dtype=np.uint8)


def bits_of(values: np.ndarray) -> np.ndarray:
    assert values.dtype == np.float32
    return np.ascontiguousarray(values).view(np.uint32)


def type_of(scheme: Scheme) -> gguf.GGMLQuantizationType:
    return gguf.GGMLQuantizationType[scheme.name.upper()]


@pytest.mark.parametrize("name", sorted(n for n, s in SCHEMES.items() if s.layout is None and n not in _NOT_IN_GGUF))
def test_decoders_equal_those_of_gguf(name: str, seed: int) -> None:
    scheme = SCHEMES[name]
    stored = random_blocks(scheme, seed)
    with np.errstate(all="ignore"):
        expected = gguf.quants.dequantize(stored, type_of(scheme))
    np.testing.assert_array_equal(bits_of(scheme.decode(stored)), bits_of(expected))


def test_every_packed_type_of_gguf_has_a_decoder() -> None:
    plain = {"F16", "F32", "F64", "BF16", "I8", "I16", "I32", "I64"}
    for type_, (block, nbytes) in gguf.GGML_QUANT_SIZES.items():
        if type_.name in plain:
            assert scheme_of_ggml_type(type_.value) is None
            continue
        scheme = scheme_of_ggml_type(type_.value)
        assert scheme is not None, type_.name
        assert scheme.name == type_.name.lower()
        assert scheme.block == block
        assert scheme.name in _OTHER_SIZES or scheme.nbytes == nbytes


def _half(stored: bytes, at: int) -> np.float32:
    return np.float32(np.frombuffer(stored[at : at + 2], "<f2")[0])


def _bit(stored: bytes, at: int) -> int:
    return stored[at // 8] >> at % 8 & 1


def _q1_0(stored: bytes) -> list[np.float32]:
    d = _half(stored, 0)
    return [d if _bit(stored[2:], i) else -d for i in range(128)]


def _q2_0(stored: bytes) -> list[np.float32]:
    d = _half(stored, 0)
    return [np.float32(_bit(stored[2:], 2 * i) + 2 * _bit(stored[2:], 2 * i + 1) - 1) * d for i in range(64)]


def _q8_1(stored: bytes) -> list[np.float32]:
    d = _half(stored, 0)
    return [np.float32(q) * d for q in struct.unpack("<32b", stored[4:])]


def _q8_k(stored: bytes) -> list[np.float32]:
    d = np.frombuffer(stored[:4], "<f4")[0]
    return [d * np.float32(q) for q in struct.unpack("<256b", stored[4:260])]


@pytest.mark.parametrize("reference", [_q1_0, _q2_0, _q8_1, _q8_k], ids=lambda f: f.__name__[1:])
def test_decoders_equal_the_scalar_reference(
    reference: Callable[[bytes], list[np.float32]], seed: int, request: pytest.FixtureRequest
) -> None:
    scheme = SCHEMES[reference.__name__[1:]]
    stored = random_blocks(scheme, seed, 256)
    with np.errstate(all="ignore"):
        expected = np.array([reference(row.tobytes()) for row in stored], np.float32)
    decoded = scheme.decode(stored)
    # Q1_0 is the only format with a negation, and the sign of NaN is not defined.
    numbers = ~np.isnan(expected) if scheme.name == "q1_0" else np.ones_like(expected, bool)
    np.testing.assert_array_equal(np.isnan(decoded), np.isnan(expected))
    np.testing.assert_array_equal(bits_of(decoded)[numbers], bits_of(expected)[numbers])


class StrictNumbers:
    """Values with the operators of `Numbers` alone, which do not mix integers with floats, as in a graph."""

    def __init__(self, array: np.ndarray):
        assert array.dtype in (np.int32, np.float32), array.dtype
        self.array = array

    def _other(self, other: Any) -> Any:
        if isinstance(other, StrictNumbers):
            other = other.array
        if isinstance(other, np.ndarray):
            assert other.dtype == self.array.dtype
        else:
            assert type(other) is int or (type(other) is float and self.array.dtype == np.float32)
        return other

    def __getitem__(self, key: Any) -> StrictNumbers:
        assert isinstance(key, tuple) and len(key) == 2 and key[0] is Ellipsis
        assert type(key[1]) is int or isinstance(key[1], slice)
        return StrictNumbers(self.array[key])


def _operator(name: str, only_integers: bool) -> Callable[[StrictNumbers, Any], StrictNumbers]:
    def operator(self: StrictNumbers, other: Any) -> StrictNumbers:
        assert not only_integers or self.array.dtype == np.int32
        return StrictNumbers(getattr(self.array, name)(self._other(other)))

    return operator


for _name in ("add", "sub", "mul"):
    setattr(StrictNumbers, f"__{_name}__", _operator(f"__{_name}__", only_integers=False))
for _name in ("and", "or", "xor", "lshift", "rshift"):
    setattr(StrictNumbers, f"__{_name}__", _operator(f"__{_name}__", only_integers=True))


class StrictBlocks(Blocks[Any]):
    """The abstract methods of `Blocks` on `StrictNumbers`."""

    def __init__(self, stored: np.ndarray):
        self._blocks = NumpyBlocks(stored)

    def integers(self, start: int, count: int) -> StrictNumbers:
        result = self._blocks.integers(start, count)
        assert result.shape[-1] == count, "the bytes end before"
        return StrictNumbers(result)

    def floats(self, integers: StrictNumbers) -> StrictNumbers:
        assert integers.array.dtype == np.int32
        assert np.all(np.abs(integers.array) < 2**24)
        return StrictNumbers(self._blocks.floats(integers.array))

    def from_bits(self, bits: StrictNumbers) -> StrictNumbers:
        assert bits.array.dtype == np.int32
        return StrictNumbers(self._blocks.from_bits(bits.array))

    def from_half_bits(self, bits: StrictNumbers) -> StrictNumbers:
        assert bits.array.dtype == np.int32
        assert np.all((bits.array >= 0) & (bits.array < 2**16))
        return StrictNumbers(self._blocks.from_half_bits(bits.array))

    def reshape(self, x: StrictNumbers, replaced: int, *sizes: int) -> StrictNumbers:
        assert all(size > 0 for size in sizes)
        return StrictNumbers(self._blocks.reshape(x.array, replaced, *sizes))

    def join(self, parts: Sequence[StrictNumbers]) -> StrictNumbers:
        assert len({part.array.dtype for part in parts}) == 1
        return StrictNumbers(self._blocks.join([part.array for part in parts]))

    def lookup(self, table: np.ndarray, index: StrictNumbers) -> StrictNumbers:
        assert np.all((index.array >= 0) & (index.array < len(table)))
        return StrictNumbers(self._blocks.lookup(table, index.array))


@pytest.mark.parametrize("name", SCHEMES)
@pytest.mark.parametrize("lead", [(5,), (2, 3)])
def test_decoders_use_the_operations_of_graphs_only(name: str, lead: tuple[int, ...], seed: int) -> None:
    scheme = SCHEMES[name]
    stored = random_blocks(scheme, seed, int(np.prod(lead))).reshape(*lead, -1)
    with np.errstate(all="ignore"):
        result = scheme.decoder(StrictBlocks(stored)).array
    assert result.shape == (*lead, scheme.block)
    np.testing.assert_array_equal(bits_of(result), bits_of(scheme.decode(stored)))
