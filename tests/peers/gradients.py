"""Gradients of PyTorch's samples: `rlx.grad` of a weighted sum of the results, compared with autograd in f64."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import rlx
from tests.peers.opinfo import (
    Peer,
    Refused,
    Result,
    as_array,
    flattened,
    mapped,
    operators,
    quiet,
    rlx_dtype,
    samples,
)
from tests.peers.vocabulary import TABLE, Unsaid

_ALLOWED = 1e-10


def gradient_peers(name: str, limit: int | None = None) -> Iterator[Peer | Refused]:
    """Yield the gradients of an operator's samples with respect to all their f64 tensors."""
    import torch

    info = operators()[name]
    if not TABLE[name].differentiable or torch.float64 not in info.supported_backward_dtypes("cpu"):
        return
    for number, sample in samples(name, "f64", limit, differentiable=True):
        label = f"{name} gradient #{number}"
        arguments = (sample.input, *sample.args)
        try:
            made = _gradient(label, name, arguments, sample.kwargs)
        except Unsaid as reason:
            yield Refused(label, str(reason), True)
        except rlx.Error as problem:
            yield Refused(label, str(problem).split("\n")[0], False)
        else:
            if made is not None:
                yield made


def gradient_problems(peer: Peer, results: Sequence[np.ndarray]) -> list[str]:
    """Return the errors of gradients.

    Both sides sum and cancel in different orders, so each element may have the rounding error of the largest.
    """
    found = []
    for i, (got, expected) in enumerate(zip(results, peer.expected, strict=True)):
        wanted = expected.values
        size = np.max(np.abs(wanted), initial=1.0, where=np.isfinite(wanted))
        near = got.shape == wanted.shape and np.isclose(
            got, wanted, rtol=_ALLOWED, atol=_ALLOWED * size, equal_nan=True
        )
        if not np.all(near):
            found.append(f"result {i} is {got.ravel()[:4]} instead of {wanted.ravel()[:4]}")
    return found


def _gradient(label: str, name: str, arguments: Any, kwargs: Any) -> Peer | None:
    import torch

    tensors: list[Any] = []

    def leaf(tensor: Any) -> Any:
        copy = tensor.detach().clone()
        if copy.dtype is torch.float64 and tensor.requires_grad:
            copy.requires_grad_()
        tensors.append(copy)
        return copy

    with quiet():
        given, named = mapped(arguments, leaf), mapped(kwargs, leaf)
        results = flattened(operators()[name].op(*given, **named))
    graph = rlx.Graph("gradient")
    inputs = [graph.input(f"x{i}", tuple(t.shape), rlx_dtype(t.dtype)) for i, t in enumerate(tensors)]
    rest = iter(inputs)
    made = TABLE[name].function(graph, *mapped(arguments, lambda _: next(rest)), **mapped(kwargs, lambda _: next(rest)))
    outputs = list(made) if isinstance(made, (list, tuple)) else [made]
    rng = np.random.default_rng(len(label))
    theirs, ours = torch.zeros((), dtype=torch.float64), graph.constant(np.zeros(()))
    for output, result in zip(outputs, results, strict=True):
        if output is not None and result is not None and result.dtype is torch.float64 and result.requires_grad:
            weight = rng.uniform(-1, 1, tuple(result.shape))
            theirs = theirs + (result * torch.from_numpy(np.asarray(weight))).sum()
            ours = ours + graph.sum(output * np.asarray(weight))
    wrt = [i for i, t in enumerate(tensors) if t.requires_grad]
    if not wrt or not theirs.requires_grad:
        return None
    with quiet():
        gradients = torch.autograd.grad(theirs, [tensors[i] for i in wrt], allow_unused=True)
    graph.set_outputs([ours])
    derived = rlx.grad(graph, [f"x{i}" for i in wrt])
    expected = [
        Result(np.zeros(tuple(tensors[i].shape)) if g is None else as_array(g), rlx.f64)
        for i, g in zip(wrt, gradients, strict=True)
    ]
    return Peer(label, TABLE[name], derived, [as_array(t) for t in tensors], expected)
