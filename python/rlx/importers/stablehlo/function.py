"""Conversion of a StableHLO module to a graph. All calls are inlined."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlx import mlir
from rlx.importers.stablehlo import large
from rlx.importers.stablehlo.chlo import as_custom_calls
from rlx.importers.stablehlo.choices import erase_unread
from rlx.importers.stablehlo.large import LargeConstants, ModuleText
from rlx.importers.stablehlo.quantised_op import QuantisedOp
from rlx.importers.stablehlo.recognition import by_name
from rlx.importers.stablehlo.rules import imports
from rlx.importers.stablehlo.types import shape_held
from rlx.importers.stablehlo.values import defining_op, direction_of, ending
from rlx.importers.table import LARGEST_LITERAL, MOST_OPS, importer
from rlx.ir.calls import with_call_errors
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.location import describe, name_of
from rlx.ir.op.signature import find_function, functions, is_public
from rlx.ir.text.modules import parse_module
from rlx.support.errors import Error, ParseError, UnsupportedError
from rlx.support.short import short_repr
from rlx.weights.weight import Weight

_PREFIX = "stablehlo."
_MAIN = "main"
_CONSTANT = "stablehlo.constant"
_COMPOSITE = "stablehlo.composite"
_CUSTOM_CALL = "stablehlo.custom_call"
_CALLS = ("func.call", _COMPOSITE)
# These ops only group values: a tuple is a list of its elements.
_OF_TUPLES = ("stablehlo.tuple", "stablehlo.get_tuple_element")
# The target of custom calls that an importer implements, identified by a number.
CALL = "rlx.call"
# A function of the number, the operands, and whether these are tensors in place of scalars.
Kept = Callable[[Graph, int, Sequence[Tensor], bool], Sequence[Tensor]]
# These ops are identities in a region of scalars.
_OF_SCALARS = ("stablehlo.reshape", "stablehlo.broadcast_in_dim")
_DEEPEST = 64  # the largest call depth
_UNKNOWN_DIALECT = re.compile(r"Dialect `(?P<dialect>\w+)' not found for custom op '(?P<op>[\w.]+)'")
# Attributes that choose a precision or an algorithm, but do not change the result.
_IRRELEVANT = ("precision_config", "algorithm", "result_accuracy", "indices_are_sorted")


@with_call_errors
@importer
def from_stablehlo(source: str | bytes | os.PathLike[str], *, entry: str | None = None) -> Graph:
    """Return the graph of a StableHLO module with static sizes.

    Args:
        source: Text, the bytes of text, bytecode or a portable artifact, or the path of a file with one of these.
        entry: The name of the function. None selects `main`, or the first public function if there is no public `main`.

    Returns:
        The graph. Inputs are named by the module's locations, else `arg0`, `arg1`, …; outputs are `out0`, `out1`, ….
        Constants of more than 1024 elements are parameters, whose values are in `weights`. Ops have the locations of
        the module.

    Raises:
        ParseError: The source is not a module, or exceeds a limit of `rlx.ir.text.limits`.
        UnsupportedError: Ops cannot be imported: the message lists all of them with counts and locations. Or an op is
            used in an unsupported form.
        Error: The file cannot be read, a size is dynamic, RLX does not have a dtype, or functions are recursive.
    """
    if entry is not None and not isinstance(entry, str):
        raise Error(f"entry is the name of a function, got {short_repr(entry)}")
    if isinstance(source, str) and not source:
        raise ParseError("expected StableHLO as text, as bytes or as a path, got an empty string")
    if not isinstance(source, (str, bytes, bytearray, os.PathLike)):
        raise Error(f"expected StableHLO as text, as bytes or as a path, got {type(source).__name__}")
    read = large.read(source)
    return from_module(parsed(read), entry, constants=read.constants)


def parsed(source: ModuleText) -> mlir.Module:
    """Return the module of a text, with ops of CHLO as custom calls.

    Raises:
        ParseError: It is not a module.
        UnsupportedError: An op is of an unknown dialect.
    """
    text = as_custom_calls(source.text) if "chlo." in source.text else source.text
    try:
        return parse_module(text, source.name)
    except ParseError as problem:
        foreign = _UNKNOWN_DIALECT.search(problem.message)
        if not foreign or "rlx." in text:  # an rlx module: the error is correct already
            raise
        hint = "a portable artifact has none of it: jax.export.export(jax.jit(f))(…).mlir_module_serialized"
        message = f"'{foreign['op']}' is of the dialect '{foreign['dialect']}', not of StableHLO"
        raise UnsupportedError(message, location=problem.location, hint=hint) from None


def is_stablehlo(module: mlir.Module) -> bool:
    """Return whether a module uses StableHLO ops and has no rlx ops."""
    dialects = {name.partition(".")[0] for f in functions(module) for name, _ in _nodes(f)}
    return "stablehlo" in dialects and "rlx" not in dialects


def from_module(
    module: mlir.Module,
    entry: str | None = None,
    largest_literal: float = LARGEST_LITERAL,
    names: Sequence[str] | None = None,
    params: Mapping[str, Any] | None = None,
    kept: Kept | None = None,
    constants: LargeConstants = large.NONE,
) -> Graph:
    """Return the graph of a parsed and verified module; see `from_stablehlo`.

    Args:
        module: The module.
        entry: The name of the function; None as for `from_stablehlo`.
        largest_literal: The largest number of elements of a constant that does not become a parameter.
        names: The names of the arguments; None uses those of the module.
        params: The names of arguments that are parameters, each with its value or None. The others are inputs.
        kept: A function that builds calls of `rlx.call`, by number.
        constants: The large constants that are stored outside of the module.
    """
    mlir.stablehlo()
    function = _entry(module) if entry is None else find_function(module, entry)
    return _Import(module, largest_literal, kept, constants).graph_of(function, names, params or {})


def _entry(module: mlir.Module) -> mlir.FuncOp:
    """Return the public function `main`, else the first public one. JAX writes `main` after its comparator functions."""
    mains = (f for f in functions(module) if f.name.value == _MAIN and is_public(f))
    return next(mains, None) or find_function(module)


def inlined(
    module: mlir.Module,
    g: Graph,
    operands: Sequence[Tensor],
    *,
    largest_literal: float,
    kept: Kept,
    lifted: bool,
    constants: LargeConstants,
) -> list[Tensor]:
    """Inline the function of a module for tensors of a graph, and return its results.

    `lifted` means that the tensors replace scalars. See `from_module`.
    """
    mlir.stablehlo()
    return _Import(module, largest_literal, kept, constants).results_in(
        g, find_function(module, None), operands, lifted
    )


def _nodes(function: mlir.FuncOp) -> Iterator[tuple[str, mlir.Operation]]:
    """Yield name and op for all ops of a function and of inner regions, except block terminators."""
    regions = list(function.regions)
    while regions:
        for block in regions.pop(0).blocks:
            for op in block.operations:
                if op.operation.name not in (
                    "func.return",
                    "stablehlo.return",
                ):  # the verifier has checked that each block has a terminator
                    yield op.operation.name, op.operation
                    regions.extend(op.operation.regions)


class _Import:
    def __init__(self, module: mlir.Module, largest_literal: float, kept: Kept | None, constants: LargeConstants):
        self.largest_literal, self.kept, self.constants = largest_literal, kept, constants
        self.functions = {f.name.value: f for f in functions(module)}
        self.nodes: list[tuple[str, str | None]] = []  # the ops of all reachable functions, names without prefix
        self.sizes: dict[str, tuple[int, int]] = {}  # the number of ops after inlining a function, and its call depth

    def graph_of(self, function: mlir.FuncOp, names: Sequence[str] | None, params: Mapping[str, Any]) -> Graph:
        self._measure(function, (), None)
        g = Graph(function.name.value)
        with mlir.entered():
            block = function.entry_block
            shapes = [
                shape_held(a, a.location) for a in block.arguments
            ]  # before ops: the errors of ops with unknown sizes follow from these
            imports.check(self.nodes)
            for value in ending(block):
                shape_held(value, function.location)  # raises for a tuple
            arguments = [
                g.param(n, shape, value=params[n]) if n in params else g.input(n, shape)
                for n, shape in zip(names or _names(block.arguments), shapes, strict=True)
            ]
            results = self._inlined(g, function, arguments)
            g.set_outputs({f"out{i}": result for i, result in enumerate(results)})
            if self.kept is None:
                erase_unread(g.function.entry_block)
        return g

    def results_in(self, g: Graph, function: mlir.FuncOp, operands: Sequence[Tensor], lifted: bool) -> list[Tensor]:
        """Return the results of a function for tensors of a graph."""
        self._measure(function, (), None)
        imports.check(self.nodes)
        return self._inlined(g, function, operands, lifted)

    def _measure(self, function: mlir.FuncOp, calls: tuple[str, ...], caller: str | None) -> tuple[int, int]:
        """Return the number of ops of a function after inlining, and its call depth.

        Nothing is built before both are known. Calls count as ops: a chain of functions with two calls each explodes.

        Args:
            function: The function.
            calls: The functions on the call stack.
            caller: The location of the call. It is used for ops without a location.
        """
        name, place = function.name.value, describe(function.location)
        if name in calls:
            raise Error(f"function '{name}' calls itself", location=place)
        if name in self.sizes:
            return self.sizes[name]
        if function.is_external or len(list(function.regions[0].blocks)) != 1:
            obstacle = "no body" if function.is_external else "branches between blocks"
            raise Error(f"function '{name}' has {obstacle}", location=place)
        size, depth = 0, 0
        for node, op in _nodes(function):
            size += 1
            callee = None if composite_rule(op) else _callee(op)
            if node in _OF_TUPLES:
                continue
            if callee is None:
                name_of_rule = composite_rule(op) or node.removeprefix(_PREFIX)
                self.nodes.append((name_of_rule, describe(op.location) or caller))
                continue
            callee_size, callee_depth = 0, 0
            if len(calls) < _DEEPEST:
                callee_size, callee_depth = self._measure(
                    self._function(callee, op), (*calls, name), describe(op.location) or caller
                )
            size, depth = size + callee_size, max(depth, callee_depth + 1)
            if max(depth, len(calls) + 1) > _DEEPEST:
                raise Error(f"functions call each other more than {_DEEPEST} deep", location=describe(op.location))
        if size > MOST_OPS:
            raise Error(f"function '{name}' stands for more than {MOST_OPS} ops", location=place)
        self.sizes[name] = (size, depth)
        return size, depth

    def _function(self, name: str, call: mlir.Operation) -> mlir.FuncOp:
        if name not in self.functions:
            raise Error(f"there is no function '{name}'", location=describe(call.location))
        return self.functions[name]

    def _comparison(self, op: mlir.Operation) -> str | None:
        """Return the comparison direction of the only function that a custom call names; None if it is not a comparison."""
        if op.name != _CUSTOM_CALL or "called_computations" not in op.attributes:
            return None
        called = [f.value for f in op.attributes["called_computations"]]
        if len(called) != 1 or not (function := self.functions.get(called[0])) or function.is_external:
            return None
        compare = defining_op(ending(function.entry_block)[0], "stablehlo.compare")
        if compare is None or list(compare.operands) != list(function.entry_block.arguments)[:2]:
            return None
        return direction_of(compare)

    def _inlined(
        self, g: Graph, function: mlir.FuncOp, arguments: Sequence[Tensor], lifted: bool = False
    ) -> list[Tensor]:
        """Inline a function for arguments into the graph, and return its results."""
        return self.block(g, function.entry_block, arguments, {}, lifted)

    def block(
        self,
        g: Graph,
        block: Any,
        arguments: Sequence[Tensor],
        outside: dict[mlir.Value, Tensor],
        lifted: bool,
        wanted: Sequence[mlir.Value] | None = None,
    ) -> list[Tensor]:
        """Inline a block for arguments into the graph, and return the operands of its terminator.

        Args:
            g: The graph.
            block: The block of a function or of a region.
            arguments: The values of its arguments.
            outside: The values that it reads from outside.
            lifted: Whether the block operates on scalars and the arguments are tensors of them.
            wanted: Values to return instead of the operands of the terminator.
        """
        values = outside | dict(zip(block.arguments, arguments, strict=True))
        *body, end = block.operations
        for op in body:
            operation = op.operation
            operands = [values[v] for v in operation.operands]
            if operation.name in _OF_TUPLES:
                values[operation.results[0]] = _of_tuples(operation, operands)
                continue
            callee = None if operation.name == _COMPOSITE and composite_rule(operation) else _callee(operation)
            if self.kept is not None and (number := _number(operation)) is not None:
                with g.located(operation.location):
                    results = self.kept(g, number, operands, lifted)
            elif callee is None:
                results = self._built(g, operation, operands, values, lifted)
            elif self.kept is None and (build := by_name(self._function(callee, operation))) is not None:
                with g.located(operation.location):
                    results = [build(g, *operands)]
            else:
                results = self._inlined(g, self._function(callee, operation), operands, lifted)
            values.update(zip(operation.results, results, strict=True))
        return [values[v] for v in wanted or end.operation.operands]

    def _built(
        self, g: Graph, op: mlir.Operation, operands: Sequence[Tensor], values: dict[mlir.Value, Tensor], lifted: bool
    ) -> list[Tensor]:
        place = describe(op.location)
        shapes = [shape_held(r, op.location) for r in op.results]
        if lifted:
            if op.name in _OF_SCALARS:
                return list(operands)
            dims = np.broadcast_shapes(*(t.shape.static for t in operands))
            shapes = [shape.with_dims(dims) for shape in shapes]
        name = composite_rule(op) or op.name.removeprefix(_PREFIX)
        held = QuantisedOp(op, name)
        try:
            attributes = {n: _value(a, self.constants) for n, a in _inherent(op)}
            if op.name != _CONSTANT:
                attributes = {n: v.numpy() if isinstance(v, Weight) else v for n, v in attributes.items()}
        except Error as problem:
            raise problem.moved(f"{name}: {problem.message}", location=place) from None
        if op.name == _COMPOSITE:
            given = attributes.get("composite_attributes") or {}
            attributes = {n.name: _value(n.attr, self.constants) for n in given}
        takes = imports.rules[name].attributes
        if op.name == _CUSTOM_CALL and name != "custom_call":
            attributes = {n: v for n, v in attributes.items() if n in takes}
        details = {
            "results": held.computed(shapes),
            "regions": [RegionFunction(self, g, region, values) for region in op.regions],
            "largest_literal": self.largest_literal,
            "config": _config(op),
            "compares": self._comparison(op),
            "has_pieces": self.kept is None,
        }
        attributes |= {n: v for n, v in details.items() if n in takes}
        operands = held.opened(g, operands)
        built = imports.build(g, name, operands, attributes, _IRRELEVANT, place, op.location)
        built = held.closed(g, built)
        if not lifted and [t.shape for t in built] != shapes:
            gives = ", ".join(str(t.shape) for t in built)
            raise Error(f"{name} gives {gives}, not {', '.join(map(str, shapes))}", location=place)
        return built


class RegionFunction:
    """A region of an op, as a function of tensors.

    Attributes:
        block: Its only block.
    """

    def __init__(self, importer: _Import, g: Graph, region: mlir.Region, values: dict[mlir.Value, Tensor]):
        self._importer, self._g, self._values = importer, g, values
        self.block = region.blocks[0]

    def __call__(self, *arguments: Tensor) -> list[Tensor]:
        """Return the results of the region for arguments of its declared shapes."""
        return self._importer.block(self._g, self.block, arguments, self._values, lifted=False)

    def lifted(self, *arguments: Tensor) -> list[Tensor]:
        """Apply a region of scalars elementwise to tensors, whose shapes broadcast."""
        return self._importer.block(self._g, self.block, arguments, self._values, lifted=True)

    def value(self, value: mlir.Value, *arguments: Tensor) -> Tensor:
        """Return one value of a region of scalars, computed elementwise for tensors."""
        return self._importer.block(self._g, self.block, arguments, self._values, lifted=True, wanted=[value])[0]

    def outside(self, value: mlir.Value) -> Tensor | None:
        """Return the tensor of a value from outside of the region."""
        return self._values.get(value)


def composite_rule(op: mlir.Operation) -> str | None:
    """Return the rule name for a composite or custom call of CHLO with a known meaning; None for other ops."""
    if op.name == _COMPOSITE:
        name = op.attributes["name"].value
    elif op.name == _CUSTOM_CALL:
        name = op.attributes["call_target_name"].value
        name = name.replace("mhlo.", "chlo.", 1) if name.startswith("mhlo.") else name
    else:
        return None
    return name if name.startswith("chlo.") and (name in imports.rules or op.name == _CUSTOM_CALL) else None


def _of_tuples(op: mlir.Operation, operands: list[Any]) -> Any:
    return operands if op.name == _OF_TUPLES[0] else operands[0][op.attributes["index"].value]


def _number(op: mlir.Operation) -> int | None:
    """Return the number of a call of `rlx.call`; None for other ops."""
    if op.name != _CUSTOM_CALL or op.attributes["call_target_name"].value != CALL:
        return None
    return op.attributes["mhlo.backend_config"]["number"].value


def _config(op: mlir.Operation) -> dict[str, Any]:
    """Return the backend configuration of a custom call, in the format of JAX."""
    if "mhlo.backend_config" not in op.attributes:
        return {}
    given = op.attributes["mhlo.backend_config"]
    return {n.name: _value(n.attr, large.NONE) for n in given} if isinstance(given, mlir.ir.DictAttr) else {}


def _callee(op: mlir.Operation) -> str | None:
    """Return the name of the function that an op calls; None for other ops."""
    if op.name not in _CALLS:
        return None
    return op.attributes["callee" if op.name == "func.call" else "decomposition"].value


def _names(arguments: Iterable[mlir.Value]) -> list[str]:
    """Return the names of the arguments from their locations if all have one and they differ; else `arg0`, …."""
    return usable_names([name_of(a.location) for a in arguments])


def usable_names(names: Sequence[str]) -> list[str]:
    """Return names of inputs if all are usable and different; else `arg0`, …."""
    usable = all(re.fullmatch(r"[^\s\0]{1,200}", n) and n.isprintable() for n in names)
    return list(names) if usable and len(set(names)) == len(names) else [f"arg{i}" for i in range(len(names))]


def _inherent(op: mlir.Operation) -> Iterator[tuple[str, Any]]:
    """Yield the inherent attributes of an op. Attributes of other dialects (`mhlo.…`, `jax.…`) are annotations of tools."""
    for name in op.attributes:
        key = getattr(name, "name", name)
        if "." not in key:
            yield key, op.attributes[key]


def _value(attribute: Any, constants: LargeConstants) -> Any:
    """Return an attribute as a Python value. Unknown kinds of attributes are returned unchanged."""
    ir = mlir.ir
    if isinstance(attribute, (ir.IntegerAttr, ir.BoolAttr, ir.FloatAttr, ir.StringAttr)):
        return attribute.value
    if isinstance(attribute, (ir.DenseI64ArrayAttr, ir.DenseBoolArrayAttr)):
        return tuple(attribute)
    if (elements := constants.elements(attribute)) is not None:
        return elements
    if enum := re.fullmatch(r"#stablehlo<\w+ (\w+)>", str(attribute)):
        return enum[1]
    return attribute
