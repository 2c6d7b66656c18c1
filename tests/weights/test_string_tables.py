"""Tables of strings, read by the native module, compared with `struct` and `str`."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from rlx.native import native

_TEXTS = ["", "a", "é", "\U0001f600 b", " x y", "\0", "z" * 300]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("code", ["I", "Q"])
def test_strings(order: str, code: str) -> None:
    table = b"".join(struct.pack(order + code, len(text.encode())) + text.encode() for text in _TEXTS)
    size = struct.calcsize(code)
    for content in (b"123" + table + b"4", memoryview(b"123" + table), np.frombuffer(b"123" + table, np.uint8)):
        found = native().read_strings(content, 3, len(_TEXTS), size, order == ">")
        assert found == (tuple(_TEXTS), 3 + len(table))
    assert native().read_strings(b"", 0, 0, size, False) == ((), 0)
    for stop in range(len(table)):
        with pytest.raises(EOFError):
            native().read_strings(table[:stop], 0, len(_TEXTS), size, order == ">")


@pytest.mark.parametrize(
    "position, count, length", [(0, 1, 1 << 63), (0, 1, (1 << 64) - 1), (0, 1 << 60, 0), (99, 0, 0)]
)
def test_sizes_beyond_the_content(position: int, count: int, length: int) -> None:
    with pytest.raises(EOFError):
        native().read_strings(struct.pack("<Q", length), position, count, 8, False)


def test_bytes_that_are_not_utf8() -> None:
    with pytest.raises(UnicodeDecodeError):
        native().read_strings(struct.pack("<I", 2) + b"\xc3(", 0, 1, 4, False)
    with pytest.raises(ValueError, match="4 or 8"):
        native().read_strings(b"12345678", 0, 1, 2, False)
    with pytest.raises(ValueError, match="contiguous"):
        native().read_strings(np.zeros(8, np.uint8)[::2], 0, 1, 4, False)


def test_merges() -> None:
    lines = ["a b", "ab c", " a", "  b", "a b c", "é \U0001f600", "  "]
    expected = [("a", "b"), ("ab", "c"), ("a", "b c"), ("é", "\U0001f600")]
    assert native().split_merges([line for line in lines if line not in (" a", "  b", "  ")]) == expected
    assert native().split_merges(["  b"]) == [(" ", "b")]
    assert native().split_merges([]) == []
    for line in ("ab", "", "a ", " a", "  ", 3):
        assert native().split_merges(("a b", line)) is None
