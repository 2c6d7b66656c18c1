"""Large constants, stored outside of the module. Files are parsed without them.

MLIR stores each constant several times, and text uses two characters per byte. So the constants are removed before MLIR
reads the file: in text those in hexadecimal, in bytecode all (`rlx.ir.text.bytecode`). Constants of a bytecode file
stay on disk until they are used.
"""

from __future__ import annotations

import binascii
import math
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from rlx import mlir
from rlx.importers.stablehlo.shardy import without_shardings
from rlx.importers.stablehlo.types import elements_held, of_stored, one_of
from rlx.ir.text.bytecode import LEAST, without_constants
from rlx.ir.text.isolated import bytecode_text, is_bytecode
from rlx.ir.text.modules import decode_module, is_path
from rlx.support.errors import Error, ParseError
from rlx.support.files import LARGEST
from rlx.weights.encoding import Plain
from rlx.weights.mapped import content_of_file
from rlx.weights.weight import Weight

_DIGITS = rf'dense<"0x([0-9A-Fa-f]{{{2 * LEAST},}})">'
_IN_BYTES, _IN_TEXT = re.compile(_DIGITS.encode()), re.compile(_DIGITS)
_LONGEST_TEXT_START = 64
_WIDEST = 16  # bytes of an element
_PREFIX = "rlx_constant"
# The start of StableHLO bytecode inside a serialised JAX function.
_ARTIFACT = b"ML\xefR\rStableHLO_v"
_SHARDY = b"\0sdy\0"
_NO_ARTIFACT = (
    "a portable artifact has no dialect but StableHLO; for one device import the text, str(exported.mlir_module())"
)
# MLIR appends a number to a name that another module has used.
_NAME = re.compile(r"dense_resource<([a-z_]+\d+)(?:_\d+)?>")


class ModuleText(NamedTuple):
    """A module before parsing.

    Attributes:
        text: Its text, without its large constants.
        name: The name of the module in messages.
        constants: The large constants.
    """

    text: str
    name: str
    constants: LargeConstants


class LargeConstants:
    """The large constants of a module.

    Args:
        named: The bytes of constants that the text refers to as resources, by name.
        marked: The bytes of constants that the text refers to by a marker value. The key is the bytes of the marker and
            the number of bytes of the constant.
        origin: The name of the module in messages.
    """

    def __init__(
        self,
        named: Mapping[str, Any] | None = None,
        marked: Mapping[tuple[bytes, int], Any] | None = None,
        origin: str = "",
    ):
        self._named, self._marked, self._origin = named or {}, marked or {}, origin

    def __len__(self) -> int:
        return len(self._named) + len(self._marked)

    def elements(self, attribute: Any) -> np.ndarray | Weight | None:
        """Return the elements of a dense attribute in their storage type; None for another attribute.

        Raises:
            Error: Their type is not supported, or their number differs from the type.
        """
        ir = mlir.ir
        if isinstance(attribute, ir.DenseElementsAttr):
            stored = self._of_mark(attribute)
            return elements_held(attribute) if stored is None else self._weight(attribute.type, stored)
        if self._named and (match := _NAME.match(str(attribute))) and match[1] in self._named:
            return self._weight(attribute.type, self._named[match[1]])
        return None

    def _of_mark(self, attribute: Any) -> Any:
        """Return the bytes of the constant that a splat attribute marks. Boolean attributes are never markers."""
        count = math.prod(attribute.type.shape)
        if not self._marked or not attribute.is_splat or count * _WIDEST < LEAST:
            return None
        if attribute.type.element_type == mlir.ir.IntegerType.get_signless(1):
            return None
        mark = one_of(attribute)
        return self._marked.get((mark, count * len(mark)))

    def _weight(self, type_: Any, stored: Any) -> Weight:
        dtype, read = of_stored(type_, stored)
        shape = tuple(type_.shape)
        return Weight("constant", shape, Plain(dtype.numpy), math.prod(shape) * dtype.itemsize, self._origin, read)


NONE = LargeConstants()


def read(source: str | bytes | os.PathLike[str]) -> ModuleText:
    """Return the module from text, bytes, or the path of a file.

    Raises:
        ParseError: It is neither text nor readable bytecode.
        Error: The file cannot be read.
    """
    if isinstance(source, (bytes, bytearray)):
        return of_content(bytes(source), "<bytes>")
    if not is_path(source):
        return _of_text(str(source), "<text>")
    return of_content(content_of_file(source, "StableHLO"), os.fspath(source))


def of_content(content: Any, name: str) -> ModuleText:
    """Return the module in the content of a file. The content is bytes or a memory map, and constants may be views of it.

    Raises:
        ParseError: It is neither text nor readable bytecode.
    """
    if not is_bytecode(content[:4]):
        if not isinstance(content, str) and content.find(_ARTIFACT) > 0 and b"\0" in content[:_LONGEST_TEXT_START]:
            raise ParseError(
                "a serialised function of JAX, which holds more than a module",
                location=name,
                hint="give its module: exported.mlir_module_serialized, where exported is "
                "jax.export.deserialize(bytearray(data)) if there is only the data",
            )
        return _of_text(content, name)
    data, found = without_constants(content)
    if len(data) > LARGEST:
        raise Error(f"cannot read {name}: it has {len(data)} bytes, and at most {LARGEST} are read")
    try:
        text = bytecode_text(bytes(data), name)
    except ParseError as problem:
        if data.find(_SHARDY) < 0:
            raise
        raise problem.moved(problem.message, hint=_NO_ARTIFACT) from None
    return ModuleText(text, name, LargeConstants(marked=found, origin=name))


def of_artifact(artifact: bytes) -> tuple[bytes, LargeConstants]:
    """Return a portable artifact without its large constants, and these constants."""
    data, found = without_constants(artifact)
    return data, LargeConstants(marked=found, origin="the function")


def _of_text(content: Any, name: str) -> ModuleText:
    """Return the module in a text: characters, bytes, or a memory map."""
    digits: Any = _IN_TEXT if isinstance(content, str) else _IN_BYTES
    matches = list(digits.finditer(content)) if len(content) >= LEAST else []
    prefix = _PREFIX
    while matches and content.find(_like(content, prefix)) >= 0:
        prefix += "x"
    named: dict[str, bytes] = {}
    pieces: list[Any] = []
    place = 0
    for number, match in enumerate(matches):
        start, end = match.span(1)
        named[f"{prefix}{number}"] = _bytes_of(content, start, end, name)
        pieces += [content[place : match.start()], _like(content, f"dense_resource<{prefix}{number}>")]
        place = match.end()
    text: Any = _like(content, "").join([*pieces, content[place:]])
    if len(text) > LARGEST:
        raise Error(f"cannot read {name}: without constants it has {len(text)} bytes, and at most {LARGEST} are read")
    whole = text if isinstance(text, str) else decode_module(text, name)
    return ModuleText(without_shardings(whole, name), name, LargeConstants(named, origin=name))


def _like(content: Any, text: str) -> Any:
    """Return a text as `str` or `bytes`, like the content."""
    return text if isinstance(content, str) else text.encode()


def _bytes_of(content: Any, start: int, end: int, name: str) -> bytes:
    """Return the bytes for hexadecimal digits.

    Raises:
        ParseError: The number of digits is odd.
    """
    digits = content[start:end] if isinstance(content, str) else memoryview(content)[start:end]
    try:
        return binascii.unhexlify(digits)
    except binascii.Error:
        pieces = (content[i : min(start, i + LEAST)] for i in range(0, start, LEAST))  # a memory map has no `count`
        line = 1 + sum(piece.count(_like(content, "\n")) for piece in pieces)
        column = start - content.rfind(_like(content, "\n"), 0, start)
        message = "an odd number of hexadecimal digits in the elements of a constant"
        raise ParseError(message, location=f"{name}:{line}:{column}") from None
