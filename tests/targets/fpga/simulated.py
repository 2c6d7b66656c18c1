"""Simulation of graphs as hardware for tests: results agree with the evaluator, with any stalls at both ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.ir.graph.evaluate import collect_arguments, evaluate_function
from rlx.passes.pipeline import PassPipeline
from rlx.targets.fpga import process
from rlx.targets.fpga.drive import Port
from rlx.targets.fpga.lower.design import Design, port_bits
from rlx.targets.fpga.simulate import Simulation, Simulator
from rlx.targets.fpga.targets import target
from rlx.targets.fpga.to_hw import ToHw

# No stalls, slow inputs, and slow readers.
HESITATIONS = ((0.0, 0.0), (0.6, 0.1), (0.1, 0.6))


def design_of(graph: Any, **options: str) -> Design:
    """The design of a graph; options are flags of the target."""
    flags = [f"--{name}={value}" for name, value in options.items()]
    (step,) = PassPipeline.parse(target("fpga", None, flags).lowering(2)).steps
    assert isinstance(step.ours, ToHw)
    return step.ours.design(graph)


class Hardware:
    """A design that is ready for simulation."""

    def __init__(self, graph: Any, design: Design):
        self.graph, self.design = graph, design
        ir, offsets, size = process.simulation(design.simulated(), design.top)
        network = design.network
        sides = zip((network.inputs, network.outputs), network.ports, strict=True)
        ports = [[Port(names[n], port_bits(s.dtype), s.count) for n, s in side.items()] for side, names in sides]
        self.simulator = Simulator(ir, design.top, offsets, size, *ports)

    def run(
        self, tensors: Sequence[Mapping[str, np.ndarray]], hesitant: tuple[float, float] = (0.0, 0.0)
    ) -> Simulation:
        network = self.design.network
        given = [np.concatenate([t[n].ravel()[s.order] for t in tensors]) for n, s in network.inputs.items()]
        return self.simulator.run(given, most_cycles=10_000_000, tensors=len(tensors), hesitant=hesitant, seed=77)

    def wanted(self, tensors: Sequence[Mapping[str, np.ndarray]]) -> list[np.ndarray]:
        """The evaluator's results, as elements of the output streams."""
        states: dict[str, np.ndarray] = {}
        results: list[dict[str, np.ndarray]] = []
        for tensor in tensors:
            arrays = collect_arguments(self.graph, dict(tensor) | states)
            found = list(zip(self.graph.results, evaluate_function(self.graph.function, arrays, {}), strict=True))
            states = {r.updates: v for r, v in found if r.updates is not None}
            results.append({r.name: v for r, v in found})
        streams = self.design.network.outputs.items()
        return [np.concatenate([r[n].ravel()[s.order] for r in results]).astype(np.int64) for n, s in streams]

    def given(self, run: Simulation) -> list[np.ndarray]:
        """The results of a run, in the dtypes of the outputs."""
        masks = {"u8": 255, "bool": 1}
        streams = self.design.network.outputs.values()
        return [v & masks.get(s.dtype.name, -1) for v, s in zip(run.outputs, streams, strict=True)]


def check(graph: Any, tensors: Sequence[Mapping[str, np.ndarray]], **options: str) -> Design:
    """Compare a design with the evaluator, for consecutive tensors, at full speed and with stalls at both ends."""
    hardware = Hardware(graph, design_of(graph, **options))
    wanted = hardware.wanted(tensors)
    for hesitant in HESITATIONS:
        for found, expected in zip(hardware.given(hardware.run(tensors, hesitant)), wanted, strict=True):
            np.testing.assert_array_equal(found, expected, f"hesitant {hesitant}\n{graph}")
    cycles = hardware.run(tensors[:1]).cycles
    predicted = hardware.design.network.predicted_cycles
    assert abs(cycles - predicted) <= max(0.1 * cycles, 16), (cycles, predicted, str(graph))
    return hardware.design
