"""Scripts that build a design. Vivado and Quartus are not installed: an interpreter of Tcl runs their scripts with stubs."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

import rlx
from rlx.targets.fpga.flags import PART_NAMES
from tests.packages import needs_package
from tests.targets.fpga.test_projects import run, small_network, written

pytestmark = [needs_package("pycde", "fpga"), needs_package("llvmlite", "fpga")]

tcl = pytest.mark.skipif(shutil.which("tclsh") is None, reason="tclsh is not installed")
yosys = pytest.mark.skipif(shutil.which("yosys") is None, reason="yosys is not installed")

# Every command that Tcl does not have is printed, with a line for each argument.
_STUBS = """\
proc unknown {args} {
  puts "call [lindex $args 0]"
  foreach word [lrange $args 1 end] {puts "  $word"}
  if {[lindex $args 0] eq "get_property"} {return "100%"}
  return [lindex $args 0]
}
package provide ::quartus::project 1.0
package provide ::quartus::flow 1.0
array set quartus [list args $argv]
source [lindex $argv 0]
"""


def calls(folder: Path, script: str, *arguments: str) -> list[list[str]]:
    """Run a script with stubs, and return its calls of commands that Tcl does not have."""
    path = folder / "stubs.tcl"
    path.write_text(_STUBS.replace("source [lindex $argv 0]", f"source {script}"))
    found: list[list[str]] = []
    for line in run(folder, "tclsh", path.name, *arguments).splitlines():
        if line.startswith("call "):
            found.append([line.removeprefix("call ")])
        else:
            found[-1].append(line[2:])
    return found


def tiny_network() -> Any:
    g: Any = rlx.Graph("tiny")
    g.set_outputs({"y": g.input("x", (4,), "i8") + 1})
    return g


@tcl
@pytest.mark.parametrize("part", PART_NAMES)
@pytest.mark.parametrize("axi", [(), ("--axi=stream",)])
def test_vivado_is_given_all_files(axi: tuple[str, ...], part: str, tmp_path: Path) -> None:
    content = written(small_network("net"), tmp_path, f"--part={part}", *axi)
    found = calls(tmp_path, "net_vivado.tcl", "xc7a100tcsg324-1")
    top = "net_axi" if axi else "net"
    added = [call[-1] for call in found if call[0] == "add_files"]
    assert all(Path(name).is_file() for name in added)
    names = {Path(name).name for name in added}
    sources = content["net.f"].decode().split()
    weights = {name for name in content if name.startswith("net__") and name.endswith(".mem")}
    assert weights and names >= {*sources, *weights, f"{top}_tb.sv", f"{top}_tb_x.mem"}
    assert names & {"net.xdc", "net.sdc"} == ({"net.xdc"} if part == "xc7" else {"net.sdc"})
    (project,) = (call for call in found if call[0] == "create_project")
    assert project[-1] == "xc7a100tcsg324-1" and ["set_property", "top", top, "current_fileset"] in found
    assert [call[1] for call in found if call[0] == "launch_runs"] == ["synth_1", "impl_1"]


@tcl
def test_quartus_is_given_all_files(tmp_path: Path) -> None:
    content = written(small_network("net"), tmp_path, "--axi=lite")
    found = calls(tmp_path, "net_quartus.tcl", "10M50DAF484C7G")
    assignments = [call[2:] for call in found if call[0] == "set_global_assignment"]
    assert [n for kind, n in assignments if kind == "SYSTEMVERILOG_FILE"] == content["net.f"].decode().split()
    assert ["DEVICE", "10M50DAF484C7G"] in assignments and ["TOP_LEVEL_ENTITY", "net_axi"] in assignments
    assert ["SDC_FILE", "net.sdc"] in assignments and "[get_ports aclk]" in content["net.sdc"].decode()
    assert [call[0] for call in found][-2:] == ["execute_flow", "project_close"]


@tcl
def test_default_devices(tmp_path: Path) -> None:
    written(tiny_network(), tmp_path)
    (project,) = (call for call in calls(tmp_path, "tiny_vivado.tcl") if call[0] == "create_project")
    assert project[-1].startswith("xc7a35t")
    found = calls(tmp_path, "tiny_quartus.tcl")
    assert ["set_global_assignment", "-name", "DEVICE", "5CEBA4F23C7"] in found


@yosys
@pytest.mark.parametrize("part", PART_NAMES)
def test_yosys_runs_the_script(part: str, tmp_path: Path) -> None:
    """The tools after yosys are replaced by programs that record how they are called."""
    written(tiny_network(), tmp_path, f"--part={part}", "--axi=stream")
    tool = tmp_path / "record"
    tool.write_text('#!/bin/sh\necho "$@" >> record.txt\n')
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    environment = {**os.environ, "NEXTPNR": str(tool), "PACK": str(tool)}
    command = ["sh", str(tmp_path / "tiny.sh"), "--seed", "3"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert '"tiny_axi"' in (tmp_path / "tiny.json").read_text() and (tmp_path / "tiny_cells.txt").exists()
    if part == "xc7":
        assert not (tmp_path / "record.txt").exists()
        return
    place, pack = (tmp_path / "record.txt").read_text().splitlines()
    for word in place.split():
        assert word.startswith("-") or "." not in word or word.startswith("tiny.") or word == "tiny_timing.json", word
    assert place.endswith("--seed 3") and "tiny.json" in place and pack.endswith("tiny.bit")
