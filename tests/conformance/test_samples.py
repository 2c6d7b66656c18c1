"""Every op: its samples cover everything that its record allows, so that nothing remains untested."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rlx.ir.op import registry
from rlx.support.errors import Error
from tests.conformance.cases import Case, cases, op_names
from tests.conformance.failures import Failures

# The attribute that a case of an enumeration requires.
_NEEDS = {"sliding_window": "window"}
# For larger optional enumerations (activations) that another op also has, the default and one more case are enough.
_MOST_CASES = 6


def test_every_op_has_a_card() -> None:
    missing = [name for name in registry.SPECS if name not in registry.load()]
    assert not missing


def _enum_values(case: Case) -> tuple[object, ...]:
    return tuple(case.sample.attributes.get(a.name, a.default) for a in case.card.spec.attributes if a.kind == "enum")


@pytest.mark.parametrize("op", op_names())
def test_dtypes(op: str) -> None:
    """The samples have every dtype of the op, for every kind of its enumerations."""
    failures = Failures()
    tried: dict[object, set[str]] = {}
    for case in cases(op):
        tried.setdefault(_enum_values(case), set()).update(d.name for d in case.dtypes)
    operands = registry.card(op).spec.operands
    for case in cases(op):
        required = [a for a in case.card.spec.attributes if a.kind == "enum" and a.required]
        known = tried[_enum_values(case)] if required else set().union(*tried.values())
        for name in operands[0].dtypes if operands else ():
            failures.checked += 1
            if name not in known and _takes(case, name):
                chosen = "".join(f" with {value}" for value in _enum_values(case))
                failures.add(op, f"{op}{chosen} accepts {name}; add a sample of this dtype")
    if operands:
        failures.check()


def _takes(case: Case, dtype: str) -> bool:
    try:
        replace(case, dtype=dtype).graph()
    except Error:
        return False
    return True


@pytest.mark.parametrize("op", op_names())
def test_attributes_and_operands(op: str) -> None:
    failures = Failures()
    spec = registry.card(op).spec
    samples = [case.sample for case in cases(op)]
    failures.expect(op, bool(samples), "has no samples")
    for attribute in spec.attributes:
        values = [s.attributes.get(attribute.name, attribute.default) for s in samples]
        if attribute.kind == "enum":
            wanted = [c for c in attribute.cases if _NEEDS.get(c) in (None, *(a.name for a in spec.attributes))]
            if not attribute.required and len(wanted) > _MOST_CASES:
                wanted = [attribute.default]
            missing = [case for case in wanted if case not in values]
            failures.expect(attribute.name, not missing, f"is never {', '.join(map(str, missing))}; add samples")
        if attribute.kind == "bool":
            failures.expect(
                attribute.name,
                set(values) == {True, False},
                f"is only ever {set(values)}; add a sample with the other value",
            )
        if not attribute.required:
            failures.expect(
                attribute.name,
                any(v != attribute.default for v in values),
                "only has its default; add a sample with another value",
            )
    for i, operand in enumerate(spec.operands):
        present = {s.operands[i] is not None for s in samples}
        if operand.arity == "optional":
            failures.expect(operand.name, True in present, "is never there; add a sample with it")
            failures.expect(operand.name, False in present, "is always there; add a sample without it")
    if spec.operands or any(a.kind == "dims" for a in spec.attributes):
        failures.expect(
            op,
            any(case.symbols for case in cases(op)),
            "has no sample with a symbolic size; add one like sample(('n', 3))",
        )
    failures.check()
