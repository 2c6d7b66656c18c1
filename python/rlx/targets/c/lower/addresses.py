"""Addresses of values in the function that runs a program: in the arena, in arrays of the caller, in constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlx.ir.shape import shape_of
from rlx.plan.liveness import Live, Storage
from rlx.targets.c.lower.grouping import constant_of
from rlx.targets.c.lower.values import Affine, stored_type

if TYPE_CHECKING:
    from rlx.targets.c.lower.program import CSource

_ARENA = "state->arena.bytes"


@dataclass(frozen=True)
class Address:
    """The first byte of a value.

    Attributes:
        base: An expression for the array that holds the value.
        offset: The distance in bytes. It depends on the iteration for rows of arrays that a loop reads or writes.
        constant: Whether the array must not be written.
    """

    base: str
    offset: Affine
    constant: bool

    @property
    def text(self) -> str:
        """The address as an expression. It has the type of the array if the distance is 0."""
        if self.offset == Affine():
            return self.base
        terms = [f"({factor} * {name})" if factor != 1 else name for name, factor in self.offset.terms]
        if self.offset.offset:
            terms.insert(0, str(self.offset.offset))
        base = self.base if self.base == _ARENA else f"({'const ' if self.constant else ''}uint8_t *){self.base}"
        return " + ".join([base, *terms])


class ValueAddresses:
    """The addresses of the values of a program."""

    def __init__(self, program: CSource):
        self.program = program
        self._kinds = {program.names[v]: a.kind for a, v in program.arguments}

    def of(self, value: Any) -> Address:
        """The address of a value."""
        return self._of(self.program.memory.live(value))

    def name(self, value: Any) -> str:
        """The name of a value in the code. A constant has the name of its table."""
        array = constant_of(value)
        if array is not None:
            kind = stored_type(shape_of(value).dtype)
            return self.program.table("values", array.reshape(-1), kind, "constants that are copied or read in a loop")
        name = self.program.names[value]
        return {"state": f"state->{name}", "param": f"params->{name}"}.get(self._kinds.get(name, ""), name)

    def pointer(self, value: Any, name: str) -> str:
        """The declaration of a pointer to a value."""
        at = self.of(value)
        kind = self.program.arena_type(shape_of(value).dtype)
        if at.base == _ARENA and kind == "uint8_t":
            return f"{kind} *const {name} = {at.text};"
        constant = "const " if at.constant else ""
        return f"{constant}{kind} *const {name} = ({constant}{kind} *)({constant}void *)({at.text});"

    def arena(self, offset: int) -> str:
        """The address of a byte of the arena."""
        return Address(_ARENA, Affine((), offset), False).text

    def _of(self, live: Live) -> Address:
        at = self._of_storage(live.storage)
        offset, around = at.offset + live.offset, live
        while around is not None and around.relation in ("view", "row"):
            if around.relation == "row":
                offset = offset + self._row(around.step, around.size)
            around = around.base
        return Address(at.base, offset, at.constant)

    def _of_storage(self, storage: Storage) -> Address:
        memory = self.program.memory
        if storage in memory.plan.layout.offsets:
            return Address(_ARENA, Affine((), memory.plan.layout.offsets[storage]), False)
        if storage in memory.outputs:
            return Address(self.program.outputs[memory.outputs[storage]], Affine(), False)
        if storage in memory.rows:
            step, i = memory.rows[storage]
            stack = step.results[i]
            assert stack is not None
            at = self._of(stack)
            return Address(at.base, at.offset + self._row(step, storage.size), at.constant)
        return Address(self.name(storage.members[0].value), Affine(), True)

    def _row(self, step: Any, size: int) -> Affine:
        """The distance of the row of an iteration."""
        return Affine.of(self.program.iterations[step.op.results[0]]) * size
