"""The testbench of a wrapper with AXI ports."""

from __future__ import annotations

import numpy as np

from rlx.targets.fpga.axi.wrapper import AxiStreamPort, AxiWrapper, lite_signals, version_word
from rlx.targets.fpga.verilog import Case, memory_file

# One beat in four is late at either end, with +hesitate.
_TASKS = """\
  task automatic put(input logic [4:0] address, input logic [31:0] value);
    logic took_address, took_data;
    begin
      @(negedge aclk);
      s_axi_awaddr = address;
      s_axi_wdata = value;
      s_axi_awvalid = 1'b1;
      s_axi_wvalid = 1'b1;
      while (s_axi_awvalid || s_axi_wvalid) begin
        took_address = s_axi_awready;
        took_data = s_axi_wready;
        @(negedge aclk);
        if (took_address) s_axi_awvalid = 1'b0;
        if (took_data) s_axi_wvalid = 1'b0;
      end
      s_axi_bready = 1'b1;
      while (!s_axi_bvalid) @(negedge aclk);
      @(negedge aclk);
      s_axi_bready = 1'b0;
    end
  endtask
  task automatic get(input logic [4:0] address, output logic [31:0] value);
    begin
      @(negedge aclk);
      s_axi_araddr = address;
      s_axi_arvalid = 1'b1;
      while (!s_axi_arready) @(negedge aclk);
      @(negedge aclk);
      s_axi_arvalid = 1'b0;
      while (!s_axi_rvalid) @(negedge aclk);
      value = s_axi_rdata;
      s_axi_rready = 1'b1;
      @(negedge aclk);
      s_axi_rready = 1'b0;
    end
  endtask
  task automatic check(input logic [4:0] address, input logic [31:0] wanted);
    logic [31:0] value;
    begin
      get(address, value);
      if (value !== wanted) begin
        $display("FAIL: register %h is %h, expected %h", address, value, wanted);
        $fatal(1);
      end
    end
  endtask
"""
_CONTROL = """\
  initial begin
    s_axi_awvalid = 1'b0;
    s_axi_wvalid = 1'b0;
    s_axi_bready = 1'b0;
    s_axi_arvalid = 1'b0;
    s_axi_rready = 1'b0;
    while (!aresetn) @(posedge aclk);
    check(5'h10, 32'h{version:08x});
    check(5'h14, 32'h{design:08x});
    check(5'h04, 32'd0);
    repeat (20) @(posedge aclk);
    if ($test$plusargs("auto")) put(5'h00, 32'd2);
    else begin
      for (tensor = 1; tensor <= {tensors}; tensor = tensor + 1) begin
        started = tensor;
        put(5'h00, 32'd5);
        while (!irq) @(posedge aclk);
        check(5'h04, 32'd2);
        check(5'h08, tensor);
        put(5'h04, 32'd2);
        check(5'h04, 32'd0);
      end
      get(5'h0c, number);
      $display("the register CYCLES is %0d", number);
    end
    finished = 1'b1;
  end
"""


def axi_testbench(wrapper: AxiWrapper, case: Case, most_cycles: int) -> tuple[str, dict[str, str]]:
    """Return a testbench that feeds a design through its wrapper and compares its outputs, and the files that it reads.

    It also checks that outputs are stable until they are read, and the registers, where there are any.

    Args:
        wrapper: The wrapper.
        case: The inputs and the expected outputs.
        most_cycles: The maximal number of cycles.
    """
    name = f"{wrapper.name}_tb"
    values = [v for _, v in case.inputs.values()] + [v for _, v in case.outputs.values()]
    files = {
        f"{name}_{port.port}.mem": _beats(port, array, case.tensors)
        for port, array in zip(wrapper.ports, values, strict=True)
    }
    pins = [".aclk(aclk)", ".aresetn(aresetn)"]
    pins += [f".{s}({s})" for port in wrapper.ports for _, _, s in port.signals]
    if wrapper.registers:
        pins += [f".{s}({s})" for _, _, s in lite_signals()] + [".irq(irq)"]
    else:
        pins.append(".tlast_error(tlast_error)")
    done = [f"{p.port}_count == {p.beats * case.tensors}" for p in wrapper.outputs] + ["finished"]
    control = (
        _control(wrapper, case.tensors) if wrapper.registers else ["  logic tlast_error;", "  initial finished = 1'b1;"]
    )
    lines = [
        "`timescale 1ns/1ps",
        f"// Feeds the design {wrapper.top} through its AXI ports. +hesitate makes both ends wait at times"
        + (", +auto sets the bit auto instead of starting each tensor." if wrapper.registers else "."),
        f"module {name};",
        "  logic aclk = 1'b0, aresetn = 1'b0, hesitate = 1'b0, finished = 1'b0;",
        "  integer cycles = 0;",
        *[line for port in wrapper.ports for line in _declared(name, port, case.tensors)],
        *control,
        f"  {wrapper.name} dut (",
        f"    {', '.join(pins)}",
        "  );",
        "  always #5 aclk = !aclk;",
        '  initial hesitate = $test$plusargs("hesitate");',
        "  always @(posedge aclk) begin",
        "    cycles <= cycles + 1;",
        "    aresetn <= cycles >= 16;",
        *[line for port in wrapper.ports for line in _driven(wrapper, port, case.tensors)],
        *([] if wrapper.registers else _checked("tlast_error !== 1'b0 && aresetn", "tlast_error is not 0", "")),
        f"    if ({' && '.join(done)}) begin",
        f'      $display("PASS: {wrapper.name}, %0d cycles", cycles - 17);',
        "      $finish;",
        "    end",
        *_checked(f"cycles > {most_cycles}", "the design stands still", ""),
        "  end",
        "endmodule",
        "",
    ]
    return "\n".join(lines), files


def _beats(port: AxiStreamPort, values: np.ndarray, tensors: int) -> str:
    """Return the beats of a port: `tlast`, for outputs `tkeep`, and `tdata`. Unused elements of an input are ones."""
    mask, beats = (1 << port.core_bits) - 1, list[int]()
    for tensor in values.reshape(tensors, port.count):
        for start in range(0, port.count, port.lanes):
            elements = [int(v) & mask for v in tensor[start : start + port.lanes]]
            last = start + port.lanes >= port.count
            used = len(elements)
            elements += [(1 << port.bits) - 1 if port.is_input else 0] * (port.lanes - used)
            word = int(last)
            if not port.is_input:
                word = word << (port.width // 8) | ((1 << (used * port.bits // 8)) - 1)
            word = word << port.width | sum(e << (i * port.bits) for i, e in enumerate(elements))
            beats.append(word)
    return memory_file(beats, _beat_bits(port))


def _beat_bits(port: AxiStreamPort) -> int:
    return 1 + port.width + (0 if port.is_input else port.width // 8)


def _declared(name: str, port: AxiStreamPort, tensors: int) -> list[str]:
    bits, count, bus = _beat_bits(port), port.beats * tensors, port.bus
    lines = [f"  logic [{width - 1}:0] {signal};" for _, width, signal in port.signals]
    lines += [
        f"  logic [{bits - 1}:0] {port.port}_beats [0:{count - 1}];",
        f"  integer {port.port}_count = 0;",
        f'  initial $readmemh("{name}_{port.port}.mem", {port.port}_beats);',
    ]
    if port.is_input:
        unknown = f"{{{bits}{{1'bx}}}}"
        beat = f"{port.port}_beats[{port.port}_count < {count} ? {port.port}_count : 0]"
        return [
            *lines,
            f"  initial {bus}_tvalid = 1'b0;",
            f"  assign {{{bus}_tlast, {bus}_tdata}} = {bus}_tvalid ? {beat} : {unknown};",
        ]
    return [
        *lines,
        f"  logic [{bits - 1}:0] {port.port}_held;",
        f"  logic {port.port}_waits = 1'b0;",
        f"  wire [{bits - 1}:0] {port.port}_beat = {{{bus}_tlast, {bus}_tkeep, {bus}_tdata}};",
        f"  initial {bus}_tready = 1'b0;",
    ]


def _driven(wrapper: AxiWrapper, port: AxiStreamPort, tensors: int) -> list[str]:
    """Return the statements for a port at a clock edge."""
    name, bus, count = port.port, port.bus, port.beats * tensors
    draw = "(!hesitate || ($urandom & 3) != 0)"
    moved = f"({bus}_tvalid && {bus}_tready)"
    after = f"{name}_count + ({moved} ? 1 : 0)"
    if port.is_input:
        lines = [
            f"    {name}_count <= {after};",
            f"    if (!{bus}_tvalid || {bus}_tready) {bus}_tvalid <= aresetn && {after} < {count} && {draw};",
        ]
        if wrapper.registers:
            early = f'{name}_count > {port.beats} * started && started < {tensors} && !$test$plusargs("auto")'
            lines += _checked(early, f"{name} takes a tensor that is not started", "")
        return lines
    expected = f"{name}_beats[{name}_count < {count} ? {name}_count : 0]"
    return [
        f"    {name}_count <= {after};",
        f"    {bus}_tready <= {after} < {count} && {draw};",
        f"    {name}_waits <= aresetn && {bus}_tvalid && !{bus}_tready;",
        f"    {name}_held <= {name}_beat;",
        *_checked(
            f"{name}_waits && !({bus}_tvalid && {name}_beat === {name}_held)", f"{name} changes before it is read", ""
        ),
        *_checked(
            f"{moved} && {name}_beat !== {expected}",
            f"{name}: tlast, tkeep and tdata of beat %0d are %h, expected %h",
            f", {name}_count, {name}_beat, {expected}",
        ),
    ]


def _checked(condition: str, message: str, values: str) -> list[str]:
    return [
        f"    if ({condition}) begin",
        f'      $display("FAIL: {message}"{values});',
        "      $fatal(1);",
        "    end",
    ]


def _control(wrapper: AxiWrapper, tensors: int) -> list[str]:
    """Return the declarations and the process that uses the registers."""
    signals = [f"  logic [{bits - 1}:0] {name};" for _, bits, name in lite_signals()]
    constants = ["  assign s_axi_awprot = 3'd0;", "  assign s_axi_arprot = 3'd0;", "  assign s_axi_wstrb = 4'hf;"]
    text = _CONTROL.format(version=version_word(), design=wrapper.design_id, tensors=tensors)
    names = ["  logic irq;", "  integer tensor, started = 0;", "  logic [31:0] number;"]
    return [*names, *signals, *constants, _TASKS.rstrip("\n"), text.rstrip("\n")]
