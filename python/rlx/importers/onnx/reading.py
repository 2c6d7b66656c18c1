"""Reading of ONNX files: op sets, functions, dtypes, tensors, attributes and sizes."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.dialect.dtypes import dtype_families
from rlx.importers.onnx.order import names_read
from rlx.importers.table import MOST_OPS
from rlx.ir.dtype import BY_NUMPY_NAME, DTYPES
from rlx.ir.packing import unpack
from rlx.support.cached_property import cached_property
from rlx.support.errors import Error, ParseError, UnsupportedError
from rlx.weights.encoding import Plain
from rlx.weights.mapped import check_regular, content_of, part
from rlx.weights.weight import Weight

if TYPE_CHECKING:
    from onnx import AttributeProto, NodeProto, SparseTensorProto, TensorProto

_STANDARD = ("", "ai.onnx")
_OLDEST = 1
_WITHOUT_STRINGS = "RLX computes with numbers: turn strings into integers before the model, and cut the model off there"
# Attributes that give a dtype by its number. The number 0 means no dtype.
_TYPES = ("to", "dtype", "output_dtype", "precision")
# Errors from reading a malformed field. The file has not been verified.
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
    """The message of a model, and queries on it.

    Args:
        onnx: The package.
        message: The `ModelProto`.
        name: The name of the file, for messages.
        folder: The folder of external files; None if the model is not a file.
    """

    def __init__(self, onnx: ModuleType, message: Any, name: str, folder: str | None):
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
        # The names defined by loop bodies whose condition turned out to be unknown. These loops are not tried again.
        self.undecided: set[tuple[str, ...]] = set()
        # Whether a loop can be a scan, by the names in its body and the shapes of its carries.
        self.scannable: dict[tuple[str, ...], bool] = {}

    @cached_property
    def read(self) -> frozenset[str]:
        """Return all names that the model reads or returns."""
        graphs = [self.message.graph, *self.message.functions]
        names = {name for graph in graphs for node in graph.node for name in names_read(node)}
        results = [o.name for o in self.message.graph.output]
        return frozenset(names.union(results, *(f.output for f in self.message.functions)))

    @staticmethod
    def versions(imports: Any) -> dict[str, int]:
        """Return the version of each domain."""
        return {_domain(o.domain): o.version for o in imports}

    def start(self) -> None:
        """Forget what an import of the model found for other sizes."""
        self.built = 0
        self.undecided.clear()
        self.scannable.clear()

    def count(self) -> None:
        """Count one more node that is built. Functions and loops may repeat nodes.

        Raises:
            Error: There are too many nodes.
        """
        self.built += 1
        if self.built > MOST_OPS:
            raise Error(f"{self.name} has more than {MOST_OPS} nodes")

    @staticmethod
    def op(node: NodeProto) -> str:
        """The name of a node's op, with its domain if it is not ONNX's own."""
        return node.op_type if not _domain(node.domain) else f"{node.domain}.{node.op_type}"

    def place(self, node: NodeProto) -> str:
        """Where a node stands, for messages."""
        return f"{self.name}:{node.name or (node.output[0] if node.output else node.op_type)}"

    def function(self, node: NodeProto, opsets: Mapping[str, int], types: Callable[[], list[bytes]]) -> Any:
        """The function that a node calls, or by which ONNX defines its op; None if there is none.

        Args:
            node: The node.
            opsets: The op set versions in the scope of the node.
            types: Returns the types of its operands as serialised messages. It is called only if they are needed.
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
        """Return the dtype for an ONNX type number.

        Raises:
            UnsupportedError: RLX does not have the dtype: it is a string, a 6-bit float, or an unknown number.
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
                else f"cast it to another type first; RLX has {dtype_families(d.name for d in DTYPES)}"
            )
            raise UnsupportedError(f"{self.name}: {what} has a type that cannot be imported, {name}", hint=hint)
        return dtype

    def _shape(self, tensor: TensorProto, what: str) -> tuple[int, ...]:
        """The sizes of a tensor.

        Raises:
            ParseError: A size is negative.
        """
        shape = tuple(tensor.dims)
        if any(size < 0 for size in shape):
            raise ParseError(f"{self.name}: {what} has a size below 0")
        return shape

    def _check_length(self, tensor: TensorProto, what: str) -> None:
        """A tensor has the elements that its shape says, in the field of its type or as bytes.

        Raises:
            ParseError: It has more or fewer elements.
        """
        helper, shape = self.onnx.helper, self._shape(tensor, what)
        dtype, count = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)), math.prod(shape)
        kind = BY_NUMPY_NAME.get(dtype.name)  # strings do not have this dtype
        if count and tensor.HasField("raw_data") and not tensor.raw_data:
            tensor.ClearField("raw_data")  # some files set this field although the elements are elsewhere
        if tensor.HasField("raw_data"):
            if kind is None:
                return
            stored, expected, unit = len(tensor.raw_data), kind.nbytes(count), "bytes"
        else:
            field = helper.tensor_dtype_to_field(tensor.data_type)
            stored, unit = len(getattr(tensor, field)), f"numbers in {field}"
            expected = count * (2 if dtype.kind == "c" else 1)
            if kind is not None and kind.packed:
                expected = kind.nbytes(count)  # each number is a byte that holds several elements
        if stored != expected:
            raise ParseError(
                f"{self.name}: {what} of shape {list(shape)} has {stored} {unit}, and {expected} are expected"
            )

    def weight(self, tensor: TensorProto) -> Weight:
        """An initialiser, whose elements are read when they are used."""
        what = f"initialiser '{tensor.name}'"
        dtype, shape = self.dtype(tensor.data_type, what), self._shape(tensor, what)
        kind, nbytes = BY_NUMPY_NAME[dtype.name], dtype.itemsize * math.prod(shape)
        if tensor.data_location == tensor.EXTERNAL:
            content = self._external(tensor, what, kind.nbytes(math.prod(shape)))

            def unpacked() -> bytes:
                return unpack(np.frombuffer(content(), np.uint8), kind, shape).tobytes()

            return Weight(tensor.name, shape, Plain(dtype), nbytes, self.name, unpacked if kind.packed else content)
        self._check_length(tensor, what)

        def read() -> bytes:
            if tensor.HasField("raw_data") and not kind.packed:
                return tensor.raw_data
            return self.array(tensor, what).tobytes()

        return Weight(tensor.name, shape, Plain(dtype), nbytes, self.name, read)

    def _external(self, tensor: TensorProto, what: str, nbytes: int) -> Callable[[], Any]:
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

    def array(self, tensor: TensorProto, what: str) -> np.ndarray:
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

    def attribute(self, attribute: AttributeProto, place: str) -> Any:
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
        """Return the value of a named attribute. A dtype number becomes a dtype."""
        if name in _TYPES and isinstance(value, bytes):  # version 1 uses bytes
            value = self.onnx.TensorProto.DataType.Value(value.decode().upper())
        if name in _TYPES and isinstance(value, int):
            return self.dtype(value, f"'{name}' of {place}") if value else None
        return value

    def dense(self, sparse: SparseTensorProto, what: str) -> np.ndarray:
        values, places = self.array(sparse.values, what), self.array(sparse.indices, what)
        if any(n < 0 for n in sparse.dims) or np.prod([float(n) for n in sparse.dims]) > 1 << 24:
            raise ParseError(f"{self.name}: {what} has sizes that have no meaning")
        dense = np.zeros(tuple(sparse.dims), values.dtype)
        flat = places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), dense.shape)
        dense.reshape(-1)[flat] = values
        return dense


def _domain(domain: str) -> str:
    return "" if domain in _STANDARD else domain
