"""`Module`: a layer or a network, declared once, called on tensors of a graph."""

# Users may pass values that the annotations do not allow.
# pyright: reportUnnecessaryIsInstance=false

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlx.ir.arrays import as_array
from rlx.ir.calls import Answered
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.current import builder_of, current_builder
from rlx.ir.graph.graph import Graph
from rlx.ir.parameters import is_count
from rlx.nn import scope as scopes
from rlx.nn.parameter import Buffer, Parameter, ParameterName
from rlx.nn.scope import ModuleCall, Seed
from rlx.ops.lift import tensor_like
from rlx.support.answers import answers
from rlx.support.caller import caller_place
from rlx.support.errors import Error, ShapeError
from rlx.support.guards import is_array, is_dict, is_integer, is_sequence
from rlx.support.suggestions import suggestion
from rlx.weights import Weights, open_parameters, safetensors

_NAMED = 10  # the number of names that a message lists
_STEP = "train/step"  # a tensor of every checkpoint of `rlx.train`


class Module(Answered):
    """A part of a network. Subclasses set submodules and `Parameter`s as attributes, and compute in `forward`.

    Called on a tensor of a graph, a module declares its parameters in that graph, with the names of PyTorch's state
    dicts: `layers.0.weight` is the attribute `weight` of the first entry of the list `layers`. `apply` takes their
    values instead.
    """

    @property
    def random(self) -> bool:
        """Whether `forward` draws random numbers in training, so that a call needs a seed."""
        return False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the result of the module; defined by subclasses."""
        raise Error(f"{type(self).__name__} has no forward", location=caller_place())

    # --- attributes -------------------------------------------------------------------------------

    def __setattr__(self, name: str, value: object) -> None:
        declared = self.__dict__.setdefault("_declared", {})
        declared.pop(name, None)
        self.__dict__.pop(name, None)
        if isinstance(value, Parameter):
            declared[name] = value
        else:
            self.__dict__[name] = value

    def __getattr__(self, name: str) -> Any:
        parameter = self.__dict__.get("_declared", {}).get(name)
        if parameter is None:
            known = [*self.__dict__.get("_declared", {}), *vars(self)]
            raise answers().attribute_problem(type(self).__name__, name, "modules", known)
        scope = scopes.active()
        return parameter if scope is None or id(parameter) not in scope.names else scope.tensor(parameter)

    def members(self) -> Iterator[tuple[str, Module | Parameter]]:
        """Yield the module's own parameters and submodules, with their names in the module."""
        yield from self.__dict__.get("_declared", {}).items()
        for name, value in vars(self).items():
            if name != "_declared":
                yield from _modules_in(name, value)

    def _walk(self, prefix: str = "", above: tuple[int, ...] = ()) -> Iterator[tuple[str, Module | Parameter]]:
        """Yield all modules and parameters, with every name by which they can be reached."""
        yield prefix.removesuffix("."), self
        for name, member in self.members():
            if isinstance(member, Parameter):
                yield prefix + name, member
            elif id(member) not in above and member is not self:
                yield from member._walk(f"{prefix}{name}.", (*above, id(self)))

    def parameters(self) -> dict[str, Parameter]:
        """Return the declarations of all parameters and buffers by name. A shared one has the first of its names."""
        first: dict[int, str] = {}
        found: dict[str, Parameter] = {}
        for name, member in self._walk():
            if isinstance(member, Parameter) and first.setdefault(id(member), name) == name:
                found[ParameterName(name)] = member
        return found

    @property
    def num_parameters(self) -> int:
        """The number of trained numbers."""
        declared = self.parameters().values()
        return sum(int(np.prod(p.shape.static)) for p in declared if not isinstance(p, Buffer))

    # --- values -----------------------------------------------------------------------------------

    def init(self, seed: int = 0) -> dict[str, np.ndarray]:
        """Return initial values of all parameters and buffers, by name.

        The same seed gives the same numbers. The numbers of a parameter depend on its name, not on other parameters.

        Raises:
            Error: The seed is not an integer.
        """
        if not is_integer(seed):
            raise Error(f"the seed must be an integer, got {seed!r:.60}", location=caller_place())
        return {name: parameter.value(seed, name) for name, parameter in self.parameters().items()}

    def params_from(self, source: Any) -> dict[str, np.ndarray]:
        """Return values of all parameters and buffers, by name.

        Args:
            source: Arrays by name, for example a state dict of PyTorch; the path of a safetensors file, or the result
                of `rlx.weights.open`; or an `rlx.train.TrainStep` of a graph that contains this module. A file may be
                a checkpoint: its states of the optimiser are not used.

        Raises:
            Error: Names are missing or unknown, or shapes or dtypes differ; the message lists them.
        """
        if not isinstance(source, (Mapping, str, os.PathLike)) and hasattr(source, "params"):
            names = self.parameters()
            source = {n: v for n, v in {**source.state(), **source.params()}.items() if n in names}
        values = open_parameters(source)
        first: dict[int, str] = {}
        known, problems = set[str](), list[str]()
        result: dict[str, np.ndarray] = {}
        for name, member in self._walk():
            if isinstance(member, Parameter):
                known.add(name)
                if first.setdefault(id(member), name) == name:
                    array = _checked(name, member, values, problems)
                    if array is not None:
                        result[name] = array
        # States of a checkpoint have a slash in their names: `adam_m/weight`, `train/step`.
        others = [n for n in values if "/" not in n] if _STEP in values else values
        problems += [
            f"'{n}' has no place here{suggestion(n, known)}" for n in others if n not in known and not is_count(n)
        ]
        _raise(problems, f"these are no parameters of {type(self).__name__}")
        return result

    def save(self, path: str | os.PathLike[str], params: Mapping[str, object]) -> None:
        """Write values of all parameters to a safetensors file. The file appears only once it is complete.

        Raises:
            Error: The values do not fit the module, or the file cannot be written.
        """
        safetensors.write(path, self.params_from(params), {"format": "pt"})

    def load(self, path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
        """Return values of all parameters from a file, or from a model in several files; see `params_from`."""
        return self.params_from(path)

    # --- calling ----------------------------------------------------------------------------------

    def __call__(self, *args: object, training: bool | None = None, seed: Seed | None = None, **kwargs: object) -> Any:
        """Compute `forward` in the graph that the tensors belong to, and declare the parameters there.

        Args:
            args: Arguments of `forward`.
            training: Whether layers such as `Dropout` and `BatchNorm` are in training mode; by default as in the
                enclosing module.
            seed: The seed of random layers in training. An integer gives different numbers in each run; a scalar
                integer tensor determines them completely. Only the outermost module takes a seed.
            kwargs: Arguments of `forward`.

        Raises:
            Error: The message names the module and the user's line.
        """
        scope = scopes.active()
        if scope is not None:
            return self._forward(scope, args, kwargs, scope.training if training is None else training)
        b = builder_of((*args, *kwargs.values())) or current_builder()
        if not isinstance(b, Graph):
            got = "tensors without a graph" if b is not None else "no tensor of a graph"
            hint = "module.apply(params, x) computes with given parameters, under rlx.jit and inside of rlx.eager()"
            problem = f"{self._name('')} was called with {got}, so there is nowhere to declare its parameters"
            raise Error(problem, location=caller_place(), hint=hint)
        return self._rooted(b, None, bool(training), seed, args, kwargs)[0]

    def apply(
        self,
        params: Mapping[str, object],
        *args: object,
        training: bool = False,
        seed: Seed | None = None,
        **kwargs: object,
    ) -> Any:
        """Compute `forward` with given parameter values: under `rlx.jit`, inside `rlx.eager()`, or in a graph.

        Args:
            params: Tensors or arrays of all parameters and buffers by name, as returned by `init`.
            args: Arguments of `forward`; arrays become tensors.
            training: As for a call. New values of buffers are discarded; `apply_and_update` returns them.
            seed: An integer or a scalar integer tensor, which random layers need in training. The same seed gives the
                same numbers.
            kwargs: Arguments of `forward`.
        """
        return self._applied(params, training, seed, args, kwargs)[0]

    def apply_and_update(
        self,
        params: Mapping[str, object],
        *args: object,
        training: bool = True,
        seed: Seed | None = None,
        **kwargs: object,
    ) -> tuple[Any, dict[str, Any]]:
        """Return `(result, params)`: the result of `apply`, and the parameters with the new values of buffers."""
        result, scope = self._applied(params, training, seed, args, kwargs)
        return result, {**params, **scope.updates}

    def _applied(
        self,
        params: Mapping[str, object],
        training: bool,
        seed: Seed | None,
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> tuple[Any, ModuleCall]:
        if not isinstance(params, Mapping):
            raise Error(
                f"apply takes the parameters first, arrays or tensors by name, got {type(params).__name__}",
                location=caller_place(),
            )
        b: Builder | None = builder_of((*args, *kwargs.values(), *params.values())) or current_builder()
        if b is None:
            raise Error(
                f"apply of {type(self).__name__}: none of the arguments is a tensor",
                location=caller_place(),
                hint="call it in a function under rlx.jit, or inside of `with rlx.eager():`",
            )
        declared, problems = self.parameters(), list[str]()
        problems += [f"'{n}' has no place here{suggestion(n, declared)}" for n in params if n not in declared]
        values: dict[str, Tensor | np.ndarray] = {}
        for name, parameter in declared.items():
            value = params.get(name)
            if not isinstance(value, Tensor):
                value = _checked(name, parameter, params, problems)
            elif value.shape != parameter.shape:
                problems.append(f"'{name}' is {value.shape}, not {parameter.shape}")
            if value is not None:
                values[name] = value
        _raise(problems, f"these are no parameters of {type(self).__name__}")
        tensors = {name: tensor_like(b, value, declared[name].shape.dtype) for name, value in values.items()}
        lifted = {name: _lift(b, value) for name, value in kwargs.items()}
        return self._rooted(b, tensors, training, seed, [_lift(b, value) for value in args], lifted)

    def _rooted(
        self,
        b: Builder,
        values: Mapping[str, Tensor] | None,
        training: bool,
        seed: Seed | None,
        args: Sequence[object],
        kwargs: Mapping[str, object],
    ) -> tuple[Any, ModuleCall]:
        paths: dict[int, str] = {}
        names: dict[int, str] = {}
        is_random = False
        for name, member in self._walk():
            (names if isinstance(member, Parameter) else paths).setdefault(id(member), name)
            is_random = is_random or (isinstance(member, Module) and member.random)
        scope = ModuleCall(b, paths, names, values, training, seed)
        with scopes.entered(scope):
            try:
                if training and is_random:
                    scope.prepare_seed()
            except Error as problem:
                raise _in_module(problem, self._name(""), "") from None
            return self._forward(scope, args, kwargs, training), scope

    def _forward(self, scope: ModuleCall, args: Sequence[object], kwargs: Mapping[str, object], training: bool) -> Any:
        path = scope.paths.get(id(self))
        if path is None:
            raise Error(
                f"{self._name('')} is called by another module, and is not part of it",
                location=caller_place(),
                hint="make it an attribute of that module, in a list or a dictionary too",
            )
        outer, scope.training = scope.training, training
        around, scope.path = scope.path, path
        name = path.removeprefix(f"{around}.")
        try:
            with scope.builder.named(name) if name else contextlib.nullcontext():
                return self.forward(*args, **kwargs)
        except Error as problem:
            if hasattr(problem, "module_path"):
                raise
            raise _in_module(problem, self._name(path), path) from None
        except TypeError as problem:
            trace = problem.__traceback__
            if trace is None or trace.tb_next is not None:
                raise
            reason = str(problem).rpartition("forward() ")[2]
            hint = answers().advice("forward", reason.partition("keyword argument '")[2].rstrip("'"))
            error = Error(reason, location=caller_place(), hint=hint)
            raise _in_module(error, self._name(path), path) from None
        finally:
            scope.training, scope.path = outer, around

    @property
    def training(self) -> bool:
        """Whether this call is in training mode, inside `forward`; False outside."""
        scope = scopes.active()
        return scope is not None and scope.training

    def update(self, name: str, value: Tensor) -> None:
        """Set the value of a buffer of this module after this call. To be called in training, inside `forward`.

        Raises:
            Error: The buffer does not exist, or the shapes differ.
        """
        buffer, scope = self.__dict__.get("_declared", {}).get(name), scopes.active()
        if not isinstance(buffer, Buffer) or scope is None:
            raise Error(f"'{name}' is no buffer of a module that is being called", location=caller_place())
        if value.shape != buffer.shape:
            raise ShapeError(f"buffer '{name}' is {buffer.shape}, its new value {value.shape}")
        scope.update(buffer, value)

    def seed(self) -> Tensor:
        """Return a seed for random ops, inside `forward` in training. Each call returns a new seed."""
        scope = scopes.active()
        if scope is None:
            raise Error("a module has a seed only while it is called", location=caller_place())
        return scope.seed_of(scope.paths[id(self)])

    # --- text -------------------------------------------------------------------------------------

    def _name(self, path: str) -> str:
        values: dict[str, object] = {n: v for n, v in vars(self).items() if isinstance(v, (int, float, str, tuple))}
        options = ", ".join(f"{n}={v!r}" for n, v in values.items() if not any(_modules_in(n, v)))
        own = f"{type(self).__name__}({options[:100]})"
        return f"module '{path}', {own}" if path else f"module {own}"

    def __repr__(self) -> str:
        own = self._name("").removeprefix("module ")
        parts = [(name, m) for name, m in self.members() if isinstance(m, Module)]
        if not parts:
            return own
        lines = [f"({name}): {part!r}".replace("\n", "\n  ") for name, part in parts]
        return "\n  ".join([own.removesuffix(")"), *lines]) + "\n)"


def _modules_in(name: str, value: object) -> Iterator[tuple[str, Module]]:
    """Yield the modules in a value: the value itself, or the entries of lists, tuples and dictionaries."""
    if isinstance(value, Module):
        yield name, value
        return
    entries: Iterable[tuple[object, object]] = ()
    if is_sequence(value):
        entries = enumerate(value)
    elif is_dict(value):
        entries = value.items()
    for key, entry in entries:
        if isinstance(entry, Parameter):
            raise Error(
                f"parameter '{name}.{key}' lies in a {type(value).__name__}",
                hint="make it an attribute of a module of its own",
            )
        yield from _modules_in(f"{name}.{key}", entry)


def _lift(b: Builder, value: object) -> object:
    """Return an array as a constant, and other values unchanged."""
    return b.constant(value) if is_array(value) else value


def _checked(name: str, parameter: Parameter, values: Mapping[str, object], problems: list[str]) -> np.ndarray | None:
    """Return the array for a parameter; problems are appended to a list."""
    if name not in values:
        problems.append(f"'{name}' ({parameter.shape}) is missing")
        return None
    try:
        array = np.asarray(values[name]) if isinstance(values, Weights) else as_array(values[name], f"'{name}'")
    except Error as problem:
        problems.append(problem.message)
        return None
    expected = parameter.shape
    if array.shape != expected.static or array.dtype != expected.dtype.numpy:
        problems.append(f"'{name}' is {array.dtype}{list(array.shape)}, not {expected}")
    return array


def _raise(problems: list[str], what: str) -> None:
    if problems:
        more = [f"and {len(problems) - _NAMED} more"] if len(problems) > _NAMED else []
        text = "\n  ".join([*problems[:_NAMED], *more])
        raise Error(f"{what}:\n  {text}", location=caller_place())


def _in_module(problem: Error, name: str, path: str) -> Error:
    """Return the same error with the name of the module in its message."""
    location = problem.location or caller_place()
    error = type(problem)(f"{name}: {problem.message}", location=location, hint=problem.hint)
    error.module_path = path  # type: ignore[attr-defined]
    return error


def expect(
    x: object,
    what: str,
    *,
    rank: int | None = None,
    last: int | None = None,
    channels: int | None = None,
    floats: bool = True,
) -> None:
    """Check that an argument of a layer is a tensor with the expected rank and sizes.

    Args:
        x: The argument.
        what: The expected shape, for the message: `[…, 4]`.
        rank: The number of axes.
        last: The size of the last axis.
        channels: The size of axis 1.
        floats: Whether the elements must be floats or complex numbers.

    Raises:
        ShapeError: It does not match.
    """
    if not isinstance(x, Tensor):
        raise ShapeError(f"takes a tensor {what}, got {type(x).__name__}")
    shape = x.shape
    wrong = rank is not None and shape.rank != rank
    for axis, size in ((-1, last), (1, channels)):
        if not wrong and size is not None:
            wrong = shape.rank < (1 if axis < 0 else 2) or shape.dims[axis] != size
    if wrong:
        raise ShapeError(f"takes {what}, got {shape}")
    if floats and not shape.dtype.is_inexact:
        raise ShapeError(f"takes floats {what}, got {shape}", hint="cast it: x.astype(rlx.f32)")
