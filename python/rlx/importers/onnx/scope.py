"""Scopes: the values of a graph by name, and the evaluation of nodes.

A value is known if it depends only on constants and sizes. Nodes with known operands are computed during import,
because shapes and axes must be known numbers. A graph in a node (a branch, the body of a loop) is a scope within a
scope. A function has a scope of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.importers.onnx import older
from rlx.importers.onnx.order import in_order
from rlx.importers.onnx.reading import UNVERIFIED, OnnxModel
from rlx.importers.onnx.rules import MOST_KNOWN, STATIC_OPERANDS, Unknown, imports, structures
from rlx.importers.onnx.sizes import SymbolicArray, compute, quick
from rlx.importers.table import LARGEST_LITERAL
from rlx.ir.dims import dim
from rlx.ir.dims.dim import Dim
from rlx.ir.dtype import family
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from rlx.ir.location import location_at
from rlx.ops.lift import size_of
from rlx.support.errors import Error, ParseError, UnsupportedError
from rlx.weights.weight import Weight

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto, TensorProto

# Elements up to which a value that depends on constants alone is computed at once: shapes, axes, indices.
_LARGEST_STATIC = 4096
_DEEPEST = 64
_COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")


@dataclass(eq=False)
class OnnxValue:
    """A value of the model: a tensor, an array that becomes a tensor on demand, or a sequence.

    Attributes:
        tensor: The tensor.
        known: The elements if they are known. For a weight, only if they are few.
        sizes: The elements if they are sizes and some of them are open.
        weight: The initialiser.
        items: The values of a sequence.
        is_none: Whether it is an absent optional value.
    """

    tensor: Tensor | None = None
    known: np.ndarray | None = None
    sizes: SymbolicArray | None = None
    weight: Weight | None = None
    items: list[OnnxValue] | None = None
    is_none: bool = False

    @property
    def is_literal(self) -> bool:
        """Return whether the value is known and is not a weight, which might be trained."""
        return self.sizes is not None or (
            self.known is not None
            and (self.weight is None or family(self.known.dtype) in ("bool", "signed", "unsigned"))
        )

    @property
    def is_known(self) -> bool:
        """Return whether the elements are known, or are sizes."""
        return self.known is not None or self.sizes is not None

    @property
    def static(self) -> Any:
        """Return the value that a rule gets in `static`."""
        return self.sizes or (Unknown() if self.known is None else self.known)

    @classmethod
    def of(cls, elements: np.ndarray | SymbolicArray) -> OnnxValue:
        """Return a known value."""
        return cls(sizes=elements) if isinstance(elements, SymbolicArray) else cls(known=elements)


class OnnxScope:
    """The values of a graph or a function by name.

    Args:
        model: The imported model.
        g: The graph that is built.
        outer: The scope that a graph in a node can read from.
        caller: The scope that calls a function.
        opsets: The op set versions, if they are not the model's.
        attributes: The attributes of the call of a function.
    """

    def __init__(
        self,
        model: OnnxModel,
        g: Graph,
        outer: OnnxScope | None = None,
        caller: OnnxScope | None = None,
        opsets: Mapping[str, int] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ):
        self.model, self.g, self.outer = model, g, outer
        self.above = outer or caller
        self.depth: int = self.above.depth + 1 if self.above else 0
        if self.depth > _DEEPEST:
            raise Error(f"{model.name} has graphs and functions in one another, more than {_DEEPEST} deep")
        self.opsets = opsets or (self.above.opsets if self.above else model.opsets)
        self.called = attributes if attributes is not None else (outer.called if outer else {})
        self.values: dict[str, OnnxValue] = {}
        self._tensors: dict[OnnxValue, Tensor] = {}

    def find(self, name: str) -> OnnxValue | None:
        """Return the value of a name, from this scope or an outer one."""
        scope: OnnxScope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.outer
        return None

    def value(self, name: str, what: str) -> OnnxValue:
        """Return the value of a name.

        Raises:
            ParseError: The name is not defined.
        """
        found = self.find(name)
        if found is None:
            raise ParseError(f"{what} is '{name}', which nothing before it gives")
        return found

    def tensor(self, value: OnnxValue, what: str) -> Tensor:
        """Return the tensor of a value. A known array becomes a tensor now.

        Raises:
            UnsupportedError: It is a sequence, or an absent optional value.
        """
        if value.tensor is not None:
            return value.tensor
        scope: OnnxScope | None = self
        root = self
        while scope is not None:
            if value in scope._tensors:
                return scope._tensors[value]
            root, scope = scope, scope.above
        if value.items is not None or value.is_none:
            kind = "a sequence" if value.items is not None else "an optional value that is not there"
            raise UnsupportedError(f"{what} is {kind} where a tensor is expected")
        weight = value.weight
        if weight is not None and (family(weight.dtype) == "float" or weight.nbytes > LARGEST_LITERAL):
            name = (
                weight.name if not any(p.name == weight.name for p in self.g.params) else self.g.new_name(weight.name)
            )
            made = root._tensors[value] = self.g.param(name, weight.shape, weight.dtype, value=weight)
            return made
        if value.sizes is not None:
            made = self._tensors[value] = _measured(self.g, value.sizes)
            return made
        array = weight.numpy() if weight is not None else value.known
        assert array is not None
        made = self._tensors[value] = self.g.constant(array)
        return made

    def define(self, initialisers: Iterable[TensorProto]) -> None:
        """Give names to initialisers."""
        for tensor in initialisers:
            weight = self.model.weight(tensor)
            if weight.name in self.values:
                raise ParseError(f"{self.model.name}: two initialisers are called '{weight.name}'")
            self.values[weight.name] = OnnxValue(weight=weight, known=_small(weight))

    def run(self, nodes: Sequence[NodeProto]) -> None:
        """Build nodes, each after its producers."""
        for node in in_order(nodes, lambda name: self.find(name) is not None):
            place = self.model.place(node)
            self.model.count()
            self._check_new(node, place)
            try:
                results = self._results(node, place)
            except Error as problem:
                raise problem if problem.location else problem.moved(location=place) from None
            except UNVERIFIED as problem:
                message = f"{self.model.op(node)} is not written as ONNX says: {type(problem).__name__}: {problem}"
                raise ParseError(message, location=place) from None
            if any(node.output[len(results) :]):
                message = f"{self.model.op(node)} with {len(node.output)} results cannot be imported"
                raise UnsupportedError(message, location=place)
            self.values.update({n: v for n, v in zip(node.output, results, strict=False) if n})

    def _check_new(self, node: NodeProto, place: str) -> None:
        """Check that no other value of the graph has the name of a node's result.

        Raises:
            ParseError: A name is already defined.
        """
        names = [n for n in node.output if n]
        for i, name in enumerate(names):
            if name in self.values or name in names[:i]:
                message = f"{self.model.op(node)} gives '{name}', which has been given before"
                raise ParseError(message, location=place, hint="in ONNX, every name of a graph is given once")

    def operands(self, node: NodeProto) -> list[OnnxValue | None]:
        """The values that a node takes, None for one that is left out."""
        return [self.value(n, "an operand") if n else None for n in node.input]

    def attributes(self, node: NodeProto) -> dict[str, Any]:
        """The attributes of a node; in a function some are those that it was called with."""
        place = self.model.place(node)
        found = {}
        for attribute in node.attribute:
            if attribute.ref_attr_name:
                if attribute.ref_attr_name in self.called:
                    given = self.called[attribute.ref_attr_name]
                    found[attribute.name] = self.model.typed(attribute.name, given, place)
            else:
                found[attribute.name] = self.model.attribute(attribute, place)
        return found

    def _results(self, node: NodeProto, place: str) -> Sequence[OnnxValue]:
        op = self.model.op(node)
        if op in structures:
            try:
                with self.g.located(location_at(place)):
                    return structures[op](self, node)
            except UnsupportedError as problem:
                location = problem.location or place
                message = problem.message if location != place else f"{op} {problem.message}"
                raise problem.moved(message, location=location) from None
        values = self.operands(node)
        attributes = self.attributes(node)
        rule = imports.rules.get(op)
        is_called = (node.domain, node.op_type) in self.model.functions
        if rule is None or is_called or not attributes.keys() <= rule.attributes:
            called = self._called(node, values, attributes)
            if called is not None:
                return called
        if rule is None:  # the op set has the op, but ONNX defines only another version of it by a function
            raise UnsupportedError(f"{op} cannot be imported in this version of the op set", location=place)
        details = {
            "static": [None if v is None else v.static for v in values],
            "opset": self.opsets.get("", 1),
            "outputs": len(node.output),
            "wanted": [bool(n) and n in self.model.read for n in node.output],
        }
        attributes |= {n: v for n, v in details.items() if n in rule.attributes}
        # Ops without a gradient may also be computed from weights.
        if all(v is None or v.is_literal or (v.is_known and op in _COMPARISONS) for v in values) and (
            values or op == "Constant"
        ):
            results = self._computed(op, values, attributes, place)
            if results is not None:
                return [OnnxValue.of(a) for a in results]
        unread = STATIC_OPERANDS.get(op, ())
        operands = [
            None if v is None or (i in unread and v.is_known) else self.tensor(v, "an operand")
            for i, v in enumerate(values)
        ]
        if op in ("Shape", "Size"):
            assert operands[0] is not None
            return [OnnxValue.of(_of_shape(op, operands[0].shape.dims, attributes))]
        return [OnnxValue(tensor=t) for t in self._built(self.g, op, operands, attributes, place)]

    def _built(
        self, g: Graph, op: str, operands: Sequence[Any], attributes: dict[str, Any], place: str
    ) -> list[Tensor]:
        """Return the tensors that the rule of an op builds."""
        if self.opsets.get("", 7) <= older.NEWEST:
            try:
                with g.located(location_at(place)):
                    operands, attributes = older.newer(g, op, operands, attributes)
            except UnsupportedError as problem:
                raise UnsupportedError(f"{op} {problem.message}", location=place, hint=problem.hint) from None
        return imports.build(g, op, operands, attributes, (), place)

    def _computed(
        self, op: str, values: Sequence[OnnxValue | None], attributes: dict[str, Any], place: str
    ) -> list[np.ndarray | SymbolicArray] | list[np.ndarray] | None:
        """Compute an op whose operands are all known. Return None if the result is large."""

        def move(positions: list[np.ndarray | None]) -> list[np.ndarray] | None:
            renewed = {"static": positions} if "static" in attributes else {}
            return self._evaluated(op, positions, {**attributes, **renewed}, place)

        if any(v is not None and v.sizes is not None for v in values):
            return compute(
                op, [None if v is None else v.known if v.sizes is None else v.sizes for v in values], attributes, move
            )
        return self._evaluated(op, [None if v is None else v.known for v in values], attributes, place)

    def _evaluated(
        self, op: str, arrays: Sequence[np.ndarray | None], attributes: dict[str, Any], place: str
    ) -> list[np.ndarray] | None:
        at_once = quick(op, arrays, attributes)
        if at_once is not None:
            return at_once if all(a.size <= MOST_KNOWN for a in at_once) else None
        scratch: Any = Graph("static")
        operands: list[Any] = [None if a is None else scratch.constant(a) for a in arrays]
        built = self._built(scratch, op, operands, attributes, place)
        if any(math.prod(t.shape.static) > _LARGEST_STATIC for t in built):
            return None
        scratch.set_outputs(built)
        return [np.asarray(a) for a in evaluate(scratch, scratch.weights)]

    def _called(
        self, node: NodeProto, values: list[OnnxValue | None], attributes: dict[str, Any]
    ) -> list[OnnxValue] | None:
        """The results of a node that calls a function, or whose op ONNX defines by one; None if neither is so."""

        def types() -> list[bytes]:
            helper, found = self.model.onnx.helper, []
            for value in values:
                if value is None:
                    found.append(self.model.onnx.TypeProto().SerializeToString())
                    continue
                tensor = self.tensor(value, "an operand")
                dims = [d if isinstance(d, int) else str(d) for d in tensor.shape.dims]
                number = helper.np_dtype_to_tensor_dtype(tensor.dtype.numpy)
                found.append(helper.make_tensor_type_proto(number, dims).SerializeToString())
            return found

        function = self.model.function(node, self.opsets, types)
        if function is None:
            return None
        defaults = {a.name: self.model.attribute(a, function.name) for a in function.attribute_proto}
        if not function.attribute_proto and (node.domain, node.op_type) not in self.model.functions:
            schema = self.model.onnx.defs.get_schema(node.op_type, self.opsets.get(node.domain, 1), node.domain)
            defaults = {
                n: self.model.attribute(a.default_value, function.name)
                for n, a in schema.attributes.items()
                if a.default_value.name
            }
        opsets = {**self.opsets, **self.model.versions(function.opset_import)}
        inside = OnnxScope(self.model, self.g, caller=self, opsets=opsets, attributes={**defaults, **attributes})
        for name, value in zip(function.input, values, strict=False):
            if value is not None:
                inside.values[name] = value
        inside.values |= {n: OnnxValue(is_none=True) for n in function.input if n not in inside.values}
        inside.run(function.node)
        return [
            inside.value(n, f"a result of {function.name}") if wanted else OnnxValue(is_none=True)
            for n, wanted in zip(function.output, node.output, strict=False)
        ]

    def inside(self, graph: GraphProto, arguments: Sequence[OnnxValue]) -> list[OnnxValue]:
        """The results of a graph in a node.

        Args:
            graph: The `GraphProto`.
            arguments: The values of its inputs.
        """
        scope = OnnxScope(self.model, self.g, outer=self)
        scope.define(graph.initializer)
        for declared, value in zip(graph.input, arguments, strict=True):
            scope.values[declared.name] = value
        scope.run(graph.node)
        return [scope.value(o.name, f"a result of the graph '{graph.name}'") for o in graph.output]


def _of_shape(op: str, sizes: Sequence[Dim], attributes: Mapping[str, Any]) -> np.ndarray | SymbolicArray:
    """Return the sizes of a tensor, or their product, as `Shape` and `Size` do."""
    given = [dim.product(sizes)] if op == "Size" else list(sizes[attributes.get("start", 0) : attributes.get("end")])
    array = np.empty(len(given), object)
    array[:] = given
    array = array.reshape(()) if op == "Size" else array
    has_symbols = any(not isinstance(d, int) for d in given)
    return SymbolicArray(array, np.dtype(np.int64)) if has_symbols else array.astype(np.int64)


def _measured(g: Graph, sizes: SymbolicArray) -> Tensor:
    """Return a tensor of sizes. Some are known only at run time."""
    elements = [size_of(g, d) for d in sizes.array.reshape(-1).tolist()]
    parts = [g.constant(np.int64(e)) if isinstance(e, int) else g.cast(e, "i64") for e in elements]
    return g.cast(g.reshape(g.stack(parts, 0), sizes.array.shape), sizes.dtype)


def _small(weight: Weight) -> np.ndarray | None:
    """Return the elements of an initialiser that may be a shape, a list of axes or similar."""
    return weight.numpy() if weight.nbytes <= _LARGEST_STATIC * 8 else None
