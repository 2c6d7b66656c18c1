"""What is read of an ONNX file: its op sets and functions, dtypes, tensors, attributes and sizes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from rlx.dialect.dtypes import listed
from rlx.importers.onnx.order import names_read
from rlx.importers.table import MOST_OPS
from rlx.ir.dtype import BY_NUMPY_NAME, DTYPES
from rlx.ir.packing import unpacked
from rlx.support.cached_property import cached_property
from rlx.support.errors import Error, ParseError, UnsupportedError
from rlx.weights.encoding import Plain
from rlx.weights.mapped import check_regular, content_of, part
from rlx.weights.weight import Weight

_STANDARD = ("", "ai.onnx")
_OLDEST = 1
_WITHOUT_STRINGS = "RLX computes with numbers: turn strings into integers before the model, and cut the model off there"
# Attributes that name a dtype by its number; 0 names none.
_TYPES = ("to", "dtype", "output_dtype", "precision")
# What reading a field may raise that is not written as ONNX says: nothing has verified the file.
UNVERIFIED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


class OnnxModel:
    """A model's message, and what is asked of it.

    Args:
        onnx: The package.
        message: The `ModelProto`.
        name: The file's name, for messages.
        folder: Where files that it names lie; None if it is not a file itself.
    """

    def __init__(self, onnx: Any, message: Any, name: str, folder: str | None):
        self.onnx, self.message, self.name, self.folder = onnx, message, name, folder
        self.opsets = self.versions(message.opset_import)
        opset = self.opsets.setdefault("", onnx.defs.onnx_opset_version())
        if opset < _OLDEST:
            raise UnsupportedError(
                f"{name} is of version {opset} of ONNX's ops; {_OLDEST} is the oldest that is imported",
                hint="onnx.version_converter.convert_version makes a newer one of it",
            )
        self.functions = {(_domain(f.domain), f.name): f for f in message.functions}
        self.files: dict[str, Any] = {}
        self.built = 0
        # The names that bodies of loops give whose condition was found not to be known: they are not tried again.
        self.undecided: set[tuple[str, ...]] = set()

    @cached_property
    def read(self) -> frozenset[str]:
        """All names that anything in the model reads or gives as a result."""
        graphs = [self.message.graph, *self.message.functions]
        names = {name for graph in graphs for node in graph.node for name in names_read(node)}
        results = [o.name for o in self.message.graph.output]
        return frozenset(names.union(results, *(f.output for f in self.message.functions)))

    @staticmethod
    def versions(imports: Any) -> dict[str, int]:
        """The version of each domain."""
        return {_domain(o.domain): o.version for o in imports}

    def count(self) -> None:
        """Take note of one more node that is built: functions and loops may repeat them.

        Raises:
            Error: There are too many.
        """
        self.built += 1
        if self.built > MOST_OPS:
            raise Error(f"{self.name} has more than {MOST_OPS} nodes")

    @staticmethod
    def op(node: Any) -> str:
        """The name of a node's op, with its domain if it is not ONNX's own."""
        return node.op_type if not _domain(node.domain) else f"{node.domain}.{node.op_type}"

    def place(self, node: Any) -> str:
        """Where a node stands, for messages."""
        return f"{self.name}:{node.name or (node.output[0] if node.output else node.op_type)}"

    def function(self, node: Any, opsets: Mapping[str, int], types: Callable[[], list[bytes]]) -> Any:
        """The function that a node calls, or by which ONNX defines its op; None if there is none.

        Args:
            node: The node.
            opsets: The versions of the ops where it stands.
            types: Gives the types of its operands, as serialised messages, if they are needed.
        """
        domain = _domain(node.domain)
        if (domain, node.op_type) in self.functions:
            return self.functions[domain, node.op_type]
        version = opsets.get(domain, 1)
        try:
            schema = self.onnx.defs.get_schema(node.op_type, version, domain)
        except self.onnx.defs.SchemaError:
            return None
        if schema.has_function:
            return schema.function_body
        if not schema.has_context_dependent_function:
            return None
        known = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        chosen = max(known or schema.context_dependent_function_opset_versions)
        text = schema.get_context_dependent_function_with_opset_version(chosen, node.SerializeToString(), types())
        function = self.onnx.FunctionProto()
        function.ParseFromString(text)
        return function if function.node else None

    def dtype(self, number: int, what: str) -> np.dtype:
        """The dtype of a number of ONNX's.

        Raises:
            UnsupportedError: It is none of RLX's: a string, a float of 6 bits, or a number that ONNX lacks.
        """
        try:
            dtype = np.dtype(self.onnx.helper.tensor_dtype_to_np_dtype(number))
        except (KeyError, TypeError):
            raise UnsupportedError(f"{self.name}: {what} has a type that cannot be imported, {number}") from None
        if dtype.name not in BY_NUMPY_NAME:
            name = self.onnx.TensorProto.DataType.Name(number)
            is_text = number == self.onnx.TensorProto.STRING
            hint = (
                _WITHOUT_STRINGS
                if is_text
                else f"cast it to another type first; RLX has {listed(d.name for d in DTYPES)}"
            )
            raise UnsupportedError(f"{self.name}: {what} has a type that cannot be imported, {name}", hint=hint)
        return dtype

    def _shape(self, tensor: Any, what: str) -> tuple[int, ...]:
        """The sizes of a tensor.

        Raises:
            ParseError: One is below 0.
        """
        shape = tuple(tensor.dims)
        if any(size < 0 for size in shape):
            raise ParseError(f"{self.name}: {what} has a size below 0")
        return shape

    def _check_length(self, tensor: Any, what: str) -> None:
        """A tensor has the elements that its shape says, in the field of its type or as bytes.

        Raises:
            ParseError: It has more or fewer.
        """
        helper, shape = self.onnx.helper, self._shape(tensor, what)
        dtype, count = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)), math.prod(shape)
        kind = BY_NUMPY_NAME.get(dtype.name)  # none of strings
        if count and tensor.HasField("raw_data") and not tensor.raw_data:
            tensor.ClearField("raw_data")  # some write it, and the elements elsewhere
        if tensor.HasField("raw_data"):
            if kind is None:
                return
            stored, expected, unit = len(tensor.raw_data), kind.nbytes(count), "bytes"
        else:
            field = helper.tensor_dtype_to_field(tensor.data_type)
            stored, unit = len(getattr(tensor, field)), f"numbers in {field}"
            expected = count * (2 if dtype.kind == "c" else 1)
            if kind is not None and kind.packed:
                expected = kind.nbytes(count)  # each number is a byte of several elements
        if stored != expected:
            raise ParseError(
                f"{self.name}: {what} of shape {list(shape)} has {stored} {unit}, and {expected} are expected"
            )

    def weight(self, tensor: Any) -> Weight:
        """An initialiser, whose elements are read when they are used."""
        what = f"initialiser '{tensor.name}'"
        dtype, shape = self.dtype(tensor.data_type, what), self._shape(tensor, what)
        kind, nbytes = BY_NUMPY_NAME[dtype.name], dtype.itemsize * math.prod(shape)
        if tensor.data_location == tensor.EXTERNAL:
            content = self._external(tensor, what, kind.nbytes(math.prod(shape)))

            def unpack() -> bytes:
                return unpacked(np.frombuffer(content(), np.uint8), kind, shape).tobytes()

            return Weight(tensor.name, shape, Plain(dtype), nbytes, self.name, unpack if kind.packed else content)
        self._check_length(tensor, what)

        def read() -> bytes:
            if tensor.HasField("raw_data") and not kind.packed:
                return tensor.raw_data
            return self.array(tensor, what).tobytes()

        return Weight(tensor.name, shape, Plain(dtype), nbytes, self.name, read)

    def _external(self, tensor: Any, what: str, nbytes: int) -> Callable[[], Any]:
        """Reads a tensor's bytes in another file of the model's folder."""
        entries = {e.key: e.value for e in tensor.external_data}
        file, offset, length = (
            entries.get("location", ""),
            entries.get("offset", "0"),
            entries.get("length", str(nbytes)),
        )
        where = f"{self.name}: {what} is in {file!r}"
        if self.folder is None:
            raise Error(f"{where}, and the model is given as bytes", hint="give the path of the model's file")
        root = os.path.realpath(self.folder)
        path = os.path.realpath(os.path.join(root, file))
        if not file or os.path.isabs(file) or "\\" in file or os.path.commonpath([root, path]) != root or path == root:
            raise ParseError(f"{where}, which is no file of the model's folder")
        if not (offset.isdecimal() and length.isdecimal()) or int(length) != nbytes:
            raise ParseError(f"{where}, from byte {offset!r} on {length!r} bytes, and {nbytes} are expected")
        check_regular(path)
        if path not in self.files:
            self.files[path] = content_of(path)
        content = self.files[path]
        if int(offset) + nbytes > len(content):
            raise ParseError(f"{where}, which ends before it")
        return lambda: part(content, int(offset), nbytes)

    def array(self, tensor: Any, what: str) -> np.ndarray:
        """The elements of a tensor in the file."""
        if tensor.data_location == tensor.EXTERNAL:
            return self.weight(tensor).numpy()
        if tensor.data_type != self.onnx.TensorProto.STRING:  # some attributes are lists of these
            self.dtype(tensor.data_type, what)
        self._check_length(tensor, what)
        try:
            return self.onnx.numpy_helper.to_array(tensor)
        except Exception as problem:
            raise ParseError(f"{self.name}: {what} cannot be read: {problem}") from None

    def attribute(self, attribute: Any, place: str) -> Any:
        """The value of an attribute: tensors as arrays, lists as tuples, text as `str`, dtypes as NumPy's."""
        if attribute.type == attribute.TENSOR:
            return self.array(attribute.t, f"'{attribute.name}' of {place}")
        if attribute.type == attribute.SPARSE_TENSOR:
            return self.dense(attribute.sparse_tensor, f"'{attribute.name}' of {place}")
        try:
            value = self.onnx.helper.get_attribute_value(attribute)
        except Exception as problem:
            raise ParseError(f"attribute '{attribute.name}' cannot be read: {problem}", location=place) from None
        value = self.typed(attribute.name, value, place)
        if isinstance(value, bytes):
            return value.decode("utf-8", "replace")
        if attribute.type == attribute.STRINGS:
            return tuple(v.decode("utf-8", "replace") for v in value)
        return tuple(value) if attribute.type in (attribute.INTS, attribute.FLOATS) else value

    def typed(self, name: str, value: Any, place: str) -> Any:
        """The value of an attribute of a name; of one that names a dtype by its number the dtype."""
        if name in _TYPES and isinstance(value, bytes):  # of version 1
            value = self.onnx.TensorProto.DataType.Value(value.decode().upper())
        if name in _TYPES and isinstance(value, int):
            return self.dtype(value, f"'{name}' of {place}") if value else None
        return value

    def dense(self, sparse: Any, what: str) -> np.ndarray:
        values, places = self.array(sparse.values, what), self.array(sparse.indices, what)
        if any(n < 0 for n in sparse.dims) or np.prod([float(n) for n in sparse.dims]) > 1 << 24:
            raise ParseError(f"{self.name}: {what} has sizes that have no meaning")
        dense = np.zeros(tuple(sparse.dims), values.dtype)
        flat = places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), dense.shape)
        dense.reshape(-1)[flat] = values
        return dense


def _domain(domain: str) -> str:
    return "" if domain in _STANDARD else domain
