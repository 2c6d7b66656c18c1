"""The error for a wrong lowering rule names the op, the location of the rule and the user's line, in both lowerings."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import mlir
from rlx.targets import linalg, stablehlo
from rlx.targets.linalg.rules import RULES as LINALG_RULES
from rlx.targets.lowering.table import Lowered
from rlx.targets.stablehlo.rules import RULES as STABLEHLO_RULES

LOWERINGS = {"linalg": (linalg, "rlx-to-linalg"), "StableHLO": (stablehlo, "rlx-to-stablehlo")}


class Two(rlx.CustomOp, name="tests.two_results"):
    """Returns x twice. The tests set its lowerings."""

    dtypes = ("f32",)
    num_results = 2

    def infer(self, x: rlx.Shape) -> tuple[rlx.Shape, rlx.Shape]:
        return x, x

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return x, x


@pytest.fixture(autouse=True)
def _no_rules_stay() -> Iterator[None]:
    yield
    for rules in (LINALG_RULES, STABLEHLO_RULES):
        rules.pop("tests.two_results", None)


def _raising(build: Any, results: Any, x: Any) -> Any:
    raise KeyError("k")


def _other_type(build: Any, results: Any, x: Any) -> Any:
    other = mlir.ir.RankedTensorType.get([4], mlir.ir.F64Type.get())
    return x, mlir.ir.Operation.create("tensor.empty", results=[other]).result


WRONG: dict[str, tuple[Callable[..., Any], str]] = {
    "nothing": (lambda build, results, x: None, "it returns 1 values; the op has 2 results"),
    "numbers": (lambda build, results, x: (x, 3), "result 1 must be an MLIR value or a Lowered, got int"),
    "count": (lambda build, results, x: (x, x, x), "it returns 3 values; the op has 2 results"),
    "exception": (_raising, "raised KeyError: 'k'"),
    "signature": (lambda build, results: None, "raised TypeError: "),
    "type": (_other_type, "result 1 must be tensor<4xf32>, got tensor<4xf64>"),
    "shape": (
        lambda build, results, x: (x, Lowered(x.value, x.shape.with_dims((2,)))),
        "result 1 must be f32[4], got f32[2]",
    ),
}


@pytest.mark.parametrize("dialect", LOWERINGS)
@pytest.mark.parametrize("mistake", WRONG)
def test_a_wrong_rule_is_named(dialect: str, mistake: str) -> None:
    lowering, pipeline = LOWERINGS[dialect]
    rule, message = WRONG[mistake]
    lowering.lowers("tests.two_results")(rule)
    g = rlx.Graph("wrong")
    x = g.input("x", (4,))
    results, line = g.custom(Two, x), sys._getframe().f_lineno
    g.set_outputs(list(results))
    with pytest.raises(rlx.Error) as caught:
        rlx.passes.run(g, pipeline)
    text = str(caught.value)
    assert f"{__file__}:{line}: {pipeline}: lowering to {dialect} of rlx.tests.two_results" in text
    assert message in text
    assert re.search(rf"see {re.escape(__file__)}:\d+$", text)


@pytest.mark.parametrize("dialect", LOWERINGS)
def test_a_right_rule_is_taken(dialect: str) -> None:
    lowering, pipeline = LOWERINGS[dialect]
    lowering.lowers("tests.two_results")(lambda build, results, x: (x, x.value))
    g = rlx.Graph("right")
    g.set_outputs(list(g.custom(Two, g.input("x", ("n", 4)) if dialect == "linalg" else g.input("x", (4,)))))
    module = rlx.passes.runner.clone_module(g.module)
    rlx.passes.runner.run_on_module(module, pipeline)
    assert "rlx." not in str(module).replace("rlx.name", "").replace("rlx.kind", "")


@pytest.mark.parametrize("dialect", LOWERINGS)
def test_only_custom_ops_get_rules(dialect: str) -> None:
    lowering, _ = LOWERINGS[dialect]
    with pytest.raises(rlx.Error, match=rf"rlx.activation has a lowering to {dialect} already"):
        lowering.lowers("activation")
    with pytest.raises(rlx.Error, match=r"no custom op 'tests.two_result' is registered.*'tests.two_results'"):
        lowering.lowers("tests.two_result")
