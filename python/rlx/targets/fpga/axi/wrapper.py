"""The module that gives a design AXI ports."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from rlx.targets.fpga.axi.modules import axi_module, register_module, stream_modules
from rlx.targets.fpga.lower.design import Network, port_bits
from rlx.targets.fpga.lower.hdl import index_bits
from rlx.version import release

# The number of bits of an element on a bus, at least: data of AXI4-Stream are whole bytes.
_LEAST_BITS = 8
# The ports of an AXI4-Lite slave with addresses of 5 bits: direction, bits, name.
_LITE = (
    ("input", 5, "awaddr"), ("input", 3, "awprot"), ("input", 1, "awvalid"), ("output", 1, "awready"),
    ("input", 32, "wdata"), ("input", 4, "wstrb"), ("input", 1, "wvalid"), ("output", 1, "wready"),
    ("output", 2, "bresp"), ("output", 1, "bvalid"), ("input", 1, "bready"),
    ("input", 5, "araddr"), ("input", 3, "arprot"), ("input", 1, "arvalid"), ("output", 1, "arready"),
    ("output", 32, "rdata"), ("output", 2, "rresp"), ("output", 1, "rvalid"), ("input", 1, "rready"),
)  # fmt: skip


@dataclass(frozen=True)
class AxiStreamPort:
    """An AXI4-Stream port of a wrapper.

    Attributes:
        port: The name of the port of the design. That of the wrapper is `bus`.
        is_input: Whether it is an input.
        core_bits: The bits of an element in the design.
        bits: The bits of an element on the bus.
        lanes: The number of elements in a beat.
        count: The number of elements of a tensor.
    """

    port: str
    is_input: bool
    core_bits: int
    bits: int
    lanes: int
    count: int

    @property
    def bus(self) -> str:
        """The beginning of the names of its signals."""
        return f"{'s' if self.is_input else 'm'}_axis_{self.port}"

    @property
    def width(self) -> int:
        """The bits of `tdata`."""
        return self.bits * self.lanes

    @property
    def signals(self) -> list[tuple[str, int, str]]:
        """Direction, bits and name of each signal."""
        into, out = ("input ", "output") if self.is_input else ("output", "input ")
        signals = [(into, self.width, "tdata")]
        signals += [] if self.is_input else [(into, self.width // 8, "tkeep")]
        signals += [(into, 1, "tlast"), (into, 1, "tvalid"), (out, 1, "tready")]
        return [(direction, bits, f"{self.bus}_{name}") for direction, bits, name in signals]

    @property
    def beats(self) -> int:
        """The number of beats of a tensor."""
        return -(-self.count // self.lanes)

    @property
    def final(self) -> int:
        """The number of elements in the last beat."""
        return self.count - (self.beats - 1) * self.lanes


def axi_ports(network: Network, width: int) -> list[AxiStreamPort]:
    """Return the ports of a wrapper, inputs first.

    Args:
        network: The network of the design.
        width: The bits of `tdata`. A port with larger elements has one element in each beat.
    """
    found: list[AxiStreamPort] = []
    for is_input, side, names in zip((True, False), (network.inputs, network.outputs), network.ports, strict=True):
        for name, stream in side.items():
            core = port_bits(stream.dtype)
            bits = max(core, _LEAST_BITS)
            found.append(AxiStreamPort(names[name], is_input, core, bits, max(width // bits, 1), stream.count))
    return found


@dataclass(frozen=True)
class AxiWrapper:
    """The wrapper of a design.

    Attributes:
        top: The name of the design.
        ports: Its ports.
        registers: Whether it has AXI4-Lite registers.
        design_id: The value of the register DESIGN.
        notes: Comments for ports of the design, by name.
    """

    top: str
    ports: Sequence[AxiStreamPort]
    registers: bool
    design_id: int
    notes: Mapping[str, str]

    @property
    def name(self) -> str:
        """The name of the module."""
        return f"{self.top}_axi"

    @property
    def inputs(self) -> list[AxiStreamPort]:
        """The inputs."""
        return [p for p in self.ports if p.is_input]

    @property
    def outputs(self) -> list[AxiStreamPort]:
        """The outputs."""
        return [p for p in self.ports if not p.is_input]

    def modules(self) -> dict[str, str]:
        """All modules, by name."""
        made = stream_modules(self.top)
        if self.registers:
            text = register_module(self.top, [p.port for p in self.inputs], [p.port for p in self.outputs])
            made[axi_module(self.top, "registers")] = text
        return made | {self.name: self._text()}

    def _text(self) -> str:
        streams: list[str] = []
        for port in self.ports:
            note = self.notes.get(port.port)
            streams += [f"  // {note}"] if note else []
            streams += [f"  {direction} {_logic(bits)} {name}," for direction, bits, name in port.signals]
        lines = [
            f"// The design {self.top} with AXI ports. `aresetn` is synchronous and active low.",
            f"module {self.name} (",
            *self._clock(),
            *streams,
        ]
        if self.registers:
            lines += [f"  {direction} {_logic(bits)} {name}," for direction, bits, name in lite_signals()]
            lines.append("  output logic        irq")
        else:
            lines.append(
                "  output logic        tlast_error // a tlast of an input was not at the end of a tensor, since the reset"
            )
        lines += [");", "  wire rst = !aresetn;", *self._wires(), *self._core()]
        for port in self.ports:
            lines += self._stream(port)
        lines += self._control()
        return "\n".join([*lines, "endmodule", ""])

    def _clock(self) -> list[str]:
        """The clock and the reset, with the parameters that Vivado reads."""
        buses = ":".join([p.bus for p in self.ports] + (["s_axi"] if self.registers else []))
        return [
            f'  (* X_INTERFACE_PARAMETER = "ASSOCIATED_BUSIF {buses}, ASSOCIATED_RESET aresetn" *)',
            "  input  logic        aclk,",
            "  input  logic        aresetn,",
        ]

    def _wires(self) -> list[str]:
        lines: list[str] = []
        for p in self.ports:
            lines += [f"  wire {p.port}_valid, {p.port}_ready;", f"  wire [{p.core_bits - 1}:0] {p.port}_data;"]
            lines.append(
                f"  wire {p.port}_open, {p.port}_begins, {p.port}_wrong;" if p.is_input else f"  wire {p.port}_ends;"
            )
        return lines

    def _core(self) -> list[str]:
        ends = [f".{p.port}_{end}({p.port}_{end})" for p in self.ports for end in ("valid", "data", "ready")]
        return _instance(self.top, "core", [".clk(aclk)", ".rst(rst)", *ends])

    def _stream(self, p: AxiStreamPort) -> list[str]:
        """The instance that joins a port of the design and one of the wrapper."""
        common = [f".{end}({p.bus}_{end})" for end in ("tvalid", "tdata", "tlast", "tready")]
        common += [f".{end}({p.port}_{end})" for end in ("valid", "ready")]
        sizes = {"WIDTH": f"{p.bits}", "LANES": f"{p.lanes}"}
        spare = p.bits - p.core_bits
        if p.is_input:
            bits = index_bits(p.beats)
            sizes |= {"FINAL_LANE": f"{p.final - 1}", "BEAT_BITS": f"{bits}", "LAST_BEAT": f"{bits}'d{p.beats - 1}"}
            common += [f".{end}({p.port}_{end})" for end in ("open", "begins", "wrong")]
            data = f"{{{p.port}_spare, {p.port}_data}}" if spare else f"{p.port}_data"
            before = [f"  wire [{spare - 1}:0] {p.port}_spare;"] if spare else []
        else:
            bits = index_bits(p.count)
            sizes |= {"COUNT_BITS": f"{bits}", "LAST_ELEMENT": f"{bits}'d{p.count - 1}"}
            common += [f".ends({p.port}_ends)", f".tkeep({p.bus}_tkeep)"]
            data = f"{{{spare}'d0, {p.port}_data}}" if spare else f"{p.port}_data"
            before = []
        module = axi_module(self.top, "input" if p.is_input else "output")
        return [*before, *_instance(module, p.bus, [".clk(aclk)", ".rst(rst)", f".data({data})", *common], sizes)]

    def _control(self) -> list[str]:
        """The registers, or without them the flag for errors."""
        wrong = " || ".join(f"{p.port}_wrong" for p in self.inputs) or "1'b0"
        if not self.registers:
            lines = [f"  assign {p.port}_open = 1'b1;" for p in self.inputs]
            return [*lines, f"  always_ff @(posedge aclk) tlast_error <= !rst && (tlast_error || {wrong});"]
        ends = [f".{p.port}_{end}({p.port}_{end})" for p in self.inputs for end in ("open", "begins")]
        ends += [f".{p.port}_ends({p.port}_ends)" for p in self.outputs]
        ends += [f".{name}({name})" for _, _, name in lite_signals()]
        sizes = {"VERSION": f"32'h{version_word():08x}", "DESIGN": f"32'h{self.design_id:08x}"}
        pins = [".clk(aclk)", ".rst(rst)", f".wrong({wrong})", ".irq(irq)", *ends]
        return _instance(axi_module(self.top, "registers"), "registers", pins, sizes)


def _instance(module: str, name: str, pins: Sequence[str], sizes: Mapping[str, str] | None = None) -> list[str]:
    """The lines of an instance."""
    parameters = f" #({', '.join(f'.{n}({v})' for n, v in sizes.items())})" if sizes else ""
    return [
        f"  {module}{parameters} {name} (",
        *textwrap.wrap(", ".join(pins), 116, initial_indent="    ", subsequent_indent="    "),
        "  );",
    ]


def lite_signals() -> list[tuple[str, int, str]]:
    """Direction, bits and name of each signal of the AXI4-Lite port."""
    return [(f"{direction:6}", bits, f"s_axi_{name}") for direction, bits, name in _LITE]


def _logic(bits: int) -> str:
    return f"logic {f'[{bits - 1}:0]' if bits > 1 else '':6}"


def version_word() -> int:
    """The version of RLX as a word: major in bits 31 to 24, minor in 23 to 16, patch in 15 to 0."""
    major, minor, patch = release()
    return major << 24 | minor << 16 | patch


def design_id(files: Mapping[str, str]) -> int:
    """Return the CRC-32 of the names and texts of a design's files."""
    return crc32("".join(f"{name}\0{text}\0" for name, text in sorted(files.items())).encode())
