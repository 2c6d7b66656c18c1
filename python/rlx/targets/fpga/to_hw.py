"""`rlx-to-hw`: a network of integers into CIRCT's dialects hw, comb and seq."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

from rlx import mlir
from rlx.ir.graph.graph import Graph
from rlx.passes.base import Pass, option
from rlx.passes.rewrite import replace_body
from rlx.targets.fpga import process
from rlx.targets.fpga.flags import COMMAND_LINE, PART_NAMES, PRESET_NAMES
from rlx.targets.fpga.lower.design import Design
from rlx.targets.fpga.lower.recognise import network_of
from rlx.targets.fpga.parts import DEFAULT_PART, PARTS
from rlx.targets.fpga.schedule import DEFAULT_PRESET, PRESETS, schedule_network

for _name in ("hw", "comb", "seq"):
    mlir.provide_dialect(_name, ModuleType(_name))  # an empty module: there are no classes for its ops


def _help(flag: str) -> str:
    """Return the help text of a flag of the target."""
    return COMMAND_LINE[flag][1].removeprefix("fpga: ")


@dataclass(frozen=True)
class ToHw(Pass, name="rlx-to-hw"):
    """Lower a network of integers to CIRCT's dialects hw, comb and seq: a module for each layer, and one that joins them.

    Every op must be one that has a layer: see the pipeline of the target fpga. The ops are unregistered here: CIRCT, which the
    extra `fpga` installs, verifies the design in a process of its own.
    """

    part: str = option(DEFAULT_PART, "the FPGA that the design has to fit", choices=PART_NAMES)
    preset: str = option(DEFAULT_PRESET, _help("--preset").partition(":")[0], choices=PRESET_NAMES)
    parallel: int | None = option(None, _help("--parallel"), least=1)
    lanes: int | None = option(None, _help("--lanes"), least=1)
    ternary: bool | None = option(None, _help("--ternary"))
    shared_requant: bool | None = option(None, _help("--shared-requant"))
    clock_enable: bool | None = option(None, _help("--clock-enable"))
    simulated: bool = option(
        False, "for a simulator: memories have a body, and states are ports; else memories are defined elsewhere"
    )

    @property
    def emits_unregistered(self) -> bool:
        return True

    def run(self, module: mlir.Module) -> None:
        text = process.generic(self.text(self.design(Graph.from_module(module))))
        replace_body(module, mlir.ir.Module.parse(text))

    def design(self, graph: Graph) -> Design:
        """Return the design of a graph at LIR, with the sizes that the part has room for.

        Raises:
            CompileError: The graph has ops without layers, or does not fit the part.
        """
        preset = PRESETS[self.preset].with_options(
            parallel=self.parallel,
            lanes=self.lanes,
            ternary=self.ternary,
            shared_requant=self.shared_requant,
            clock_enable=self.clock_enable,
        )
        network = network_of(graph, states_as_ports=self.simulated)
        return Design(schedule_network(network, preset, PARTS[self.part]))

    def text(self, design: Design) -> str:
        """Return the text of a design as CIRCT reads it, and as `run` gives it in the generic form."""
        return design.simulated() if self.simulated else design.hardware()
