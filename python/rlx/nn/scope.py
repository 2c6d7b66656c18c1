"""The scope of a module call: names and tensors of parameters, training mode, random seeds."""

from __future__ import annotations

import contextlib
import weakref
import zlib
from collections.abc import Generator, Mapping
from contextvars import ContextVar
from typing import TypeAlias, cast

import numpy as np

from rlx.ir.dtype import i64
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.graph import Graph
from rlx.nn.parameter import Buffer, Parameter
from rlx.ops.random import seed_tensor
from rlx.support.caller import caller_place
from rlx.support.errors import Error, ShapeError

# A Python or NumPy integer, or a scalar integer tensor.
Seed: TypeAlias = Tensor | np.ndarray | np.generic | int

_active: ContextVar[ModuleCall | None] = ContextVar("rlx_nn_scope", default=None)
# Parameters that modules have declared in each graph, by name. If a module is called twice in a graph, the second call
# uses the same parameters.
_declared: weakref.WeakKeyDictionary[Graph, dict[str, Parameter]] = weakref.WeakKeyDictionary()

CALLS = "nn/calls"  # the state that counts the runs of a graph, so that each run draws different random numbers
# Odd 64-bit integers, among them the first digits of the golden ratio. They separate seeds, runs and positions.
_MIX_SEED, _MIX_RUN = -7046029254386353131, -3335678366873096957


class ModuleCall:
    """One call of a root module and all modules in it.

    Attributes:
        builder: The builder that emits the ops.
        paths: The names of the modules in the root module, by `id`.
        names: The names of the parameters, by `id`.
        training: Whether layers are in training mode.
        path: The name of the module that is being computed.
        updates: The new values of buffers by name, if parameter values were given.
    """

    def __init__(
        self,
        builder: Builder,
        paths: Mapping[int, str],
        names: Mapping[int, str],
        values: Mapping[str, Tensor] | None,
        training: bool,
        seed: Seed | None,
    ):
        self.builder, self.paths, self.names, self.training = builder, paths, names, training
        self.path = ""
        self.updates: dict[str, Tensor] = {}
        self._values, self._given_seed = values, seed
        self._seed: Tensor | None = None
        self._draws: dict[str, int] = {}

    # --- parameters -------------------------------------------------------------------------------

    def tensor(self, parameter: Parameter) -> Tensor:
        """Return the tensor of a parameter in this scope."""
        name = self.names[id(parameter)]
        if self._values is not None:
            return self._values[name]
        graph = cast(Graph, self.builder)
        declared = _declared.setdefault(graph, {})
        if declared.get(name) is parameter:
            return graph.argument(name)
        if name in declared:
            raise Error(
                f"another module has declared a parameter '{name}' in the graph '{graph.name}'",
                location=caller_place(),
                hint="make both modules attributes of one, and call them from its forward",
            )
        if isinstance(parameter, Buffer) and self.training:
            tensor = graph.state(name, parameter.shape, init=parameter.start)
        else:
            tensor = graph.param(name, parameter.shape)
        declared[name] = parameter
        return tensor

    def update(self, parameter: Parameter, value: Tensor) -> None:
        """Set the value of a buffer after this call."""
        name = self.names[id(parameter)]
        if self._values is not None:
            self.updates[name] = value
            return
        graph = cast(Graph, self.builder)
        if name not in {a.name for a in graph.states}:
            raise Error(
                f"buffer '{name}' is a parameter of the graph '{graph.name}', where the module was called without training",
                location=caller_place(),
                hint="use one graph for training and another for inference",
            )
        graph.update(graph.argument(name), value)

    # --- random numbers ---------------------------------------------------------------------------

    def prepare_seed(self) -> None:
        """Create the seed of all random numbers of this call, outside all regions."""
        b = cast(Graph, self.builder)
        seed = self._given_seed
        if self._values is not None:
            if seed is None:
                hint = "apply(params, x, training=True, seed=…), another one for each call"
                raise Error("random layers need a seed in training", location=caller_place(), hint=hint)
            self._seed = _as_i64(b, seed) * _MIX_SEED
        elif isinstance(seed, Tensor):
            self._seed = _as_i64(b, seed) * _MIX_SEED
        else:
            known = CALLS in {a.name for a in b.states}
            calls = b.argument(CALLS) if known else b.state(CALLS, (), "i64")
            if not known:
                b.update(calls, calls + 1)
            self._seed = calls * _MIX_RUN + _as_i64(b, 0 if seed is None else seed) * _MIX_SEED

    def seed_of(self, path: str) -> Tensor:
        """Return the seed of a module for one call. It differs from the seeds of other modules and other calls."""
        if self._seed is None:
            self.prepare_seed()
        assert self._seed is not None
        number = self._draws[path] = self._draws.get(path, 0) + 1
        return self._seed + (zlib.crc32(f"{path}#{number}".encode()) << 20)


def _as_i64(b: Builder, seed: Seed) -> Tensor:
    tensor = seed_tensor(b, seed)
    if tensor.rank or not tensor.dtype.is_integer:
        raise ShapeError(f"the seed must be an integer or a scalar integer tensor, got {tensor.shape}")
    return tensor if tensor.dtype is i64 else b.cast(tensor, i64)


def active() -> ModuleCall | None:
    """Return the scope of the current call, or None."""
    return _active.get()


@contextlib.contextmanager
def entered(scope: ModuleCall) -> Generator[None]:
    """Return a context in which modules belong to a scope."""
    token = _active.set(scope)
    try:
        yield
    finally:
        _active.reset(token)
