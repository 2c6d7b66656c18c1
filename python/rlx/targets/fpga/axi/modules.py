"""SystemVerilog modules that every wrapper with AXI ports is made of. They are the same for all designs, except for names.

The text follows the AMBA AXI-Stream and AXI protocol specifications of Arm (IHI 0051, IHI 0022): a valid signal never waits for
its ready signal and stays until the transfer, data are stable meanwhile, and no output depends on an input of the same cycle.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlx.targets.fpga.lower.names import within_design

# The word before the names of these modules, which no layer may have as its name.
AXI = "axi"

_BUFFER = """\
// A buffer of two words in a stream. All its outputs are registers.
module {buffer} #(
  parameter WIDTH = 8
) (
  input  logic             clk,
  input  logic             rst,
  input  logic             in_valid,
  input  logic [WIDTH-1:0] in_data,
  output logic             in_ready,
  output logic             out_valid,
  output logic [WIDTH-1:0] out_data,
  input  logic             out_ready
);
  logic             spare_valid;
  logic [WIDTH-1:0] spare;
  wire              take = in_valid && in_ready;
  wire              move = !out_valid || out_ready;
  always_ff @(posedge clk) begin
    if (rst) begin
      in_ready <= 1'b0;
      out_valid <= 1'b0;
      spare_valid <= 1'b0;
    end else if (move) begin
      in_ready <= 1'b1;
      out_valid <= spare_valid || take;
      spare_valid <= 1'b0;
    end else begin
      in_ready <= !spare_valid && !take;
      spare_valid <= spare_valid || take;
    end
  end
  always_ff @(posedge clk) begin
    if (move) out_data <= spare_valid ? spare : in_data;
    if (take) spare <= in_data;
  end
endmodule
"""

_INPUT = """\
// An AXI4-Stream input: a beat of LANES elements becomes single elements, the one in the lowest bits first. A tensor has
// LAST_BEAT + 1 beats, and the last one of them has FINAL_LANE + 1 elements.
module {input} #(
  parameter WIDTH = 8,
  parameter LANES = 1,
  parameter FINAL_LANE = 0,
  parameter BEAT_BITS = 1,
  parameter [BEAT_BITS-1:0] LAST_BEAT = 0
) (
  input  logic                   clk,
  input  logic                   rst,
  input  logic                   tvalid,
  input  logic [LANES*WIDTH-1:0] tdata,
  input  logic                   tlast,
  output logic                   tready,
  input  logic                   open,   // whether a tensor may begin
  output logic                   begins, // the first beat of a tensor is taken
  output logic                   wrong,  // a beat is taken whose tlast is not at the end of a tensor
  output logic                   valid,
  output logic [WIDTH-1:0]       data,
  input  logic                   ready
);
  logic [BEAT_BITS-1:0]   beat;
  logic [LANES-1:0]       lane; // one bit is 1: that of the element at the output
  logic                   accepts, next_valid, next_last, last;
  logic [LANES*WIDTH-1:0] next, elements;
  wire                    first_beat = beat == 0;
  wire                    last_beat = beat == LAST_BEAT;
  wire                    take = tvalid && tready;
  wire                    last_lane = last ? lane[FINAL_LANE] : lane[LANES-1];
  wire                    load = !valid || (ready && last_lane);
  assign tready = accepts && (!first_beat || open);
  assign begins = take && first_beat;
  assign wrong = take && tlast != last_beat;
  assign data = elements[WIDTH-1:0];
  {buffer} #(.WIDTH(LANES*WIDTH + 1)) buffer (
    .clk(clk), .rst(rst), .in_valid(take), .in_data({{last_beat, tdata}}), .in_ready(accepts),
    .out_valid(next_valid), .out_data({{next_last, next}}), .out_ready(load)
  );
  always_ff @(posedge clk) begin
    if (rst) begin
      beat <= 0;
      valid <= 1'b0;
    end else begin
      if (take) beat <= last_beat ? 0 : beat + 1'b1;
      if (load) valid <= next_valid;
    end
  end
  always_ff @(posedge clk) begin
    if (load) begin
      lane <= 1;
      elements <= next;
      last <= next_last;
    end else if (ready) begin
      lane <= lane << 1;
      elements <= elements >> WIDTH;
    end
  end
endmodule
"""

_OUTPUT = """\
// An AXI4-Stream output: LANES elements become a beat, the first one in the lowest bits. A tensor has LAST_ELEMENT + 1
// elements. Those of its last beat that are not used are 0, and so are their bits of tkeep.
module {output} #(
  parameter WIDTH = 8,
  parameter LANES = 1,
  parameter COUNT_BITS = 1,
  parameter [COUNT_BITS-1:0] LAST_ELEMENT = 0
) (
  input  logic                     clk,
  input  logic                     rst,
  input  logic                     valid,
  input  logic [WIDTH-1:0]         data,
  output logic                     ready,
  output logic                     ends, // the last beat of a tensor is read
  output logic                     tvalid,
  output logic [LANES*WIDTH-1:0]   tdata,
  output logic [LANES*WIDTH/8-1:0] tkeep,
  output logic                     tlast,
  input  logic                     tready
);
  logic [COUNT_BITS-1:0] element;
  logic [LANES-1:0]      lane; // one bit is 1: that of the next element
  logic                  next_valid;
  logic [WIDTH-1:0]      next;
  wire                   next_ready = !tvalid || tready;
  wire                   take = next_valid && next_ready;
  wire                   last_element = element == LAST_ELEMENT;
  wire                   full = lane[LANES-1] || last_element;
  assign ends = tvalid && tready && tlast;
  {buffer} #(.WIDTH(WIDTH)) buffer (
    .clk(clk), .rst(rst), .in_valid(valid), .in_data(data), .in_ready(ready),
    .out_valid(next_valid), .out_data(next), .out_ready(next_ready)
  );
  always_ff @(posedge clk) begin
    if (rst) begin
      element <= 0;
      lane <= 1;
      tvalid <= 1'b0;
    end else begin
      if (take) begin
        element <= last_element ? 0 : element + 1'b1;
        lane <= full ? 1 : lane << 1;
      end
      if (next_ready) tvalid <= take && full;
    end
  end
  always_ff @(posedge clk) if (take) tlast <= last_element;
  genvar i;
  generate
    for (i = 0; i < LANES; i = i + 1) begin : lanes
      always_ff @(posedge clk) begin
        if (take && (lane[0] || lane[i])) begin
          tdata[i*WIDTH +: WIDTH] <= lane[i] ? next : 0;
          tkeep[i*(WIDTH/8) +: WIDTH/8] <= {{(WIDTH/8){{lane[i]}}}};
        end
      end
    end
  endgenerate
endmodule
"""

_REGISTERS = """\
// The AXI4-Lite registers: control, status and versions. One transfer of each direction is served at a time.
module {registers} #(
  parameter [31:0] VERSION = 0,
  parameter [31:0] DESIGN = 0
) (
  input  logic        clk,
  input  logic        rst,
{ports}
  input  logic        wrong,
  output logic        irq,
  input  logic [4:0]  s_axi_awaddr,
  input  logic [2:0]  s_axi_awprot,
  input  logic        s_axi_awvalid,
  output logic        s_axi_awready,
  input  logic [31:0] s_axi_wdata,
  input  logic [3:0]  s_axi_wstrb,
  input  logic        s_axi_wvalid,
  output logic        s_axi_wready,
  output logic [1:0]  s_axi_bresp,
  output logic        s_axi_bvalid,
  input  logic        s_axi_bready,
  input  logic [4:0]  s_axi_araddr,
  input  logic [2:0]  s_axi_arprot,
  input  logic        s_axi_arvalid,
  output logic        s_axi_arready,
  output logic [31:0] s_axi_rdata,
  output logic [1:0]  s_axi_rresp,
  output logic        s_axi_rvalid,
  input  logic        s_axi_rready
);
  localparam [2:0] CONTROL = 0, STATUS = 1, TENSORS = 2, CYCLES = 3, VERSIONS = 4, DESIGNS = 5;
  logic        free, enabled, done, failed, has_address, has_data, strobe;
  logic [2:0]  address, written;
  logic [31:0] tensors, cycles, timer;
{declarations}
  wire         write = has_address && has_data && (!s_axi_bvalid || s_axi_bready);
  wire         sets_control = write && strobe && address == CONTROL;
  wire         sets_status = write && strobe && address == STATUS;
  wire         start = sets_control && written[0];
  wire         busy = {busy};
  wire         begins = {begins};
  wire         completed = {completed};
  assign irq = done && enabled;
  assign s_axi_awready = !has_address;
  assign s_axi_wready = !has_data;
  assign s_axi_bresp = 2'b00;
  assign s_axi_arready = !s_axi_rvalid;
  assign s_axi_rresp = 2'b00;
{assignments}
  always_ff @(posedge clk) begin
    if (rst) begin
      free <= 1'b0;
      enabled <= 1'b0;
      done <= 1'b0;
      failed <= 1'b0;
      has_address <= 1'b0;
      has_data <= 1'b0;
      s_axi_bvalid <= 1'b0;
      s_axi_rvalid <= 1'b0;
      tensors <= 0;
      cycles <= 0;
      timer <= 0;
{resets}
    end else begin
      has_address <= !write && (has_address || s_axi_awvalid);
      has_data <= !write && (has_data || s_axi_wvalid);
      s_axi_bvalid <= write || (s_axi_bvalid && !s_axi_bready);
      s_axi_rvalid <= s_axi_rvalid ? !s_axi_rready : s_axi_arvalid;
      if (sets_control) {{enabled, free}} <= written[2:1];
      done <= completed || (done && !(sets_status && written[1]));
      failed <= wrong || (failed && !(sets_status && written[2]));
      if (completed) begin
        tensors <= tensors + 1;
        cycles <= timer + 1;
      end
      timer <= completed || (!busy && !begins) ? 0 : timer + 1;
{counts}
    end
  end
  always_ff @(posedge clk) begin
    if (s_axi_awvalid && s_axi_awready) address <= s_axi_awaddr[4:2];
    if (s_axi_wvalid && s_axi_wready) begin
      written <= s_axi_wdata[2:0];
      strobe <= s_axi_wstrb[0];
    end
    if (s_axi_arvalid && s_axi_arready) begin
      case (s_axi_araddr[4:2])
        CONTROL: s_axi_rdata <= {{29'd0, enabled, free, 1'b0}};
        STATUS: s_axi_rdata <= {{29'd0, failed, done, busy}};
        TENSORS: s_axi_rdata <= tensors;
        CYCLES: s_axi_rdata <= cycles;
        VERSIONS: s_axi_rdata <= VERSION;
        DESIGNS: s_axi_rdata <= DESIGN;
        default: s_axi_rdata <= 0;
      endcase
    end
  end
endmodule
"""
# Registers: offset, name, and what its bits mean.
REGISTERS = (
    (
        0x00,
        "CONTROL",
        "bit 0: start, lets one more tensor in when 1 is written; bit 1: auto, lets all in; "
        "bit 2: enables the interrupt `irq`, which is 1 while STATUS has done",
    ),
    (
        0x04,
        "STATUS",
        "bit 0: busy; bit 1: done, a tensor is complete; bit 2: `tlast` of an input was not at the end of a tensor. "
        "Writing 1 clears bits 1 and 2",
    ),
    (0x08, "TENSORS", "the number of complete tensors since the reset"),
    (
        0x0C,
        "CYCLES",
        "the cycles of the last tensor, from its first beat (or the end of the tensor before it) to its last beat",
    ),
    (0x10, "VERSION", "the version of RLX: major in bits 31 to 24, minor in 23 to 16, patch in 15 to 0"),
    (0x14, "DESIGN", "the CRC-32 of the sources and memories of the design"),
)


def stream_modules(top: str) -> dict[str, str]:
    """Return the modules of AXI4-Stream ports for a design, by name."""
    texts = {"buffer": _BUFFER, "input": _INPUT, "output": _OUTPUT}
    names = {kind: axi_module(top, kind) for kind in texts}
    return {names[kind]: text.format(**names) for kind, text in texts.items()}


def axi_module(top: str, kind: str) -> str:
    """Return the name of a module of AXI ports for a design: `buffer`, `input`, `output` or `registers`."""
    return within_design(top, AXI, kind)


def register_module(top: str, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """Return the module of the AXI4-Lite registers for a design.

    Args:
        top: The name of the design.
        inputs: The names of its inputs: the module has the ports `…_open` and `…_begins` for each.
        outputs: The names of its outputs: the module has the port `…_ends` for each.
    """
    sides = [*((p, "open", "begins") for p in inputs), *((p, "", "ends") for p in outputs)]
    ports = [f"  output logic        {p}_{o}," for p, o, _ in sides if o]
    ports += [f"  input  logic        {p}_{i}," for p, _, i in sides]
    counts = [
        line
        for p in inputs
        for line in (
            f"      if ({p}_begins) {p}_begun <= {p}_begun + 1;",
            f"      if (start && (free || !{p}_begins) && !(&{p}_allowed)) {p}_allowed <= {p}_allowed + 1;",
            f"      else if (!start && !free && {p}_begins) {p}_allowed <= {p}_allowed - 1;",
        )
    ]
    ended = [f"({p}_ended != tensors || {p}_ends)" for p in outputs]
    return _REGISTERS.format(
        registers=axi_module(top, "registers"),
        ports="\n".join(ports),
        declarations="\n".join(
            [line for p in inputs for line in (f"  logic [15:0] {p}_allowed;", f"  logic [31:0] {p}_begun;")]
            + [f"  logic [31:0] {p}_ended;" for p in outputs]
        ),
        busy=" || ".join(f"{p}_begun != tensors" for p in inputs) or "1'b0",
        begins=" || ".join(f"{p}_begins" for p in inputs) or "1'b0",
        completed=" && ".join(ended),
        assignments="\n".join(f"  assign {p}_open = free || {p}_allowed != 0;" for p in inputs),
        resets="\n".join(
            [line for p in inputs for line in (f"      {p}_allowed <= 0;", f"      {p}_begun <= 0;")]
            + [f"      {p}_ended <= 0;" for p in outputs]
        ),
        counts="\n".join([*counts, *(f"      if ({p}_ends) {p}_ended <= {p}_ended + 1;" for p in outputs)]),
    )
