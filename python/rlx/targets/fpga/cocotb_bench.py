"""The cocotb testbench of a design: a program in Python that runs it in Icarus, Verilator and other simulators.

The program runs with cocotb 1.9, which supports Verilator from 5.006 (that of Debian 12), and with cocotb 2, which needs 5.036.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx.targets.fpga.axi.wrapper import AxiStreamPort, AxiWrapper, version_word
from rlx.targets.fpga.comments import PortNote

_TEXT = '''\
"""Testbench of {top} for cocotb: `python {module}.py` runs it in Icarus, `SIM=verilator python {module}.py` in Verilator.

All inputs change at the falling edge of the clock. What is seen between them and the next rising edge moves at that edge, in
every simulator.
"""

import os
import random
import sys
from pathlib import Path

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, ReadOnly

FOLDER = Path(__file__).resolve().parent
TOP, CLOCK, RESET, RESET_VALUE = {top!r}, {clock!r}, {reset!r}, {reset_value}
TENSORS, MOST_CYCLES = {tensors}, {most_cycles}
# For each stream: its signals, the file of its elements, their bits on the bus, the elements in a beat and in a tensor.
INPUTS = {inputs}
OUTPUTS = {outputs}


def beats_of(stream):
    """Return the beats of a stream as numbers: data, and for AXI4-Stream tlast and tkeep."""
    words = [int(word, 16) for word in (FOLDER / stream["file"]).read_text().split()]
    assert len(words) == TENSORS * stream["count"], stream["file"]
    beats, lanes, bits = [], stream["lanes"], stream["bus_bits"]
    for tensor in range(TENSORS):
        elements = words[tensor * stream["count"] : (tensor + 1) * stream["count"]]
        for start in range(0, len(elements), lanes):
            part = elements[start : start + lanes]
            data = sum(word << (bits * i) for i, word in enumerate(part))
            keep = (1 << (len(part) * bits // 8)) - 1
            beats.append({{"data": data, "last": int(start + lanes >= len(elements)), "keep": keep}})
    return beats


def number(signal):
    """Return the value of a signal, which must be known."""
    return int(str(signal.value), 2)


async def reset(dut):
    """Start the clock, and reset the design. Nothing is offered or read."""
    for stream in INPUTS:
        getattr(dut, stream["valid"]).value = 0
    for stream in OUTPUTS:
        getattr(dut, stream["ready"]).value = 0
    getattr(dut, RESET).value = RESET_VALUE
    cocotb.start_soon(Clock(getattr(dut, CLOCK), 10, "ns").start())
    for _ in range(4):
        await FallingEdge(getattr(dut, CLOCK))
    getattr(dut, RESET).value = 1 - RESET_VALUE


class Source:
    """The side that offers the beats of an input."""

    def __init__(self, dut, stream):
        self.stream, self.beats, self.count = stream, beats_of(stream), 0
        self.valid, self.ready = getattr(dut, stream["valid"]), getattr(dut, stream["ready"])
        self.signals = {{kind: getattr(dut, stream[kind]) for kind in ("data", "last") if kind in stream}}
        self.offers = False

    def drive(self, stall):
        """Offer the next beat, or wait. A beat that is offered stays until it is taken."""
        self.offers = self.offers or (self.count < len(self.beats) and random.random() >= stall)
        self.valid.value = int(self.offers)
        if self.offers:
            for kind, signal in self.signals.items():
                signal.value = self.beats[self.count][kind]

    def move(self):
        """Note what moves at the next edge."""
        if self.offers and number(self.ready):
            self.offers, self.count = False, self.count + 1


class Sink:
    """The side that reads an output, and compares it."""

    def __init__(self, dut, stream):
        self.stream, self.beats, self.count = stream, beats_of(stream), 0
        self.valid, self.ready = getattr(dut, stream["valid"]), getattr(dut, stream["ready"])
        self.signals = {{kind: getattr(dut, stream[kind]) for kind in ("data", "last", "keep") if kind in stream}}
        self.reads, self.held = False, None

    def drive(self, stall):
        """Read the next beat, or wait. Beats after the last one are not read."""
        self.reads = self.count < len(self.beats) and random.random() >= stall
        self.ready.value = int(self.reads)

    def move(self):
        """Note what moves at the next edge, and check it."""
        seen = {{kind: number(signal) for kind, signal in self.signals.items()}} if number(self.valid) else None
        name = self.stream["valid"]
        assert self.held is None or seen == self.held, f"{{name}}: {{self.held}} became {{seen}} before it was read"
        self.held = seen
        if seen is not None and self.reads:
            wanted = {{kind: self.beats[self.count][kind] for kind in seen}}
            assert seen == wanted, f"{{name}}: beat {{self.count}} is {{seen}}, expected {{wanted}}"
            self.held, self.count = None, self.count + 1


async def transfer(dut, stalls, until=TENSORS, sides=None):
    """Feed the design and read it, until a number of tensors is through.

    Args:
        dut: The design.
        stalls: The probability that an input, and that an output waits in a cycle.
        until: The number of tensors of the outputs.
        sides: The sources and sinks, if they have been used before.
    """
    sources, sinks = sides or ([Source(dut, s) for s in INPUTS], [Sink(dut, s) for s in OUTPUTS])
    for _ in range(MOST_CYCLES):
        if all(s.count >= len(s.beats) // TENSORS * until for s in sinks):
            return sources, sinks
        await FallingEdge(getattr(dut, CLOCK))
        for side, stall in zip((sources, sinks), stalls):
            for stream in side:
                stream.drive(stall)
        await ReadOnly()
        for stream in (*sources, *sinks):
            stream.move()
    raise AssertionError("the design stands still")


{control}
@cocotb.test()
async def at_full_speed(dut):
    """No end waits."""
    await begin(dut)
    await transfer(dut, (0.0, 0.0))


@cocotb.test()
async def with_slow_inputs(dut):
    """Inputs often wait."""
    await begin(dut)
    await transfer(dut, (0.6, 0.1))


@cocotb.test()
async def with_slow_outputs(dut):
    """Readers often wait."""
    await begin(dut)
    await transfer(dut, (0.1, 0.6))


if __name__ == "__main__":
    if cocotb.__version__.startswith("1."):
        from cocotb.runner import get_results, get_runner
    else:
        from cocotb_tools.check_results import get_results
        from cocotb_tools.runner import get_runner

    simulator = os.environ.get("SIM", "icarus")
    runner = get_runner(simulator)
    build = FOLDER / f"{module}_{{simulator}}"
    sources = [FOLDER / name for name in (FOLDER / "{name}.f").read_text().split()]
    options = ["-g2012"] if simulator == "icarus" else []
    common = {{"hdl_toplevel": TOP, "build_dir": build, "timescale": ("1ns", "1ps")}}
    runner.build(sources=sources, build_args=options, always=True, **common)
    results = runner.test(test_module={module!r}, test_dir=FOLDER, results_xml=str(build / "results.xml"), **common)
    sys.exit(get_results(results)[1] > 0)
'''
_PLAIN = """\
async def begin(dut):
    \"\"\"Reset the design.\"\"\"
    await reset(dut)

"""
_LITE = """\
async def put(dut, address, value):
    \"\"\"Write a register.\"\"\"
    clock = getattr(dut, CLOCK)
    await FallingEdge(clock)
    dut.s_axi_awaddr.value, dut.s_axi_wdata.value, dut.s_axi_wstrb.value = address, value, 15
    waiting = [(dut.s_axi_awvalid, dut.s_axi_awready), (dut.s_axi_wvalid, dut.s_axi_wready)]
    random.shuffle(waiting)
    for valid, ready in waiting:  # one after the other, in either order
        valid.value = 1
        await ReadOnly()
        while not number(ready):
            await FallingEdge(clock)
            await ReadOnly()
        await FallingEdge(clock)
        valid.value = 0
    dut.s_axi_bready.value = 1
    await ReadOnly()
    while not number(dut.s_axi_bvalid):
        await FallingEdge(clock)
        await ReadOnly()
    await FallingEdge(clock)
    dut.s_axi_bready.value = 0


async def get(dut, address):
    \"\"\"Read a register.\"\"\"
    clock = getattr(dut, CLOCK)
    await FallingEdge(clock)
    dut.s_axi_araddr.value, dut.s_axi_arvalid.value = address, 1
    await ReadOnly()
    while not number(dut.s_axi_arready):
        await FallingEdge(clock)
        await ReadOnly()
    await FallingEdge(clock)
    dut.s_axi_arvalid.value = 0
    await ReadOnly()
    while not number(dut.s_axi_rvalid):
        await FallingEdge(clock)
        await ReadOnly()
    value = number(dut.s_axi_rdata)
    await FallingEdge(clock)
    dut.s_axi_rready.value = 1
    await FallingEdge(clock)
    dut.s_axi_rready.value = 0
    return value


CONTROL, STATUS, COMPLETE, CYCLES, VERSION, DESIGN = range(0, 24, 4)


async def begin(dut, control=2):
    \"\"\"Reset the design, and write the register CONTROL: inputs are open with 2.\"\"\"
    for name in ("awvalid", "wvalid", "bready", "arvalid", "rready", "awprot", "arprot"):
        getattr(dut, f"s_axi_{{name}}").value = 0
    await reset(dut)
    await put(dut, CONTROL, control)


@cocotb.test()
async def tensors_are_started(dut):
    \"\"\"An input takes nothing before its start, and one tensor after it.\"\"\"
    await begin(dut, control=4)
    assert (await get(dut, VERSION), await get(dut, DESIGN)) == ({version:#x}, {design:#x})
    sides = [Source(dut, s) for s in INPUTS], [Sink(dut, s) for s in OUTPUTS]
    for tensor in range(TENSORS):
        for _ in range(20):
            await FallingEdge(getattr(dut, CLOCK))
            for source in sides[0]:
                source.drive(0.0)
            await ReadOnly()
            for source in sides[0]:
                source.move()
                assert source.count == len(source.beats) // TENSORS * tensor, "a tensor is taken before its start"
        writing = cocotb.start_soon(put(dut, CONTROL, 5))
        await transfer(dut, (0.2, 0.2), tensor + 1, sides)
        await writing
        assert await get(dut, STATUS) == 2 and await get(dut, COMPLETE) == tensor + 1 and number(dut.irq)
        await put(dut, STATUS, 2)
        assert await get(dut, STATUS) == 0 and not number(dut.irq) and await get(dut, CYCLES) > 0


"""


@dataclass(frozen=True)
class CocotbBench:
    """The testbench.

    Attributes:
        name: The name of the design, which those of files begin with.
        notes: The ports of the design.
        wrapper: The wrapper that is tested; None for the design itself.
        tensors: The number of tensors in the files.
        most_cycles: The number of cycles after which it fails.
    """

    name: str
    notes: Sequence[PortNote]
    wrapper: AxiWrapper | None
    tensors: int
    most_cycles: int

    @property
    def module(self) -> str:
        """The name of the module in Python."""
        return f"{self.name}_cocotb"

    def text(self) -> str:
        """The program."""
        wrapper = self.wrapper
        control = _PLAIN
        if wrapper is not None and wrapper.registers:
            control = _LITE.format(version=version_word(), design=wrapper.design_id)
        streams = [self._plain(note) for note in self.notes]
        if wrapper is not None:
            streams = [self._axi(port) for port in wrapper.ports]
        is_input = [note.is_input for note in self.notes]
        inputs, outputs = ([s for s, i in zip(streams, is_input, strict=True) if i == side] for side in (True, False))
        return _TEXT.format(
            top=self.name if wrapper is None else wrapper.name,
            name=self.name,
            module=self.module,
            clock="clk" if wrapper is None else "aclk",
            reset="rst" if wrapper is None else "aresetn",
            reset_value=1 if wrapper is None else 0,
            tensors=self.tensors,
            most_cycles=self.most_cycles,
            inputs=_listed(inputs),
            outputs=_listed(outputs),
            control=control,
        )

    def _plain(self, note: PortNote) -> dict[str, str | int]:
        signals = {kind: f"{note.port}_{kind}" for kind in ("valid", "ready", "data")}
        sizes = {"bus_bits": note.bits, "lanes": 1, "count": note.stream.count}
        return {**signals, "file": f"{self.name}_tb_{note.port}.mem", **sizes}

    def _axi(self, port: AxiStreamPort) -> dict[str, str | int]:
        kinds = ("valid", "ready", "data", "last", *(() if port.is_input else ("keep",)))
        signals = {kind: f"{port.bus}_t{kind}" for kind in kinds}
        sizes = {"bus_bits": port.bits, "lanes": port.lanes, "count": port.count}
        return {**signals, "file": f"{self.name}_tb_{port.port}.mem", **sizes}


def _listed(entries: Sequence[object]) -> str:
    """Return the text of a list in Python, with a line for each entry."""
    return "[\n" + "".join(f"    {entry!r},\n" for entry in entries) + "]"
