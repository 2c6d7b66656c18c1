"""Every dtype of the safetensors format: read, or refused by a message that names the tensor."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.runtime.weights import read_safetensors

BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
PACKED = {"F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4}


def written(folder: Path, dtype: str, bits: int) -> Path:
    """A file of one tensor of eight zeros."""
    header = json.dumps({"w": {"dtype": dtype, "shape": [8], "data_offsets": [0, bits]}}).encode()
    header += b" " * (-len(header) % 8)
    path = folder / f"{dtype}.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(bits))
    return path


@pytest.mark.parametrize("dtype", BITS)
def test_read(dtype: str, tmp_path: Path) -> None:
    found = read_safetensors(written(tmp_path, dtype, BITS[dtype]))["w"]
    assert found.itemsize * 8 == BITS[dtype] and not np.any(found.astype(np.complex64))


@pytest.mark.parametrize("dtype", PACKED)
def test_refused(dtype: str, tmp_path: Path) -> None:
    with pytest.raises(rlx.Error, match=rf"tensor 'w' of .* is of dtype {dtype}"):
        read_safetensors(written(tmp_path, dtype, PACKED[dtype]))
