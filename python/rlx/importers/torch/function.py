"""Conversion of the nodes of an exported program to ops of a graph."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from rlx import mlir
from rlx.importers.torch.rules import imports
from rlx.importers.torch.sizes import SymbolNames
from rlx.ir.dims import dim
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.location import location_at
from rlx.ir.shape import Shape
from rlx.support.errors import Error, UnsupportedError

# Arguments for the storage of a result. They do not change its value.
_IRRELEVANT = ("layout", "device", "pin_memory", "memory_format", "requires_grad", "non_blocking", "copy")
# Operators that only check conditions. The conditions hold for every input that the graph accepts.
_CHECKS = frozenset(
    (
        *("aten._assert_scalar", "aten._assert_tensor_metadata", "aten._assert_async", "aten.sym_constrain_range"),
        *("aten.sym_constrain_range_for_size", "_check_is_size", "aten._functional_assert_async"),
    )
)
# Operators whose result has its own memory.
_FRESH = frozenset(
    f"aten.{name}"
    for name in (
        *(
            "add",
            "sub",
            "rsub",
            "mul",
            "div",
            "pow",
            "exp",
            "sqrt",
            "rsqrt",
            "abs",
            "neg",
            "sin",
            "cos",
            "clamp",
            "where",
        ),
        *(
            "relu",
            "relu6",
            "silu",
            "gelu",
            "elu",
            "leaky_relu",
            "hardtanh",
            "hardswish",
            "hardsigmoid",
            "sigmoid",
            "tanh",
        ),
        *("masked_fill", "sum", "mean", "softmax", "cat", "stack", "matmul", "bmm", "mm", "linear", "addmm", "baddbmm"),
        *(
            "conv1d",
            "conv2d",
            "conv3d",
            "max_pool2d",
            "avg_pool2d",
            "batch_norm",
            "layer_norm",
            "group_norm",
            "embedding",
        ),
    )
)
_FRAME = re.compile(r'File "(.+)", line (\d+), in ')


def op_name(target: Any) -> str:
    """Return the rule name for the target of a node: `aten.add.Scalar` if there is a rule of that name, else `aten.add`.

    An operator that changes its operand (`aten.add_`) has the rule of the operator that does not.
    """
    if not hasattr(target, "_schema"):  # a Python function, or an operator that takes graphs
        module = getattr(target, "__module__", "") or ""
        name = getattr(target, "__name__", str(target))
        return (
            name if hasattr(target, "dispatch") or not module.startswith(("_operator", "math")) else f"operator.{name}"
        )
    whole = str(target)
    name = whole if whole in imports.rules else whole.rpartition(".")[0]
    return name.removesuffix("_") if is_update(target) and name.removesuffix("_") in imports.rules else name


def is_update(target: Any) -> bool:
    """Return whether an operator changes one of its operands."""
    return bool(getattr(getattr(target, "_schema", None), "is_mutable", False))


def is_local(node: Any) -> bool:
    """Return whether an operator changes only its first operand, which does not share memory with other values.

    Then the operator is imported as its functional form, and later users of the operand read the result instead.
    """
    name = str(node.target).rpartition(".")[0]
    if not name.endswith("_") or name.removesuffix("_") not in _FRESH:
        return False
    base = node.args[0]
    if base.op != "call_function":
        return False
    return all(n.op == "output" or op_name(n.target) in _FRESH for n in (base, *base.users))


def is_size(value: Any) -> bool:
    """Return whether the value of a node is an integer or a boolean about sizes, instead of a tensor."""
    return isinstance(value, int) or type(value).__name__ in ("SymInt", "SymBool")


def call_nodes(module: Any) -> Iterator[Any]:
    """Yield all nodes that need a rule, of a graph and of its inner graphs."""
    for node in module.graph.nodes:
        if node.op == "call_function" and not _is_known(node):
            yield node
        elif node.op == "get_attr" and hasattr(inner := _attribute(module, node.target), "graph"):
            yield from call_nodes(inner)


def _is_known(node: Any) -> bool:
    """Return whether a node needs no rule: it selects a result, computes a size, or checks a condition."""
    return node.target is operator.getitem or is_size(node.meta.get("val")) or op_name(node.target) in _CHECKS


def _attribute(module: Any, path: str) -> Any:
    return operator.attrgetter(path)(module)


def place_of(node: Any, torch_folder: str) -> str | None:
    """Return the `file:line` of the innermost line outside of PyTorch that a node comes from."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    own = [f for f in frames if not f[0].startswith((torch_folder, "torch/"))]
    if not frames:
        return None
    name, line = (own or frames)[-1]
    return f"{name}:{line}"


class ExportScope:
    """The state of the import of an exported program.

    Args:
        torch: The package.
        g: The graph.
        sizes: The symbols of the program.
    """

    def __init__(self, torch: ModuleType, g: Graph, sizes: SymbolNames):
        self.torch, self.g, self.sizes = torch, g, sizes
        self.folder = os.path.dirname(str(torch.__file__)) + os.sep
        self._locations: dict[tuple[str, str], mlir.Location] = {}

    def run(self, module: Any, arguments: Sequence[Any]) -> Any:
        """Add the ops of a PyTorch graph to the graph, and return its results for the values of its placeholders."""
        values: dict[Any, Any] = {}
        given = iter(arguments)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(given)
            elif node.op == "get_attr":
                values[node] = self._constant(_attribute(module, node.target), node.target)
            elif node.op == "call_function":
                values[node] = self._called(node, values)
                if is_update(node.target):
                    values[node.args[0]] = values[node]
            elif node.op == "output":
                return _replaced(node.args[0], values)
        raise Error("a graph of PyTorch's has no output")

    def _constant(self, value: Any, name: str) -> Any:
        """Return an attribute of a module: a graph as a function of values, or a tensor."""
        from rlx.importers.table import constant
        from rlx.importers.torch.weights import array_of

        if hasattr(value, "graph"):
            return SubgraphFunction(self, value)
        return constant(self.g, array_of(self.torch, value, f"'{name}'"), trainable=value.requires_grad)

    def _called(self, node: Any, values: dict[Any, Any]) -> Any:
        found = node.meta.get("val")
        if is_size(found):
            return None if type(found).__name__ == "SymBool" else self._size(node, found)
        if node.target is operator.getitem:
            return values[node.args[0]][node.args[1]]
        name = op_name(node.target)
        if name in _CHECKS:
            return None
        place = self.place(node)
        single = not isinstance(found, (tuple, list))
        shapes = [self._shape(t, name, place) for t in ([found] if single else found)]
        operands, attributes = _arguments(node)
        operands, attributes = _replaced(operands, values), _replaced(attributes, values)
        rule = imports.rules[name]
        details = {"results": shapes, "scope": self}
        attributes |= {n: v for n, v in details.items() if n in rule.attributes}
        built = imports.build(self.g, name, operands, attributes, _IRRELEVANT, place, self._location(node, place))
        built = [self._as_said(t, s, name, place) for t, s in zip(built, shapes, strict=True)]
        return built[0] if single else built

    def _size(self, node: Any, found: Any) -> Any:
        try:
            return self.sizes.dim(found)
        except Error as problem:
            raise problem.moved(location=self.place(node)) from None

    def _shape(self, tensor: Any, name: str, place: str | None) -> Shape:
        if tensor is None:
            raise Error(f"{name} gives a result of an unknown shape", location=place)
        try:
            return self.sizes.shape(tensor)
        except Error as problem:
            raise problem.moved(f"{name}: {problem.message}", location=place) from None

    def _as_said(self, built: Tensor, said: Shape, name: str, place: str | None) -> Tensor:
        """Return a result with the dtype from PyTorch. RLX's positions and counts are i32, PyTorch's are i64.

        Raises:
            UnsupportedError: The shape differs, or the dtype does: PyTorch has integers where RLX computes floats.
        """
        if built.dtype.is_integer and said.dtype.is_integer and built.dtype != said.dtype:
            built = self.g.cast(built, said.dtype)
        same = built.rank == said.rank and all(map(dim.same, built.shape.dims, said.dims))
        if not same or built.dtype != said.dtype:
            raise UnsupportedError(f"{name} gives {built.shape}, not {said}", location=place)
        return built

    def place(self, node: Any) -> str | None:
        """Return the `file:line` in the user's code that a node comes from."""
        return place_of(node, self.folder)

    def _location(self, node: Any, place: str | None) -> mlir.Location | None:
        """Return the location of a node, in the scope of its module (`encoder/layers/0`)."""
        stack = list((node.meta.get("nn_module_stack") or {}).values())
        path = stack[-1][0] if stack else ""
        path = path.replace(".", "/") if isinstance(path, str) and path.isprintable() else ""
        key = place or "<unknown>", path
        if key not in self._locations:
            location = location_at(key[0])
            named = mlir.ir.Location.name(path, location, context=mlir.context()) if path else location
            self._locations[key] = named
        return self._locations[key]


class SubgraphFunction:
    """A graph in a module, as a function of values.

    Attributes:
        module: The graph.
    """

    def __init__(self, scope: ExportScope, module: Any):
        self.scope, self.module = scope, module

    def __call__(self, *arguments: Any) -> list[Any]:
        """Return the results for the values of its placeholders."""
        result = self.scope.run(self.module, arguments)
        return list(result) if isinstance(result, (tuple, list)) else [result]


def _replaced(value: Any, values: dict[Any, Any]) -> Any:
    """Return arguments of a node, with nodes replaced by their values."""
    if isinstance(value, (list, tuple)):
        return [_replaced(v, values) for v in value]
    if isinstance(value, dict):
        return {k: _replaced(v, values) for k, v in value.items()}
    return values[value] if type(value).__name__ == "Node" else value


def _arguments(node: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a node for a rule: positional ones before the `*` of the schema, keyword ones after it."""
    operands, attributes = list(node.args), dict(node.kwargs)
    schema = getattr(node.target, "_schema", None)
    if schema is None or not attributes:
        return operands, attributes
    by_position = [a for a in schema.arguments if not a.kwarg_only]
    last = max((i for i, a in enumerate(by_position) if a.name in attributes), default=-1)
    for argument in by_position[len(operands) : last + 1]:
        operands.append(attributes.pop(argument.name, argument.default_value))
    return operands, attributes
