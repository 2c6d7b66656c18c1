"""The files of a design: sources, testbenches, constraints and the README."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlx.support.cached_property import cached_property
from rlx.targets.fpga import process
from rlx.targets.fpga.axi.testbench import axi_testbench
from rlx.targets.fpga.axi.wrapper import AxiWrapper, axi_ports, design_id
from rlx.targets.fpga.cocotb_bench import CocotbBench
from rlx.targets.fpga.comments import port_notes, with_comments
from rlx.targets.fpga.lower.design import Design
from rlx.targets.fpga.parts import PARTS, FpgaPart
from rlx.targets.fpga.report import readme, readme_name
from rlx.targets.fpga.scripts import BuildScripts
from rlx.targets.fpga.synthesis import Synthesis
from rlx.targets.fpga.targets import Target
from rlx.targets.fpga.verilog import Case, constraints, memory_file, memory_module, testbench

_MODULE = re.compile(r"^module (\w+)\b.*?^endmodule\n", re.MULTILINE | re.DOTALL)


def hardware_files(design: Design, text: str, timeout_s: float | None = None) -> dict[str, str]:
    """SystemVerilog, a file for each module, and what its memories hold, by name.

    Args:
        design: The design.
        text: Its modules, as CIRCT reads them.
        timeout_s: The seconds that CIRCT may take.
    """
    verilog = process.verilog(text, timeout_s)
    files = {f"{found[1]}.sv": found[0] for found in _MODULE.finditer(verilog)}
    for memory in design.memories:
        files[f"{memory.name}.sv"] = memory_module(memory)
        if memory.words is not None:
            files[f"{memory.name}.mem"] = memory_file(memory.words, memory.width)
    return files


@dataclass(frozen=True)
class FpgaProject:
    """A design and its surroundings.

    Attributes:
        design: The design.
        hardware: The files of `hardware_files`.
        target: The target.
        case: The data of the testbenches.
        cycles: The simulated cycles; None if it was not simulated.
        synthesis: The results of synthesis; None if it did not run.
    """

    design: Design
    hardware: dict[str, str]
    target: Target
    case: Case
    cycles: int | None
    synthesis: Synthesis | None

    @property
    def part(self) -> FpgaPart:
        """The part."""
        return PARTS[self.target.arch]

    @property
    def frequency(self) -> float:
        """The clock in MHz."""
        return self.target.frequency or self.part.frequency

    @property
    def most_cycles(self) -> int:
        """The number of cycles after which a testbench fails."""
        return self.case.tensors * (20 * (self.cycles or self.design.network.predicted_cycles) + 10_000)

    @cached_property
    def wrapper(self) -> AxiWrapper | None:
        """The wrapper with AXI ports, if there is one."""
        if not self.target.axi:
            return None
        ports = axi_ports(self.design.network, self.target.axi_width)
        notes = {note.port: note.comment for note in port_notes(self.design.network)}
        return AxiWrapper(self.design.top, ports, self.target.axi == "lite", design_id(self.hardware), notes)

    @property
    def top(self) -> str:
        """The module that a project has as its top."""
        return self.design.top if self.wrapper is None else self.wrapper.name

    def files(self) -> dict[str, str]:
        """All files, by name."""
        design = self.design
        files = with_comments(
            self.hardware, design, f"{self.part.title} ({self.part.name}), preset {self.target.label}"
        )
        if self.wrapper is not None:
            files |= {f"{name}.sv": text for name, text in self.wrapper.modules().items()}
        sources = [name for name in files if name.endswith(".sv")]
        memories = [name for name in files if name.endswith(".mem")]
        files[f"{design.top}.f"] = "".join(f"{name}\n" for name in sources)
        bench, words = testbench(design.top, design.network.ports, self.case, self.most_cycles)
        files |= {f"{design.top}_tb.sv": bench, **words}
        if self.wrapper is not None:
            bench, words = axi_testbench(self.wrapper, self.case, self.most_cycles)
            files |= {f"{self.wrapper.name}_tb.sv": bench, **words}
        cocotb = CocotbBench(design.top, port_notes(design.network), self.wrapper, self.case.tensors, self.most_cycles)
        files[f"{cocotb.module}.py"] = cocotb.text()
        clock = "clk" if self.wrapper is None else "aclk"
        name, text = constraints(design.top, self.part.name, self.frequency, clock)
        files[name] = text
        scripts = BuildScripts(
            design.top,
            self.top,
            clock,
            self.part,
            self.frequency,
            sources,
            memories,
            [f"{self.top}_tb.sv", *words],
            name,
        )
        files |= scripts.files()
        text, orders = readme(
            design, self.part, self.target.label, self.frequency, self.cycles, self.synthesis, self.wrapper
        )
        return files | {readme_name(design.top): text, **orders}
