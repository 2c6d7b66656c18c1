"""The formats of weight files, and their detection."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlx.support.errors import Error
from rlx.support.files import file_name
from rlx.weights import gguf, npy, safetensors
from rlx.weights.mapped import Content, check_regular, content_of
from rlx.weights.weight import Weights

_ARCHIVE = b"PK\x03\x04"
_LONGEST_BEGINNING = 4096
# Readers by the first bytes of a file. A file that starts with none of these is a safetensors file, which starts with a
# number.
_BY_BEGINNING: dict[bytes, Callable[[Content, str], Weights]] = {
    _ARCHIVE: npy.read_archive,
    b"PK\x05\x06": npy.read_archive,  # an archive without arrays
    b"\x93NUMPY": npy.read_array,
    gguf.MAGIC: gguf.read_content,
}


def open(path: str | os.PathLike[str]) -> Weights:
    """Return the tensors of a file. Each is read when it is used.

    Args:
        path: A safetensors file, the index of several (`model.safetensors.index.json`), a folder with one of these two,
            a NumPy file, `.npz` or `.npy`, or a GGUF file (of several parts, the first). The content of a file
            determines its format, not its name.

    Raises:
        Error: The file is missing, damaged or of another format.
    """
    name = file_name(path, "a file of weights")
    if os.path.isdir(name):
        single, index = (os.path.join(name, file) for file in (safetensors.NAME, safetensors.INDEX))
        name = index if os.path.isfile(index) and not os.path.isfile(single) else single
        check_regular(name)
    content = content_of(name)
    if _is_json(content, name):
        return safetensors.read_index(content, name)
    for beginning, read in _BY_BEGINNING.items():
        if content[: len(beginning)] == beginning:
            return read(content, name)
    if name.endswith(".gguf"):
        raise Error(f"{name} is not a GGUF file: it does not begin with {gguf.MAGIC.decode()}", hint="fetch it again")
    return safetensors.read_content(content, name)


def _is_json(content: Content, name: str) -> bool:
    """Return whether a file is text. A safetensors file starts with the length of its header, which ends in zero bytes."""
    text = b"\0" not in content[:8]
    return text and (content[:64].lstrip().startswith(b"{") or name.endswith(".json"))


def holds_weights(path: str) -> bool:
    """Return whether `open` accepts a path: a folder, or a file that starts like a weight file.

    Args:
        path: The path. A path that cannot be read does not hold weights.
    """
    if os.path.isdir(path) or path.endswith(".json"):
        return True
    if not os.path.isfile(path):  # a pipe can be read only once
        return False
    try:
        with Path(path).open("rb") as file:
            start = file.read(_LONGEST_BEGINNING)
    except OSError:
        return False
    if start.startswith(_ARCHIVE):  # a compiled program is an archive too
        return start[30 : 30 + int.from_bytes(start[26:28], "little")].endswith((b".npy", b"/data.pkl"))
    if any(start.startswith(beginning) for beginning in _BY_BEGINNING):
        return True
    return start[8:9] == b"{" and int.from_bytes(start[:8], "little") <= os.path.getsize(path) - 8


def open_parameters(params: Any) -> Mapping[str, Any]:
    """Return the parameters from a user: the `Weights` of a path, or the mapping itself.

    Raises:
        Error: It is neither a path nor a mapping, or `open` raises it.
    """
    if isinstance(params, (str, os.PathLike)):
        return open(params)
    if not isinstance(params, Mapping):
        raise Error(f"params must be a mapping or a path, got {type(params).__name__}")
    return params
