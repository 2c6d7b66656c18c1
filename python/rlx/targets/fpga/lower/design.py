"""Designs from networks of layers: queues where paths of different latency join, instances, wires and memories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from rlx.ir.dtype import DType
from rlx.support.cached_property import cached_property
from rlx.targets.fpga.lower.hdl import HdlMemory, HdlModule, Wire, index_bits
from rlx.targets.fpga.lower.layer import Stream, StreamLayer
from rlx.targets.fpga.lower.movement import ConcatLayer, Fifo, fork
from rlx.targets.fpga.lower.names import design_name, identifier, within_design
from rlx.targets.fpga.lower.state import StateLayer
from rlx.targets.lowering.names import UniqueNames


def port_bits(dtype: DType) -> int:
    """Return the number of bits of a port for a dtype."""
    return 1 if dtype.is_bool else 8 * dtype.itemsize


@dataclass
class Network:
    """Layers between inputs and outputs.

    Attributes:
        name: Its name.
        inputs: The streams of the inputs, by name.
        outputs: The streams of the outputs, by name.
        layers: The layers in topological order.
        quantized: The scales and zero points of inputs and outputs, by name: a value represents `(value - zero point)·scale`.
    """

    name: str
    inputs: dict[str, Stream]
    outputs: dict[str, Stream] = field(default_factory=dict[str, Stream])
    layers: list[StreamLayer] = field(default_factory=list[StreamLayer])
    quantized: Mapping[str, tuple[float, int]] = field(default_factory=dict[str, tuple[float, int]])

    @property
    def states(self) -> list[StateLayer]:
        """The states. These layers read from later layers."""
        return [layer for layer in self.layers if isinstance(layer, StateLayer)]

    @property
    def ports(self) -> tuple[dict[str, str], dict[str, str]]:
        """The Verilog port names of inputs and outputs. Names that are equal after removing invalid characters get numbers."""
        ports = UniqueNames(identifier, ("clk", "rst"))
        inputs, outputs = ({name: ports.take(name) for name in side} for side in (self.inputs, self.outputs))
        return inputs, outputs

    def readers(self) -> dict[StreamLayer | str, list[tuple[StreamLayer, int] | str]]:
        """The readers of each layer or input: pairs of a layer and the index of its input, or names of outputs."""
        result: dict[StreamLayer | str, list[tuple[StreamLayer, int] | str]] = {
            s: [] for s in [*self.inputs, *self.layers]
        }
        for layer in self.layers:
            for i, stream in enumerate(layer.inputs):
                result[stream.source].append((layer, i))
        for state in self.states:
            result[state.update.source].append((state, 0))
        for name, stream in self.outputs.items():
            result[stream.source].append(name)
        return result

    def arrivals(self) -> dict[StreamLayer | str, np.ndarray]:
        """The cycles in which the elements of all streams leave their source, if each input has one element per cycle."""
        times: dict[StreamLayer | str, np.ndarray] = {n: np.arange(s.count) for n, s in self.inputs.items()}
        for layer in self.layers:
            times[layer] = layer.times([times[s.source] for s in layer.inputs])
        return times

    @property
    def predicted_cycles(self) -> int:
        """The cycles from the first element of an input to the last one of the outputs."""
        times = self.arrivals()
        return max(int(times[s.source].max()) for s in self.outputs.values()) + 1

    @property
    def interval(self) -> int:
        """The maximal number of cycles between consecutive tensors.

        It is that of the slowest layer, or that of the longest path from a state to its writer.
        """
        slowest = max([s.count for s in self.inputs.values()] + [layer.cycles for layer in self.layers])
        if not self.states:
            return slowest
        times = self.arrivals()
        return max(slowest, *(int((times[s.update.source] - times[s]).max()) + 2 for s in self.states))


_MOST_ROUNDS = 8


def with_queues(network: Network) -> Network:
    """Return a network that does not stall: where paths from one stream join, queues store the elements that arrive early.

    For each element of a layer with several inputs, the number of elements that it waits for at the fork is known exactly. The
    queue of an input must store all elements that arrive while another input waits. Latencies of paths make queues longer, and
    queues have a latency themselves, so this is repeated until the depths are stable.
    """
    network = _without_queues(network)
    parting = [source for source, found in network.readers().items() if len(found) > 1]
    after = [_needs(network, source) for source in parting]
    joins = [j for j in network.layers if len(j.inputs) > 1 and any(j in needs for needs in after)]
    if not joins:
        return network
    given = {layer: list(layer.inputs) for layer in joins}
    depths = _waiting(joins, after)
    result = _with_fifos(network, depths, given)
    for _ in range(_MOST_ROUNDS):
        late = {end: depth for end, depth in _early(result, given).items() if depth > depths.get(end, 0)}
        if not late:
            break
        depths |= late
        result = _with_fifos(network, depths, given)
    return result


def _without_queues(network: Network) -> Network:
    for layer in network.layers:
        sources = [s.source for s in layer.inputs]
        layer.inputs[:] = [
            source.inputs[0] if isinstance(source, Fifo) else s for s, source in zip(layer.inputs, sources, strict=True)
        ]
    layers = [layer for layer in network.layers if not isinstance(layer, Fifo)]
    return replace(network, layers=layers)


def _waiting(
    joins: Sequence[StreamLayer], after: Sequence[Mapping[StreamLayer | str, np.ndarray]]
) -> dict[tuple[StreamLayer, int], int]:
    """Return the number of elements that each input must store while another input waits for elements of the same stream."""
    depths: dict[tuple[StreamLayer, int], int] = {}
    for needs in after:
        for layer in joins:
            found = [(i, needs[s.source], layer.consumed(i)) for i, s in enumerate(layer.inputs) if s.source in needs]
            if len(found) < 2:
                continue
            most = np.maximum.accumulate(np.maximum.reduce([_at(n, c) for _, n, c in found]))
            for i, needed, taken in found:
                if (_at(needed, taken) < most).any():
                    there = np.searchsorted(np.maximum.accumulate(needed), most, "right")
                    depths[layer, i] = max(depths.get((layer, i), 0), int((there - taken).max()))
    return depths


def _early(network: Network, given: Mapping[StreamLayer, Sequence[Stream]]) -> dict[tuple[StreamLayer, int], int]:
    """Return the number of early elements of each input: those waiting when the last input's element arrives."""
    times = network.arrivals()
    depths: dict[tuple[StreamLayer, int], int] = {}
    for layer, before in given.items():
        taken = [layer.consumed(i) for i in range(len(before))]
        ends = [_at(times[s.source], c) for s, c in zip(layer.inputs, taken, strict=True)]
        at = np.maximum.accumulate(np.maximum.reduce(ends))
        if isinstance(layer, ConcatLayer):
            # It reads from one input at a time. The other input must not block their common source.
            at = np.maximum(at, times[layer] - 1)
        for i, (stream, c) in enumerate(zip(before, taken, strict=True)):
            depths[layer, i] = int((np.searchsorted(times[stream.source], at, "right") - c).max())
    return depths


def _at(values: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """Return the value of the last element taken, or 0 if none was taken."""
    return np.where(taken > 0, values[np.maximum(taken, 1) - 1], 0)


def _needs(network: Network, source: StreamLayer | str) -> dict[StreamLayer | str, np.ndarray]:
    """Return, for each later stream, the number of elements of a source that each of its elements waits for."""
    count = network.inputs[source].count if isinstance(source, str) else source.output.count
    found: dict[StreamLayer | str, np.ndarray] = {source: np.arange(1, count + 1)}
    for layer in network.layers:
        if any(s.source in found for s in layer.inputs):
            zeros = [np.zeros(s.count, np.int64) for s in layer.inputs]
            found[layer] = layer.needs([found.get(s.source, z) for s, z in zip(layer.inputs, zeros, strict=True)])
    return found


def _with_fifos(
    network: Network, depths: Mapping[tuple[StreamLayer, int], int], given: Mapping[StreamLayer, Sequence[Stream]]
) -> Network:
    layers: list[StreamLayer] = []
    for layer in network.layers:
        for i, x in enumerate(given.get(layer, ())):
            layer.inputs[i] = x
            if depths.get((layer, i), 0) > 0:
                depth = min(depths[layer, i], x.count) + 2
                layers.append(Fifo(f"{layer.name}_queue{i}", layer.place, [x], depth=depth))
                layer.inputs[i] = layers[-1].output
        layers.append(layer)
    return replace(network, layers=layers)


# --- text ---------------------------------------------------------------------------------------------------


@dataclass
class Design:
    """The modules of a network, in CIRCT's dialects.

    Attributes:
        network: The network.
        top: The name of the top module. Those of all other modules, of memories and of files begin with it.
    """

    network: Network

    def __post_init__(self) -> None:
        top = self.top
        for layer in self.network.layers:
            if layer.design != top:
                layer.changed(design=top)

    @property
    def top(self) -> str:
        return design_name(self.network.name)

    @cached_property
    def modules(self) -> list[HdlModule]:
        """All modules except memories: layers and forks first, the top module last."""
        forks: list[HdlModule] = []
        top = self._write_top(forks)
        return [*(layer.module for layer in self.network.layers), *forks, top]

    @cached_property
    def memories(self) -> list[HdlMemory]:
        """All memories."""
        return [memory for module in self.modules for memory in module.memories]

    def hardware(self) -> str:
        """The modules as text, with memories as external modules."""
        memories = [f"hw.module.extern @{m.name}({_memory_ports(m)})\n" for m in self.memories]
        return "".join([*memories, *(f"hw.module @{m.name}{m}" for m in self.modules)])

    def simulated(self) -> str:
        """The modules as text, including memories. The top module is public."""
        texts = [f"hw.module private @{m.name}({_memory_ports(m)}) {{\n{_memory_body(m)}}}\n" for m in self.memories]
        for module in self.modules:
            private = "" if module is self.modules[-1] else "private "
            texts.append(f"hw.module {private}@{module.name}{module}")
        return "".join(texts)

    def _write_top(self, forks: list[HdlModule]) -> HdlModule:
        network = self.network
        m = HdlModule(self.top)
        names = UniqueNames(lambda name, _: name, (layer.name for layer in network.layers))
        readers = network.readers()
        self._ports = inputs, outputs = network.ports
        m.reserve(*(f"{port}_{end}" for port in inputs.values() for end in ("valid", "data")))
        m.reserve(*(f"{port}_ready" for port in outputs.values()))
        wires = {layer: _wires(m, layer) for layer in network.layers}
        given: dict[
            StreamLayer | str, tuple[Wire, Wire, Wire]
        ] = {}  # valid, data and the ready that is still to be defined
        for name, stream in network.inputs.items():
            port = inputs[name]
            valid, data = m.input(f"{port}_valid", 1), m.input(f"{port}_data", port_bits(stream.dtype))
            data = m.sext(data, stream.width) if stream.low < 0 else m.zext(data, stream.width)
            ready = m.wire(f"{port}_ready", 1)
            m.output(f"{port}_ready", ready)
            given[name] = valid, data, ready
        for layer, ports in wires.items():
            given[layer] = ports["out_valid"], ports["out_data"], ports["out_ready"]
        for source, found in readers.items():
            valid, data, ready = given[source]
            ends = [(valid, data)] * len(found)
            readies = [self._reader_ready(m, wires, reader) for reader in found]
            if len(found) == 1:
                m.define(ready, readies[0])
            elif not found:
                m.define(ready, m.const(1, 1))
            else:
                base = inputs[source] if isinstance(source, str) else source.name
                name = names.take(f"{base}_fork")
                module = fork(within_design(self.top, name), len(found), data.width)
                forks.append(module)
                ports = {"in0_valid": valid, "in0_data": data, "in0_ready": ready}
                for i, reader_ready in enumerate(readies):
                    ports[f"out{i}_ready"] = reader_ready
                    ports[f"out{i}_valid"] = m.wire(f"{name}_out{i}_valid", 1)
                    ports[f"out{i}_data"] = m.wire(f"{name}_out{i}_data", data.width)
                m.instance(name, module.name, module.ports, ports)
                ends = [(ports[f"out{i}_valid"], ports[f"out{i}_data"]) for i in range(len(found))]
            for reader, (end_valid, end_data) in zip(found, ends, strict=True):
                if isinstance(reader, str):
                    port, stream = outputs[reader], network.outputs[reader]
                    m.output(f"{port}_valid", end_valid)
                    m.output(f"{port}_data", m.fit(end_data, port_bits(stream.dtype)))
                else:
                    layer, i = reader
                    wires[layer][f"in{i}_valid"], wires[layer][f"in{i}_data"] = end_valid, end_data
        for layer, ports in wires.items():
            m.instance(layer.name, layer.module.name, layer.module.ports, ports)
        return m

    def _reader_ready(
        self, m: HdlModule, wires: Mapping[StreamLayer, Mapping[str, Wire]], reader: tuple[StreamLayer, int] | str
    ) -> Wire:
        if isinstance(reader, str):
            return m.input(f"{self._ports[1][reader]}_ready", 1)
        return wires[reader[0]][f"in{reader[1]}_ready"]


def _wires(m: HdlModule, layer: StreamLayer) -> dict[str, Wire]:
    """Declare the wires of a layer's output and of its ready signal."""
    names = {n: w for d, n, w in layer.module.ports if d == "out"} | {"out_ready": 1}
    return {n: m.wire(f"{layer.name}_{n}", w) for n, w in names.items()}


def _memory_ports(memory: HdlMemory) -> str:
    ports = [f"in %{n} : i{w}" if d == "in" else f"out {n} : i{w}" for d, n, w in memory.ports]
    return ", ".join(["in %clk : !seq.clock", *ports])


def _memory_body(memory: HdlMemory) -> str:
    """Return the body of a memory. It reads before it writes, and keeps the last word while the read is disabled."""
    width, depth = memory.width, memory.depth
    if memory.words is not None:
        size = 1 << index_bits(depth)
        words = [*memory.words, *[0] * (size - depth)]
        values = ", ".join(_signed(w, width) for w in reversed(words))  # the last one is the first
        kind = f"!hw.array<{size}xi{width}>"
        read = f"  %t = hw.aggregate_constant [{values}] : {kind}\n"
        read += f"  %w = hw.array_get %t[%addr] : {kind}, i{index_bits(depth)}\n"
    else:
        kind = f"<{depth} x {width}>"
        read = f"  %mem = seq.firmem 0, 1, undefined, undefined : {kind}\n"
        read += f"  %w = seq.firmem.read_port %mem[%addr], clock %clk : {kind}\n"
        read += f"  seq.firmem.write_port %mem[%waddr] = %wdata, clock %clk enable %we : {kind}\n"
    return read + f"  %data = seq.compreg.ce %w, %clk, %en : i{width}\n  hw.output %data : i{width}\n"


def _signed(word: int, width: int) -> str:
    if width == 1:
        return "true" if word else "false"
    return f"{word - (1 << width) if word >> (width - 1) else word} : i{width}"


__all__: Sequence[str] = ["Design", "Network", "port_bits", "with_queues"]
