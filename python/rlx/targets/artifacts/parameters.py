"""The values of parameters, in a file of compiled programs or next to it: an archive in IREE's format, `.irpa`.

IREE's runtime writes the archive, so IREE's own tools can read it (`iree-run-module --parameters=model=weights.irpa`). The
manifest of the programs has the offset of each value. The archive is therefore not parsed: it is mapped into memory, and
arrays are views of it.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from rlx.ir.packing import pack, unpack
from rlx.support.errors import Error
from rlx.support.packages import import_package
from rlx.targets.artifacts.fields import integer, list_of, mapping, name, optional, record, row, unexpected_value
from rlx.targets.artifacts.signature import Signature
from rlx.weights.mapped import content_of

_ALIGNMENT = 64  # of values in IREE's archives
_LARGEST = 1 << 62
_MOST_AXES = 64


@dataclass(frozen=True)
class ByteRange:
    """The location of a parameter's value: its byte offset and its dimensions."""

    offset: int
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Parameters:
    """Values of parameters.

    Attributes:
        places: The location of each value, by the name of the parameter.
        size: The size of the archive in bytes.
        sha256: The hash of the archive, in hexadecimal.
        file: The name of a separate file with the archive, next to the file of the programs; None if it is a member of that.
        content: The archive; None if it is a separate file, which is opened when the values are needed.
    """

    places: Mapping[str, ByteRange]
    size: int
    sha256: str
    file: str | None = None
    content: Any = field(default=None, repr=False, compare=False)

    def to_json(self) -> dict[str, Any]:
        places = {key: [place.offset, list(place.sizes)] for key, place in self.places.items()}
        return {"file": self.file, "size": self.size, "sha256": self.sha256, "places": places}

    @classmethod
    def from_json(cls, data: Any, signature: Signature) -> Parameters:
        """The parameters that `to_json` was called on, without their content.

        Raises:
            Error: The data has another form, or does not match the signature.
        """
        entries = _PARAMETERS(data, "parameters")
        file = entries["file"]
        if file is not None and (file != os.path.basename(file) or file in (".", "..") or set(file) & set("\\:\0")):
            raise unexpected_value("parameters.file", "the name of a file in the same folder", file)
        known = {argument.name: argument.shape for argument in signature.of_kind("param")}
        places = {}
        for key, value in entries["places"].items():
            what = f"parameters.places[{key!a:.60}]"
            if key not in known:
                raise Error(f"{what}: the program has no such parameter")
            offset, sizes = _PLACE(value, what)
            shape = known[key]
            fits = len(sizes) == shape.rank and all(
                type(d) is not int or d == size for d, size in zip(shape.dims, sizes, strict=True)
            )
            if not fits:
                raise Error(f"{what}: its sizes are {sizes}, and the parameter is {shape}")
            if offset % _ALIGNMENT or offset + shape.dtype.nbytes(prod(sizes)) > entries["size"]:
                raise Error(f"{what}: it lies outside of the {entries['size']} bytes, or not at a multiple of 64")
            places[key] = ByteRange(offset, tuple(sizes))
        return cls(places, entries["size"], entries["sha256"], file)

    def arrays(self, signature: Signature, folder: str | None = None) -> dict[str, np.ndarray]:
        """Return the values as read-only arrays. They are views of the archive, except dtypes of less than 8 bits: copies.

        Args:
            signature: The signature of the programs.
            folder: The folder of the file with the programs.

        Raises:
            Error: The file with the values is missing, or is not the one that was written with the programs.
        """
        content = self.content if self.file is None else self._opened(folder)
        shapes = {argument.name: argument.shape for argument in signature.of_kind("param")}
        found = {}
        for key, place in self.places.items():
            kind = shapes[key].dtype
            array = np.frombuffer(content, np.uint8, kind.nbytes(prod(place.sizes)), place.offset)
            found[key] = unpack(array, kind, place.sizes)
            found[key].flags.writeable = False
        return found

    def _opened(self, folder: str | None) -> Any:
        assert self.file is not None
        if folder is None:
            raise Error(f"its parameters are in {self.file}, beside a file that has no folder", hint="give params=")
        path = os.path.join(folder, self.file)
        if not os.path.isfile(path):
            raise Error(f"its parameters are in {path}, which is no file", hint="put it there, or give all parameters")
        content = content_of(path)
        check(content, self.size, self.sha256, path)
        return content


def check(content: Any, size: int, sha256: str, what: str) -> None:
    """Check that some content has the declared size and hash.

    Raises:
        Error: Its size or hash differs.
    """
    view = memoryview(content)
    if view.nbytes != size:
        raise Error(f"{what} has {view.nbytes} bytes instead of {size}: it is damaged, or another one")
    if hashlib.sha256(view).hexdigest() != sha256:
        raise Error(f"{what} is damaged, or another one: its checksum is not the one that was recorded")


_PLACE = row(integer(0, _LARGEST), list_of(integer(0, _LARGEST), _MOST_AXES))
_PARAMETERS = record({"file": optional(name), "size": integer(0, _LARGEST), "sha256": name, "places": mapping})


def packed(arrays: Mapping[str, np.ndarray]) -> Parameters:
    """Return an archive with the values of parameters as its content.

    Raises:
        Error: IREE's runtime is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="rlx-") as folder:
        temporary = os.path.join(folder, "parameters.irpa")
        _create(arrays, temporary)
        return _described(
            arrays, temporary, content_of(temporary), None
        )  # the content remains after the file is unlinked


def written(arrays: Mapping[str, np.ndarray], path: str, name: str) -> Parameters:
    """Write an archive with the values of parameters. Returns their places without the content.

    Args:
        arrays: The values, by name.
        path: The file to write.
        name: The name that this file will have.

    Raises:
        Error: IREE's runtime is not installed.
    """
    _create(arrays, path)
    return replace(_described(arrays, path, content_of(path), name), content=None)


def _create(arrays: Mapping[str, np.ndarray], path: str) -> None:
    runtime = import_package("iree.runtime", "an archive of parameters")
    index = runtime.ParameterIndex()
    for key, array in arrays.items():
        index.add_buffer(key, pack(array))
    index.create_archive_file(path)


def _described(arrays: Mapping[str, np.ndarray], path: str, content: Any, file: str | None) -> Parameters:
    index = import_package("iree.runtime", "an archive of parameters").ParameterIndex()
    index.load(path, format="irpa")
    places = {key: ByteRange(entry.file_storage[1], arrays[key].shape) for key, entry in index.items()}
    return Parameters(places, len(content), hashlib.sha256(content).hexdigest(), file, content)
