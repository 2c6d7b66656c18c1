"""The notation of shapes, calls and source locations in C programs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlx.ir.shape import Shape

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_FOLDERS = re.compile(r"^.*[/\\](?=[^/\\]*\.onnx:)|^(?!.*\.onnx:).*[/\\]")


def count(shape: Shape) -> str:
    """Return the number of elements as a product of the sizes, which is more readable than the number.

    It is at least 1, because arrays in C cannot be empty.
    """
    dims = [str(d) for d in shape.static if d != 1]
    return " * ".join(dims) if dims and 0 not in shape.static else "1"


def c_array_type(shape: Shape) -> str:
    """Return a shape in the notation of arrays: `i8[1, 3, 8, 8]`."""
    return f"{shape.dtype.name}[{', '.join(map(str, shape.static))}]"


def call_text(head: str, parts: Sequence[str]) -> str:
    """A call or prototype, in lines that are not too long."""
    text = f"{head}({', '.join(parts)})"
    if len(text) <= 110:
        return text
    return f"{head}(\n    " + ",\n    ".join(parts) + ")"


def without_folders(place: str) -> str:
    """Return a source location without its folders: the bytes of a program must not depend on them."""
    return _FOLDERS.sub("", place)


def without_comments(code: str) -> str:
    """Return C code without its comments."""
    return _COMMENT.sub("", code)


def words_of(lines: Sequence[str]) -> set[str]:
    """Return the names in lines of C code, except those in comments."""
    return set(re.findall(r"\w+", without_comments("\n".join(lines))))
