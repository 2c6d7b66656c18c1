"""A StableHLO module as a graph: its function, with every call replaced by the function that it calls."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rlx import mlir
from rlx.importers.stablehlo.rules import imports
from rlx.importers.table import LARGEST_LITERAL, MOST_OPS
from rlx.ir.attributes import elements_from_mlir
from rlx.ir.builder import Tensor
from rlx.ir.errors import Error, ParseError, UnsupportedError
from rlx.ir.graph import Graph
from rlx.ir.location import describe, name_of
from rlx.ir.shape import Shape, shape_of, shape_of_type
from rlx.ir.signature import find_function, functions
from rlx.ir.text import decoded, is_path, parse_module, read_text

_PREFIX = "stablehlo."
_CALLS = ("func.call", "stablehlo.composite")
_DEEPEST = 64  # the largest allowed depth of calls
_UNKNOWN_DIALECT = re.compile(r"Dialect `(?P<dialect>\w+)' not found for custom op '(?P<op>[\w.]+)'")
# Attributes that choose a precision or an algorithm, but do not change what is computed.
_IRRELEVANT = ("precision_config", "algorithm", "result_accuracy", "indices_are_sorted")


def from_stablehlo(source: str | bytes | os.PathLike[str], *, entry: str | None = None) -> Graph:
    """The graph of a StableHLO module, whose sizes are static.

    Args:
        source: Text, the bytes of text, bytecode or a portable artifact, or the path of a file of these.
        entry: Name of the function; None takes the first public one.

    Returns:
        Inputs are called as the module's locations say, else `arg0`, `arg1`, …; outputs `out0`, `out1`, …. Constants of more
        than 1024 elements are parameters, whose values are in `weights`. Ops have the locations that the module gives them.

    Raises:
        ParseError: It is no module, or beyond a limit of `rlx.ir.limits`.
        UnsupportedError: Ops cannot be imported: it lists all of them with counts and places. Or one is written in a way
            that is not imported.
        Error: The file cannot be read, a size is dynamic, a dtype is none of the twelve, or functions call themselves.
    """
    if isinstance(source, (bytes, bytearray)):
        text, name = decoded(bytes(source), "<bytes>"), "<bytes>"
    elif source == "":
        raise ParseError("expected StableHLO as text, as bytes or as a path, got an empty string")
    elif not isinstance(source, (str, os.PathLike)):
        raise Error(f"expected StableHLO as text, as bytes or as a path, got {type(source).__name__}")
    elif is_path(source):
        text, name = read_text(source), os.fspath(source)
    else:
        text, name = str(source), "<text>"
    try:
        module = parse_module(text, name)
    except ParseError as problem:
        if not (foreign := _UNKNOWN_DIALECT.search(problem.message)):
            raise
        hint = "a portable artifact has none of it: jax.export.export(jax.jit(f))(…).mlir_module_serialized"
        message = f"'{foreign['op']}' is of the dialect '{foreign['dialect']}', not of StableHLO"
        raise UnsupportedError(message, location=problem.location, hint=hint) from None
    return from_module(module, entry)


def is_stablehlo(module: mlir.Module) -> bool:
    """Whether a module computes with StableHLO ops, and has none of rlx."""
    dialects = {name.partition(".")[0] for f in functions(module) for name, _ in _nodes(f)}
    return "stablehlo" in dialects and "rlx" not in dialects


def from_module(module: mlir.Module, entry: str | None = None, largest_literal: float = LARGEST_LITERAL) -> Graph:
    """The graph of a module that has been parsed and verified; see `from_stablehlo`.

    Args:
        module: The module.
        entry: Name of the function; None takes the first public one.
        largest_literal: The number of elements up to which a constant does not become a parameter.
    """
    mlir.stablehlo()
    return _Import(module, largest_literal).graph_of(find_function(module, entry))


def _nodes(function: mlir.FuncOp) -> Iterator[tuple[str, mlir.Operation]]:
    """Name and op of all ops of a function except its return; ops in regions belong to the op with the region."""
    for block in function.regions[0].blocks:
        for op in block.operations:
            if op.operation.name != "func.return":  # the verifier has checked that there is one, at the end
                yield op.operation.name, op.operation


class _Import:
    def __init__(self, module: mlir.Module, largest_literal: float):
        self.largest_literal = largest_literal
        self.functions = {f.name.value: f for f in functions(module)}
        self.nodes: list[tuple[str, str | None]] = []  # the ops of all reached functions, names without prefix
        self.sizes: dict[str, tuple[int, int]] = {}  # how many ops a function stands for, and the depth of its calls

    def graph_of(self, function: mlir.FuncOp) -> Graph:
        self._measure(function, (), None)
        g = Graph(function.name.value)
        with mlir.entered():
            block = function.entry_block
            shapes = [
                _shape(a, a.location) for a in block.arguments
            ]  # before ops: those that ask for sizes follow from these
            imports.check(self.nodes)
            inputs = [g.input(n, shape) for n, shape in zip(_names(block.arguments), shapes, strict=True)]
            results = self._inlined(g, function, inputs)
            g.set_outputs({f"out{i}": result for i, result in enumerate(results)})
        return g

    def _measure(self, function: mlir.FuncOp, calls: tuple[str, ...], caller: str | None) -> tuple[int, int]:
        """How many ops a function stands for, calls among them, and the depth of its calls.

        Nothing is built before both are known. A call counts as well: functions of two calls and nothing else would take
        forever to follow, though they become no op.

        Args:
            function: The function.
            calls: The functions that are being called.
            caller: The place of the call, which is that of ops without one.
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
            callee = _callee(op)
            if callee is None:
                self.nodes.append((node.removeprefix(_PREFIX), describe(op.location) or caller))
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

    def _inlined(self, g: Graph, function: mlir.FuncOp, arguments: Sequence[Tensor]) -> list[Tensor]:
        """The results of a function for arguments; its ops are added to the graph."""
        values = dict(zip(function.entry_block.arguments, arguments, strict=True))
        *body, end = function.entry_block.operations
        for op in body:
            operation = op.operation
            operands = [values[v] for v in operation.operands]
            callee = _callee(operation)
            if callee is None:
                results = self._built(g, operation, operands)
            else:
                results = self._inlined(g, self._function(callee, operation), operands)
            values.update(zip(operation.results, results, strict=True))
        return [values[v] for v in end.operation.operands]

    def _built(self, g: Graph, op: mlir.Operation, operands: Sequence[Tensor]) -> list[Tensor]:
        place = describe(op.location)
        shapes = [_shape(r, op.location) for r in op.results]
        name = op.name.removeprefix(_PREFIX)
        try:
            attributes = {n: _value(a) for n, a in _inherent(op)}
        except Error as problem:
            raise type(problem)(f"{name}: {problem.message}", location=place, hint=problem.hint) from None
        takes = imports.rules[name].attributes
        details = {"results": shapes, "regions": list(op.regions), "largest_literal": self.largest_literal}
        attributes |= {n: v for n, v in details.items() if n in takes}
        built = imports.build(g, name, operands, attributes, _IRRELEVANT, place, op.location)
        if [t.shape for t in built] != shapes:
            gives = ", ".join(str(t.shape) for t in built)
            raise Error(f"{name} gives {gives}, not {', '.join(map(str, shapes))}", location=place)
        return built


def _callee(op: mlir.Operation) -> str | None:
    """The name of the function that an op calls; None for an op that calls none."""
    if op.name not in _CALLS:
        return None
    return op.attributes["callee" if op.name == "func.call" else "decomposition"].value


def _shape(value: mlir.Value, location: mlir.Location) -> Shape:
    try:
        shape = shape_of(value)
    except Error as problem:
        hint = "export it with static sizes" if "?" in str(value.type) else None
        raise Error(
            f"{value.type} cannot be imported: {problem.message}", location=describe(location), hint=hint
        ) from None
    return shape


def _names(arguments: Iterable[mlir.Value]) -> list[str]:
    """The names of the arguments in their locations, if every argument has one and they differ; else `arg0`, …."""
    names = [name_of(a.location) for a in arguments]
    are_names = all(re.fullmatch(r"[^\s\0]{1,200}", n) and n.isprintable() for n in names) and len(set(names)) == len(
        names
    )
    return names if are_names else [f"arg{i}" for i in range(len(names))]


def _inherent(op: mlir.Operation) -> Iterator[tuple[str, Any]]:
    """The attributes that belong to an op; those of other dialects (`mhlo.…`, `jax.…`) are notes of tools."""
    for name in op.attributes:
        key = getattr(name, "name", name)
        if "." not in key:
            yield key, op.attributes[key]


def _value(attribute: Any) -> Any:
    """An attribute as a Python value; other attributes stay as they are."""
    ir = mlir.ir
    if isinstance(attribute, (ir.IntegerAttr, ir.BoolAttr, ir.FloatAttr, ir.StringAttr)):
        return attribute.value
    if isinstance(attribute, (ir.DenseI64ArrayAttr, ir.DenseBoolArrayAttr)):
        return tuple(attribute)
    if isinstance(attribute, ir.DenseElementsAttr):
        shape_of_type(attribute.type)  # raises for a dtype that RLX does not have
        return elements_from_mlir(attribute)
    if enum := re.fullmatch(r"#stablehlo<\w+ (\w+)>", str(attribute)):
        return enum[1]
    return attribute
