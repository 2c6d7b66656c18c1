"""Op classes: the contents of ops by the names of their records."""

from __future__ import annotations

from typing import Any

import pytest

import rlx
from rlx import mlir
from rlx.dialect import spec_gen
from rlx.dialect.spec import OpSpec
from rlx.ir.op import op_classes


def op_of(tensor: Any) -> Any:
    return tensor.value.owner.opview


def test_operands_attributes_and_results_have_names() -> None:
    g = rlx.Graph("f")
    x, w = g.input("x", (2, 3)), g.input("w", (3,))
    op = op_of(g.rms_norm(x, w, axis=-1))
    assert type(op) is vars(op_classes)["RmsNormOp"]
    assert (op.x, op.scale, op.bias) == (x.value, w.value, None)
    assert op.axis.value == 1
    assert op.result == op.operation.results[0]


def test_of_several_results_each_has_its_name() -> None:
    g = rlx.Graph("f")
    values, indices = g.topk(g.input("x", (4,)), 2)
    op = op_of(values)
    assert (op.values, op.indices) == (values.value, indices.value)


def test_variadic_groups_of_several_types_are_told_apart() -> None:
    # Each group is 16 runs of one type in the IR, which the classes from mlir-tblgen do not know.
    g = rlx.Graph("f")
    x, y, late = g.input("x", (2,)), g.input("y", (3,), "i32"), g.input("late", (4,))
    first, second = g.optimization_barrier([x, y], [late])
    op = op_of(first)
    assert op.inputs == [x.value, y.value]
    assert op.after == [late.value]
    assert op.results_ == [first.value, second.value]


def test_regions_have_names() -> None:
    g = rlx.Graph("f")
    x = g.input("x", (2,))
    op = op_of(g.if_(g.input("c", (), "bool"), lambda: x, lambda: -x))
    assert [len(op.then_region.blocks[0].operations), len(op.else_region.blocks[0].operations)] == [1, 2]


@pytest.mark.parametrize("spec", spec_gen.OPS, ids=lambda spec: spec.name)
def test_no_accessor_hides_a_member_of_mlir_s(spec: OpSpec) -> None:
    names = op_classes.accessors(spec)
    assert len(names) == len(spec.operands) + len(spec.attributes) + len(spec.regions) + len(spec.results)
    assert {name for name in names if hasattr(mlir.ir.OpView, name)} <= {"result"}
