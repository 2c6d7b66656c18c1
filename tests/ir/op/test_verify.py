"""The cache of valid ops in the verifier: an op that differs in one respect is checked again."""

from __future__ import annotations

from typing import Any

import pytest

import rlx


def text() -> str:
    g: Any = rlx.Graph("f", stage="hir")
    x, w = g.input("x", (3, 3)), g.param("w", (3, 3))
    g.set_outputs([g.linear(x, w), g.sum(x, axes=1), -x, g.rms_norm(x, g.param("scale", (3,)))])
    return str(g)


@pytest.mark.parametrize(
    ("valid", "invalid", "message"),
    [
        ("keep_dims = false", "keep_dims = true", r"result 0 is declared f32\[3\], but inference gives f32\[3, 1\]"),
        ("array<i64: 1>", "array<i64: 2>", "axis 2 is out of range"),
        (', kind = "sum"', "", "kind"),
        (', kind = "sum"', ', kind = "sum", more = 1', "more"),
        ('"neg"} : tensor<3x3xf32>', '"neg"} : (tensor<3x3xf32>) -> ()', "result"),
        ("rlx.linear(%arg0, %arg1)", "rlx.linear(%arg0)", "operand"),
        ('rlx.stage = "hir"', 'rlx.stage = "mir"', "is a block, which is allowed at stage hir only"),
    ],
)
def test_an_op_that_differs_from_a_valid_one_is_checked(valid: str, invalid: str, message: str) -> None:
    good = text()
    assert valid in good
    for _ in range(2):
        assert str(rlx.parse(good)) == good
        with pytest.raises(rlx.Error, match=message):
            rlx.parse(good.replace(valid, invalid))


def test_an_op_of_a_user_is_checked_by_its_present_class() -> None:
    def define(rank: int) -> None:
        def infer(self: Any, x: rlx.Shape) -> rlx.Shape:
            return x.with_dims((*x.dims, *(1,) * rank))

        type("Grows", (rlx.CustomOp,), {"infer": infer, "evaluate": lambda self, x: x}, name="tests.grows")

    define(0)
    g: Any = rlx.Graph()
    g.set_outputs([g.custom("tests.grows", g.input("x", (2,)))])
    assert rlx.parse(str(g)).verify() is None
    define(1)
    with pytest.raises(rlx.Error, match=r"result 0 is declared f32\[2\], but inference gives f32\[2, 1\]"):
        g.verify()
