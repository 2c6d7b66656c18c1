"""The arguments of a program in C: types, sizes and the prototype of its function."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.ir.interface import Argument
from rlx.ir.shape import Shape
from rlx.targets.c.lower.program import CSource
from rlx.targets.c.lower.values import stored_type


def count(shape: Shape) -> str:
    """Return the number of elements as a product of the sizes, which is more readable than the number.

    It is at least 1, because arrays in C cannot be empty.
    """
    dims = [str(d) for d in shape.static if d != 1]
    return " * ".join(dims) if dims and 0 not in shape.static else "1"


def c_array_type(shape: Shape) -> str:
    """Return a shape in the notation of arrays: `i8[1, 3, 8, 8]`."""
    return f"{shape.dtype.name}[{', '.join(map(str, shape.static))}]"


class CSignature:
    """The arguments of the function that runs the program."""

    def __init__(self, program: CSource):
        graph = program.graph
        self.program = program
        self.outputs = [(o, name) for o, name in zip(graph.results, program.outputs, strict=True) if o.updates is None]

    def of_kind(self, kind: str) -> list[tuple[Argument, str]]:
        return [(a, self.program.names[v]) for a, v in self.program.arguments if a.kind == kind]

    @property
    def prototype(self) -> str:
        name = self.program.name
        parts = [f"{name}_state *state"]
        if self.of_kind("param"):
            parts.append(f"const {name}_params *params")
        parts += [f"const {stored_type(a.shape.dtype)} {n}[{count(a.shape)}]" for a, n in self.of_kind("input")]
        parts += [f"{stored_type(o.shape.dtype)} {n}[{count(o.shape)}]" for o, n in self.outputs]
        return call_text(f"void {name}_run", parts)


def call_text(head: str, parts: Sequence[str]) -> str:
    """A call or prototype, in lines that are not too long."""
    text = f"{head}({', '.join(parts)})"
    if len(text) <= 110:
        return text
    return f"{head}(\n    " + ",\n    ".join(parts) + ")"
