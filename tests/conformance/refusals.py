"""Malformed uses of an op, derived from its record and one of its samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rlx.dialect.spec import AttributeSpec, OpSpec
from rlx.ir.dtype import DTYPES
from rlx.ir.op.attributes import complete
from rlx.ir.op.card import SampleOperand
from rlx.ir.shape import Shape
from tests.conformance.cases import Bindings, Case, cases

# Python values of a wrong kind for each kind of attribute.
_WRONG_KINDS: dict[str, list[Any]] = {
    "i64": ["x", 1.5, True, [1], object(), float("nan"), 1j],
    "f64": ["x", True, [1.0], object(), 1j],
    "bool": ["x", 1, 0.0, [True], object()],
    "i64s": [3, "ab", [1.5], ["x"], [True], [None], object(), {"a": 1}, b"ab"],
    "str": [3, ["x"], object(), b"x"],
    "enum": [3, ["x"], object(), b"x", True],
    "dims": [1.5, [1.5], [None], [[1]], object(), {"n": 1}, [True]],
    "dtype": ["f33", 3, object(), [], "x", np.dtype("U3"), np.longdouble, np.dtype(">f4")],
    "elements": [object(), "x", [object()], np.array(["x"]), np.zeros(2, ">f4")],
}
# Values of the right kind that are out of range. Some ops may accept some of them.
_EXTREMES: dict[str, list[Any]] = {
    "i64": [-1, -(2**63), 2**63 - 1, 2**63, 10**30, 0],
    "f64": [float("nan"), float("inf"), -1.0, 1e308, 10**400],
    "i64s": [[], [-1], [2**63], [10**30], [0] * 70, [0, 0]],
    "dims": [
        [],
        [-1],
        [2**63],
        ["n+"],
        ["1n"],
        [""],
        ["n*"],
        ["n//0"],
        ["("],
        ["é"],
        ["x" * 5000],
        ["n**2"],
        [10**30],
    ],
    "enum": ["", "no_such_case", "Add", "none"],
    "str": ["", "\0"],
    "dtype": ["f32", "bool", "c64"],
    "elements": [np.zeros((0,)), np.zeros((1,) * 30, np.float32)],
}


@dataclass(frozen=True)
class Use:
    """A correct or malformed use of an op.

    Attributes:
        op: The op.
        what: A description of the mistake.
        operands: The shape of each operand, grouped as in the record.
        attributes: The attributes by name.
        certain: Whether it must be refused; otherwise it may be.
    """

    op: str
    what: str
    operands: tuple[Any, ...]
    attributes: dict[str, Any]
    certain: bool = True


def base_case(op: str) -> Case:
    """Return the sample with the most operands and attributes."""
    return max(cases(op), key=lambda c: (len(c.operands), len(c.sample.attributes), not c.symbols))


def right_use(case: Case, bindings: Bindings) -> Use:
    """Return the case itself, with all its attributes."""
    shapes = iter(case.shapes(bindings))
    grouped: list[Any] = []
    for entry in case.sample.operands:
        if isinstance(entry, list):
            grouped.append([next(shapes) for _ in entry])
        else:
            grouped.append(None if entry is None else next(shapes))
    assert all(isinstance(o, SampleOperand) for o in case.operands)
    attributes = {k: v for k, v in complete(case.card.spec, case.attributes(bindings)).items() if v is not None}
    return Use(case.op, "nothing", tuple(grouped), attributes, certain=False)


def wrong_uses(case: Case, bindings: Bindings) -> Iterator[Use]:
    """Yield every malformed use that can be derived from the record, one at a time."""
    use = right_use(case, bindings)
    yield from _wrong_operands(case.card.spec, use)
    yield from _changed_sizes(use)
    yield from _wrong_attributes(case.card.spec, use)


def _wrong_operands(spec: OpSpec, use: Use) -> Iterator[Use]:
    yield replace(use, what="one operand too many", operands=(*use.operands, Shape((2,))))
    if use.operands:
        yield replace(use, what="one operand too few", operands=use.operands[:-1])
    for i, (value, shape) in enumerate(zip(spec.operands, use.operands, strict=True)):

        def with_operand(new: Any, what: str, certain: bool = True, i: int = i, name: str = value.name) -> Use:
            operands = (*use.operands[:i], new, *use.operands[i + 1 :])
            return replace(use, what=f"operand '{name}' {what}", operands=operands, certain=certain)

        if value.arity == "single":
            yield with_operand(None, "is absent")
        if not isinstance(shape, Shape):
            continue
        for kind in DTYPES:
            is_emulated = kind.storage and kind.compute.name in value.dtypes  # a builder casts it
            if kind.name not in value.dtypes and not is_emulated:
                yield with_operand(shape.with_dtype(kind), f"is {kind.name}")
            else:
                yield with_operand(shape.with_dtype(kind), f"is {kind.name}", certain=False)
        for dims in ((), (7,), (7, 11), (5, 7, 11), (2, 3, 5, 7), (2, 3, 5, 7, 11), (0,), ("z",), ("z", 3)):
            yield with_operand(shape.with_dims(dims), f"has dimensions {dims}", certain=False)


def _changed_sizes(use: Use) -> Iterator[Use]:
    """Yield uses with each size changed wherever it occurs. A divisor of the op may become 0; all operands still fit."""

    def changed(entry: Any, old: Any, new: int) -> Any:
        if isinstance(entry, list):
            return [changed(e, old, new) for e in entry]
        return entry if entry is None else entry.with_dims(tuple(new if d == old else d for d in entry.dims))

    shapes = [s for entry in use.operands for s in (entry if isinstance(entry, list) else [entry]) if s is not None]
    for old in dict.fromkeys(d for shape in shapes for d in shape.dims):
        for new in (0, 1):
            operands = tuple(changed(entry, old, new) for entry in use.operands)
            yield replace(use, what=f"has sizes of {new} for {old}", operands=operands, certain=False)


def _wrong_attributes(spec: OpSpec, use: Use) -> Iterator[Use]:
    def with_attribute(name: str, value: Any, what: str, certain: bool) -> Use:
        return replace(
            use, what=f"attribute '{name}' {what}", attributes=use.attributes | {name: value}, certain=certain
        )

    yield with_attribute("no_such_attribute", 1, "is unknown", True)
    for attribute in spec.attributes:
        name = attribute.name
        yield with_attribute(f"{name}_", use.attributes.get(name, 1), "is misspelled", True)
        if attribute.required:
            kept = {k: v for k, v in use.attributes.items() if k != name}
            yield replace(use, what=f"attribute '{name}' is missing", attributes=kept)
        for value in _WRONG_KINDS[attribute.kind]:
            yield with_attribute(name, value, f"is {value!r}", True)
        for value in _EXTREMES.get(attribute.kind, []):
            known = attribute.kind == "enum" and value not in attribute.cases
            yield with_attribute(name, value, f"is {str(value)[:40]!r}", known)
        yield from (with_attribute(name, v, f"is {v}", True) for v in _axes_out_of_range(attribute, use))


def _axes_out_of_range(attribute: AttributeSpec, use: Use) -> Iterator[Any]:
    """Yield axes that are not canonical: negative, or beyond the rank of every operand."""
    if not is_axis(attribute):
        return
    ranks = [s.rank for s in use.operands if isinstance(s, Shape)] or [len(use.attributes.get("shape", ()))]
    for axis in (max(ranks), max(ranks) + 5, -1, -max(ranks) - 1):
        if attribute.kind == "i64":
            yield axis
        else:
            given = list(use.attributes[attribute.name])
            yield [*given[:-1], axis] if given else [axis]


def is_axis(attribute: AttributeSpec) -> bool:
    """Return whether an attribute contains axes."""
    name = attribute.name
    return attribute.kind in ("i64", "i64s") and (
        name in ("axis", "axes", "perm") or name.endswith(("_axis", "_axes", "_batch", "_contracting"))
    )
