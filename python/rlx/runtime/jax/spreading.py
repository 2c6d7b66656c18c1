"""Conversion of shardings to modules and objects of JAX."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from math import prod
from typing import Any

from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument, argument_array, check_argument
from rlx.ir.shape import Shape
from rlx.ir.sharding import Mesh, Sharding, check_sharding
from rlx.support.errors import Error
from rlx.support.guards import is_mapping
from rlx.support.packages import import_package
from rlx.support.suggestions import suggestion
from rlx.targets.stablehlo.sharding import Shardings

_PURPOSE = "Graph.to_jax"
_MESH = re.compile(r"\bmesh<\[([^\]]*)\]")
_AXIS = re.compile(r'"([^"]+)"=(\d+)')


def spread(module: Any, context: Any, into: Any) -> None:
    """Convert textual sharding constraints of a module to Shardy, if JAX compiles for the devices of its mesh.

    Otherwise, on one device or in the part of a program that `shard_map` runs on each, they are removed, since there is
    nothing to shard.

    Args:
        module: A module of an artifact, in JAX's context; it is changed.
        context: JAX's description of the devices that it compiles for.
        into: The module that it becomes part of, whose arguments already have shardings.
    """
    ir, sdy = import_package("jax.extend.mlir.ir", _PURPOSE), import_package("jax.extend.mlir.dialects.sdy", _PURPOSE)
    attributes = module.operation.attributes
    mesh = None
    if Shardings.NOTES in attributes:
        text = attributes[Shardings.NOTES]["xla.sdy.meshes"].value
        mesh = re.sub(r"^\{mesh = #sdy\.mesh<(.*)>\}$", r"mesh<\1>", text)
        del attributes[Shardings.NOTES]
    if mesh is None or not _is_for(context, into, _axes(mesh)):
        mesh = None
    for op in _noted(ir, module):
        value = op.operands[0]
        if mesh is not None:
            note = op.attributes[Shardings.NOTES][Shardings.NOTE].value
            body = note.removeprefix("#sdy.sharding_per_value<[<@mesh, ").removesuffix(">]>")
            with module.context, op.location, ir.InsertionPoint(op):
                value = sdy.sharding_constraint(value, ir.Attribute.parse(f"#sdy.sharding<{mesh}, {body}>"))
        op.results[0].replace_all_uses_with(value)
        op.erase()


def _noted(ir: Any, module: Any) -> list[Any]:
    """Return the custom calls of a module that are shardings."""
    found: list[Any] = []

    def visit(op: Any) -> Any:
        op = op.operation
        if op.name == "stablehlo.custom_call" and op.attributes["call_target_name"].value == "Sharding":
            found.append(op)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    return found


def _is_for(context: Any, into: Any, axes: Mapping[str, int]) -> bool:
    """Whether a JAX program is partitioned for devices with these axes, and is not the per-device part of `shard_map`.

    If no argument of the program is sharded over a mesh, the number of devices decides.
    """
    if getattr(context, "manual_axes", None):
        return False
    mesh = getattr(context, "mesh", None)
    count = getattr(context, "num_devices", 1) if mesh is None else mesh.size
    known = [m[1] for op in into.body.operations for m in _MESH.finditer(_declared(op.operation))]
    return count == prod(axes.values()) and all(_axes(text) == dict(axes) for text in known)


def _declared(op: Any) -> str:
    """Return the attributes of a function's arguments, as text."""
    return str(op.attributes["arg_attrs"]) if "arg_attrs" in op.attributes else ""


def _axes(mesh: str) -> dict[str, int]:
    return {name: int(size) for name, size in _AXIS.findall(mesh)}


def named_sharding(mesh: Any, sharding: Sharding | None) -> Any:
    """Return a sharding as a `NamedSharding`; None means replicated on every device.

    Args:
        mesh: A `jax.sharding.Mesh` or `AbstractMesh` with its axes.
        sharding: The sharding.
    """
    jax = import_package("jax.sharding", _PURPOSE)
    entries = [(entry[0] if len(entry) == 1 else entry) if entry else None for entry in sharding or ()]
    return jax.NamedSharding(mesh, jax.PartitionSpec(*entries))


def mesh_for(graph: Graph, mesh: Any) -> Any:
    """Return the JAX mesh on which a graph runs, see `JaxGraph.shardings`.

    Raises:
        Error: The graph has no mesh, the JAX mesh has other axes, or there are too few devices.
    """
    own = graph.mesh
    if own is None:
        raise Error(f"graph '{graph.name}' has no mesh", hint='rlx.Graph(name, mesh=rlx.Mesh({"data": 4, "model": 2}))')
    if mesh is None:
        return own.to_jax()
    axes = dict(getattr(mesh, "shape", {}))
    if list(axes.items()) != list(own.axes.items()):
        raise Error(f"graph '{graph.name}' is for the mesh {own}, got {mesh!r:.200}")
    return mesh


class JaxShardings:
    """The shardings of a graph's arguments, for `jax.device_put` and `jax.jit(in_shardings=)`.

    Attributes:
        mesh: The mesh of JAX.
        inputs: One for each input, in order.
        params: For parameters, by name.
        states: For states, by name.
    """

    def __init__(self, mesh: Any, arguments: Iterable[Argument]):
        self.mesh = mesh
        by_kind: dict[str, dict[str, Any]] = {"input": {}, "param": {}, "state": {}}
        self._arguments = {a.name: a for a in arguments}
        for a in self._arguments.values():
            by_kind[a.kind][a.name] = named_sharding(mesh, a.sharding)
        self.inputs = tuple(by_kind["input"].values())
        self.params, self.states = by_kind["param"], by_kind["state"]
        self._all = by_kind["input"] | self.params | self.states

    def put(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Put arrays on the devices, each sharded like its argument.

        Every process passes the same arrays, and keeps the shards of its own devices. For a batch that is distributed
        over processes, use `jax.make_array_from_process_local_data`.

        Args:
            values: Arrays by argument name.

        Raises:
            Error: The argument does not exist.
            ShapeError: An array does not fit, or the devices do not divide its size.
        """
        jax = import_package("jax", _PURPOSE)
        if not is_mapping(values):
            raise Error(f"put takes arrays by the names of arguments, got {type(values).__name__}")
        placed: dict[str, Any] = {}
        for name, value in values.items():
            if name not in self._arguments:
                raise Error(f"there is no argument '{name}'{suggestion(name, self._arguments)}")
            argument, sharding = self._arguments[name], self._all[name]
            if isinstance(value, jax.Array):
                check_argument(argument, value)
                placed[name] = jax.device_put(value, sharding)
                continue
            array = argument_array(argument, value)
            if argument.sharding is not None:
                check_sharding(argument.sharding, Shape(array.shape, argument.shape.dtype), Mesh(dict(self.mesh.shape)))
            placed[name] = jax.make_array_from_callback(array.shape, sharding, array.__getitem__)
        return placed
