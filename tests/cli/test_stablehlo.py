"""The commands take StableHLO where they take rlx ops."""

from __future__ import annotations

from pathlib import Path

import numpy as np

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
