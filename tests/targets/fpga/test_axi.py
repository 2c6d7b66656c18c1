"""Wrappers with AXI4-Stream and AXI4-Lite ports, in Icarus, Verilator and yosys."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rlx
from rlx.targets.fpga.flags import AXI_WIDTHS
from rlx.targets.registry import target_of
from tests.drawing import drawn, graph_seed
from tests.packages import needs_package
from tests.targets.fpga.integer_graphs import inputs_of, random_graph
from tests.targets.fpga.test_projects import run, small_network, warnings_of, written

pytestmark = [needs_package("pycde", "fpga"), needs_package("llvmlite", "fpga")]

verilator = pytest.mark.skipif(shutil.which("verilator") is None, reason="verilator is not installed")
icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="iverilog is not installed")
yosys = pytest.mark.skipif(shutil.which("yosys") is None, reason="yosys is not installed")


def fast_graph() -> Any:
    """Elements of every width, one in each cycle: several inputs and outputs, sizes that do not fill beats, and a state."""
    g: Any = rlx.Graph("fast")
    x, y = g.input("x", (3, 7), "i8"), g.input("y", (3, 7), "i16")
    before = g.state("before", (3, 7), "i16", init=5)
    wide = g.cast(x, "i32") * 1000 + g.cast(y, "i32")
    g.set_outputs({"wide": wide, "flag": wide > 0, "byte": g.cast(x, "u8"), "sum": y + before})
    g.update(before, y)
    return g


def sources_of(folder: Path, name: str) -> tuple[str, ...]:
    return "-f", f"{name}.f", f"{name}_axi_tb.sv"


def simulated(folder: Path, name: str) -> None:
    """Run the testbench of a wrapper in Icarus, with and without stalls."""
    run(folder, "iverilog", "-g2012", "-s", f"{name}_axi_tb", "-o", "tb", *sources_of(folder, name))
    for options in ((), ("+hesitate",), ("+auto",), ("+auto", "+hesitate")):
        assert "PASS" in run(folder, "vvp", "tb", *options)


def linted(folder: Path, name: str) -> None:
    assert warnings_of(folder, "--top-module", f"{name}_axi", "-f", f"{name}.f") == ""


@icarus
@pytest.mark.parametrize("kind", ["stream", "lite"])
@drawn("width", AXI_WIDTHS, of_each=3)
def test_all_widths_with_stalls(kind: str, width: int, tmp_path: Path) -> None:
    written(fast_graph(), tmp_path, f"--axi={kind}", f"--axi-width={width}")
    simulated(tmp_path, "fast")
    if shutil.which("verilator"):
        linted(tmp_path, "fast")


@icarus
@drawn("number", range(20), of_each=2)
def test_random_designs(number: int, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(graph_seed(seed, 7000 + number))
    graph = random_graph(rng)
    width = int(rng.choice(AXI_WIDTHS))
    written(graph, tmp_path, "--part=xc7", f"--axi={('stream', 'lite')[number % 2]}", f"--axi-width={width}")
    simulated(tmp_path, "random")
    if shutil.which("verilator"):
        linted(tmp_path, "random")


@verilator
@pytest.mark.parametrize("kind", ["stream", "lite"])
def test_verilator_runs_the_testbench(kind: str, tmp_path: Path) -> None:
    written(fast_graph(), tmp_path, f"--axi={kind}", "--axi-width=32")
    options = ("--binary", "--timing", "--timescale", "1ns/1ps", "--top-module", "fast_axi_tb")
    run(tmp_path, "verilator", *options, *sources_of(tmp_path, "fast"))
    for words in ((), ("+hesitate",), ("+auto", "+hesitate")):
        assert "PASS" in run(tmp_path, "obj_dir/Vfast_axi_tb", *words)


@yosys
def test_yosys_reads_the_wrapper(tmp_path: Path) -> None:
    written(small_network("net"), tmp_path, "--axi=lite", "--axi-width=64")
    sources = " ".join((tmp_path / "net.f").read_text().split())
    run(
        tmp_path,
        "yosys",
        "-q",
        "-p",
        f"read_verilog -sv {sources}; hierarchy -check -top net_axi; proc; opt; check -assert",
    )


@icarus
def test_wrappers_accept_an_element_in_each_cycle(tmp_path: Path) -> None:
    g: Any = rlx.Graph("copy")
    g.set_outputs({"y": g.input("x", (1000,), "i8") + 1})
    written(g, tmp_path, "--axi=stream", "--axi-width=32")
    run(tmp_path, "iverilog", "-g2012", "-s", "copy_axi_tb", "-o", "tb", *sources_of(tmp_path, "copy"))
    found = re.search(r"PASS: copy_axi, (\d+) cycles", run(tmp_path, "vvp", "tb"))
    assert found is not None and int(found[1]) <= 2 * 1000 + 20


# --- mistakes that testbenches find ---------------------------------------------------------------


def failure(folder: Path, name: str, edited: str, edit: Any) -> str:
    """Return what a testbench prints after a file has been edited."""
    path = folder / edited
    path.write_text(edit(path.read_text()))
    run(folder, "iverilog", "-g2012", "-s", f"{name}_axi_tb", "-o", "tb", *sources_of(folder, name))
    done = subprocess.run(["vvp", "tb"], cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode != 0, done.stdout
    return done.stdout


@icarus
@pytest.mark.parametrize(("kind", "message"), [("stream", "tlast_error is not 0"), ("lite", "register 04 is 00000006")])
def test_a_tlast_at_another_beat_is_reported(kind: str, message: str, tmp_path: Path) -> None:
    written(small_network("net"), tmp_path, f"--axi={kind}")

    def moved(text: str) -> str:
        lines = text.split()
        assert lines[31][0] == "1" and lines[30][0] == "0"  # the bit before those of tdata is tlast
        lines[30], lines[31] = f"1{lines[30][1:]}", f"0{lines[31][1:]}"
        return "\n".join(lines) + "\n"

    assert message in failure(tmp_path, "net", "net_axi_tb_x.mem", moved)


@icarus
def test_wrong_results_are_found(tmp_path: Path) -> None:
    written(small_network("net"), tmp_path, "--axi=stream")
    message = failure(tmp_path, "net", "net__conv1__weights.mem", lambda text: "7\n" * text.count("\n"))
    assert "FAIL: y: tlast, tkeep and tdata of beat" in message


@icarus
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("tlast <= last_element", "tlast <= 1'b0", "tlast, tkeep and tdata"),
        ("if (next_ready) tvalid <= take && full;", "tvalid <= take && full;", "changes before it is read"),
        ("{(WIDTH/8){lane[i]}}", "{(WIDTH/8){1'b1}}", "tlast, tkeep and tdata"),
    ],
)
def test_outputs_that_break_the_protocol_are_found(old: str, new: str, message: str, tmp_path: Path) -> None:
    written(fast_graph(), tmp_path, "--axi=stream", "--axi-width=32")
    path = tmp_path / "fast__axi__output.sv"
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, new))
    run(tmp_path, "iverilog", "-g2012", "-s", "fast_axi_tb", "-o", "tb", *sources_of(tmp_path, "fast"))
    done = subprocess.run(["vvp", "tb", "+hesitate"], cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode != 0 and message in done.stdout, done.stdout


# --- two designs in one project -------------------------------------------------------------------

_CHAIN = """\
`timescale 1ns/1ps
// The first design feeds the second one through AXI4-Stream, and both ends stall.
module chain_tb;
  logic aclk = 0, aresetn = 0, valid = 0, ready = 0;
  logic [7:0] words [0:{inputs}-1], wanted [0:{outputs}-1];
  integer cycles = 0, given = 0, found = 0;
  wire [31:0] between, data;
  wire taken, last, between_valid, between_ready, between_last, data_valid, data_last;
  initial $readmemh("chain_x.mem", words);
  initial $readmemh("chain_y.mem", wanted);
  always #5 aclk = !aclk;
  assign last = (given % {input}) == {input} - 4;
  first_axi first (
    .aclk, .aresetn, .s_axis_x_tvalid(valid), .s_axis_x_tready(taken), .s_axis_x_tlast(last),
    .s_axis_x_tdata({{words[given + 3], words[given + 2], words[given + 1], words[given]}}), .m_axis_y_tkeep(),
    .m_axis_y_tvalid(between_valid), .m_axis_y_tready(between_ready), .m_axis_y_tdata(between),
    .m_axis_y_tlast(between_last), .tlast_error()
  );
  second_axi second (
    .aclk, .aresetn, .s_axis_x_tvalid(between_valid), .s_axis_x_tready(between_ready), .s_axis_x_tdata(between),
    .s_axis_x_tlast(between_last), .m_axis_y_tvalid(data_valid), .m_axis_y_tready(ready), .m_axis_y_tdata(data),
    .m_axis_y_tlast(data_last), .m_axis_y_tkeep(), .tlast_error(wrong)
  );
  wire wrong;
  wire moved = valid && taken;
  always @(posedge aclk) begin
    cycles <= cycles + 1;
    aresetn <= cycles > 4;
    if (moved) given <= given + 4;
    if (!valid || taken) valid <= aresetn && given + (moved ? 4 : 0) < {inputs} && $urandom % 3 == 0;
    ready <= $urandom % 3 == 0;
    if (data_valid && ready) begin
      found <= found + 4;
      if (data !== {{wanted[found + 3], wanted[found + 2], wanted[found + 1], wanted[found]}}) $fatal(1, "FAIL at %0d", found);
      if (data_last !== (found % {output} == {output} - 4)) $fatal(1, "FAIL: tlast at %0d", found);
      if (found + 4 == {outputs}) begin
        if (wrong) $fatal(1, "FAIL: tlast_error");
        $display("PASS");
        $finish;
      end
    end
    if (cycles > 1000000) $fatal(1, "FAIL: it stands still");
  end
endmodule
"""


@pytest.mark.parametrize("tool", ["iverilog", "verilator"])
def test_two_designs_feed_each_other(tool: str, seed: int, tmp_path: Path) -> None:
    """The layers of both designs have the same names."""
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    first, second = small_network("first"), small_network("second", shape=(1, 4, 2, 2))
    for graph in (first, second):
        written(graph, tmp_path, "--axi=stream", "--axi-width=32")
    rng, given, wanted = np.random.default_rng(seed), list[np.ndarray](), list[np.ndarray]()
    for _ in range(3):
        inputs: Mapping[str, np.ndarray] = inputs_of(first, rng)
        (between,) = rlx.evaluate(first, inputs)
        given.append(inputs["x"].transpose(0, 2, 3, 1).ravel())
        wanted.append(rlx.evaluate(second, {"x": between})[0].transpose(0, 2, 3, 1).ravel())
    for name, arrays in (("x", given), ("y", wanted)):
        words = "".join(f"{int(v) & 255:02x}\n" for a in arrays for v in a)
        (tmp_path / f"chain_{name}.mem").write_text(words)
    sizes = {
        "input": given[0].size,
        "inputs": 3 * given[0].size,
        "output": wanted[0].size,
        "outputs": 3 * wanted[0].size,
    }
    (tmp_path / "chain_tb.sv").write_text(_CHAIN.format(**sizes))
    sources = ("-f", "first.f", "-f", "second.f", "chain_tb.sv")
    if tool == "iverilog":
        run(tmp_path, tool, "-g2012", "-s", "chain_tb", "-o", "tb", *sources)
        assert "PASS" in run(tmp_path, "vvp", "tb")
    else:
        run(
            tmp_path,
            tool,
            "--binary",
            "--timing",
            "--timescale",
            "1ns/1ps",
            "-Wno-WIDTH",
            "--top-module",
            "chain_tb",
            *sources,
        )
        assert "PASS" in run(tmp_path, "obj_dir/Vchain_tb")


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "flags", "message"),
    [
        ("fpga", ["--axi=full"], "unknown value of --axi: 'full'"),
        ("fpga", ["--axi=stream", "--axi-width=24"], "unknown value of --axi-width: '24'"),
        ("fpga", ["--axi-width=32"], "there are none"),
        ("fpga-sim", ["--axi=lite"], "has no AXI ports"),
    ],
)
def test_wrong_options_are_refused(name: str, flags: list[str], message: str) -> None:
    with pytest.raises(rlx.CompileError, match=message):
        target_of(name, None, flags)


def test_the_readme_documents_ports_and_registers(tmp_path: Path) -> None:
    text = written(small_network("net"), tmp_path, "--axi=lite", "--axi-width=64")["net.md"].decode()
    assert "| `s_axis_x` | `x` | 64 | 8 of 8 bits | 4 |" in text and "| 0x04 | STATUS |" in text
    assert "iverilog -g2012 -s net_axi_tb " in text
    assert 'PORT "aclk"' in (tmp_path / "net.lpf").read_text()
