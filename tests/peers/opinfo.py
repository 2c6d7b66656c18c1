"""PyTorch's own samples of its operators as graphs of RLX, with PyTorch's results."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import rlx
from tests.conformance.values import special_values
from tests.peers import elementwise, indexing, losses, networks, products, reductions, shapes
from tests.peers.vocabulary import TABLE, Entry, Unsaid, rlx_dtype

# Modules that fill the table.
FAMILIES = (elementwise, reductions, shapes, indexing, products, networks, losses)
# PyTorch's dtypes that RLX has and that its operators support.
DTYPES = ("f32", "f64", "f16", "bf16", "i32", "i64", "i8", "u8", "i16", "bool", "c64")
_TORCH = {
    "f32": "float32", "f64": "float64", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "i16": "int16",
    "i32": "int32", "i64": "int64", "u8": "uint8", "bool": "bool", "c64": "complex64",
}  # fmt: skip
# Builds a sample as a graph, from its label, the PyTorch function, the arguments, and PyTorch's result.
Build = Callable[[str, Any, Any, Mapping[str, Any], Any], "Peer"]


@dataclass(frozen=True)
class Result:
    """A result of PyTorch.

    Attributes:
        values: Computed in f64 or c128 if the dtype is inexact.
        dtype: Its dtype in PyTorch; None if RLX has no such dtype.
    """

    values: np.ndarray
    dtype: rlx.DType | None


@dataclass
class Peer:
    """One sample of one operator.

    Attributes:
        name: Operator, dtype and number.
        entry: The operator in terms of RLX.
        graph: The operator in RLX.
        arrays: The inputs of the graph.
        expected: PyTorch's result for each output of the graph.
        formula: PyTorch's own formula as a graph of the same inputs and outputs, if `Entry.formula` has it.
    """

    name: str
    entry: Entry
    graph: rlx.Graph
    arrays: list[np.ndarray]
    expected: list[Result]
    formula: rlx.Graph | None = None

    @property
    def values(self) -> dict[str, np.ndarray]:
        """Return the inputs of the graph, by name."""
        return {f"x{i}": array for i, array in enumerate(self.arrays)}


@dataclass(frozen=True)
class Refused:
    """A sample that RLX does not support. `said` distinguishes omissions in the table from refusals by `rlx.Graph`."""

    name: str
    reason: str
    left_out: bool


def name_of(info: Any) -> str:
    """Return the name of an operator and of its variant."""
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


@cache
def operators() -> dict[str, Any]:
    """Return PyTorch's descriptions of its operators by name."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {name_of(info): info for info in op_db}


def pairs() -> list[tuple[str, str]]:
    """Return all operators of the table in all dtypes that both sides have."""
    import torch

    infos = operators()
    return [
        (name, kind)
        for name in sorted(TABLE)
        for kind in DTYPES
        if name in infos and getattr(torch, _TORCH[kind]) in infos[name].dtypes
    ]


def operators_of(kind: str) -> list[str]:
    """Return all PyTorch operators that accept a dtype."""
    import torch

    return [name for name, info in operators().items() if getattr(torch, _TORCH[kind]) in info.dtypes]


def peers(name: str, kind: str, limit: int | None = None, build: Build | None = None) -> Iterator[Peer | Refused]:
    """Yield at most `limit` samples of an operator in a dtype, from all parts of the list.

    If the table leaves all of them out, the samples that follow are tried until it supports one.

    Args:
        name: The operator.
        kind: The dtype.
        limit: The number of samples.
        build: Converts a sample to a graph; by default with the table.
    """
    selected = samples(name, kind, limit)
    numbers = {number for number, _ in selected}
    rest = [] if limit is None else [s for s in samples(name, kind, None) if s[0] not in numbers]
    supported = False
    for number, sample in (*selected, *rest):
        if supported and number not in numbers:
            return
        for made in _peer(name, f"{name} {kind} #{number}", (sample.input, *sample.args), sample.kwargs, build):
            supported |= isinstance(made, Peer) or not made.left_out
            yield made


def is_elementwise(name: str) -> bool:
    """Return whether PyTorch describes an operator as an elementwise one of one or two tensors."""
    from torch.testing._internal.opinfo.core import BinaryUfuncInfo, UnaryUfuncInfo

    return isinstance(operators()[name], (UnaryUfuncInfo, BinaryUfuncInfo))


def special_peers(name: str, kind: str) -> Iterator[Peer | Refused]:
    """Yield an elementwise operator of one or two numbers on all combinations of special values in a dtype."""
    import torch
    from torch.testing._internal.opinfo.core import UnaryUfuncInfo

    info = operators()[name]
    values = as_tensor(special_values(rlx.dtype(kind)))
    label = f"{name} {kind} special"
    if isinstance(info, UnaryUfuncInfo):
        yield from _peer(name, label, (values,), {})
    elif is_elementwise(name):
        pairs = [t.reshape(-1) for t in torch.meshgrid(values, values, indexing="ij")]
        yield from _peer(name, label, tuple(pairs), {})


def _peer(name: str, label: str, arguments: Any, kwargs: Any, build: Build | None = None) -> Iterator[Peer | Refused]:
    try:
        expected = _torch_results(operators()[name].op, arguments, kwargs)
    except _NoReference:
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            if build is None:
                yield _graph(label, TABLE[name], arguments, kwargs, expected)
            else:
                yield build(label, operators()[name].op, arguments, kwargs, expected)
    except Unsaid as reason:
        yield Refused(label, str(reason), True)
    except Exception as problem:
        known = isinstance(problem, rlx.Error)
        yield Refused(label, ("" if known else f"{type(problem).__name__}: ") + str(problem).split("\n")[0], False)


def samples(name: str, kind: str, limit: int | None, *, differentiable: bool = False) -> list[tuple[int, Any]]:
    """Return at most `limit` of an operator's samples in a dtype with their numbers, from all parts of the list."""
    import torch

    seed = sum(map(ord, name + kind))
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    info = operators()[name]
    with quiet():
        numbered = list(
            enumerate(info.sample_inputs("cpu", getattr(torch, _TORCH[kind]), requires_grad=differentiable))
        )
    if limit is None or len(numbered) <= limit:
        return numbered
    return [numbered[i * len(numbered) // limit] for i in range(limit)]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings, including those of PyTorch."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


class _NoReference(Exception):
    """PyTorch has no result."""


def mapped(value: Any, function: Any) -> Any:
    """Return nested arguments with a function applied to every tensor in them."""
    import torch

    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        made = [mapped(v, function) for v in value]
        return type(value)(made) if type(value) in (list, tuple) else tuple(made)
    if isinstance(value, dict):
        return {k: mapped(v, function) for k, v in value.items()}
    return value


def widened(tensor: Any) -> Any:
    """Return a tensor in f64 or c128, if it is inexact."""
    import torch

    wide = torch.complex128 if tensor.is_complex() else torch.float64 if tensor.is_floating_point() else tensor.dtype
    return tensor.detach().clone().to(wide)


def flattened(value: Any) -> list[Any]:
    """Return all tensors of nested results, and numbers as tensors."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (bool, int, float, complex)):
        return [torch.tensor(value)]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in flattened(v)]
    return [None]


def _torch_results(function: Any, arguments: Any, kwargs: Any) -> list[Any]:
    import torch

    with quiet(), torch.no_grad():
        try:
            own = flattened(function(*mapped(arguments, lambda t: t.clone()), **mapped(kwargs, lambda t: t.clone())))
        except Exception as problem:
            raise _NoReference(str(problem)) from None
        try:
            wide = flattened(function(*mapped(arguments, widened), **mapped(kwargs, widened)))
        except Exception:
            wide = own
    results = []
    for narrow, exact in zip(own, wide, strict=True):
        better = (
            exact is not None
            and exact.shape == narrow.shape
            and (
                exact.is_complex() if narrow.is_complex() else exact.is_floating_point() and narrow.is_floating_point()
            )
        )
        results.append((narrow, exact if better else narrow))
    return results


def as_tensor(array: np.ndarray) -> Any:
    """Return an array as a tensor."""
    import torch

    if rlx.dtype(array.dtype).name == "bf16":
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array.copy())


def as_array(tensor: Any) -> np.ndarray:
    """Return a tensor as an array. Strides are preserved."""
    import ml_dtypes
    import torch

    tensor = (tensor.detach() + 0 if tensor._is_zerotensor() else tensor.detach()).resolve_conj().resolve_neg()
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def results_of(expected: Any) -> list[Result]:
    """Return PyTorch's results that are tensors."""
    return [_result(*e) for e in expected if e[0] is not None]


def _result(narrow: Any, exact: Any) -> Result:
    import torch

    try:
        kind = rlx_dtype(narrow.dtype)
    except Unsaid:
        kind = None
    if exact.dtype in (torch.bfloat16, torch.float16, torch.float32):
        exact = exact.to(torch.float64)
    return Result(as_array(exact), kind)


def _graph(label: str, entry: Entry, arguments: Any, kwargs: Any, expected: Any) -> Peer:
    graph, outputs, arrays = _built(entry.function, arguments, kwargs)
    if len(outputs) != len(expected):
        raise AssertionError(f"{len(outputs)} results, PyTorch has {len(expected)}")
    kept = [(o, e) for o, e in zip(outputs, expected, strict=True) if o is not None and e[0] is not None]
    graph.set_outputs([o for o, _ in kept])
    formula = None
    if entry.formula is not None:
        formula, outputs, _ = _built(entry.formula, arguments, kwargs)
        formula.set_outputs(outputs)
    return Peer(label, entry, graph, arrays, results_of(e for _, e in kept), formula)


def _built(function: Any, arguments: Any, kwargs: Any) -> tuple[rlx.Graph, list[Any], list[np.ndarray]]:
    """Return a graph with the arguments of a sample as inputs, the results of a function of the table, and the inputs."""
    import torch

    graph = rlx.Graph("peer")
    arrays: list[np.ndarray] = []

    def argument(tensor: Any) -> Any:
        if tensor.layout is not torch.strided:
            raise Unsaid("RLX has no sparse tensors")
        array = as_array(tensor)
        arrays.append(array)
        return graph.input(f"x{len(arrays) - 1}", array.shape, rlx_dtype(tensor.dtype))

    given, named = mapped(arguments, argument), mapped(kwargs, argument)
    made = function(graph, *given, **named)
    return graph, list(made) if isinstance(made, (list, tuple)) else [made], arrays
