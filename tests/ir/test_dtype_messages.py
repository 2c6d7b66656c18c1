"""Dtype lists in messages."""

from __future__ import annotations

import pytest

from rlx.dialect.dtypes import GROUPS, dtype_families
from rlx.ir.dtype import DTYPES, DType, dtype, from_mlir
from rlx.support.errors import Error


def test_lists_of_dtypes_are_short_and_lose_none() -> None:
    assert dtype_families(["i8", "f32", "i4"]) == "i8, f32, i4"
    assert dtype_families(GROUPS["integers"]) == "i8 to i64, u8 to u64"
    every = dtype_families(d.name for d in DTYPES)
    assert every.startswith("f32, f16, bf16, f64, i8 to i64, u8 to u64, bool, c64, c128, 8 formats f8e4m3fn to ")
    for removed in DTYPES:  # the list contains no other dtypes
        text = dtype_families(d.name for d in DTYPES if d is not removed)
        assert removed.name not in text.replace(",", "").split(), text
        assert (
            dtype_families([removed.name]) == removed.name and dtype_families([removed.name], mlir=True) == removed.mlir
        )
    assert (
        dtype_families((d.name for d in DTYPES if d.is_integer), mlir=True)
        == "i8 to i64, ui8 to ui64, i4, ui4, i2, ui2"
    )
    for problem in (lambda: dtype("f8e4m3f"), lambda: from_mlir("i7")):
        with pytest.raises(Error) as caught:
            problem()
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("d", DTYPES, ids=str)
def test_a_name_that_is_nearly_one_is_suggested(d: DType) -> None:
    for name in (d.name, d.numpy_name):
        if name != name.upper():
            with pytest.raises(Error, match=rf"did you mean '{name}'\?"):
                dtype(name.upper())
