"""The NumPy evaluator. It defines the meaning of a graph, op by op, without a compiler."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx import mlir
from rlx.ir.calls import with_call_errors
from rlx.ir.dtype import DType, dtype
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import argument_array, bind_symbols
from rlx.ir.location import describe
from rlx.ir.op import opview, registry
from rlx.ir.op.card import Card, as_results
from rlx.ir.op.requirements import requirements
from rlx.ir.op.verify import infer
from rlx.ir.parameters import is_count
from rlx.ir.shape import Shape, shape_of
from rlx.support.cached_property import cached_property
from rlx.support.errors import Error, ShapeError
from rlx.support.guards import is_list, is_mapping, is_sequence, is_tuple
from rlx.support.suggestions import suggestion

if TYPE_CHECKING:
    from rlx.blocks.graph_module import GraphModule

# A function that is called with each evaluated op, its operands and results, and returns the results to use. Tests use
# it for rounding.
Observer = Callable[[mlir.Operation, Sequence[np.ndarray], tuple[np.ndarray, ...]], Sequence[np.ndarray]]


def collect_arguments(graph: Graph | GraphModule, values: Mapping[str, Any]) -> list[np.ndarray]:
    """Return the arrays of all arguments in order.

    Missing parameters take the values that the graph carries, and missing states their initial values.

    Raises:
        Error: An argument is missing, unknown, or does not fit.
    """
    if not isinstance(graph, Graph) and not hasattr(graph, "into_graph"):
        raise Error(f"expected a Graph or GraphModule, got {type(graph).__name__}")
    if not is_mapping(values):
        raise Error(f"values must be a mapping of names to arrays, got {type(values).__name__}")
    names = {a.name for a in graph.arguments}
    for name in values:
        if name not in names and not is_count(name):
            raise Error(f"the graph has no argument '{name}'{suggestion(name, names)}")
    values = {**graph.weights, **values}
    arrays: list[np.ndarray] = []
    for argument in graph.arguments:
        if argument.name in values:
            arrays.append(argument_array(argument, values[argument.name]))
        elif argument.kind == "state":
            arrays.append(argument.initial_array())
        else:
            raise Error(f"{argument.kind} '{argument.name}' ({argument.shape}) is missing")
    return arrays


@with_call_errors
def evaluate(graph: Graph | GraphModule, values: Mapping[str, Any]) -> list[np.ndarray]:
    """Run a graph with the NumPy evaluators. They are slow, but define what the graph means, and need no compiler.

    Args:
        graph: HIR, MIR or LIR, bare or in a module.
        values: Arrays by name, for all inputs and parameters. Parameters whose values the graph carries
            (`graph.weights`) and states with their initial value may be omitted.

    Returns:
        The outputs, in order.

    Raises:
        Error: An argument is missing, unknown or does not fit.
    """
    arrays = collect_arguments(graph, values)
    symbols = bind_symbols([(a, array.shape) for a, array in zip(graph.arguments, arrays, strict=True)])
    if symbols:
        for requirement in requirements(graph.module):
            requirement.check(symbols)
    results = evaluate_function(graph.function, arrays, symbols)
    return [r for r, output in zip(results, graph.results, strict=True) if output.updates is None]


def evaluate_function(
    function: mlir.FuncOp, arrays: Sequence[np.ndarray], symbols: Mapping[str, int], observe: Observer | None = None
) -> list[np.ndarray]:
    """Evaluate a function's body.

    Args:
        function: A `func.func` of rlx ops.
        arrays: One for each argument.
        symbols: Sizes of the symbols in its types.
        observe: Called with every op, its operands and results; returns the results to use.

    Returns:
        One array for each result.
    """
    body = _PreparedBlock(function.entry_block, symbols)
    results = body.run(arrays, {}, observe)
    try:
        return [np.array(o) for o in results]
    except MemoryError:
        raise Error("the results need more memory than there is", location=describe(function.location)) from None


def evaluate_block(block: mlir.Block, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return the values that a block without symbols returns or yields for its arguments."""
    return _PreparedBlock(block, {}).run(arrays, {}, None)


class _PreparedBlock:
    """A block prepared for repeated evaluation, such as the body of a loop. Its ops are read once.

    Args:
        block: The block.
        symbols: Sizes of the symbols in its types.
    """

    def __init__(self, block: mlir.Block, symbols: Mapping[str, int]):
        self._block, self._symbols = block, symbols
        self._arguments = list(block.arguments)

    @cached_property
    def _steps(self) -> list[_PreparedOp]:
        operations = (op.operation for op in self._block.operations)
        return [_PreparedOp(op, self._symbols) for op in operations if op.name not in opview.TERMINATORS]

    @cached_property
    def _yielded(self) -> list[mlir.Value]:
        return opview.yielded(self._block)

    @cached_property
    def _captured(self) -> list[mlir.Value]:
        """The values from outside that its ops read, including ops nested in regions."""
        inside, read = set[mlir.Value](), dict[mlir.Value, None]()

        inside.update(self._arguments)
        for op in opview.operations(self._block):
            read.update(dict.fromkeys(op.operands))
            inside.update(op.results)
            for inner in filter(None, map(opview.block_of, op.regions)):
                inside.update(inner.arguments)
        return [value for value in read if value not in inside]

    @property
    def results(self) -> list[Shape]:
        """The shapes of the values that it returns or yields, without symbols."""
        return [shape_of(v).bind(self._symbols) for v in self._yielded]

    def run(
        self, arrays: Sequence[np.ndarray], outside: Mapping[mlir.Value, np.ndarray], observe: Observer | None
    ) -> list[np.ndarray]:
        """Return the arrays that the block returns or yields. `outside` has the values that it captures."""
        environment = {value: outside[value] for value in self._captured} if outside else {}
        environment.update(zip(self._arguments, arrays, strict=True))
        for step in self._steps:
            operands = [environment[v] for v in step.operands]
            results: Sequence[np.ndarray] = step.run(operands, environment, observe)
            if observe is not None:
                results = observe(step.op, operands, results)
            environment.update(zip(step.results, results, strict=True))
        return [environment[v] for v in self._yielded]


@dataclass(frozen=True)
class EvaluatedRegion:
    """The form of a region that evaluators receive. Called with arrays, it returns a list of the arrays that it yields."""

    body: _PreparedBlock
    environment: Mapping[mlir.Value, np.ndarray]
    observe: Observer | None

    def __call__(self, *arrays: np.ndarray) -> list[np.ndarray]:
        return self.body.run(tuple(np.asarray(a) for a in arrays), self.environment, self.observe)

    @property
    def results(self) -> list[Shape]:
        """The shapes of the arrays that it yields, without symbols."""
        return self.body.results


class _PreparedOp:
    """An op prepared for evaluation.

    Args:
        op: The op.
        symbols: Sizes of the symbols in its types.

    Raises:
        Error: It is not an rlx op.
        ShapeError: An attribute has no value for these sizes.
    """

    def __init__(self, op: mlir.Operation, symbols: Mapping[str, int]):
        if not registry.is_ours(op):
            raise Error(f"'{op.name}' has no evaluator", location=describe(op.location))
        self.op = op
        self.operands, self.results = list(op.operands), list(op.results)
        self._card = opview.card_of(op)
        self._attributes = opview.attributes_of(op, symbols)
        self._expected = [(s.static, s.dtype.numpy) for s in (shape_of(r).bind(symbols) for r in self.results)]
        blocks = map(opview.block_of, op.regions)
        self._bodies = [block and _PreparedBlock(block, symbols) for block in blocks]
        self._checks_sizes = bool(symbols) and not self._bodies

    def run(
        self, operands: Sequence[np.ndarray], outside: Mapping[mlir.Value, np.ndarray], observe: Observer | None
    ) -> tuple[np.ndarray, ...]:
        """Return the results for the given operands. `outside` has the values that the op's regions may read.

        Raises:
            ShapeError: The op does not support the sizes of its symbols.
            Error: The evaluator's shape or dtype differs from the inferred one, or memory is exhausted.
        """
        if self._checks_sizes:
            _check_sizes(self.op, operands, self._attributes)
        attributes = self._attributes
        if self._bodies:
            regions = tuple(body and EvaluatedRegion(body, outside, observe) for body in self._bodies)
            attributes = attributes | {"regions": regions}
        return evaluated(
            self._card,
            opview.operands_of(self.op, operands),
            attributes,
            self._expected,
            self.op.name,
            self.op.location,
        )


def evaluated(
    card: Card,
    operands: Sequence[Any],
    attributes: Mapping[str, Any],
    expected: Sequence[tuple[tuple[int, ...], np.dtype]],
    name: str,
    location: mlir.Location,
) -> tuple[np.ndarray, ...]:
    """Return the results of a card's evaluator, checked against the inferred shapes.

    Args:
        card: The card.
        operands: Arrays, in the groups of the record.
        attributes: All attributes, and `regions`.
        expected: Shape and dtype of each result.
        name: The op's name, for messages.
        location: Where the op is.

    Raises:
        Error: The evaluator's shape or dtype differs from the expected one, or memory is exhausted.
    """
    try:
        with np.errstate(all="ignore"):
            results = as_results(card.evaluate(*operands, **attributes))
    except (MemoryError, ValueError) as problem:
        if not isinstance(problem, MemoryError) and not _are_too_large(shape for shape, _ in expected):
            raise
        raise Error(f"'{name}' needs more memory than there is", location=describe(location)) from None
    arrays = tuple(np.asarray(value) for value in results)
    for array, (shape, kind) in zip(arrays, expected, strict=True):
        if array.shape != shape or array.dtype != kind:
            got, said = f"{array.dtype}{list(array.shape)}", f"{kind}{list(shape)}"
            message = f"'{name}': the evaluator gives {got}, inference {said}"
            raise Error(message, location=describe(location))
    return arrays


def _are_too_large(shapes: Iterable[Sequence[int]]) -> bool:
    """Whether NumPy may reject an array of one of these shapes before it allocates, even for f64 or c128."""
    return any(math.prod(size for size in shape if size) * 16 > sys.maxsize for shape in shapes)


def evaluate_op(
    op: mlir.Operation,
    operands: Sequence[np.ndarray],
    symbols: Mapping[str, int],
    outside: Mapping[mlir.Value, np.ndarray] | None = None,
) -> tuple[np.ndarray, ...]:
    """Evaluate one op, and check that its results have the inferred shapes.

    Args:
        op: The op.
        operands: One array for each operand.
        symbols: Sizes of the symbols in its types.
        outside: Arrays of the values that its regions read.

    Raises:
        ShapeError: The op does not support the sizes of its symbols.
        Error: The evaluator's shape or dtype differs from the inferred one.
    """
    return _PreparedOp(op, symbols).run(operands, outside or {}, None)


def _check_sizes(op: mlir.Operation, operands: Sequence[np.ndarray], values: Mapping[str, Any]) -> None:
    """Check properties that inference cannot check for symbolic sizes: a kernel fits, an axis is not empty."""
    shapes = [Shape(array.shape, shape_of(value).dtype) for array, value in zip(operands, op.operands, strict=True)]
    try:
        infer(opview.name_of(op), opview.operands_of(op, shapes), dict(values))
    except ShapeError as problem:
        message = f"'{op.name}' does not take these sizes: {problem.message}"
        raise ShapeError(message, location=describe(op.location), hint=problem.hint) from None


def evaluate_decomposition(card: Card, operands: Sequence[Any], values: Mapping[str, Any]) -> Any:
    """Evaluate a composite op through its decomposition."""
    graph, arrays = decomposition(card, operands, values)
    results = evaluate_function(graph.function, arrays, {})
    return results[0] if len(results) == 1 else tuple(results)


def decomposition(card: Card, operands: Sequence[Any], values: Mapping[str, Any]) -> tuple[Graph, list[np.ndarray]]:
    """Return a graph of one op's decomposition for arrays, and its arguments. It may be shared; do not change it."""
    shapes = [list(map(_shape, o)) if is_list(o) else o if o is None else _shape(o) for o in operands]
    arrays = [array for o in operands if o is not None for array in (o if is_list(o) else [o])]
    return decomposed(card, shapes, values), arrays


def decomposed(card: Card, shapes: Sequence[Shape | list[Shape] | None], values: Mapping[str, Any]) -> Graph:
    """Return a graph of one op's decomposition for operands of the given shapes. It may be shared; do not change it."""
    key = tuple(tuple(s) if is_list(s) else s for s in shapes)
    if all(_is_plain(value) for value in values.values()):
        return _decomposed(card, key, _Attributes(values))
    return _decomposed.__wrapped__(card, key, _Attributes(values))


def _shape(array: np.ndarray) -> Shape:
    return Shape(array.shape, dtype(array.dtype))


def _is_plain(value: Any) -> bool:
    """Whether the text of a value identifies it completely."""
    if is_sequence(value):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, (bool, int, float, str, DType))


class _Attributes:
    """Attributes of an op as part of a key. They are compared as text, because `0.0`, `-0.0`, `0` and `False` are equal."""

    def __init__(self, values: Mapping[str, Any]):
        self.values = values

    @cached_property
    def text(self) -> str:
        return repr(sorted(self.values.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Attributes) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


@lru_cache(maxsize=256)  # for small arrays, building the graph is most of the work
def _decomposed(card: Card, shapes: tuple[Any, ...], attributes: _Attributes) -> Graph:
    graph = Graph(card.name, stage="hir")
    number = count(1)

    def argument(shape: Shape) -> Tensor:
        return graph.input(f"x{next(number)}", shape)

    tensors = [None if s is None else [argument(a) for a in s] if is_tuple(s) else argument(s) for s in shapes]
    with mlir.entered():
        results = as_results(card.decompose(graph, *tensors, **attributes.values))
    graph.set_outputs(results)
    return graph
