"""`spec_gen.py`: the op table as a Python module."""

from __future__ import annotations

import pprint
from collections.abc import Sequence
from typing import Any

from rlx.dialect.spec import AttributeSpec, OpSpec, TraitSpec, ValueSpec
from tools.ods import BANNER


def spec_source(ops: Sequence[OpSpec]) -> str:
    """Return the module's text."""
    dtype_sets: dict[tuple[str, ...], str] = {}
    enums: dict[str, tuple[str, ...]] = {}
    body = []
    for op in ops:
        enums |= {a.enum: a.cases for a in op.attributes if a.enum}
        regions = [f"RegionSpec({r.name!r}, {r.arity!r})" for r in op.regions]
        body.append(
            f"    OpSpec(\n        {op.name!r},\n        {op.family!r},\n        {op.stage!r},\n"
            f"        {op.summary!r},\n        {op.description!r},\n"
            f"        {_tuple([_value(v, dtype_sets) for v in op.operands])},\n"
            f"        {_tuple([_attribute(a) for a in op.attributes])},\n"
            f"        {_tuple([_value(v, dtype_sets) for v in op.results])},\n"
            f"        {_tuple(regions)},\n        {_tuple([_trait(t) for t in op.traits])},\n        {op.defined_at!r},\n"
            + ("        terminator=True,\n" if op.terminator else "")
            + "    ),\n"
        )
    return (
        f'"""{BANNER}"""\n\nfrom __future__ import annotations\n\n'
        "from rlx.dialect.spec import REQUIRED, AttributeSpec, OpSpec, RegionSpec, TraitSpec, ValueSpec\n\n"
        + "".join(f"{name} = {_literal(dtypes)}\n" for dtypes, name in dtype_sets.items())
        + "".join(f"_{name.upper()} = {_literal(cases)}\n" for name, cases in sorted(enums.items()))
        + "\nENUMS = {"
        + ", ".join(f"{name!r}: _{name.upper()}" for name in sorted(enums))
        + "}\n\nOPS = (\n"
        + "".join(body)
        + ")\n\n__all__ = ['ENUMS', 'OPS', 'REQUIRED', 'RegionSpec']\n"
    )


def _literal(value: Any) -> str:
    return pprint.pformat(value, width=100)


def _value(value: ValueSpec, dtype_sets: dict[tuple[str, ...], str]) -> str:
    dtypes = dtype_sets.setdefault(value.accepts, f"_DTYPES_{len(dtype_sets)}")
    arity = "" if value.arity == "single" else f", {value.arity!r}"
    return f"ValueSpec({value.name!r}, {dtypes}{arity})"


def _attribute(attribute: AttributeSpec) -> str:
    enum = f", {attribute.enum!r}, _{attribute.enum.upper()}" if attribute.enum else ""
    interval = f", interval={attribute.interval!r}" if attribute.interval else ""
    return f"AttributeSpec({attribute.name!r}, {attribute.kind!r}, {attribute.default!r}{enum}{interval})"


def _trait(trait: TraitSpec) -> str:
    condition = f", {trait.attribute!r}, {trait.cases!r}" if trait.attribute else ""
    return f"TraitSpec({trait.name!r}{condition})"


def _tuple(items: Sequence[str], indent: str = "            ") -> str:
    if not items:
        return "()"
    return "(\n" + "".join(f"{indent}{item},\n" for item in items) + indent[:-4] + ")"
