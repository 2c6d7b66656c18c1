"""Importance matrices in both formats, and damaged in every way."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rlx
from rlx.llm.quantization.importance import ImportanceMatrix, read_importance
from rlx.weights import save_gguf

_SUMS = np.array([[4, 8, 2], [6, 1, 3]], np.float32)
_PAIRS: dict[str, Any] = {"imatrix.datasets": ["text"], "imatrix.chunk_count": 3, "imatrix.chunk_size": 512}


def _entry(name: bytes, calls: int, values: np.ndarray) -> bytes:
    head = struct.pack("<i", len(name)) + name + struct.pack("<ii", calls, values.size)
    return head + values.astype("<f4").tobytes()


def _binary() -> bytes:
    entries = _entry(b"blk.0.ffn_up.weight", 2, _SUMS[0]) + _entry(b"blk.0.ffn_up_exps.weight", 0, _SUMS)
    return struct.pack("<i", 2) + entries + struct.pack("<ii", 7, 4) + b"text"


def _tensors() -> dict[str, np.ndarray]:
    return {
        "blk.0.ffn_up.weight.in_sum2": _SUMS[:1],
        "blk.0.ffn_up.weight.counts": np.array([[2]], np.float32),
        "blk.0.ffn_up_exps.weight.in_sum2": _SUMS,
        "blk.0.ffn_up_exps.weight.counts": np.array([[2], [0]], np.float32),
    }


def _of(matrix: ImportanceMatrix, name: str, shape: tuple[int, ...]) -> np.ndarray:
    values = matrix.of(name, shape)
    assert values is not None
    return values


def test_binary(tmp_path: Path) -> None:
    (tmp_path / "m.dat").write_bytes(_binary())
    matrix = read_importance(tmp_path / "m.dat")
    assert (matrix.datasets, matrix.chunks) == (("text",), 7)
    assert np.array_equal(_of(matrix, "blk.0.ffn_up.weight", (8, 3)), [2, 4, 1])
    assert np.array_equal(_of(matrix, "blk.0.ffn_up_exps.weight", (2, 8, 3)), _SUMS)
    assert matrix.of("blk.1.ffn_up.weight", (8, 3)) is None
    with pytest.raises(rlx.Error, match=r"has 3 numbers for 'blk\.0\.ffn_up\.weight', and the tensor has 4 columns"):
        matrix.of("blk.0.ffn_up.weight", (8, 4))


def test_binary_without_trailer(tmp_path: Path) -> None:
    (tmp_path / "m.dat").write_bytes(struct.pack("<i", 1) + _entry(b"a.weight", 1, _SUMS[1]))
    matrix = read_importance(tmp_path / "m.dat")
    assert (matrix.datasets, matrix.chunks, [*matrix.entries]) == ((), 0, ["a.weight"])


def test_gguf(tmp_path: Path) -> None:
    """A matrix that no token was sent to has ones."""
    save_gguf(tmp_path / "m.gguf", _tensors(), _PAIRS)
    matrix = read_importance(tmp_path / "m.gguf")
    assert (matrix.datasets, matrix.chunks) == (("text",), 3)
    assert np.array_equal(_of(matrix, "blk.0.ffn_up.weight", (8, 3)), [2, 4, 1])
    assert np.array_equal(_of(matrix, "blk.0.ffn_up_exps.weight", (2, 8, 3)), [[2, 4, 1], [1, 1, 1]])


@pytest.mark.parametrize(
    ("tensors", "pairs", "message"),
    [
        ({"blk.0.ffn_up.weight.counts": None}, {}, "has no tensor 'blk.0.ffn_up.weight.counts'"),
        ({"blk.0.ffn_up.weight.counts": np.ones(2, np.float32)}, {}, "has 3 sums and 2 counts"),
        ({"blk.0.ffn_up.weight.counts": np.full(1, np.nan, np.float32)}, {}, "must be finite and not negative"),
        ({"blk.0.ffn_up.weight.in_sum2": np.full(3, -1, np.float32)}, {}, "must be finite and not negative"),
        ({"blk.0.ffn_up.weight.in_sum2": np.full(3, np.inf, np.float32)}, {}, "must be finite and not negative"),
        ({"blk.0.ffn_up.weight.in_sum2": np.ones(3, np.float16)}, {}, "must be f32"),
        ({}, {"imatrix.chunk_count": None}, "has no 'imatrix.chunk_count'"),
        ({}, {"imatrix.chunk_count": "3"}, "must be a number of chunks"),
        ({}, {"imatrix.datasets": 1}, "must be a list of texts"),
        (dict.fromkeys(_tensors()), {}, "has no importance of tensors"),
    ],
)
def test_damaged_gguf(tmp_path: Path, tensors: dict[str, Any], pairs: dict[str, Any], message: str) -> None:
    arrays = {name: array for name, array in (_tensors() | tensors).items() if array is not None}
    save_gguf(tmp_path / "m.gguf", arrays, {key: value for key, value in (_PAIRS | pairs).items() if value is not None})
    with pytest.raises(rlx.Error, match=message):
        read_importance(tmp_path / "m.gguf")


def test_overlapping_tensors(tmp_path: Path) -> None:
    """A small file must not need much memory: the tensors of a header may be the same bytes."""
    name = tmp_path / "m.gguf"
    arrays = {f"{i}.in_sum2": np.ones(64, np.float32) for i in range(9)}
    arrays |= {f"{i}.counts": np.ones(1, np.float32) for i in range(9)}
    save_gguf(name, arrays, _PAIRS)
    data = bytearray(name.read_bytes())
    for i in range(9):
        place = data.index(f"{i}.in_sum2".encode()) + len(f"{i}.in_sum2")
        data[place + 4 : place + 12] = struct.pack("<Q", 512)  # the number of elements
        data[place + 16 : place + 24] = bytes(8)  # the offset
    name.write_bytes(data)
    with pytest.raises(rlx.Error, match="its tensors overlap"):
        read_importance(name)


@given(st.integers(0, len(_binary())), st.binary(max_size=12), st.integers(0, 12))
def test_damaged_binary(tmp_path_factory: pytest.TempPathFactory, start: int, inserted: bytes, removed: int) -> None:
    """Any change is either read or an `rlx.Error`."""
    data = _binary()
    name = tmp_path_factory.mktemp("damaged") / "m.dat"
    name.write_bytes(data[:start] + inserted + data[start + removed :])
    try:
        matrix = read_importance(name)
    except rlx.Error:
        return
    assert sum(values.nbytes for values in matrix.entries.values()) <= len(data) + len(inserted)


def test_truncated_binary(tmp_path: Path) -> None:
    data, name = _binary(), tmp_path / "m.dat"
    for size in range(len(data) - 12):
        name.write_bytes(data[:size])
        with pytest.raises(rlx.Error):
            read_importance(name)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(rlx.Error, match="no such file"):
        read_importance(tmp_path / "m.dat")
    with pytest.raises(rlx.Error, match="is a folder"):
        read_importance(tmp_path)
