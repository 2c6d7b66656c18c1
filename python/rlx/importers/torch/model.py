"""Conversion of a PyTorch module to a graph: export, functionalisation of mutations, and conversion node by node."""

from __future__ import annotations

import contextlib
import inspect
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from rlx.importers.table import MOST_OPS, constant, importer
from rlx.importers.torch.function import ExportScope, call_nodes, is_local, is_update, op_name
from rlx.importers.torch.guards import guards_of
from rlx.importers.torch.rules import imports
from rlx.importers.torch.sizes import SymbolNames, named_symbols
from rlx.importers.torch.weights import array_of, identity
from rlx.ir.calls import with_call_errors
from rlx.ir.dims.bounds import Bounds
from rlx.ir.dims.dim import DimExpr
from rlx.ir.graph.builder import Tensor
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Argument
from rlx.support.errors import Error, UnsupportedError
from rlx.support.packages import import_package
from rlx.support.traces import place_of

_WHAT = "rlx.from_torch"
_CACHE = re.compile(r"Found <class '[\w.]*\b(\w*Cache)'> in output, which is not a known type")
# Operators that `torch.export` does not accept, because the sizes of their results depend on values.
_ADVICE = {"linalg_lstsq": "torch.linalg.pinv(a) @ b is the solution; it can be exported"}
# These change running statistics although their schema does not declare it.
_WITH_STATISTICS = {"aten.batch_norm": 5, "aten.instance_norm": 5}


@with_call_errors
@importer
def from_torch(
    module: Any,
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = False,
) -> Graph:
    """Return the graph of a PyTorch module for arguments of certain shapes and dtypes.

    `torch.export` traces the module once, in its current mode: after `module.eval()` a dropout is the identity.
    Operators without a rule in RLX are decomposed by PyTorch's core decompositions.

    Args:
        module: A `torch.nn.Module`, or a `torch.export.ExportedProgram`, which needs no arguments.
        args: The positional arguments of `forward`: a tuple of tensors and pytrees of tensors, or one tensor. Their
            values do not matter, except for Python numbers, strings and booleans, which become part of the graph.
        kwargs: The keyword arguments of `forward`.
        dynamic_shapes: The sizes that stay open, as for `torch.export.export`. The name of a `torch.export.Dim` is the
            name of the symbol. A size without a name has PyTorch's (`s77`).
        strict: As for `torch.export.export`: whether the Python code itself is analysed.

    Returns:
        The graph. Inputs are named as in the exported program: by the parameter of `forward` and the path to the tensor
        in it (`x`, `cache_0_key`). Outputs have the names of fields and keys, or `out0`, `out1`, … if there are none.
        Parameters and buffers have the names of the state dict. Their values, in `weights`, share the memory of the
        module. Tied tensors are one parameter; unused tensors are omitted. Buffers that the module changes are states.
        A tensor in an attribute of the module is a constant, or a parameter if it is large.

    Raises:
        UnsupportedError: Operators cannot be imported: the message lists all of them with counts and locations. Or an
            operator is used in an unsupported form, or an argument is changed in place.
        Error: PyTorch is not installed or cannot export the module, or RLX does not have a dtype.
    """
    torch = import_package("torch", _WHAT)
    export = import_package("torch.export", _WHAT)
    if isinstance(module, export.ExportedProgram):
        if args != () or kwargs:
            raise Error("an ExportedProgram has its arguments already; expected none", hint=f"{_WHAT}(program)")
        return _graph(torch, module, SymbolNames({}))
    if not isinstance(module, torch.nn.Module):
        kind = type(module).__name__
        hint = "a function f is the module of a class whose forward calls it; files are loaded by torch.export.load"
        raise Error(f"expected a torch.nn.Module or a torch.export.ExportedProgram, got {kind}", hint=hint)
    args = (args,) if isinstance(args, torch.Tensor) else args
    if not isinstance(args, (tuple, list)) or not (kwargs is None or isinstance(kwargs, Mapping)):
        raise Error(f"args is a tuple and kwargs a mapping of arguments, got {type(args).__name__} and {kwargs!r:.60}")
    program = _exported(export, module, tuple(args), dict(kwargs or {}), dynamic_shapes, strict)
    order = list(inspect.signature(module.forward).parameters)
    given = [*zip(order, args, strict=False), *(kwargs or {}).items()]
    return _graph(torch, program, SymbolNames(named_symbols(program, given, dynamic_shapes, order)))


def _exported(export: ModuleType, module: Any, args: Any, kwargs: Any, dynamic_shapes: Any, strict: bool) -> Any:
    """Return the program that PyTorch exports for a module.

    Raises:
        Error: PyTorch cannot export it.
    """
    try:
        with _quiet():
            return export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict)
    except Exception as problem:
        kind, message = type(problem).__name__, str(problem).strip()
        if cache := _CACHE.search(message):
            raise Error(
                f"the module returns its keys and values ({cache[1]}), which torch.export does not accept as an output",
                hint="pass use_cache=False: rlx.from_torch(model, (), {'input_ids': ids, 'use_cache': False})",
                location=place_of(problem, "torch", "contextlib"),
            ) from problem
        lines = [line for line in message.splitlines() if line.strip()]
        hint = next((advice for name, advice in _ADVICE.items() if name in message), None)
        raise Error(
            f"PyTorch cannot export the module: {kind}: {' '.join(lines[:3])[:600]}",
            hint=hint,
            location=place_of(problem, "torch", "contextlib"),
        ) from problem


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress PyTorch's warnings and log messages about its own code."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", category)
        yield


def _name(node: Any) -> str:
    return op_name(node.target)


def _functional(torch: ModuleType, program: Any) -> Any:
    """The program without operators that change their operands, and with those without a rule taken apart.

    A program that needs neither is returned unchanged, because decomposition traces it again.
    """
    nodes = list(call_nodes(program.graph_module))
    _check_count(nodes)
    hidden = {_name(n) for n in nodes if _changes_statistics(n)}
    mutable = any(is_update(n.target) and not is_local(n) for n in nodes)
    if not hidden and not mutable and all(_name(n) in imports.rules for n in nodes):
        return program
    table = torch.export.default_decompositions()
    for target in list(table):
        name = op_name(target)
        if name in imports.rules and name not in hidden:
            del table[target]
    try:
        with _quiet():
            return program.run_decompositions(table)
    except Exception as problem:
        message = f"PyTorch cannot take the program apart: {type(problem).__name__}: {problem!s:.600}"
        raise Error(message) from problem


def _check_count(nodes: Sequence[Any]) -> None:
    if len(nodes) > MOST_OPS:
        raise Error(f"the program has {len(nodes)} operators; at most {MOST_OPS} can be imported")


def _changes_statistics(node: Any) -> bool:
    position = _WITH_STATISTICS.get(_name(node))
    return position is not None and bool(node.args[position]) and node.args[3] is not None


class _Placeholders:
    """The conversion of a program's placeholders to arguments of a graph."""

    def __init__(self, scope: ExportScope, program: Any, mutated: Sequence[str], guards: Bounds):
        self.scope, self.g, self.program, self.mutated = scope, scope.g, program, mutated
        self.guards = list(guards)  # guards whose last symbol has not occurred in an input yet
        self.tensors: dict[Any, Tensor] = {}
        self.states: dict[str, Tensor] = {}
        self.names: dict[Any, str] = {}  # the first name of each tensor in the state dict
        for name, tensor in program.state_dict.items():
            self.names.setdefault(identity(tensor), name)

    def of(self, spec: Any, node: Any) -> Any:
        """Return the value of a placeholder; None for one that is not a tensor."""
        kind, found = spec.kind.name, node.meta.get("val")
        if kind == "USER_INPUT":
            return self._input(node, found)
        if kind == "TOKEN":
            return None
        if kind == "CUSTOM_OBJ":
            raise UnsupportedError(f"the module holds '{spec.target}', an object of a class of TorchScript's")
        if not node.users and spec.target not in self.mutated:
            return None
        tensor = self._stored(spec.target)
        if kind == "CONSTANT_TENSOR":
            array = array_of(self.scope.torch, tensor, f"'{spec.target}'")
            return constant(self.g, array, trainable=tensor.requires_grad)
        if spec.target in self.mutated:
            return self._state(spec.target, tensor)
        return self._param(spec.target, tensor, kind == "PARAMETER" and tensor.requires_grad)

    def _input(self, node: Any, found: Any) -> Tensor | None:
        if type(found).__name__ in ("SymInt", "SymFloat", "SymBool"):
            hint = "give it as a tensor of rank 0, or leave it out of dynamic_shapes"
            raise UnsupportedError(f"input '{node.name}' is a number of Python's that stays open", hint=hint)
        if not hasattr(found, "dtype"):
            return None
        try:
            shape = self.scope.sizes.shape(found)
        except Error as problem:
            raise problem.moved(f"input '{node.name}': {problem.message}") from None
        known = self.g.symbols | shape.symbols
        bounds = (*self.scope.sizes.bounds(self.program, shape), *(b for b in self.guards if b.size.symbols <= known))
        self.guards = [b for b in self.guards if b not in bounds]
        return self.g.add_argument(Argument(node.name, "input", shape, bounds=bounds))

    def _stored(self, target: str) -> Any:
        program = self.program
        found = program.state_dict.get(target)
        return program.constants[target] if found is None else found

    def _param(self, target: str, tensor: Any, trainable: bool) -> Tensor:
        same = identity(tensor)
        if same not in self.tensors:
            array = array_of(self.scope.torch, tensor, f"'{target}'")
            name = self.names.get(same, target)
            self.tensors[same] = self.g.param(name, array.shape, array.dtype, value=array, trainable=trainable)
        return self.tensors[same]

    def _state(self, target: str, tensor: Any) -> Tensor:
        """Return a buffer that the module changes, as a state.

        A state has one initial value for all elements. If the buffer has different values, they become a parameter. A
        second state selects this parameter until the first update.
        """
        g, array = self.g, array_of(self.scope.torch, tensor, f"'{target}'")
        first = array.flat[0] if array.size else np.zeros((), array.dtype)[()]
        if np.array_equal(array, np.full_like(array, first)):
            self.states[target] = g.state(target, array.shape, array.dtype, init=first.item())
            return self.states[target]
        self.states[target] = g.state(target, array.shape, array.dtype)
        started = g.state(f"{target}.started", (), bool, init=False)
        g.update(started, g.constant(True))
        initial = g.param(f"{target}.initial", array.shape, array.dtype, value=array, trainable=False)
        return g.where(started, self.states[target], initial)


def _graph(torch: ModuleType, program: Any, sizes: SymbolNames) -> Graph:
    guards, program = guards_of(program, sizes), _functional(torch, program)
    nodes = list(call_nodes(program.graph_module))
    _check_count(nodes)  # check again after decomposition
    g = Graph("main")
    scope = ExportScope(torch, g, sizes)
    imports.check(
        (name if name in imports.rules else str(n.target), scope.place(n)) for n in nodes for name in (_name(n),)
    )
    signature = program.graph_signature
    kinds = [(o.kind.name, o) for o in signature.output_specs]
    if changed := [o.target for kind, o in kinds if kind == "USER_INPUT_MUTATION"]:
        hint = "let it work on a copy: x = x.clone()"
        raise UnsupportedError(f"the module changes its argument '{changed[0]}' in place", hint=hint)
    mutated = [o.target for kind, o in kinds if kind in ("BUFFER_MUTATION", "PARAMETER_MUTATION")]
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    arguments = _Placeholders(scope, program, mutated, guards)
    values = [arguments.of(s, n) for s, n in zip(signature.input_specs, placeholders, strict=True)]
    results = scope.run(program.graph_module, values)
    given = []
    for (kind, o), result in zip(kinds, results, strict=True):
        if kind in ("BUFFER_MUTATION", "PARAMETER_MUTATION"):
            g.update(arguments.states[o.target], result)
        elif kind == "USER_OUTPUT":
            given.append(result)
    outputs = zip(_output_names(program.call_spec.out_spec, len(given)), given, strict=True)
    g.set_outputs({n: _output(g, v) for n, v in outputs if v is not None and not isinstance(v, str)})
    return g


def _output(g: Graph, value: Any) -> Tensor:
    """Return an output as a tensor. A number or a size becomes a tensor of rank 0."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, DimExpr):
        return g.cast(g.dim_size(value), "i64")
    return g.constant(np.asarray(value, np.float32 if isinstance(value, float) else None))


def _output_names(spec: Any, count: int) -> list[str]:
    """Return a name for each output, from its path in the module's result."""
    names = ["_".join(map(str, path)) if path else "0" for path in _paths(spec, ())]
    names = [f"out{n}" if n[:1].isdigit() else n for n in names]
    usable = len(names) == count == len(set(names)) and all(n.isprintable() for n in names)
    return names if usable else [f"out{i}" for i in range(count)]


def _paths(spec: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of the leaves of a PyTorch pytree."""
    if spec.is_leaf():
        yield path
        return
    children = spec.children()
    for key, child in zip(_keys(spec, len(children)), children, strict=True):
        yield from _paths(child, (*path, key))


def _keys(spec: Any, count: int) -> Sequence[Any]:
    """Return the names of the children of a node: keys, fields, or numbers."""
    context = spec.context
    fields = getattr(spec.type, "_fields", None)
    for found in (fields, context, context[0] if isinstance(context, (list, tuple)) and context else None):
        if isinstance(found, (list, tuple)) and len(found) == count and all(isinstance(k, (str, int)) for k in found):
            return found
    return range(count)
