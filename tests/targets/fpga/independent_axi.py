"""A testbench of `fast_graph` with the AXI models of the package cocotbext-axi. `test_cocotb.py` copies and runs it."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from cocotbext.axi import (  # pyright: ignore[reportMissingImports]
    AxiLiteBus,
    AxiLiteMaster,
    AxiStreamBus,
    AxiStreamSink,
    AxiStreamSource,
)

FOLDER = Path(__file__).resolve().parent
TENSORS, ELEMENTS = 3, 21
# The bytes of an element of each port.
INPUTS = {"x": 1, "y": 2}
OUTPUTS = {"wide": 4, "flag": 1, "byte": 1, "sum": 2}


def packets(name: str, size: int) -> list[bytes]:
    """Return the bytes of each tensor of a port."""
    words = [int(word, 16).to_bytes(size, "little") for word in (FOLDER / f"fast_tb_{name}.mem").read_text().split()]
    return [b"".join(words[i * ELEMENTS : (i + 1) * ELEMENTS]) for i in range(TENSORS)]


def pauses() -> Iterator[bool]:
    """Yield whether a stream waits, for each cycle."""
    while True:
        yield random.random() < 0.4


@cocotb.test()
async def tensors_are_packets(dut: Any) -> None:
    """All tensors are sent before the start, and are packets with tlast and tkeep at the outputs."""
    cocotb.start_soon(Clock(dut.aclk, 10, "ns").start())
    dut.aresetn.value = 0
    ends = (dut.aclk, dut.aresetn)
    control = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axi"), *ends, reset_active_level=False)
    # cocotbext-axi makes the methods of these classes when it is imported, where type checkers do not see them.
    sources: dict[str, Any]
    sinks: dict[str, Any]
    sources, sinks = (
        {n: kind(AxiStreamBus.from_prefix(dut, f"{side}_axis_{n}"), *ends, reset_active_level=False) for n in names}
        for kind, side, names in ((AxiStreamSource, "s", INPUTS), (AxiStreamSink, "m", OUTPUTS))
    )
    for stream in (*sources.values(), *sinks.values()):
        stream.set_pause_generator(pauses())
    for _ in range(20):
        await RisingEdge(dut.aclk)
    dut.aresetn.value = 1
    for name, size in INPUTS.items():
        for packet in packets(name, size):
            await sources[name].send(packet)
    for _ in range(100):
        await RisingEdge(dut.aclk)
    assert await control.read_dword(0x08) == 0
    await control.write_dword(0x00, 1)  # one tensor, then all others
    await control.write_dword(0x00, 2)
    for name, size in OUTPUTS.items():
        for packet in packets(name, size):
            frame = await sinks[name].recv()
            assert bytes(frame.tdata) == packet, (name, frame)
    for _ in range(20):
        await RisingEdge(dut.aclk)
    assert await control.read_dword(0x08) == TENSORS and await control.read_dword(0x04) == 2


if __name__ == "__main__":
    from cocotb_tools.check_results import get_results
    from cocotb_tools.runner import get_runner

    runner = get_runner("icarus")
    build = {"hdl_toplevel": "fast_axi", "build_dir": FOLDER / "built", "timescale": ("1ns", "1ps")}
    sources = [FOLDER / name for name in (FOLDER / "fast.f").read_text().split()]
    runner.build(sources=sources, build_args=["-g2012"], always=True, **build)
    results = FOLDER / "results.xml"
    runner.test(test_module=Path(__file__).stem, test_dir=FOLDER, results_xml=str(results), **build)
    sys.exit(get_results(results) != (1, 0))
