"""The arguments of a program in C: types and the prototype of its function."""

from __future__ import annotations

from rlx.ir.interface import Argument
from rlx.targets.c.lower.notation import call_text, count
from rlx.targets.c.lower.program import CSource
from rlx.targets.c.lower.values import stored_type


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
