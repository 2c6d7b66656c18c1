"""`copy=` of `asarray` and `from_dlpack`, for every dtype: shared memory, copies, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import array_api
from rlx.ir import dlpack
from rlx.ir.dtype import DTYPES, DType
from tests.lenders import Lent, LentBefore2023

NO_BOOL: Any = "no"
ONE: Any = 1
MAKERS = {"asarray": array_api.asarray, "from_dlpack": array_api.from_dlpack}


class Copying(Lent):
    """An array of a library that cannot share its memory."""

    def __dlpack__(self, **options: Any) -> Any:
        if options.get("copy") is False:
            raise BufferError("it is spread over several devices")
        return dlpack.lent(self.array.copy(), max_version=options.get("max_version"))


def array(kind: DType) -> np.ndarray:
    return np.ones((2, 3)).astype(kind.numpy)


def shares(tensor: Any, values: np.ndarray) -> bool:
    assert tensor.dtype == values.dtype and tensor.numpy().tobytes() == values.tobytes()
    assert not tensor.numpy().flags.writeable
    return np.shares_memory(tensor.numpy(), values)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("kind", DTYPES)
def test_memory_is_shared_where_no_copy_is_wanted(kind: DType, name: str) -> None:
    make: Callable[..., Any] = MAKERS[name]
    with rlx.eager():
        values = array(kind)
        assert not shares(make(values), values)
        assert not shares(make(values, copy=True), values)
        tensor = make(values, copy=False)
        assert shares(tensor, values) and values.flags.writeable
        assert shares(make(tensor), values) and shares(make(tensor, copy=False), values)
        assert not shares(make(tensor, copy=True), values)
        assert shares(make(values[:, ::2], copy=False), values[:, ::2])


@pytest.mark.parametrize("kind", [d for d in DTYPES if not d.packed])
def test_other_libraries_are_asked_not_to_copy(kind: DType) -> None:
    with rlx.eager():
        values = array(kind)
        for lender, wanted in ((Lent(values), {"copy": False}), (LentBefore2023(values), {})):
            assert not shares(array_api.from_dlpack(lender), values)
            assert not shares(array_api.from_dlpack(lender, copy=True), values)
            assert shares(array_api.from_dlpack(lender, copy=False), values)
            assert {k: v for k, v in lender.asked.items() if k == "copy"} == wanted
        assert not shares(array_api.from_dlpack(Copying(values)), values)
        with pytest.raises(BufferError, match="several devices"):
            array_api.from_dlpack(Copying(values), copy=False)


@pytest.mark.parametrize("kind", [d for d in DTYPES if d.packed])
def test_packed_elements_are_not_shared(kind: DType) -> None:
    with rlx.eager(), pytest.raises(BufferError, match=f"elements of {kind.name} in a byte"):
        array_api.from_dlpack(Lent(array(kind)), copy=False)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: array_api.asarray([1, 2], copy=False), ValueError, "asarray: a tensor of a list is a copy"),
        (lambda: array_api.asarray(2.5, copy=False), ValueError, "asarray: a tensor of a float is a copy"),
        (lambda: array_api.asarray(array(rlx.f32), dtype="f64", copy=False), ValueError, "float32 as f64 is a copy"),
        (lambda: array_api.asarray(array_api.ones(2), dtype="f64", copy=False), ValueError, "f32 as f64 is a copy"),
        (
            lambda: array_api.from_dlpack(array(rlx.f32), copy=NO_BOOL),
            TypeError,
            "copy is None, True or False, got 'no'",
        ),
        (lambda: array_api.asarray(1, copy=ONE), TypeError, "copy is None, True or False, got 1"),
    ],
)
def test_what_needs_a_copy(call: Callable[[], Any], kind: type[Exception], message: str) -> None:
    with rlx.eager(), pytest.raises(kind, match=message):
        call()


def test_a_constant_of_a_graph_is_a_copy() -> None:
    values = array(rlx.f32)

    def function(x: Any) -> Any:
        for make in MAKERS.values():
            with pytest.raises(BufferError, match=r"test_copies\.py:\d+: .*a constant of a graph is a copy"):
                make(values, copy=False)
        return x + array_api.asarray(values, copy=True) + array_api.asarray(x, copy=True)

    np.testing.assert_array_equal(rlx.jit(function)(values), np.full((2, 3), 3, np.float32))
