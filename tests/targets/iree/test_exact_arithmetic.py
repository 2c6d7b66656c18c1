"""Arithmetic that must not be reassociated, on devices whose drivers do so: its decoration, and results on Vulkan."""

from __future__ import annotations

import numpy as np
import pytest

import rlx
from rlx.targets.compilation import Compilation
from rlx.targets.iree.backend import compile_program
from rlx.targets.iree.devices import devices
from rlx.targets.iree.exact_arithmetic import decorated
from rlx.targets.iree.targets import target
from tests.targets.linalg.helpers import assert_ulps, case, run
from tests.targets.linalg.test_elementary_functions import FUNCTIONS, arguments, power_arguments

HAS_DEVICE = any(d.driver == "vulkan" and d.available for d in devices())
# A device may round the product of a multiply-add with a constant addend.
_UNFUSED = 1.1

_SHADER = """\
spirv.func @sum(%arg0: f32, %arg1: f32) -> f32 "None" {
  %0 = spirv.FAdd %arg0, %arg1 : f32
  %1 = spirv.FSub %0, %arg1 : f32
  spirv.mlir.loop {
    spirv.Branch ^bb1(%cst : f32)
  ^bb1(%2: f32):  // 2 preds: ^bb0, ^bb2
    %3 = spirv.FMul %arg0, %arg1 : f32
    %4 = spirv.FAdd %3, %2 : f32
    %5 = spirv.FMul %arg0, %1 : f32
    %6 = spirv.FAdd %5, %5 : f32
  }
}
spirv.func @other(%arg0: vector<4xf32>) -> vector<4xf32> "None" {
  %3 = spirv.FMul %arg0, %arg0 : vector<4xf32>
  %4 = spirv.FNegate %3 : vector<4xf32>
  %5 = spirv.IAdd %arg1, %arg1 : i32
}
"""


def test_all_arithmetic_but_products_of_contractions_is_decorated() -> None:
    text = decorated(_SHADER)
    lines = [line.strip() for line in text.splitlines()]
    assert [line.partition(" = ")[0] for line in lines if "{no_contraction} : " in line] == [
        *("%0", "%1", "%5", "%6"),
        *("%3", "%4"),
    ]
    assert text.replace(" {no_contraction}", "") == _SHADER


@pytest.mark.parametrize("name", ["vulkan", "metal"])
def test_programs_for_gpus_are_decorated(name: str) -> None:
    """Vulkan's binaries have the decoration, and Metal's source calls functions that are not optimised."""
    g = rlx.Graph("rounding")
    g.set_outputs([(g.input("x", (8,)) + 3.0) - 3.0])
    data = compile_program(Compilation(g, target(name))).program
    mark = np.array([42], "<u4").tobytes() if name == "vulkan" else b"optnone"  # 42 is NoContraction
    decorations = np.array([3 << 16 | 71], "<u4").tobytes()  # OpDecorate with three words
    assert mark in data and (name == "metal" or decorations in data)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_DEVICE, reason="no Vulkan device")
def test_functions_are_as_accurate_on_vulkan_as_on_the_cpu() -> None:
    """All functions of f32 over their whole range, in one program."""
    vulkan = target("vulkan")
    a, b = power_arguments(np.float32)
    cases = [case("activation", arguments(kind, np.float32), kind=kind) for kind in FUNCTIONS]
    *results, (power,) = run([*cases, case("binary", a, b, kind="pow")], device=vulkan)
    for (reference, limit), one, (result,) in zip(FUNCTIONS.values(), cases, results, strict=True):
        (x,) = one.arrays
        with np.errstate(all="ignore"):
            exact = reference(x.astype(np.float64))
        assert_ulps(result, exact, _UNFUSED * limit, x)
    with np.errstate(all="ignore"):
        assert_ulps(power, np.power(a.astype(np.float64), b.astype(np.float64)), _UNFUSED, a, b)
