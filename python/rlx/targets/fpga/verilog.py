"""Verilog text that does not come from CIRCT: memories and the testbench. Also the constraints of a part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlx.targets.fpga.lower.design import port_bits
from rlx.targets.fpga.lower.hdl import HdlMemory
from rlx.targets.fpga.lower.layer import Stream


def memory_module(memory: HdlMemory) -> str:
    """Return a memory in the form that synthesis tools recognise."""
    ports = ["input  logic clk"]
    for direction, name, width in memory.ports:
        kind = "logic" if width == 1 and name in ("en", "we") else f"logic [{width - 1}:0]"
        ports.append(f"{'input ' if direction == 'in' else 'output'} {kind} {name}")
    body = [f"  logic [{memory.width - 1}:0] contents [0:{memory.depth - 1}];"]
    if memory.words is not None:
        body.append(f'  initial $readmemh("{memory.name}.mem", contents);')
    body += ["  always_ff @(posedge clk) begin", "    if (en) data <= contents[addr];"]
    if memory.words is None:
        body.append("    if (we) contents[waddr] <= wdata;")
    body += ["  end", "endmodule", ""]
    return f"module {memory.name}(\n  " + ",\n  ".join(ports) + "\n);\n" + "\n".join(body)


def memory_file(words: Sequence[int], width: int) -> str:
    """Return words in the format of `$readmemh`."""
    digits = (width + 3) // 4
    mask = (1 << width) - 1
    return "".join(f"{int(w) & mask:0{digits}x}\n" for w in words)


@dataclass(frozen=True)
class Case:
    """The data of a testbench: elements of inputs and expected outputs in stream order, by name, and the number of tensors."""

    inputs: Mapping[str, tuple[Stream, np.ndarray]]
    outputs: Mapping[str, tuple[Stream, np.ndarray]]
    tensors: int = 1


def testbench(top: str, ports: Sequence[Mapping[str, str]], case: Case, most_cycles: int) -> tuple[str, dict[str, str]]:
    """Return a testbench that feeds a design and compares its outputs, and the files that the testbench reads.

    Args:
        top: The name of the design.
        ports: The port names of inputs and outputs, by name.
        case: The inputs and the expected outputs.
        most_cycles: The maximal number of cycles.
    """
    inputs, outputs = ports
    sides = [(inputs[n], stream, values, True) for n, (stream, values) in case.inputs.items()]
    sides += [(outputs[n], stream, values, False) for n, (stream, values) in case.outputs.items()]
    files: dict[str, str] = {}
    declarations: list[str] = []
    drivers: list[str] = []
    connections: list[str] = []
    for port, stream, values, is_input in sides:
        width = port_bits(stream.dtype)
        files[f"{top}_tb_{port}.mem"] = memory_file([int(v) for v in values], width)
        declarations += _declared(port, width, f"{top}_tb_{port}.mem", len(values), is_input)
        drivers += _driven(port, is_input)
        connections += [f".{port}_{end}({port}_{end})" for end in ("valid", "data", "ready")]
    done = " && ".join(f"{port}_count == {len(values)}" for port, _, values, is_input in sides if not is_input)
    lines = [
        "`timescale 1ns/1ps",
        f"// Feeds the design {top}, and compares its results with the graph's. +hesitate makes both ends wait at times.",
        f"module {top}_tb;",
        "  logic clk = 1'b0, rst = 1'b1;",
        "  logic [1:0] draw = 2'b11;",
        "  logic hesitate = 1'b0;",
        "  integer cycles = 0;",
        *declarations,
        f"  {top} dut(.clk(clk), .rst(rst), {', '.join(connections)});",
        "  always #5 clk = !clk;",
        '  initial hesitate = $test$plusargs("hesitate");',
        "  always @(posedge clk) begin",
        "    cycles <= cycles + 1;",
        "    rst <= cycles < 4;",
        "    draw <= hesitate ? 2'($urandom) : 2'b11;",
        *drivers,
        f"    if ({done}) begin",
        f'      $display("PASS: {top}, %0d cycles", cycles - 5);',
        "      $finish;",
        "    end",
        f"    if (cycles > {most_cycles}) begin",
        '      $display("FAIL: the design stands still");',
        "      $fatal(1);",
        "    end",
        "  end",
        "endmodule",
        "",
    ]
    return "\n".join(lines), files


def _declared(port: str, width: int, file: str, count: int, is_input: bool) -> list[str]:
    """Return the declarations of a port's signals in a testbench."""
    lines = [
        f"  logic [{width - 1}:0] {port}_words [0:{count - 1}];",
        f"  logic [{width - 1}:0] {port}_data;",
        f"  logic {port}_valid, {port}_ready;",
        f"  integer {port}_count = 0;",
        f'  initial $readmemh("{file}", {port}_words);',
    ]
    if not is_input:
        return [*lines, f"  assign {port}_ready = draw[1] && {port}_count < {count};"]
    return [
        *lines,
        f"  logic {port}_held = 1'b0;",
        f"  assign {port}_valid = !rst && {port}_count < {count} && ({port}_held || draw[0]);",
        f"  assign {port}_data = {port}_words[{port}_count < {count} ? {port}_count : 0];",
    ]


def _driven(port: str, is_input: bool) -> list[str]:
    """Return the statements for a port at a clock edge."""
    through = f"if (!rst && {port}_valid && {port}_ready)"
    if is_input:
        return [
            f"    {port}_held <= {port}_valid && !{port}_ready;",
            f"    {through} {port}_count <= {port}_count + 1;",
        ]
    values = f"{port}_count, {port}_data, {port}_words[{port}_count]"
    return [
        f"    {through} begin",
        f"      if ({port}_data !== {port}_words[{port}_count]) begin",
        f'        $display("FAIL: {port}[%0d] is %h, expected %h", {values});',
        "        $fatal(1);",
        "      end",
        f"      {port}_count <= {port}_count + 1;",
        "    end",
    ]


def constraints(top: str, part: str, frequency: float, clock: str) -> tuple[str, str]:
    """Return the name and the text of a file of constraints: the clock, and a template for the pins."""
    period = 1000 / frequency
    if part.startswith("ecp5"):
        return (
            f"{top}.lpf",
            f'FREQUENCY PORT "{clock}" {frequency:g} MHZ;\n# LOCATE COMP "{clock}" SITE "…"; and so on\n',
        )
    if part.startswith("ice40"):
        return f"{top}.pcf", f"# set_io {clock} …, and so on\n"
    lines = [
        f"create_clock -name {clock} -period {period:.3f} [get_ports {clock}]",
        f"# set_property -dict {{ PACKAGE_PIN … IOSTANDARD LVCMOS33 }} [get_ports {clock}]",
    ]
    return f"{top}.xdc", "\n".join(lines) + "\n"
