"""Random graphs of fitting ops from the registry, on values that stay in range.

A step takes one sample of one op. Its operands are earlier results of the same shape and dtype, earlier results that
are cast and cut to fit, or new inputs with values as in the sample. Every step is evaluated immediately, and later
steps use its result only if its values are in range, so that graphs do not end in NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from rlx.ir.dims.dim import DimExpr
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.evaluate import evaluate_op
from rlx.ir.graph.graph import Graph
from rlx.ir.op.card import SampleOperand, as_results
from rlx.ir.op.opview import operations
from rlx.ir.shape import Shape
from tests.conformance.cases import Case, cases, op_names
from tests.conformance.values import draw

# Returns the next random number below a bound; hypothesis and NumPy both provide one.
Choose = Callable[[int], int]

_LARGEST = 100.0
_MOST_ELEMENTS, _MOST_SQUARED = 4096, 256
_MOST_OUTPUTS = 8
# All symbols of all samples are replaced by these, so that results of one op fit another.
_SYMBOLS = ("n", "m")
SIZES = ({"n": 3, "m": 5}, {"n": 1, "m": 1}, {"n": 18, "m": 4})


@dataclass
class RandomGraph:
    """A graph, and values for its inputs at the first of `SIZES` (for static graphs the only sizes).

    Attributes:
        graph: The graph.
        values: The values of the inputs.
        draws: For each input, a function that creates values for other sizes.
    """

    graph: Graph
    values: dict[str, np.ndarray] = field(default_factory=dict)
    draws: dict[str, Callable[[dict[str, int]], np.ndarray]] = field(default_factory=dict)


@cache
def _cases(symbolic: bool) -> dict[str, list[Case]]:
    """Return the samples to draw from, by op."""
    found: dict[str, list[Case]] = {}
    for op in op_names():
        usable = [c for c in cases(op) if bool(c.symbols) == symbolic and len(c.symbols) <= len(_SYMBOLS)]
        usable = [c for c in usable if not c.carriers]
        if usable:
            found[op] = usable
    return found


class Grower:
    """Grows one random graph.

    Args:
        choose: The source of random choices.
        symbolic: Whether to use samples with symbolic sizes.
        rearranges: Whether every third step combines a tensor with a rearrangement of itself: `s[i] + s[j]`.
    """

    def __init__(self, choose: Choose, *, symbolic: bool = False, rearranges: bool = False):
        self.choose, self.symbolic, self.rearranges = choose, symbolic, rearranges
        self.made = RandomGraph(Graph("main", stage="hir"))
        self.graph = self.made.graph
        self.sizes = SIZES[0] if symbolic else {}
        self.arrays: dict[Any, np.ndarray] = {}
        self.pool: list[Tensor] = []
        self.used: set[Any] = set()

    def grow(self, ops: int) -> RandomGraph:
        """Return a graph of about this number of ops."""
        while len(self.graph.function.entry_block.operations) <= ops:
            self._step()
        leaves = [t for t in self.pool if t.value not in self.used] or self.pool[-1:]
        self.graph.set_outputs(leaves[-_MOST_OUTPUTS:])
        return self.made

    def cases(self) -> dict[str, list[Case]]:
        """The samples to draw from, by op."""
        return _cases(self.symbolic)

    def _step(self) -> None:
        sources = [t for t in self.pool if t.dtype.is_float and t.rank and self.arrays[t.value].size <= _MOST_SQUARED]
        if self.rearranges and sources and not self.choose(3):
            self._combine(_pick(self.choose, sources[-6:]))
        else:
            self._sample()

    def _combine(self, source: Tensor) -> None:
        """Add an op that reads a tensor at two positions."""
        g, dims = self.graph, source.shape.dims
        ways: list[tuple[Callable[[], Tensor], Callable[[], Tensor]]] = []
        for axis in range(source.rank):
            ways.append((lambda: source, lambda axis=axis: g.reverse(source, (axis,))))
            ways.append(
                (lambda axis=axis: g.expand_dims(source, axis), lambda axis=axis: g.expand_dims(source, axis + 1))
            )
        if source.rank > 1 and dims[-1] == dims[-2]:
            ways += [(lambda: source, lambda: g.swapaxes(source, -1, -2))] * 3
        first, second = (self._evaluated(make()) for make in _pick(self.choose, ways))
        if self.choose(2):
            first = self._evaluated(g.tanh(first))
        result = _pick(self.choose, [g.add, g.sub, g.mul, g.maximum])(first, second)
        self.used.add(source.value)
        self.pool += [t for t in [self._evaluated(result)] if self._is_tame(t)]

    def _sample(self) -> None:
        """Add a sample of an op."""
        case = _pick(self.choose, _pick(self.choose, list(self.cases().values())))
        renamed: dict[str, str] = dict(zip(case.symbols, _SYMBOLS, strict=False))
        shapes = [_renamed(shape, renamed) for shape in case.shapes()]
        given = [self._operand(o, s) for o, s in zip(case.operands, shapes, strict=True)]
        remaining = iter(given)
        operands = [
            [next(remaining) for _ in entry] if isinstance(entry, list) else None if entry is None else next(remaining)
            for entry in case.sample.operands
        ]
        attributes = {
            name: tuple(_renamed_dim(d, renamed) for d in value) if _holds_dims(case, name) else value
            for name, value in case.sample.attributes.items()
        }
        results = [self._evaluated(t) for t in as_results(case.emit(self.graph, operands, attributes))]
        self.pool += [t for t in results if self._is_tame(t)]

    # --- operands ---------------------------------------------------------------------------------

    def _operand(self, operand: SampleOperand, shape: Shape) -> Tensor:
        fitting = [t for t in self.pool if t.shape == shape and self._within(operand, t)]
        how = self.choose(4)
        if fitting and how:
            found = fitting[-1 - self.choose(min(len(fitting), 4))]
        elif self.pool and how and not self.symbolic and shape.num_elements:
            found = self._adapted(_pick(self.choose, self.pool), operand, shape)
        elif self.pool and how and shape.dtype.is_float:
            found = self._shifted(_pick(self.choose, self.pool), operand, shape)
        else:
            return self._input(operand, shape)
        self.used.add(found.value)
        return found

    def _within(self, operand: SampleOperand, tensor: Tensor) -> bool:
        """Return whether values are within a sample's bounds, if those are not the default."""
        if (operand.low, operand.high) == (SampleOperand(()).low, SampleOperand(()).high) or not tensor.dtype.is_float:
            return True
        values = self.arrays[tensor.value].astype(np.float64)
        return bool(np.all((values >= operand.low) & (values <= operand.high)))

    def _input(self, operand: SampleOperand, shape: Shape) -> Tensor:
        name = f"x{len(self.made.draws)}"
        seed = self.choose(1 << 16)

        def make(sizes: dict[str, int]) -> np.ndarray:
            return draw(operand, shape.dtype, shape.bind(sizes).static, np.random.default_rng(seed))

        tensor = self.graph.input(name, shape)
        self.made.draws[name] = make
        self.arrays[tensor.value] = self.made.values[name] = make(self.sizes)
        self.pool.append(tensor)
        self.used.add(tensor.value)
        return tensor

    def _adapted(self, source: Tensor, operand: SampleOperand, shape: Shape) -> Tensor:
        """Return a tensor cut, repeated, cast and bounded to fit an operand."""
        g, count, wanted = self.graph, source.shape.num_elements, shape.num_elements
        if not count or isinstance(count, DimExpr) or isinstance(wanted, DimExpr):
            return self._input(operand, shape)
        self.used.add(source.value)
        flat: Any = self._evaluated(g.reshape(source, (count,)))
        if count < wanted:
            times = -(-wanted // count)
            flat = self._evaluated(g.reshape(self._evaluated(g.expand(flat, (times, count))), (times * count,)))
        if flat.shape.num_elements > wanted:
            flat = self._evaluated(g.narrow(flat, 0, 0, wanted))
        result = self._evaluated(g.reshape(flat, shape.dims))
        if result.dtype is not shape.dtype:
            result = self._evaluated(g.cast(result, shape.dtype))
        return self._bounded(result, operand)

    def _shifted(self, source: Tensor, operand: SampleOperand, shape: Shape) -> Tensor:
        """Return a new input plus the mean of a tensor of any shape."""
        fresh, values = self._input(operand, shape), self.arrays[source.value]
        if not source.dtype.is_float or not values.size:
            return fresh
        self.used.add(source.value)
        mean = self._evaluated(self.graph.cast(self._evaluated(self.graph.mean(source)), shape.dtype))
        return self._bounded(self._evaluated(fresh + mean), operand)

    def _bounded(self, tensor: Tensor, operand: SampleOperand) -> Tensor:
        """Return floats squeezed into the bounds of an operand, if these are narrower than the range of the values."""
        if self._within(operand, tensor):
            return tensor
        middle, half = (operand.high + operand.low) / 2, (operand.high - operand.low) / 2 * 0.99
        squeezed = self._evaluated(self.graph.tanh(tensor))
        scaled = self._evaluated(squeezed * half)
        return self._evaluated(scaled + middle)

    # --- values -----------------------------------------------------------------------------------

    def _evaluated(self, tensor: Tensor) -> Tensor:
        """Evaluate the most recent ops, up to that of this tensor."""
        op = tensor.value.owner
        if tensor.value not in self.arrays:
            operation = op.operation if hasattr(op, "operation") else op
            for operand in (*operation.operands, *_captured(operation)):
                if operand not in self.arrays:
                    self._evaluated(self.graph.tensor(operand))
            operands = [self.arrays[v] for v in operation.operands]
            results = evaluate_op(operation, operands, self.sizes, self.arrays)
            self.arrays.update(zip(operation.results, results, strict=True))
        return tensor

    def _is_tame(self, tensor: Tensor) -> bool:
        values = self.arrays[tensor.value]
        if values.size > _MOST_ELEMENTS:
            return False
        if not tensor.dtype.is_inexact:
            return True
        return bool(np.all(np.isfinite(values)) and np.all(np.abs(values) < _LARGEST))


def _captured(op: Any) -> list[Any]:
    """Return the outside values that the regions of an op use."""
    found = []
    for region in op.regions:
        for block in region.blocks:
            for inner in operations(block):
                found += [v for v in inner.operands if _block_of(v) == op.block]
    return found


def _block_of(value: Any) -> Any:
    owner = value.owner
    return owner.operation.block if hasattr(owner, "operation") else owner


def _pick(choose: Choose, options: Sequence[Any]) -> Any:
    return options[choose(len(options))]


def _renamed(shape: Shape, names: dict[str, str]) -> Shape:
    return shape.bind(names)


def _renamed_dim(d: Any, names: dict[str, str]) -> Any:
    return Shape((d,), "f32").bind(names).dims[0]


def _holds_dims(case: Case, name: str) -> bool:
    return any(a.name == name and a.kind == "dims" for a in case.card.spec.attributes)


def seeded(seed: int) -> Choose:
    """Return a source of random choices from NumPy's generator."""
    rng = np.random.default_rng(seed)
    return lambda bound: int(rng.integers(bound))
