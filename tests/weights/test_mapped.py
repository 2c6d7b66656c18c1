"""Mapped files: their pages are released, and weights that programs cannot read in place are in memory once."""

from __future__ import annotations

import gc
import re
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.schemes import SCHEMES
from rlx.targets.iree import lent_memory
from rlx.targets.iree.memory import empty_aligned
from rlx.weights.mapped import content_of, file_of, release_pages


def _resident(path: Path) -> int:
    """Return the kilobytes of a mapped file that are in the memory of this process."""
    entries = Path("/proc/self/smaps").read_text()
    found = re.findall(rf"^\S+ r--[sp].*{re.escape(str(path))}\n(?:.*\n)*?Rss:\s+(\d+) kB", entries, re.MULTILINE)
    return sum(map(int, found))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_pages_are_released_and_read_again(tmp_path: Path) -> None:
    values = np.arange(1 << 20, dtype=np.int32)
    (tmp_path / "file").write_bytes(b"12" * 50 + values.tobytes())
    content = content_of(tmp_path / "file")
    array = np.frombuffer(content, np.int32, offset=100)
    for part in (array, array[5:], np.frombuffer(memoryview(content)[8:], np.uint8)):
        assert file_of(part) is content
    assert array.sum(dtype=np.int64) == values.sum(dtype=np.int64) and _resident(tmp_path / "file") >= 4096
    release_pages(array)
    assert _resident(tmp_path / "file") < 100
    np.testing.assert_array_equal(array, values)


def test_other_arrays_keep_their_values(tmp_path: Path) -> None:
    values = np.arange(1 << 16, dtype=np.int32)
    values.tofile(tmp_path / "file")
    copied = np.memmap(tmp_path / "file", np.int32, "c")
    copied[:] = 7
    for array in (values.copy(), copied, copied[3:], values[::2]):
        before = array.copy()
        assert file_of(array) is None
        release_pages(array)
        np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("padding", range(0, 64, 8))
def test_packed_weights_at_any_address(tmp_path: Path, padding: int) -> None:
    """Those at a multiple of 64 bytes are read in place; the results are the same for all."""
    scheme = SCHEMES["q8_0"]
    assert scheme.encode is not None
    values: Any = np.random.default_rng(0).standard_normal((512, 1024)).astype(np.float32)
    packed = scheme.encode(values)
    (tmp_path / "file").write_bytes(bytes(padding) + packed.tobytes())
    stored = np.frombuffer(content_of(tmp_path / "file"), np.uint8, offset=padding).reshape(packed.shape)
    g: Any = rlx.Graph("product")
    g.set_outputs(g.dequant_matmul(g.input("x", (1, 1024)), g.param("w", packed.shape, "u8"), scheme="q8_0"))
    program = rlx.Session("cpu", threads=1).compile(g)
    program.set_params({"w": stored}, copy=False)
    x = np.random.default_rng(1).standard_normal((1, 1024)).astype(np.float32)
    np.testing.assert_allclose(program.run({"x": x})[0], x @ scheme.decode(packed).T, rtol=1e-3, atol=1e-3)


def test_programs_share_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that cannot be read in place are copied once. Another file at the same address has its own copy."""
    copies: list[weakref.ref[np.ndarray]] = []

    def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        copy = empty_aligned(shape, dtype)
        copies.append(weakref.ref(copy))
        return copy

    monkeypatch.setattr(lent_memory, "empty_aligned", empty)
    shape = 2048, 1024
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 1024)).astype(np.float32)
    for number in range(3):
        w = rng.standard_normal(shape).astype(np.float32)
        path = tmp_path / f"file{number}"
        path.write_bytes(bytes(8) + w.tobytes())
        stored = np.frombuffer(content_of(path), np.float32, offset=8).reshape(shape)
        programs = []
        for rows in (1, 2):
            g: Any = rlx.Graph("product")
            g.set_outputs(g.matmul_transposed(g.input("x", (rows, 1024)), g.param("w", shape)))
            program = rlx.Session("cpu", threads=1).compile(g)
            program.set_params({"w": stored}, copy=False)
            programs.append(program)
            inputs = np.repeat(x, rows, 0)
            np.testing.assert_allclose(program.run({"x": inputs})[0], inputs @ w.T, rtol=1e-3, atol=1e-3)
        assert len(copies) == number + 1 and copies[-1]() is not None
        del programs, program, stored
        gc.collect()
        lent_memory.reclaim()
        assert copies[-1]() is None
