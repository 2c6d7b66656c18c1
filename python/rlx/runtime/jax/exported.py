"""`Graph.to_jax`: a graph as a function that JAX can call, compile, differentiate and batch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.ir.arrays import as_array
from rlx.ir.fitting import as_array_of
from rlx.ir.graph.graph import Graph
from rlx.ir.graph.weak import NUMBERS
from rlx.ir.interface import Argument, bind_symbols, check_argument
from rlx.ir.op.attributes import suggestion
from rlx.passes import run
from rlx.runtime.jax.blob import PLATFORMS, baked_values, exported
from rlx.runtime.jax.primitive import apply, check_width, primitive
from rlx.runtime.jax.programs import Given
from rlx.runtime.jax.spreading import JaxShardings, mesh_for
from rlx.support.errors import Error
from rlx.support.files import check_writable, write_atomically
from rlx.support.guards import is_mapping
from rlx.support.packages import import_package
from rlx.targets.options import CompileOptions
from rlx.targets.stages import prepare_graph
from rlx.targets.xla.portable import checked_version
from rlx.transforms.base import tensor_graph


class JaxGraph:
    """A graph as a pure function of JAX arrays. Created by `Graph.to_jax`.

    Called inside a function that JAX traces, it becomes part of that function's program. Its derivatives and batches
    are computed by RLX's transforms, of any order, in both modes.

    Args:
        source: A graph at MIR, which must not change afterwards.
        options: The options of its compilation.

    Attributes:
        source: The graph.
    """

    def __init__(self, source: Graph, options: CompileOptions | None = None):
        self.__name__ = source.name
        self._options = options or CompileOptions()
        self.source = source
        self._what = f"graph '{source.name}'"
        self._programs: dict[tuple[tuple[str, int], ...], Given] = {}
        self._values: dict[str, Any] = {}
        jax = import_package("jax", "Graph.to_jax")
        self._numpy, self._jax = import_package("jax.numpy", "Graph.to_jax"), jax

    def __reduce__(self) -> tuple[Any, ...]:
        return JaxGraph, (self.source, self._options)

    def __call__(
        self,
        /,
        *inputs: Any,
        params: Mapping[str, Any] | None = None,
        states: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> Any:
        """Compute the outputs of the graph.

        Args:
            inputs: Arrays for the inputs, in order; Python numbers take the dtype of the input.
            params: Arrays for parameters, by name. Missing ones take the values that came with the graph.
            states: Arrays for states, by name. Missing ones take their initial values.
            named: Inputs by name.

        Returns:
            A tuple of the outputs, in order. For a graph with states, this tuple and a dictionary of their next values.

        Raises:
            ShapeError: An array has a different shape or dtype; nothing is cast.
            UnsupportedError: An op has no StableHLO form.
            Error: An argument is missing, unknown or passed twice, or has 64 bits and JAX is configured without 64-bit
                dtypes.
        """
        given = self._given(inputs, params, states, named)
        values = [self.to_array(a, given.get(a.name)) for a in self.source.arguments]
        for a, value in zip(self.source.arguments, values, strict=True):
            check_argument(a, value)
        shapes = [(a, value.shape) for a, value in zip(self.source.arguments, values, strict=True)]
        if any(type(size) is not int for _, shape in shapes for size in shape):
            raise Error(f"{self._what}: RLX computes with sizes that are known when JAX traces the function")
        results = apply(self._program(tuple(sorted(bind_symbols(shapes).items()))), values)
        pairs = list(zip(self.source.results, results, strict=True))
        outputs = tuple(r for o, r in pairs if o.updates is None)
        if not self.source.states:
            return outputs
        kept = {a.name: value for a, value in zip(self.source.arguments, values, strict=True) if a.kind == "state"}
        return outputs, kept | {o.updates: r for o, r in pairs if o.updates is not None}

    def shardings(self, mesh: Any = None) -> JaxShardings:
        """Return the shardings of the arguments over JAX devices, as objects of JAX.

        Args:
            mesh: A `jax.sharding.Mesh` with the axes of the graph's mesh; by default, the graph's mesh on the first
                devices.

        Raises:
            Error: The graph has no mesh, the JAX mesh has other axes, or there are too few devices.
        """
        return JaxShardings(mesh_for(self.source, mesh), self.source.arguments)

    def export(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        params: Mapping[str, Any] | str | os.PathLike[str] | None = None,
        bind: Mapping[str, int] | None = None,
        platforms: str | Sequence[str] = PLATFORMS,
        vjp_order: int = 0,
        stablehlo_version: str | None = None,
        sharded: bool = True,
    ) -> bytes:
        """Export the function as bytes that any JAX program can call without RLX.

        `jax.export.deserialize(data).call(…)` takes the arguments of this function: inputs in order, `params={…}` with
        the parameters that are not constants, and `states={…}` if there are states. All of them are required.

        Args:
            path: A file to write the bytes to.
            params: Parameters that become constants: values by name, or the path of a file that has all of them. All
                others are arguments, including those with a value in `graph.weights`.
            bind: Sizes of symbols. All must be known.
            platforms: The platforms, among `"cpu"`, `"cuda"`, `"rocm"` and `"tpu"`; all by default.
            vjp_order: The maximum order of reverse-mode derivatives for callers.
            stablehlo_version: The StableHLO version of the program, such as `"1.9.0"`; by default, JAX chooses one that
                readers of the last weeks support.
            sharded: For a graph with a mesh, whether the function is for the devices of the mesh and takes sharded
                arrays.

        Returns:
            The bytes.

        Raises:
            UnsupportedError: The size of a symbol is not known, or an op has no StableHLO form.
            Error: An option is wrong, a value does not fit, or the file cannot be written.
        """
        if not isinstance(sharded, bool):
            raise Error(f"{self._what}: sharded is True or False, got {sharded!r:.60}")
        if path is not None:
            check_writable(path)
        version = None if stablehlo_version is None else checked_version(stablehlo_version)
        source = prepare_graph(self.source, CompileOptions(bind=bind))
        function = self if source is self.source else JaxGraph(source, self._options)
        baked = {} if params is None else baked_values(source.arguments, params)
        data = exported(
            function,
            baked,
            platforms=platforms,
            vjp_order=vjp_order,
            version=version,
            sharded=sharded,
        )
        if path is not None:
            write_atomically(path, data)
        return data

    def _program(self, sizes: tuple[tuple[str, int], ...]) -> Given:
        """Return the program for these sizes of symbols."""
        program = self._programs.get(sizes)
        if program is None:
            text = " ".join(f"{name}={size}" for name, size in sizes)
            bound = run(self.source, f"rlx-bind{{{text}}}") if sizes else self.source
            program = self._programs.setdefault(sizes, Given(bound, self._options))
        return program

    def _given(self, inputs: tuple[Any, ...], params: Any, states: Any, named: Mapping[str, Any]) -> dict[str, Any]:
        """Return the caller's values by argument name."""
        names = [a.name for a in self.source.inputs]
        if len(inputs) > len(names):
            listed = ", ".join(names) or "none"
            hint = "parameters are given by name: f(x, params={…})"
            raise Error(f"{self._what}: {len(inputs)} arrays for {len(names)} inputs ({listed})", hint=hint)
        given = dict(zip(names, inputs, strict=False))
        for kind, what in (("input", named), ("param", params), ("state", states)):
            if what is None:
                continue
            if not is_mapping(what):
                raise Error(f"{self._what}: {kind}s must be a mapping of names to arrays, got {type(what).__name__}")
            known = [a.name for a in self.source.arguments if a.kind == kind]
            for name, value in what.items():
                if name not in known:
                    listed = ", ".join(known) or "none"
                    close = suggestion(name, known)
                    raise Error(f"{self._what} has no {kind} {name!r:.60}{close}; its {kind}s are: {listed}")
                if name in given:
                    raise Error(f"{self._what}: {kind} '{name}' is given twice")
                given[name] = value
        return given

    def to_array(self, argument: Argument, value: Any) -> Any:
        """Return a JAX array for an argument; None means the default value.

        Raises:
            Error: There is no value.
        """
        what = f"{self._what}: {argument.kind} '{argument.name}'"
        check_width(what, argument.shape)
        if value is None:
            return self._value_of_its_own(argument, what)
        if isinstance(value, NUMBERS) and not argument.shape.rank:
            value = as_array_of(value, argument.shape.dtype)
        elif isinstance(value, NUMBERS):
            raise Error(f"{what} must be {argument.shape}, got the number {value!r}")
        if not isinstance(value, self._jax.Array):
            value = as_array(value, what)
            check_argument(argument, value)  # before JAX converts 64 bits to 32
        return self._numpy.asarray(value)

    def _value_of_its_own(self, argument: Argument, what: str) -> Any:
        """Return the default value of an argument: the value that came with the graph, or a state's initial value."""
        shape = argument.shape
        if argument.kind == "state":
            return self._numpy.full(shape.static, argument.init, shape.dtype.numpy)
        if argument.name not in self.source.weights:
            hint = "give it by name: f(x, params={…})" if argument.kind == "param" else None
            raise Error(f"{what} ({shape}) is missing", hint=hint)
        if argument.name not in self._values:
            with self._jax.ensure_compile_time_eval():  # an array, also where this is being traced
                value = np.asarray(self.source.weights[argument.name])
                self._values[argument.name] = self._numpy.asarray(value)
        return self._values[argument.name]

    def __repr__(self) -> str:
        return f"<{self.source!r:.200} for JAX>"


def to_jax(graph: Any, options: CompileOptions | None = None) -> JaxGraph:
    """See `Graph.to_jax`.

    Args:
        graph: The graph.
        options: The options of its compilation.
    """
    source = tensor_graph(graph)
    primitive()  # says at once if JAX is not there
    function = JaxGraph(source.clone(), options)
    for output in source.results:
        check_width(f"graph '{source.name}': output '{output.name}'", output.shape)
    return function
