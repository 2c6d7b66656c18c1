"""`JaxGraph.export`: a graph as bytes that any JAX program can call without RLX (`jax.export`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.ir.dtype import dtype
from rlx.ir.interface import Argument, argument_array
from rlx.ir.parameters import named_values
from rlx.ir.sharding import Mesh
from rlx.runtime.jax.spreading import named_sharding
from rlx.support.errors import Error, UnsupportedError
from rlx.support.packages import import_package
from rlx.support.suggestions import suggestion
from rlx.targets.xla.portable import version_error
from rlx.weights import Weights, open_parameters

if TYPE_CHECKING:
    from rlx.runtime.jax.exported import JaxGraph

_PURPOSE = "JaxGraph.export"
# Each order more than doubles the size of the blob.
_MOST_DERIVATIVES = 5
PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def exported(
    function: JaxGraph,
    baked: Mapping[str, Any],
    *,
    platforms: Any = PLATFORMS,
    vjp_order: int = 0,
    version: str | None = None,
    sharded: bool = True,
) -> bytes:
    """Return the bytes of a graph: see `JaxGraph.export`.

    Args:
        function: The graph.
        baked: Values of some parameters.
        platforms: Those that the blob runs on.
        vjp_order: How often callers may differentiate it.
        version: The version of StableHLO of its module; None for what JAX chooses.
        sharded: Whether it is for the devices of the graph's mesh, if that has one.
    """
    arguments, mesh = function.source.arguments, function.source.mesh if sharded else None
    jax, export = import_package("jax", _PURPOSE), import_package("jax.export", _PURPOSE)
    import_package("flatbuffers", _PURPOSE)
    chosen = _platforms(platforms)
    if type(vjp_order) is not int or not 0 <= vjp_order <= _MOST_DERIVATIVES:
        raise Error(
            f"vjp_order must be 0 to {_MOST_DERIVATIVES}: how often callers differentiate; got {vjp_order!r:.40}"
        )
    symbols = sorted({s for a in arguments for s in a.shape.symbols})
    if symbols:
        raise UnsupportedError(
            f"graph '{function.__name__}': StableHLO is lowered to with static sizes, "
            f"and the size of {', '.join(symbols)} is a symbol",
            hint=f'bind it: --bind={symbols[0]}=128, or export(bind={{"{symbols[0]}": 128}})',
        )
    with jax.enable_x64(True):
        constants = {name: function.to_array(a, baked[name]) for a in arguments if (name := a.name) in baked}

        def call(*inputs: Any, params: Mapping[str, Any] | None = None, states: Any = None) -> Any:
            return function(*inputs, params=constants | dict(params or {}), states=states)

        inputs, named = _specs(jax, arguments, baked, mesh)
        made = export.export(jax.jit(call), platforms=chosen)(*inputs, **named)
        if version is not None:
            made = _at_version(made, version)
        return _serialized(made, vjp_order)


def _serialized(made: Any, vjp_order: int) -> bytes:
    """Return the bytes of an exported function.

    Raises:
        UnsupportedError: JAX cannot serialise a dtype.
    """
    try:
        return bytes(made.serialize(vjp_order=vjp_order))
    except KeyError as problem:
        (key,) = problem.args
        if not isinstance(key, np.dtype):
            raise
        version = import_package("jax", _PURPOSE).__version__
        raise UnsupportedError(
            f"{_PURPOSE}: the files of jax {version} hold no arguments and results of {dtype(key).name}",
            hint="cast them in the graph",
        ) from None


def _specs(
    jax: Any, arguments: Sequence[Argument], baked: Mapping[str, Any], mesh: Mesh | None
) -> tuple[list[Any], dict[str, Any]]:
    """Return the argument specs of the blob: inputs in order, and parameters and states by name."""
    devices = None if mesh is None else jax.sharding.AbstractMesh(tuple(mesh.axes.values()), tuple(mesh.axes))

    def spec(argument: Argument) -> Any:
        spread = {} if devices is None else {"sharding": named_sharding(devices, argument.sharding)}
        return jax.ShapeDtypeStruct(argument.shape.static, argument.shape.dtype.numpy, **spread)

    inputs = [spec(a) for a in arguments if a.kind == "input"]
    params = {a.name: spec(a) for a in arguments if a.kind == "param" and a.name not in baked}
    states = {a.name: spec(a) for a in arguments if a.kind == "state"}
    return inputs, {name: specs for name, specs in (("params", params), ("states", states)) if specs}


def _platforms(platforms: Any) -> tuple[str, ...]:
    given = (platforms,) if isinstance(platforms, str) else platforms
    if not isinstance(given, (list, tuple)) or not given or not all(isinstance(p, str) for p in given):
        raise Error(f"platforms must be names of platforms, such as {PLATFORMS}, got {platforms!r:.80}")
    for name in given:
        if name not in PLATFORMS:
            raise Error(
                f"there is no platform {name!r:.40}{suggestion(name, PLATFORMS)}; known: {', '.join(PLATFORMS)}"
            )
    return tuple(dict.fromkeys(given))


def _at_version(made: Any, version: str) -> Any:
    """Return the exported function with its module in another version of StableHLO.

    Raises:
        UnsupportedError: JAX's library does not know the version, or the version lacks an op of the module.
    """
    stablehlo = import_package("jax.extend.mlir.dialects.stablehlo", _PURPOSE)
    mlir = import_package("jax.interpreters.mlir", _PURPOSE)
    with mlir.make_ir_context() as context:
        module = stablehlo.deserialize_portable_artifact(context, made.mlir_module_serialized)
        said: list[str] = []
        handler = context.attach_diagnostic_handler(lambda diagnostic: said.append(diagnostic.message) or True)
        try:
            data = stablehlo.serialize_portable_artifact(module, version, True)
        except Exception as problem:  # JAX's bindings raise several classes
            raise version_error(version, said[0] if said else str(problem)) from None
        finally:
            handler.detach()
    return dataclasses.replace(made, mlir_module_serialized=data)


def baked_values(arguments: Sequence[Argument], params: Any) -> dict[str, Any]:
    """Return the values of parameters that become constants, checked.

    Args:
        arguments: The arguments of the graph.
        params: Arrays by name, or the path of a file that has all of them.

    Raises:
        Error: The value is neither, a name is not a parameter, or an array has a different shape or dtype.
    """
    known = {a.name: a for a in arguments if a.kind == "param"}
    values = open_parameters(params)
    if isinstance(values, Weights):
        return values.values_of(known.values())
    values = named_values(values, known, "export: ")
    return {name: argument_array(known[name], value) for name, value in values.items()}
