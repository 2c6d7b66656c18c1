"""The README of a design: how to talk to it, what its layers are, what it takes and how long."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlx.backends.fpga.estimate import cost_of, total
from rlx.backends.fpga.parts import Part
from rlx.backends.fpga.synthesis import Synthesis
from rlx.lower.fpga.design import Design, port_bits
from rlx.lower.fpga.hdl import identifier
from rlx.lower.fpga.layer import Stream
from rlx.lower.fpga.orders import row_major, usual


def readme(
    design: Design, part: Part, preset: str, frequency: float, simulated: int | None, synthesis: Synthesis | None
) -> tuple[str, dict[str, str]]:
    """The text, and files with the orders of ports that have an unusual one.

    Args:
        design: The design.
        part: The part that it is for.
        preset: The name of its preset.
        frequency: The clock, in MHz.
        simulated: The cycles that a simulation took; None if there was none.
        synthesis: What synthesis found; None if it did not run.
    """
    network = design.network
    files: dict[str, str] = {}
    ports = []
    for direction, side in (("in", network.inputs), ("out", network.outputs)):
        for name, stream in side.items():
            order, extra = _order(identifier(name), stream)
            files |= extra
            dims = "x".join(map(str, stream.shape)) or "scalar"
            row = (
                f"`{identifier(name)}`",
                direction,
                f"{stream.dtype.name} {dims}",
                str(port_bits(stream.dtype)),
                order,
            )
            ports.append(row)
    cycles = network.predicted_cycles
    figures = [("cycles from the first element to the last", f"{cycles}", "-" if simulated is None else f"{simulated}")]
    figures.append(
        (
            f"time at {frequency:g} MHz, in µs",
            _microseconds(cycles, frequency),
            _microseconds(simulated, frequency),
        )
    )
    figures.append(("cycles for each of many", f"{network.interval}", "-"))
    cost = total(design.modules, part)
    for title, key in (
        ("LUTs", "luts"),
        ("registers", "registers"),
        ("multipliers", "multipliers"),
        ("memory blocks", "memories"),
    ):
        found = "-" if synthesis is None else str(getattr(synthesis, key))
        figures.append((f"{title}, of {getattr(part, key)}", str(getattr(cost, key)), found))
    if synthesis is not None:
        reached = "-" if synthesis.frequency is None else f"{synthesis.frequency:.1f}"
        figures.append(("highest clock, in MHz", f"{frequency:g} aimed at", reached))
    layers = []
    for layer in network.layers:
        taken = cost_of(layer.module, part)
        numbers = (layer.cycles, taken.luts, taken.registers, taken.multipliers, taken.memories)
        layers.append((f"`{layer.name}`", layer.description, *map(str, numbers), layer.place))
    text = [
        f"# {design.top}",
        "",
        f"For {part.title} (`{part.name}`), preset `{preset}`. Made by RLX; each layer is a module in a file of its name.",
        "",
        "Each port is a stream: an element is taken at an edge of `clk` at which `_valid` and `_ready` are both 1. `rst` is "
        "synchronous. A tensor may follow the one before at once.",
        "",
        *_table(("port", "direction", "tensor", "bits", "order of the elements"), ports),
        "",
        *_table(("figure", "predicted", "simulated or synthesised"), figures),
        "",
        *_table(("layer", "what", "cycles", "LUTs", "registers", "multipliers", "memory blocks", "line"), layers),
        "",
        "Simulate: `iverilog -g2012 -o tb *.sv && vvp tb +hesitate`, or `verilator --binary --timing --top-module "
        f"{design.top}_tb *.sv`.",
        f"Synthesise: `yosys -p 'read_verilog -sv {design.top}.sv …; {part.synthesis} -top {design.top} -json out.json'` in "
        "this folder, as the `.mem` files are read from it.",
        "",
    ]
    return "\n".join(text), files


def _microseconds(cycles: int | None, frequency: float) -> str:
    return "-" if cycles is None else f"{cycles / frequency:.1f}"


def _order(port: str, stream: Stream) -> tuple[str, dict[str, str]]:
    if np.array_equal(stream.order, row_major(stream.shape)):
        return "row by row", {}
    if np.array_equal(stream.order, usual(stream.shape)):
        return "by pixels, the channels of each side by side", {}
    name = f"{port}_order.txt"
    return f"flat indices in `{name}`", {name: "".join(f"{i}\n" for i in stream.order)}


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
