"""Several designs in one project, in other tools."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.compilation import Compilation
from rlx.targets.fpga.backend import files
from rlx.targets.registry import target_of
from tests.packages import needs_package

pytestmark = [needs_package("pycde", "fpga"), needs_package("llvmlite", "fpga")]


def small_network(name: str, zero_point: int = -128, shape: tuple[int, ...] = (1, 2, 4, 4)) -> Any:
    """A convolution and a pool."""
    g: Any = rlx.Graph(name)
    x = g.input("x", shape, "i8")
    w = g.constant(np.random.default_rng(3).integers(-7, 8, (4, shape[1], 3, 3)).astype(np.int8))
    sums = g.q_conv2d(x, w, padding=1, x_zero_point=zero_point, dtype="i32")
    g.set_outputs({"y": g.max_pool(g.rescale(sums, 0.05, zero_point=zero_point), 2)})
    return g


def written(graph: Any, folder: Path, *flags: str) -> Mapping[str, bytes]:
    """Compile a graph, and add its files to a folder."""
    content = files(Compilation(graph, target_of("fpga", None, flags)).artifact())
    for name, data in content.items():
        assert not (folder / name).exists(), name
        (folder / name).write_bytes(data)
    return content


def run(folder: Path, *command: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def warnings_of(folder: Path, *arguments: str) -> str:
    """Return the warnings of Verilator, with all of them enabled, without the report on its own work."""
    text = run(folder, "verilator", "--lint-only", "-Wall", "-Wno-UNUSEDSIGNAL", *arguments)
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("- "))


@pytest.mark.parametrize("tool", ["iverilog", "verilator", "yosys"])
def test_two_designs_elaborate_together(tool: str, tmp_path: Path) -> None:
    """The designs have layers of the same kinds, and the name of one is that of a layer of the other."""
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    names = ("net", "net_conv1")
    for i, name in enumerate(names):
        written(small_network(name, -128 + i), tmp_path)
    ports = "input logic clk, rst, x_valid, y_ready, input logic [7:0] x_data"
    ends = ".clk, .rst, .x_valid, .x_data, .y_ready"
    instances = [f".x_ready(a_ready_{i}), .y_valid(a_valid_{i}), .y_data()" for i in (0, 1)]
    body = "".join(f"  {n} {n}_0({ends}, {o});\n" for n, o in zip(names, instances, strict=True))
    outputs = [f"output logic a_ready_{i}, a_valid_{i}" for i in (0, 1)]
    (tmp_path / "both.sv").write_text(f"module both({ports}, {', '.join(outputs)});\n{body}endmodule\n")
    lists = [word for name in names for word in ("-f", f"{name}.f")]
    if tool == "iverilog":
        run(tmp_path, tool, "-g2012", "-Wall", "-s", "both", "-o", "both", *lists, "both.sv")
        for name in names:
            run(tmp_path, tool, "-g2012", "-s", f"{name}_tb", "-o", name, *lists, f"{name}_tb.sv")
            assert "PASS" in run(tmp_path, "vvp", name, "+hesitate")
    elif tool == "verilator":
        assert warnings_of(tmp_path, "-Wno-PINCONNECTEMPTY", "--top-module", "both", *lists, "both.sv") == ""
    else:
        sources = " ".join(word for n in names for word in (tmp_path / f"{n}.f").read_text().split())
        run(tmp_path, tool, "-q", "-p", f"read_verilog -sv {sources} both.sv; hierarchy -check -top both; proc; check")
