"""NumPy's formats: `.npy`, one array, and `.npz`, a zip archive of arrays. Pickled objects are never read.

An uncompressed array is mapped. Sources: numpy.lib.format, and the zip specification (APPNOTE 6.3.10, 4.3.7).
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from rlx.ir.dtype import f8e5m2
from rlx.support.errors import Error
from rlx.support.packages import import_package
from rlx.weights.encoding import Encoding, Plain, Swapped, Unreadable, Untyped
from rlx.weights.mapped import Content, content_of, part
from rlx.weights.weight import Weight, Weights

_ENDING = ".npy"
_NUMBERS = "write an array of numbers, with numpy.save"
_UNNAMED = (
    "NumPy's format does not say which dtype of ml_dtypes an element of one byte has: name it, weight.of_dtype('f8e4m3fn'), "
    "or write the array as safetensors; a tensor for an argument of such a dtype has that of the argument"
)
_FROM_TORCH = (
    "load it and give the state dict, params=torch.load(file, weights_only=True), or save that as safetensors: "
    "safetensors.torch.save_file(state_dict, 'model.safetensors')"
)
# NumPy's name for ml_dtypes' float8_e5m2, which it writes but cannot read, and a name of equal length that it can read.
_E5M2, _BYTE = b"'<f1'", b"'|V1'"
_LONGEST_HEADER = 10_000  # the maximum number of axes of an array in NumPy
_HEADERS: dict[Any, Callable[..., Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
_LOCAL_HEADER = 30  # the bytes of a member's header before its name
_ENCRYPTED = 0x1
_SHORT = 100  # bytes that contain the end of an archive and its optional prefix
_BEST_DEFLATION = 1032  # the largest number of bytes that one byte of deflate can expand to


def read_file(path: str | os.PathLike[str]) -> Weight:
    """Return the array of a `.npy` file, named like the file without its suffix.

    Raises:
        Error: The file is missing or damaged, or does not contain a plain array.
    """
    name = os.fspath(path)
    (weight,) = read_array(content_of(path), name).values()
    return weight


def read_array(content: Content, name: str) -> Weights:
    """Return the array of a `.npy` file; see `read_file`."""
    key = os.path.basename(name).removesuffix(_ENDING)
    weight = _checked(name, lambda: _weight(key, _FileBytes(content, 0, len(content)), name))
    return Weights([weight], name)


def read_archive(content: Content, name: str) -> Weights:
    """Return the arrays of a `.npz` file.

    Raises:
        Error: The file is damaged, has members that are not arrays, or declares an impossible size.
    """
    return Weights(_checked(name, lambda: _members(content, name)), name)


def _checked(name: str, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Error as problem:
        raise Error(f"cannot read {name}: {problem.message}", hint=problem.hint) from None
    except Exception as problem:  # the exceptions of NumPy and zipfile for a damaged file have no common class
        reason = (
            str(problem) or f"its header is damaged ({type(problem).__name__})"
        )  # the message of a RecursionError is empty
        raise Error(f"cannot read {name}: {reason}", hint="write it with numpy.save or numpy.savez") from None


def _members(content: Content, name: str) -> list[Weight]:
    # zipfile reads before the end record. For a short map, that raises another error than for a file.
    is_short = isinstance(content, bytes) or len(content) < _SHORT
    with zipfile.ZipFile(io.BytesIO(content[:]) if is_short else content) as archive:  # type: ignore[arg-type]
        if any(entry.filename.endswith("/data.pkl") for entry in archive.infolist()):
            raise Error("it is a file of PyTorch, whose pickled objects may run code", hint=_FROM_TORCH)
        return [_member(entry, content, name) for entry in archive.infolist()]


def _member(entry: zipfile.ZipInfo, content: Content, name: str) -> Weight:
    key = entry.filename
    if not key.endswith(_ENDING):
        raise Error(f"it holds '{key}', which is no array", hint="expected an archive that numpy.savez wrote")
    if entry.flag_bits & _ENCRYPTED or entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Error(f"'{key}' is encrypted, or compressed by another method than deflate")
    local = bytes(part(content, entry.header_offset, _LOCAL_HEADER))
    if len(local) < _LOCAL_HEADER or not local.startswith(b"PK\x03\x04"):
        raise Error(f"'{key}' has no header")
    begin = entry.header_offset + _LOCAL_HEADER + sum(struct.unpack("<HH", local[26:30]))
    if entry.compress_type == zipfile.ZIP_STORED:
        data: _FileBytes | _Deflated = _FileBytes(content, begin, entry.file_size)
    elif entry.file_size > entry.compress_size * _BEST_DEFLATION:
        raise Error(f"'{key}' claims {entry.file_size} bytes, which do not fit into {entry.compress_size}")
    else:
        data = _Deflated(content, begin, entry)
    return _weight(key.removesuffix(_ENDING), data, name)


@dataclass(frozen=True)
class _FileBytes:
    """Uncompressed bytes in a file."""

    content: Content
    begin: int
    size: int

    def head(self) -> bytes:
        return bytes(part(self.content, self.begin, min(self.size, _LONGEST_HEADER + 12)))

    def after(self, header: int) -> Any:
        return part(self.content, self.begin + header, self.size - header)


@dataclass(frozen=True)
class _Deflated:
    """A compressed member of an archive. It is decompressed every time it is used."""

    content: Content
    begin: int
    entry: zipfile.ZipInfo

    @property
    def size(self) -> int:
        return self.entry.file_size

    def head(self) -> bytes:
        return self._decompressed(min(self.size, _LONGEST_HEADER + 12))

    def after(self, header: int) -> Any:
        data = self._decompressed(self.size)
        if len(data) != self.size or zlib.crc32(data) != self.entry.CRC:
            raise Error("is damaged: its checksum is another")
        return memoryview(data)[header:]

    def _decompressed(self, limit: int) -> bytes:
        packed = part(self.content, self.begin, self.entry.compress_size)
        try:
            return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, limit) if limit else b""
        except (zlib.error, MemoryError) as problem:
            raise Error(f"cannot be decompressed: {problem}") from None


def _weight(key: str, data: _FileBytes | _Deflated, file: str) -> Weight:
    """Return the array that a header describes."""
    head, is_e5m2 = _readable(data.head())
    stream = io.BytesIO(head)
    version = np.lib.format.read_magic(stream)
    if version not in _HEADERS:
        raise Error(f"'{key}' has a header of version {version}, as arrays of records have")
    shape, fortran, kind = _HEADERS[version](stream, max_header_size=_LONGEST_HEADER)
    header = stream.tell()
    size = data.size - header
    encoding = _encoding(f8e5m2.numpy if is_e5m2 else kind, fortran)
    # NumPy accepts booleans as sizes.
    if any(type(d) is not int or d < 0 for d in shape) or (
        not isinstance(encoding, Unreadable) and encoding.nbytes(shape) != size
    ):
        raise Error(f"'{key}' is {kind}{list(shape)} by its header, and {size} bytes are there")
    return Weight(key, shape, encoding, size, file, partial(data.after, header))


def _readable(head: bytes) -> tuple[bytes, bool]:
    """Return the start of an array with a header that NumPy can read, and whether the array is f8e5m2."""
    magic, size = (10, "<H") if head[6:7] == b"\1" else (12, "<I")
    if len(head) < magic:
        return head, False
    end = magic + struct.unpack(size, head[8:magic])[0]
    named = b"'descr': " + _E5M2
    if named not in head[magic:end]:
        return head, False
    return head.replace(named, b"'descr': " + _BYTE, 1), True


def _encoding(kind: np.dtype, fortran: bool) -> Encoding:
    order = "F" if fortran else "C"
    if kind == np.dtype("V1"):
        return Untyped(order, _UNNAMED)
    if kind == np.dtype("V2"):  # the format has no name for bf16: NumPy writes two bytes
        kind = np.dtype(import_package("ml_dtypes", "bf16").bfloat16)
    if kind.kind not in "biufc" and kind.name != "bfloat16":
        return Unreadable(str(kind), _NUMBERS)
    return Plain(kind, order) if kind.isnative else Swapped(kind, order)
