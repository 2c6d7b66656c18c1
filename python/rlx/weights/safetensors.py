"""The safetensors format: a JSON header, then the bytes of all tensors without gaps.

Tensors of a dtype that the format lacks are stored as bytes. The metadata `rlx.dtypes` describes them.

The format's own package checks a file (lengths, offsets, overlaps, truncation). It would copy the tensors, so their
offsets are read from the header here, and the file is mapped. Source: https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np

from rlx.ir.arrays import as_array
from rlx.ir.dtype import DTYPES, DType, dtype
from rlx.ir.packing import pack
from rlx.support import garbage
from rlx.support.errors import Error
from rlx.support.files import file_name, parsed_json, replacing, unique_names
from rlx.support.packages import import_package
from rlx.support.short import short_repr
from rlx.weights.encoding import Encoding, Unreadable, encoding_of
from rlx.weights.mapped import Content, check_regular, content_of, part
from rlx.weights.weight import Weight, Weights

# The names of the weight file in a model's folder, and of the index of several files.
NAME = "model.safetensors"
INDEX = "model.safetensors.index.json"
_METADATA = "__metadata__"  # an entry of the header that is not a tensor

# In the metadata: a JSON object with dtype and shape of each tensor whose dtype the format lacks.
_DTYPES = "rlx.dtypes"
_BYTES = "U8"
_STORED = {kind.safetensors: kind for kind in DTYPES if kind.safetensors}
_KINDS = {kind.name: kind for kind in DTYPES}
_DESCRIBED_HINT = "write the file again with RLX"
_WRITE_HINT = "write it as F16, BF16 or F32"


def read(path: str | os.PathLike[str], what: str = "") -> Weights:
    """Return the tensors of one file.

    Args:
        path: The file.
        what: The kind of file, for messages: `"the checkpoint "`.

    Raises:
        Error: It is missing, truncated or damaged.
    """
    name = file_name(path)
    return read_content(content_of(name), name, what)


@garbage.put_off()
def read_content(content: Content, name: str, what: str = "") -> Weights:
    """Return the tensors of a file with this content; see `read`."""
    package = import_package("safetensors", "a file of weights")
    import_package("ml_dtypes", "a file of weights")  # NumPy knows bf16 once it is imported
    try:
        if isinstance(content, bytes):  # a pipe cannot be read again
            package.deserialize(content)
        else:
            with package.safe_open(name, framework="numpy"):
                pass  # opening the file checks all of it
        (length,) = struct.unpack("<Q", content[:8])
        header = json.loads(content[8 : 8 + length], object_pairs_hook=unique_names)
        described = _described((header.pop(_METADATA, None) or {}).get(_DTYPES), header, name)
        tensors = [_weight(key, entry, described.get(key), content, 8 + length, name) for key, entry in header.items()]
    # The last three exceptions occur only if another process changes the file at the same time.
    except (package.SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError, struct.error) as problem:
        cut_off = _cut_off(content)
        raise Error(
            f"cannot read {what}{name}: {cut_off or problem}",
            hint="fetch it again" if cut_off else _expected(content, name),
        ) from None
    return Weights(tensors, name)


_TAKEN = "expected a safetensors file, the index of several (or the folder with either), .npz or .npy"


def _expected(content: Content, name: str) -> str:
    """Return a hint for a file that is not safetensors: it has another format, or is not complete."""
    if content[:1] == b"\x80" or name.endswith((".pt", ".pth", ".bin", ".pkl", ".ckpt")):
        save = "safetensors.torch.save_file(model.state_dict(), 'model.safetensors')"
        return f"a file of pickled objects may run code, and is not read: write its tensors with {save}; {_TAKEN}"
    if _header_length(content) > len(content) - 8:
        return f"it ends before its header does: fetch it again; {_TAKEN}"
    return _TAKEN


def _header_length(content: Content) -> int:
    """Return the length of the header that a file declares; 0 if it does not start like a safetensors file."""
    return int.from_bytes(content[:8], "little") if content[8:9] == b"{" else 0


def _cut_off(content: Content) -> str | None:
    """Return how much of a file is missing after its complete header; None if it is complete or the header is damaged."""
    length = _header_length(content)
    if not length or length > len(content) - 8:
        return None
    try:
        header = json.loads(content[8 : 8 + length])
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != _METADATA]
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return None
    if not ends or not all(type(end) is int for end in ends) or 8 + length + max(ends) <= len(content):
        return None
    return f"it is cut off: it has {len(content)} bytes of {8 + length + max(ends)}"


def _weight(
    name: str,
    entry: Mapping[str, Any],
    described: tuple[DType, tuple[int, ...]] | None,
    content: Content,
    begin: int,
    file: str,
) -> Weight:
    stored = entry["dtype"]
    kind, shape = described or (_STORED.get(stored), tuple(entry["shape"]))
    encoding: Encoding = Unreadable(stored, _WRITE_HINT) if kind is None else encoding_of(kind)
    start, end = entry["data_offsets"]
    return Weight(name, shape, encoding, end - start, file, partial(part, content, begin + start, end - start))


def _described(text: str | None, header: Mapping[str, Any], file: str) -> dict[str, tuple[DType, tuple[int, ...]]]:
    """Return the dtypes and shapes of the tensors that are stored as bytes.

    Raises:
        Error: They differ from the format of `write`, or do not fit the bytes.
    """
    if text is None:
        return {}
    what = f"{file}: its metadata '{_DTYPES}'"
    entries = parsed_json(text.encode(), what)
    if not isinstance(entries, dict):
        raise Error(f"{what} is no JSON object", hint=_DESCRIBED_HINT)
    found: dict[str, tuple[DType, tuple[int, ...]]] = {}
    for name, entry in entries.items():
        if name not in header:
            raise Error(f"{what} names a tensor {name!r:.100}, which the file does not have", hint=_DESCRIBED_HINT)
        kind, shape = (entry.get("dtype"), entry.get("shape")) if isinstance(entry, dict) else (None, None)
        sizes: tuple[Any, ...] = tuple(shape) if isinstance(shape, list) else (None,)
        if not isinstance(kind, str) or kind not in _KINDS or not all(type(n) is int and n >= 0 for n in sizes):
            raise Error(f"{what} does not say the dtype and the shape of tensor {name!r:.100}", hint=_DESCRIBED_HINT)
        stored = header[name]
        size = _KINDS[kind].nbytes(math.prod(sizes))
        if stored["dtype"] != _BYTES or stored["shape"] != [size]:
            raise Error(
                f"{what} says that tensor {name!r:.100} is {kind}{shape!s:.100}, which takes {size} bytes of {_BYTES}; it "
                f"has {stored['dtype']}{stored['shape']!s:.100}",
                hint=_DESCRIBED_HINT,
            )
        found[name] = (_KINDS[kind], sizes)
    return found


def read_index(content: Content, path: str) -> Weights:
    """Return the tensors of a model in several files, from their index.

    Raises:
        Error: The index is damaged, names a file in another folder, or a file is missing or lacks a tensor.
    """
    index = parsed_json(content, path)
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        raise Error(f"cannot read {path}: expected the index of a safetensors model, with a 'weight_map'")
    folder = os.path.dirname(path)
    files = {}
    for file in dict.fromkeys(places.values()):
        if file != os.path.basename(file) or file in ("", ".", "..") or "\\" in file or ":" in file:
            raise Error(f"{path} names {file!r}, which is no file beside it")
        check_regular(os.path.join(folder, file))
        files[file] = read(os.path.join(folder, file))
    for name, file in places.items():
        if name not in files[file]:
            raise Error(f"{path} says that tensor '{name}' is in {file}, which has none of that name")
    return Weights((files[file][name] for name, file in places.items()), path)


def write(path: str | os.PathLike[str], tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> None:
    """Write tensors to a file. It replaces a file of the same name once it is complete and on the disk.

    The format's own package would write a temporary file, which would remain if the process is killed.

    Args:
        path: The file.
        tensors: Arrays by name, of any dtype of RLX: anything with `__array__` or `__dlpack__`, such as a `Weight`.
        metadata: Text by name, stored in the file with the tensors.

    Raises:
        Error: The file cannot be written, a value is not an array of a dtype of RLX, a name or the metadata is not
            text, or a tensor has the name of the metadata.
    """
    header, arrays = _prepared(file_name(path), tensors, metadata)
    with replacing(path, durable=True) as temporary, open(temporary, "wb") as file:
        file.write(header)
        for array in arrays:
            file.write(pack(array).data)


def to_bytes(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None, name: str) -> bytes:
    """Return the content of a file, as `write` writes it; `name` is the file's name in messages."""
    header, arrays = _prepared(name, tensors, metadata)
    return b"".join([header, *(pack(array).data for array in arrays)])


def _prepared(name: str, tensors: Any, metadata: Any) -> tuple[bytes, list[np.ndarray]]:
    """Return the bytes before the tensors, and the tensors in the order of the file; see `write`."""
    arrays = _named_arrays(tensors, name)
    if not isinstance(metadata, (Mapping, type(None))) or not _are_text(metadata or {}, (metadata or {}).values()):
        raise Error(f"{name}: metadata must be a mapping of text to text, got {short_repr(metadata)}")
    # Tensors with larger elements come first, so that all are aligned to the size of their elements.
    ordered = sorted(arrays.items(), key=lambda item: (-item[1].itemsize, item[0]))
    header: dict[str, Any] = {_METADATA: dict(metadata or {})}
    described: dict[str, Any] = {}
    end = 0
    for name, array in ordered:
        kind, shape = dtype(array.dtype), list(array.shape)
        start, end = end, end + kind.nbytes(array.size)
        stored = kind.safetensors
        if not stored or array.size * kind.bits % 8:  # the format does not support a tensor that ends within a byte
            described[name] = {"dtype": kind.name, "shape": shape}
            stored, shape = _BYTES, [end - start]
        header[name] = {"dtype": stored, "shape": shape, "data_offsets": [start, end]}
    if described:
        header[_METADATA][_DTYPES] = json.dumps(described, separators=(",", ":"))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text, [array for _, array in ordered]


def _named_arrays(tensors: Any, file: str) -> dict[str, np.ndarray]:
    """Return the tensors as arrays; see `write`."""
    if not isinstance(tensors, Mapping) or not _are_text(tensors):
        raise Error(f"{file}: tensors must be a mapping of names to arrays, got {short_repr(tensors)}")
    if _METADATA in tensors:
        raise Error(f"{file}: safetensors keeps the name '{_METADATA}' for itself, and a tensor has it")
    return {name: as_array(value, f"tensor '{name}'") for name, value in tensors.items()}


def _are_text(*collections: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for values in collections for value in values)
