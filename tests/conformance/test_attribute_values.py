"""Numeric attributes: each special value is refused with the name of the attribute, or is declared here as valid."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.dialect.spec import AttributeSpec
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.graph.graph import Graph
from rlx.ir.op import registry
from rlx.ir.op.card import OpSample, as_results
from rlx.ir.shape import Shape

_TRIED: dict[str, list[Any]] = {
    "f64": [math.nan, math.inf, -math.inf, -1.0, 0.0, 1e300],
    "i64": [-1, 0, 2**62, -(2**63)],
    "i64s": [-1, 0, 2**62],
}
# Valid special values. Axes are the attributes that a card compares with ranks.
_MEANT: dict[str, tuple[Any, ...]] = {
    "eps": (0.0,),
    "eps1": (0.0,),
    "eps2": (0.0,),
    "score_scale": (-1.0, 0.0),
    "scale": (-1.0, 0.0),
    "decay": (0.0,),
    "value": (math.nan, math.inf, -math.inf, -1.0, 0.0),  # an element of the result
    "diagonal": (-1, 0, 2**62, -(2**63)),  # all or nothing of a matrix is below it
    "low": (-1.0, 0.0),
    "high": (-1.0, 0.0),
    "mean": (-1.0, 0.0),
    "std": (0.0,),
    "temperature": (0.0,),
    "top_p": (0.0,),
    "top_k": (0,),
    "k": (0,),
    "multiplier": (-1.0, 0.0),
    "padding": (0,),
    "output_padding": (0,),
    "zero_point": (-1, 0),
    "x_zero_point": (-1, 0),
    "w_zero_point": (-1, 0),
    "out_zero_point": (-1, 0),
    "batch_dims": (0,),
    "window": (0,),  # only the key of the query itself
}
_AXES = ("axis", "axes", "perm", "contracting", "_batch")


def _sample(name: str) -> OpSample | None:
    """Return a use without symbols and regions."""
    for sample in registry.card(name).samples():
        operands = [
            o for group in sample.operands if group is not None for o in (group if isinstance(group, list) else [group])
        ]
        if sample.build is None and all(type(d) is int for o in operands for d in o.dims):
            return sample
    return None


def _graph(name: str, sample: OpSample, attributes: dict[str, Any]) -> tuple[Graph, dict[str, np.ndarray]]:
    g, values = Graph(stage="hir"), {}
    default = (sample.dtypes or registry.card(name).spec.operands[0].dtypes)[0] if sample.operands else "f32"

    def argument(operand: Any) -> Any:
        kind, given = operand.dtype_in(default), f"x{len(values)}"
        numbers = np.random.default_rng(len(values)).uniform(0.1, 1, operand.dims)
        values[given] = np.asarray(np.rint(numbers) if kind.is_integer else numbers).astype(kind.numpy)
        return g.input(given, Shape(operand.dims, kind))

    operands = [
        None if o is None else [argument(v) for v in o] if isinstance(o, list) else argument(o) for o in sample.operands
    ]
    g.set_outputs(list(as_results(g.emit(name, operands, **attributes))))
    return g, values


def _trials(name: str, sample: OpSample) -> Iterator[tuple[AttributeSpec, Any, Any, Any]]:
    """Yield each number to try: the attribute, its value in the sample, the number, and the attribute with the number."""
    for attribute in _numeric(name):
        present = sample.attributes.get(attribute.name, attribute.default)
        for tried in _TRIED[attribute.kind]:
            if attribute.kind != "i64s":
                yield attribute, present, tried, tried
            elif present:
                yield attribute, present, tried, (tried, *present[1:])


def _numeric(name: str) -> list[AttributeSpec]:
    return [a for a in registry.SPECS[name].attributes if a.kind in _TRIED]


_OPS = [name for name in registry.SPECS if name not in ("while", "scan") and _numeric(name)]


@pytest.mark.parametrize("name", _OPS)
def test_numbers_are_refused_or_meant(name: str) -> None:
    sample = _sample(name)
    assert sample is not None
    for attribute, present, tried, value in _trials(name, sample):
        what = f"{attribute.name} = {value}"
        try:
            g, values = _graph(name, sample, sample.attributes | {attribute.name: value})
        except rlx.Error as refusal:
            if not attribute.interval or attribute.admits(tried):
                continue  # the card compares it with shapes
            assert f"'{attribute.name}': {tried} is not in" in str(refusal), f"{what}: {refusal}"
            continue
        axis = any(part in attribute.name for part in _AXES)
        meant = _MEANT.get(attribute.name, ())
        assert axis or tried == present or any(tried is v or tried == v for v in meant), (
            f"{what} is taken: if it means something there, add it to _MEANT; if not, give the attribute a narrower kind"
        )
        for result in evaluate(g, values):
            wide = np.asarray(result, np.complex128)
            assert attribute.name == "value" or np.isfinite(wide).all(), what


@pytest.mark.parametrize("name", _OPS)
def test_text_is_held_to_the_same_intervals(name: str) -> None:
    sample = _sample(name)
    assert sample is not None
    for attribute, present, tried, value in _trials(name, sample):
        if attribute.admits(tried):
            continue
        good, _ = _graph(name, sample, sample.attributes | ({} if present is None else {attribute.name: present}))
        op = next(o.operation for o in good.function.entry_block.operations if o.operation.name == f"rlx.{name}")
        with rlx.mlir.entered():
            ir = rlx.mlir.ir
            if attribute.kind == "f64":
                stored = ir.FloatAttr.get(ir.F64Type.get(), value)
            elif attribute.kind == "i64":
                stored = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
            else:
                stored = ir.DenseI64ArrayAttr.get(list(value))
            op.attributes[attribute.name] = stored
        with pytest.raises(rlx.Error, match=f"attribute '{attribute.name}': .* is not in"):
            rlx.parse(str(good))


def test_loops() -> None:
    g: Any = Graph()
    x = g.input("x", (3,))
    for bad in (-1, 1.5, True, math.nan):
        with pytest.raises(rlx.Error, match="max_iterations"):
            g.while_(lambda i: i < 3, lambda i: i + 1, 0, max_iterations=bad)
    for bad in (-1, 0, 1.5, True):
        with pytest.raises(rlx.Error, match="num_checkpoints"):
            g.scan(lambda c, row: (c + row, None), 0.0, x, num_checkpoints=bad)
    with pytest.raises(rlx.Error, match="32"):
        g.set_outputs([x])
        rlx.directional_nth_grad(g, ["x"], 2**70)


def test_limits_of_clamp() -> None:
    g: Any = Graph()
    x = g.input("x", (2,))
    for low, high in (
        (math.nan, 1),
        (0, math.nan),
        (2, 1),
        (np.float64(2), 1.0),
        (None, math.nan),
        (math.nan, None),
    ):
        with pytest.raises(rlx.ShapeError, match=r"test_attribute_values.py.*(must be a number|is greater than)"):
            g.clamp(x, low, high)
    g.clamp(x, -math.inf, math.inf)
    g.clamp(x, 1, 1)
    g.clamp(x, g.constant(3.0), 1.0)


def test_a_shape_of_random_numbers_is_no_seed() -> None:
    g: Any = Graph()
    for emit in (g.rng_normal, g.rng_uniform):
        for shape in (0, 5, np.int64(3)):
            with pytest.raises(rlx.ShapeError, match="shape is a tuple of sizes"):
                emit(shape)
    with pytest.raises(rlx.ShapeError, match="shape is a tuple of sizes"):
        g.random_bits(0, 4)


def test_axes_of_a_wrong_kind() -> None:
    g: Any = Graph()
    x = g.input("x", (2, 3))
    for emit in (g.sum, g.softmax, g.cumsum, g.argmax, g.sort, g.fftshift):
        for axis in (True, 1.0, math.nan, "0", (0.0,), 2, -3, [None]):
            with pytest.raises(rlx.Error, match=r"ax[ei]s|argument"):
                emit(x, axis)
