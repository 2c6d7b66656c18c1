"""Samples of gradient ops, derived from the samples of their forward ops."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from rlx.ir.dims.dim import dim, symbols
from rlx.ir.dtype import dtype
from rlx.ir.op.card import OpSample, SampleOperand, as_results
from rlx.ir.shape import Shape
from rlx.support.errors import ShapeError

if TYPE_CHECKING:
    from rlx.ops.backward.card import Backward


def samples_of(card: Backward) -> Iterator[OpSample]:
    """Yield forward samples with a cotangent: all that differ in more than kind and sizes, and one of each kind."""
    enums = [a for a in card.spec.attributes if a.kind == "enum"]
    wrt_of: dict[Any, str | None] = {}
    seen: set[Any] = set()
    for forward in card.forward.samples():
        attributes = {**card.shared({}), **forward.attributes}
        if any(attributes[name] != value for name, value in card.fixed.items()):
            continue
        # Each kind of the forward op has its own value of the attribute `wrt`.
        group = tuple(attributes[a.name] for a in enums if a.name in attributes)
        choices: list[Any] = [None] if isinstance(card.wrt, str) else sorted(card.wrt, key=[*wrt_of.values()].count)
        choices = [wrt_of[group]] if group in wrt_of else choices
        sample = next(filter(None, (_sample(card, forward, attributes, choice) for choice in choices)), None)
        if sample is None:
            continue
        wrt_of[group] = sample.attributes.get("wrt")
        kind = ("kind", *(sample.attributes.get(a.name, a.default) for a in enums))
        if not {kind, _features(card, sample)} <= seen:
            # A kind without a default is tested in all dtypes. Of the other samples, only one is tested in all dtypes.
            first = ("in all dtypes", kind if any(a.required for a in enums) else None)
            yield sample if first not in seen else replace(sample, dtypes=(sample.dtypes or ())[:1])
            seen |= {kind, _features(card, sample), first}


def _features(card: Backward, sample: OpSample) -> object:
    """Return the features that distinguish samples: everything except the kind and the sizes of 2 and more."""
    axes = [None if o is None else tuple(min(d, 2) if type(d) is int else "n" for d in o.dims) for o in sample.operands]  # type: ignore[union-attr]
    plain = [a.name for a in card.spec.attributes if a.kind != "enum" and a.name not in card.sizes]
    return (*axes, *((name, sample.attributes[name]) for name in plain if name in sample.attributes))


def _sample(card: Backward, forward: OpSample, attributes: Mapping[str, Any], wrt: str | None) -> OpSample | None:
    """Return the gradient's sample for a forward sample, in all allowed dtypes; None if the forward sample has no gradient."""
    operands = dict(zip(card.forward_names, forward.operands, strict=True))
    if any(operands.get(o.name, forward) is None and o.arity == "single" for o in card.spec.operands):
        return None
    allowed: list[str] = []
    cotangent: SampleOperand | None = None
    extra: dict[str, Any] = {} if wrt is None else {"wrt": wrt}
    for kind in dict.fromkeys((*(forward.dtypes or ()), *card.spec.operands[0].dtypes)):
        shapes: dict[str, Any] = {n: o and Shape(o.dims, o.dtype_in(kind)) for n, o in operands.items()}  # type: ignore[union-attr]
        try:
            dy = as_results(card.forward.infer(*shapes.values(), **attributes))[0]
            extra |= {name: sizes.of(shapes, attributes) for name, sizes in card.sizes.items()}
            operand_shapes = [(shapes | {card.cotangent: dy})[o.name] for o in card.spec.operands]
            card.infer(*operand_shapes, **{a.name: (attributes | extra).get(a.name) for a in card.spec.attributes})  # type: ignore[operator]
        except ShapeError:
            continue
        if all(s is None or s.dtype.name in o.dtypes for s, o in zip(operand_shapes, card.spec.operands, strict=True)):
            own = dtype(kind)
            fixed = None if dy.dtype is own else "part" if dy.dtype is own.part else dy.dtype.name
            cotangent = cotangent or SampleOperand(dy.dims, fixed)
            allowed.append(kind)
    if not allowed:
        return None
    attribute_names = {a.name for a in card.spec.attributes}
    shared = {name: value for name, value in forward.attributes.items() if name in attribute_names}
    operands[card.cotangent] = cotangent
    if not _can_be_bound(operands[o.name] for o in card.spec.operands):
        return None
    return OpSample(
        tuple(operands[o.name] for o in card.spec.operands), shared | extra, tuple(allowed), forward.tolerance
    )


def _can_be_bound(operands: Iterable[Any]) -> bool:
    """Return whether each symbol in the operands' sizes is itself a size; otherwise a program could not determine its value."""
    dims = [dim(d) for operand in operands if operand is not None for d in operand.dims]
    return all(dim(name) in dims for d in dims for name in symbols(d))
