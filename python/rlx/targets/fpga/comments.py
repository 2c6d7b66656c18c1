"""Comments in the SystemVerilog of a design: the user's names and lines, and the shapes, orders and scales of ports."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from rlx.targets.fpga.lower.design import Design, Network, port_bits
from rlx.targets.fpga.lower.layer import Stream, StreamLayer
from rlx.targets.fpga.lower.names import commented
from rlx.targets.fpga.lower.orders import row_major, usual
from rlx.version import __version__


@dataclass(frozen=True)
class PortNote:
    """A port of a design, for readers.

    Attributes:
        port: Its name in SystemVerilog.
        title: The name of the input or output.
        is_input: Whether it is an input.
        stream: Its tensor.
        scale: The scale of its integers, which represent `(value - zero_point)·scale`; None if they are plain numbers.
        zero_point: Its zero point.
    """

    port: str
    title: str
    is_input: bool
    stream: Stream
    scale: float | None
    zero_point: int

    @property
    def tensor(self) -> str:
        """The dtype and the dimensions."""
        dims = "x".join(map(str, self.stream.shape)) or "scalar"
        return f"{self.stream.dtype.name} {dims}"

    @property
    def bits(self) -> int:
        """The bits of an element."""
        return port_bits(self.stream.dtype)

    @property
    def order(self) -> str:
        """The order of the elements; empty for one that only a list describes."""
        if np.array_equal(self.stream.order, row_major(self.stream.shape)):
            return "row by row"
        is_usual = np.array_equal(self.stream.order, usual(self.stream.shape))
        return "by pixels, the channels of each side by side" if is_usual else ""

    @property
    def number(self) -> str:
        """The number that a value represents, as a formula."""
        if self.scale is None:
            return "plain integers" if self.stream.dtype.is_integer else "bits"
        zero = f"(value - {self.zero_point})".replace("- -", "+ ") if self.zero_point else "value"
        return f"{zero} * {self.scale:.9g}"

    @property
    def comment(self) -> str:
        """One line on the port."""
        order = self.order or "in the order of its _order.txt"
        side = "Input" if self.is_input else "Output"
        return commented(f"{side} '{self.title}': {self.tensor}, {order}; {self.number}")


def port_notes(network: Network) -> list[PortNote]:
    """Return a note for each port of a network, inputs first."""
    notes: list[PortNote] = []
    for is_input, side, names in zip((True, False), (network.inputs, network.outputs), network.ports, strict=True):
        for title, stream in side.items():
            # An input and an output may have the same name and different dtypes: only 8 bits have a scale.
            scale, zero = network.quantized.get(title, (None, 0))
            notes.append(PortNote(names[title], title, is_input, stream, scale, zero))
    return notes


def with_comments(files: Mapping[str, str], design: Design, made_for: str) -> dict[str, str]:
    """Return the files of a design, with comments in its sources.

    Args:
        files: The files, by name.
        design: The design.
        made_for: The part and the preset.
    """
    comments = _module_comments(design, made_for)
    layers = {layer.module.name: layer for layer in design.network.layers}
    found = dict(files)
    for module, lines in comments.items():
        text = found[f"{module}.sv"]
        if module == design.top:
            text = re.sub(r"^  (\w+) \w+ \($", lambda m: _before_instance(layers, m), text, flags=re.MULTILINE)
        found[f"{module}.sv"] = "".join(f"// {line}\n" for line in lines) + text
    return found


def _before_instance(layers: Mapping[str, StreamLayer], match: re.Match[str]) -> str:
    """Return the first line of an instance, after a comment with the line of its layer."""
    layer = layers.get(match[1])
    return match[0] if layer is None else f"  // {_origin(layer)}\n{match[0]}"


def _module_comments(design: Design, made_for: str) -> dict[str, list[str]]:
    top = design.top
    comments = {
        top: [
            f"The design {top}, made by RLX {__version__} for {commented(made_for)}.",
            "Each port is a stream: an element moves at an edge of clk at which _valid and _ready are 1.",
            *(f"{note.port}: {note.comment}" for note in port_notes(design.network)),
        ]
    }
    for layer in design.network.layers:
        comments[layer.module.name] = list(_of_layer(top, layer))
        for memory in layer.module.memories:
            kind = "writable" if memory.words is None else "read-only"
            about = f"A memory of the layer {layer.name}: {memory.depth} words of {memory.width} bits, {kind}."
            comments[memory.name] = [about]
    return comments


def _of_layer(top: str, layer: StreamLayer) -> Iterator[str]:
    """Yield the lines on a layer."""
    yield f"The layer {layer.name} of {top}: {_origin(layer)}"
    if layer.scope:
        yield f"Scope in the model: {commented(layer.scope)}"
    shape = "x".join(map(str, layer.output.shape)) or "scalar"
    result = layer.output
    yield f"Result: {result.dtype.name} {shape}, from {result.low} to {result.high}, {result.width} bits."


def _origin(layer: StreamLayer) -> str:
    """Return the description and the line of a layer."""
    return commented(f"{layer.description}, from {layer.place}" if layer.place else layer.description)
