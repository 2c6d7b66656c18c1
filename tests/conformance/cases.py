"""Cases: every sample of every card, in every dtype, with its symbols bound to several sizes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from rlx.ir.dims.dim import DimExpr, dim, substitute, symbols
from rlx.ir.dtype import DType, dtype
from rlx.ir.graph.graph import Graph
from rlx.ir.op import registry
from rlx.ir.op.card import Card, OpSample, SampleOperand, as_results
from rlx.ir.op.grouping import flat
from rlx.ir.shape import Shape
from rlx.support.cached_property import cached_property
from rlx.support.errors import ShapeError
from tests.drawing import shares

Bindings = Mapping[str, int]

# Distinct sizes, so that confusing two symbols is noticed.
_ODD = (3, 5, 7, 9, 11, 13)
_LARGE = (33, 18, 20, 22, 24, 26)
# The number of shares of an op's cases. A run of the slow tests has one share. Casts have a case per pair of dtypes.
_SHARES = 30
_MORE_SHARES = {"cast": 60}
# The number of ops in a bundle.
_BUNDLE = 4
# Composite ops of many ops, which take longest to compile.
_BLOCKS = (
    *("llama_decoder_block", "unet_residual_block", "transformer_encoder_block", "mamba_block"),
    *("fused_transformer_layer", "qwen35_mtp_head", "fused_attention_block", "gated_delta_net"),
)


@dataclass(frozen=True)
class Case:
    """One sample of one op in one dtype.

    Args:
        op: The op's name.
        index: The index of the sample in the card.
        sample: The sample.
        dtype: Name of the dtype of all operands without a fixed dtype.
    """

    op: str
    index: int
    sample: OpSample
    dtype: str

    def __str__(self) -> str:
        told = [f"{k}={_brief(v)}" for k, v in self.sample.attributes.items()]
        return f"{self.op}#{self.index} {self.dtype}" + (f" ({', '.join(told)})" if told else "")

    @property
    def card(self) -> Card:
        return registry.card(self.op)

    @cached_property
    def operands(self) -> tuple[SampleOperand, ...]:
        """All present operands, with variadic operands listed separately."""
        found: list[SampleOperand] = []
        for entry in self.sample.operands:
            found += entry if isinstance(entry, list) else [] if entry is None else [entry]
        return tuple(found)

    @cached_property
    def dtypes(self) -> tuple[DType, ...]:
        """The dtype of each operand."""
        return tuple(o.dtype_in(self.dtype) for o in self.operands)

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """Names of the symbols in operands and attributes, in order of appearance."""
        dims = [d for operand in self.operands for d in operand.dims]
        for attribute in self.card.spec.attributes:
            if attribute.kind == "dims":
                dims += self.sample.attributes.get(attribute.name) or ()
        return tuple(dict.fromkeys(name for d in dims for name in sorted(symbols(dim(d)))))

    @cached_property
    def carriers(self) -> tuple[str, ...]:
        """Symbols that only attributes mention. An additional input of that size determines each of them."""
        seen = {name for operand in self.operands for d in operand.dims for name in symbols(dim(d))}
        return tuple(name for name in self.symbols if name not in seen)

    def bindings(self) -> list[dict[str, int]]:
        """Sizes of the symbols to try: odd ones first, large ones, all one, and each zero separately."""
        names = self.symbols
        if not names:
            return [{}]
        odd = dict(zip(names, _ODD, strict=False))
        tried = [odd, dict(zip(names, _LARGE, strict=False)), dict.fromkeys(names, 1)]
        tried += [odd | {name: 0} for name in names]
        return [b for b in tried if self.fits(b)]

    def fits(self, bindings: Bindings) -> bool:
        """Return whether the op accepts these sizes. It may only refuse 0 and 1 (an empty axis, a small image).

        Raises:
            ShapeError: It refuses sizes of 2 and more.
        """
        try:
            self.graph(bindings)
        except ShapeError:
            if all(size > 1 for size in bindings.values()):
                raise
            return False
        return True

    def attributes(self, bindings: Bindings | None = None) -> dict[str, Any]:
        """Return the attributes; with bindings, dimensions are integers."""
        found = dict(self.sample.attributes)
        for attribute in self.card.spec.attributes:
            if attribute.kind == "dims" and found.get(attribute.name) is not None and bindings is not None:
                found[attribute.name] = tuple(_bound(d, bindings) for d in found[attribute.name])
        return found

    def shapes(self, bindings: Bindings | None = None) -> list[Shape]:
        """Return the shape of each operand, then of each carrier."""
        pairs = [(o.dims, d) for o, d in zip(self.operands, self.dtypes, strict=True)]
        pairs += [((name,), dtype("u8")) for name in self.carriers]
        if bindings is None:
            return [Shape(dims, d) for dims, d in pairs]
        return [Shape([_bound(x, bindings) for x in dims], d) for dims, d in pairs]

    def graph(self, bindings: Bindings | None = None, *, name: str = "main") -> Graph:
        """Return a graph of only this op with inputs `x0`, `x1`, …: symbolic, or static if bindings are given."""
        graph = Graph(name, stage=self.card.spec.stage)
        inputs = [graph.input(f"x{i}", shape) for i, shape in enumerate(self.shapes(bindings))]
        remaining = iter(inputs)
        operands: list[Any] = []
        for entry in self.sample.operands:
            if isinstance(entry, list):
                operands.append([next(remaining) for _ in entry])
            else:
                operands.append(None if entry is None else next(remaining))
        results = self.emit(graph, operands, self.attributes(bindings))
        graph.set_outputs(list(as_results(results)))
        return graph

    def emit(self, graph: Graph, operands: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
        """Emit the op on operands that are grouped as in the record."""
        if self.sample.build is None:
            return graph.emit(self.op, operands, **attributes)
        results = self.sample.build(graph, *flat(operands), **attributes)
        return tuple(leaves(results)) if isinstance(results, tuple) else results


def _bound(d: Any, bindings: Bindings) -> int:
    found = substitute(dim(d), dict(bindings))
    assert not isinstance(found, DimExpr), f"{d} is not bound by {dict(bindings)}"
    return found


def _brief(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return str(value)


@cache
def op_names() -> tuple[str, ...]:
    """Return all ops of the dialect, in the order of their records."""
    cards = registry.load()
    return tuple(n for n, spec in registry.SPECS.items() if n in cards and not spec.terminator and n != "custom")


@cache
def composite_groups(without: frozenset[str] = frozenset()) -> dict[str, int]:
    """Return the composite ops in groups of three, for tests that run one op of each group.

    Compilation and differentiation decompose them first, so most of this is also tested by the resulting ops.

    Args:
        without: Composite ops to exclude, because they have their own rules.
    """
    names = [n for n in op_names() if registry.card(n).composite and n not in without]
    return {name: i // 3 for i, name in enumerate(names)}


@cache
def plain_op_names() -> tuple[str, ...]:
    """Return the ops without regions, which their records describe completely."""
    specs = registry.SPECS
    return tuple(n for n in op_names() if not specs[n].regions)


def leaves(value: Any) -> Iterator[Any]:
    """Yield the tensors in nested tuples and lists; None is skipped."""
    if isinstance(value, (tuple, list)):
        for entry in value:
            yield from leaves(entry)
    elif value is not None:
        yield value


@cache
def cases(op: str) -> tuple[Case, ...]:
    """Return all cases of an op."""
    return tuple(_cases(op))


def _cases(op: str) -> Iterator[Case]:
    card = registry.card(op)
    for index, sample in enumerate(card.samples()):
        yield from (Case(op, index, sample, name) for name in dtypes_of(card, sample))


@cache
def case_shares(op: str) -> list[list[Case]]:
    """Return the cases of an op in shares. Each share has every sample in as many dtypes as possible."""
    number = min(_MORE_SHARES.get(op, _SHARES), len(cases(op)))
    return shares(cases(op), number, lambda case: case.index)


@cache
def bundles(without: frozenset[str] = frozenset()) -> dict[str, Hashable]:
    """Return bundles of ops, which are compiled as one module, by their names joined with `+`, each with its group.

    Compiling many small modules takes longer than compiling a few larger ones. A run has one bundle of each group: all
    plain ops, one of three composite ops next to each other, and two of the blocks.

    Args:
        without: Composite ops to treat like plain ones, because they have their own rules.
    """
    found: dict[str, Hashable] = {}
    names = [n for n in op_names() if n not in _BLOCKS]
    composite = composite_groups(without)
    for stage in sorted({registry.SPECS[n].stage for n in op_names()}):
        plain = [n for n in names if registry.SPECS[n].stage == stage and n not in composite]
        # Ops with equally many shares: the others would be repeated in more shares than they have.
        plain.sort(key=lambda n: len(case_shares(n)))
        for start in range(0, len(plain), _BUNDLE):
            found["+".join(plain[start : start + _BUNDLE])] = ("plain", stage, start)
        others = [n for n in names if registry.SPECS[n].stage == stage and n in composite]
        for start in range(0, len(others), 3 * _BUNDLE):
            near = others[start : start + 3 * _BUNDLE]
            found |= {"+".join(near[i::3]): ("composite", stage, start) for i in range(3) if near[i::3]}
    found |= {"+".join(_BLOCKS[i : i + 2]): "blocks" for i in range(0, len(_BLOCKS), 2)}
    return found


@cache
def bundle_shares(without: frozenset[str] = frozenset()) -> list[tuple[str, int]]:
    """Return the names of all bundles with the numbers of their shares, as parameters of a test."""
    counts = {ops: max(len(case_shares(op)) for op in ops.split("+")) for ops in bundles(without)}
    return [(ops, share) for ops, count in counts.items() for share in range(count)]


@cache
def op_shares() -> list[tuple[str, int]]:
    """Return the names of all ops with the numbers of their shares, as parameters of a test."""
    return [(op, share) for op in op_names() for share in range(len(case_shares(op)))]


def dtypes_of(card: Card, sample: OpSample) -> tuple[str, ...]:
    """Return the dtypes to try: those of the sample, else all that the record allows for the first operand."""
    if sample.dtypes is not None:
        return sample.dtypes
    operands = card.spec.operands
    return operands[0].dtypes if operands else ("f32",)
