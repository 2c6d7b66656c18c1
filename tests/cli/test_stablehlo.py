"""The commands accept StableHLO instead of rlx ops."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

import rlx
from rlx.cli.values import save_array
from tests.cli.calling import Command

TEXT = """module @m {{
  func.func public @main(%arg0: tensor<2x64xf32>) -> tensor<2x64xf32> {{
    %c = stablehlo.constant dense<"0x{table}"> : tensor<64x64xf32>
    %0 = stablehlo.dot_general %arg0, %c, contracting_dims = [1] x [0] :
      (tensor<2x64xf32>, tensor<64x64xf32>) -> tensor<2x64xf32>
    return %0 : tensor<2x64xf32>
  }}
}}
"""


def test_a_module_is_inspected_run_and_compiled(command: Command, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table, x = (rng.integers(-3, 4, (n, 64)).astype(np.float32) for n in (64, 2))
    path, compiled, result = tmp_path / "m.mlir", tmp_path / "m.rlxa", tmp_path / "out0.npy"
    path.write_text(TEXT.format(table=table.tobytes().hex()))
    save_array(str(tmp_path / "x.npy"), x)
    assert "@main [mir]: 2 ops: 1 constant, 1 dot_general" in command.output("inspect", path)
    given = f"--input=arg0=@{tmp_path / 'x.npy'}"
    command.output("compile", path, "-o", compiled)
    for arguments in ([path, "--evaluate"], [compiled]):
        command.output("run", *arguments, given, f"--save={result}")
        np.testing.assert_array_equal(np.load(result), x @ table)


FUNCTIONS_OF_CHLO = """
func.func @compared(%a: tensor<f32>, %b: tensor<f32>) -> tensor<i1> {
  %0 = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
  return %0 : tensor<i1>
}
func.func public @main(%x: tensor<2x4xf32>) -> tensor<2x4xf32> {
  %0 = chlo.erf %x : tensor<2x4xf32> -> tensor<2x4xf32>
  %1 = "chlo.square"(%0) : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return %1 : tensor<2x4xf32>
}
"""


def test_functions_of_chlo_are_read_as_from_stablehlo_reads_them(command: Command, tmp_path: Path) -> None:
    """`main` is the entry, although comparator functions come first."""
    path, x = tmp_path / "m.mlir", np.random.default_rng(1).normal(size=(2, 4)).astype(np.float32)
    path.write_text(FUNCTIONS_OF_CHLO)
    save_array(str(tmp_path / "x.npy"), x)
    graph = rlx.from_stablehlo(path)
    wanted = rlx.evaluate(graph, {"arg0": x})
    np.testing.assert_allclose(wanted[0], [[math.erf(v) ** 2 for v in row] for row in x], rtol=1e-6)
    result = tmp_path / "out0.npy"
    command.output("run", path, "--evaluate", f"--input=arg0=@{tmp_path / 'x.npy'}", f"--save={result}")
    np.testing.assert_array_equal(np.load(result), wanted[0])
    (tmp_path / "unknown.mlir").write_text(FUNCTIONS_OF_CHLO.replace("chlo.erf", "other.erf"))
    assert "'other.erf' is of the dialect 'other', not of StableHLO" in command.error(
        "inspect", tmp_path / "unknown.mlir"
    )
