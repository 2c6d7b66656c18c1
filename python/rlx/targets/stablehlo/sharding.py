"""Meshes and shardings in StableHLO, in the two forms of Shardy, and the lowering rule for `shard`.

The dialect `sdy` is for users and for JAX, which supports it. A portable artifact has only StableHLO ops. It has the same
information as text in attributes, and constraints as custom calls, in the format that Shardy itself writes for XLA.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from rlx import mlir
from rlx.ir.shape import Shape
from rlx.ir.sharding import Mesh, Sharding, sharding_from_text
from rlx.targets.stablehlo.attributes import attribute
from rlx.targets.stablehlo.emitter import HloEmitter
from rlx.targets.stablehlo.rules import Lowered, lowers

Form = Literal["sdy", "text"]


@dataclass(frozen=True)
class Shardings:
    """A writer for the mesh of a module and its shardings.

    Attributes:
        mesh: The mesh.
        form: `"sdy"` for ops and attributes of the dialect, which the bindings do not know, or `"text"`.
    """

    mesh: Mesh
    form: Form
    NAME: ClassVar[str] = "mesh"
    NOTES: ClassVar[str] = "mhlo.frontend_attributes"
    NOTE: ClassVar[str] = "xla.sdy.sharding"

    def declare(self, module: mlir.Module) -> None:
        """Write the mesh and the number of devices into an empty module."""
        axes = ", ".join(f'"{name}"={size}' for name, size in self.mesh.axes.items())
        mesh = f"#sdy.mesh<[{axes}]>"
        attributes = module.operation.attributes
        attributes["mhlo.num_partitions"] = attribute(f"{self.mesh.size} : i32")
        attributes["mhlo.num_replicas"] = attribute("1 : i32")
        if self.form == "text":
            attributes[self.NOTES] = _notes("xla.sdy.meshes", f"{{{self.NAME} = {mesh}}}")
            return
        with mlir.ir.InsertionPoint(module.body):
            named = {"sym_name": mlir.ir.StringAttr.get(self.NAME), "mesh": attribute(mesh)}
            mlir.ir.Operation.create("sdy.mesh", attributes=named)

    def annotate(self, function: mlir.FuncOp, name: str, shardings: Iterable[Sharding | None]) -> None:
        """Write the shardings of the arguments or the results of a function.

        Args:
            function: The lowered function.
            name: `"arg_attrs"` or `"res_attrs"`.
            shardings: A sharding or None for each argument or result.
        """
        entries = [{} if s is None else self._entry(f"#sdy.sharding<{self._body(s)}>") for s in shardings]
        if any(entries):
            function.attributes[name] = mlir.ir.ArrayAttr.get([mlir.ir.DictAttr.get(e) for e in entries])

    def constrained(self, emit: HloEmitter, x: Lowered, sharding: Sharding) -> Lowered:
        """The same tensor with a sharding constraint."""
        if self.form == "text":
            noted = self._entry(f"#sdy.sharding_per_value<[<{self._body(sharding)}>]>")
            target = {"call_target_name": mlir.ir.StringAttr.get("Sharding")}
            return emit.one("custom_call", [x], x.dims, x.dtype, target | noted)
        attributes = {"sharding": attribute(f"#sdy.sharding<{self._body(sharding)}>")}
        name, types = "sdy.sharding_constraint", [x.value.type]
        made = mlir.ir.Operation.create(name, results=types, operands=[x.value], attributes=attributes)
        return Lowered(made.results[0], x.shape)

    def _entry(self, text: str) -> dict[str, Any]:
        return {self.NOTES: _notes(self.NOTE, text)} if self.form == "text" else {"sdy.sharding": attribute(text)}

    def _body(self, sharding: Sharding) -> str:
        entries = ("{" + ", ".join(f'"{name}"' for name in entry) + "}" for entry in sharding)
        return f"@{self.NAME}, [{', '.join(entries)}]"


def _notes(name: str, text: str) -> mlir.Attribute:
    return mlir.ir.DictAttr.get({name: mlir.ir.StringAttr.get(text)})


@lowers("shard")
def shard(emit: HloEmitter, results: list[Shape], x: Lowered, *, sharding: str) -> Lowered:
    if emit.shardings is None:
        return x
    return emit.shardings.constrained(emit, x, sharding_from_text(sharding, x.rank))
