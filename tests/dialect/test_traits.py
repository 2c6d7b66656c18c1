"""Traits are true: each trait of an op agrees with its evaluator, over the samples of every card."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import numpy as np
import pytest

from rlx.dialect.spec import TraitName
from rlx.ir.dtype import dtype
from rlx.ir.op import opview, registry
from rlx.ir.op.card import as_results
from tests.conformance.cases import Case, cases
from tests.conformance.values import generator, random_values

SPECS = registry.SPECS


class _Use:
    """An op with the attributes of one of its samples, evaluated by its card on random values."""

    def __init__(self, case: Case):
        bindings = case.bindings()[0]
        self.graph = case.graph(bindings)
        operations = opview.operations(self.graph.function.entry_block)
        self.op = next(op for op in operations if op.name == f"rlx.{case.op}")
        self.card = case.card
        self.attributes = opview.attributes_of(self.op)
        self.arrays = list(random_values(case, bindings).arrays[: len(self.op.operands)])

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        """Return the first result on other arrays."""
        return self.results(*arrays)[0]

    def results(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        operands = opview.operands_of(self.op, list(arrays))
        return tuple(map(np.asarray, as_results(self.card.evaluate(*operands, **self.attributes))))


def _assert_equal(got: Any, expected: Any) -> None:
    """Check that elements are equal and NaN equals NaN. NumPy recognises NaN only of its own dtypes."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype
    own = dtype(got.dtype).is_numpys_own
    np.testing.assert_array_equal(
        got if own else got.astype(np.float64), expected if own else expected.astype(np.float64)
    )


def _uses(trait: TraitName, name: str) -> Iterator[_Use]:
    for case in cases(name):
        use = _Use(case)
        if opview.has_trait(use.op, trait):
            yield use


def _ops_with(trait: TraitName) -> Any:
    """Return a parameter `name` for each op that has a trait."""
    return pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if spec.trait(trait)])


def _positions(use: _Use) -> np.ndarray:
    """Return the position in the first operand that each result element comes from, by running the op on positions."""
    x, *rest = use.arrays
    return use(np.arange(x.size, dtype=np.int64).reshape(x.shape), *rest)


def test_names_are_those_of_the_records() -> None:
    assert {trait.name for spec in SPECS.values() for trait in spec.traits} == set(get_args(TraitName))


@pytest.mark.parametrize("spec", SPECS.values(), ids=lambda spec: spec.name)
def test_traits_fit_together(spec: Any) -> None:
    names = [trait.name for trait in spec.traits]
    assert len(set(names)) == len(names)
    assert sum(name in names for name in ("product", "reduction", "local", "moves_data")) <= 1
    assert "elementwise" not in names or spec.work in ("elementwise", "moves_data")
    assert "rearranges" in names or "view" not in names
    assert "moves_data" in names or "rearranges" not in names
    for trait in spec.traits:
        cases = next((a.cases for a in spec.attributes if a.name == trait.attribute), ())
        assert set(trait.cases) <= set(cases) and (set(trait.cases) != set(cases) or not cases)


def test_a_trait_may_depend_on_an_attribute() -> None:
    binary = SPECS["binary"]
    assert binary.has_trait("elementwise") and binary.has_trait("commutative", {"kind": "add"})
    assert not binary.has_trait("commutative", {"kind": "sub"}) and not binary.has_trait("commutative")
    assert not binary.has_trait("product", {"kind": "mul"})


@_ops_with("elementwise")
def test_elementwise_commutes_with_picking_elements(name: str) -> None:
    for use in _uses("elementwise", name):
        result = use(*use.arrays)
        assert result.shape == np.broadcast_shapes(*(a.shape for a in use.arrays))
        chosen = generator(name).integers(0, max(result.size, 1), 7 if result.size else 0)
        picked = [np.broadcast_to(a, result.shape).reshape(-1)[chosen] for a in use.arrays]
        _assert_equal(use(*picked), result.reshape(-1)[chosen])


@_ops_with("rowwise")
def test_a_row_depends_on_one_row(name: str) -> None:
    """If half of the rows are replaced, the other rows of the result do not change."""
    for use in _uses("rowwise", name):
        x, *rest = use.arrays
        result, axis = use(*use.arrays), use.attributes.get("axis", -1)
        assert result.shape == x.shape and result.dtype == x.dtype
        lines = np.moveaxis(np.arange(x.size).reshape(x.shape), axis, -1).reshape(-1, max(x.shape[axis], 1))
        kept = np.isin(np.arange(x.size).reshape(x.shape), lines[::2])
        changed = np.where(kept, x, np.ones((), x.dtype))
        _assert_equal(use(changed, *rest)[kept], result[kept])


def bits(array: np.ndarray) -> np.ndarray:
    """Return the elements as bytes, so that NaN equals itself."""
    return np.ascontiguousarray(array).view(f"V{array.itemsize}")


@_ops_with("updates")
def test_an_update_reads_of_the_first_operand_what_it_writes(name: str) -> None:
    """If half of the elements are replaced, the other elements of the result do not change."""
    for use in _uses("updates", name):
        x, *rest = use.arrays
        result, kept = use(*use.arrays), np.arange(x.size).reshape(x.shape) % 2 == 0
        assert result.shape == x.shape and result.dtype == x.dtype
        changed = np.where(kept, x, np.ones((), x.dtype))
        _assert_equal(use(changed, *rest)[kept], result[kept])


@_ops_with("rearranges")
def test_rearranging_is_by_place_and_not_by_value(name: str) -> None:
    for use in _uses("rearranges", name):
        x, *rest = use.arrays
        result = use(x, *rest)
        assert np.array_equal(bits(result), bits(x.reshape(-1)[_positions(use)]))


@_ops_with("view")
def test_a_view_has_the_bytes_of_its_operand(name: str) -> None:
    for use in _uses("view", name):
        assert use(*use.arrays).tobytes() == use.arrays[0].tobytes()


@_ops_with("moves_data")
def test_moved_data_is_that_of_an_operand_or_a_fill_or_a_place(name: str) -> None:
    for use in _uses("moves_data", name):
        x = use.arrays[0]
        fill = np.full(1, use.attributes.get("value", 0)).astype(x.dtype)
        known = [np.zeros(1, x.dtype), fill, *(a.reshape(-1) for a in use.arrays if a.dtype == x.dtype)]
        places = np.arange(x.size)
        for result in use.results(*use.arrays):
            allowed = [*known, places] if result.dtype.kind in "iu" else known
            elements = np.concatenate([bits(a.astype(result.dtype)) for a in allowed])
            assert np.isin(bits(result), elements).all()


@_ops_with("commutative")
def test_commutative_operands_change_places(name: str) -> None:
    for use in _uses("commutative", name):
        # NumPy multiplies complex numbers with one rounding less in one of the two products.
        tolerance = 1e-6 if use.arrays[0].dtype.kind == "c" else 0.0
        np.testing.assert_allclose(use(*reversed(use.arrays)), use(*use.arrays), rtol=tolerance)


@_ops_with("cheap")
def test_cheap_is_a_few_operations_for_each_element(name: str) -> None:
    for use in _uses("cheap", name):
        flops, size = opview.own_cost_of(use.op).flops, use(*use.arrays).size
        assert isinstance(flops, int) and flops <= 4 * max(size, 1)


@_ops_with("bounded")
def test_bounded_results_are_moderate(name: str) -> None:
    for use in _uses("bounded", name):
        x, *rest = use.arrays
        if x.dtype.kind != "c":  # complex results grow
            result = use((x.astype(np.float64) * 1e3).astype(x.dtype), *rest)
            assert np.all(np.abs(result.astype(np.float64)) < 100)
