"""PyTorch's own samples of its operators, each exported as a module and imported, with the results that PyTorch gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import rlx
from tests.peers.opinfo import (
    Peer,
    Refused,
    _NoReference,
    _result,
    _torch_results,
    as_array,
    mapped,
    operators,
    quiet,
    samples,
)
from tests.peers.vocabulary import Entry


class Applied(torch.nn.Module):
    """An operator on arguments, of which the tensors are those of `forward`."""

    def __init__(self, function: Any, arguments: Any, kwargs: Any):
        super().__init__()
        self.function, self.given = function, (arguments, kwargs)
        self.tensors: list[Any] = []
        mapped(self.given, self.tensors.append)

    def forward(self, *tensors: Any) -> Any:
        """What the operator gives for tensors in the places of its own."""
        following = iter(tensors)
        arguments, kwargs = mapped(self.given, lambda _: next(following))
        return self.function(*arguments, **kwargs)


def imported(name: str, kind: str, limit: int | None = None) -> Iterator[Peer | Refused]:
    """The samples of an operator in a dtype, at most `limit` of them, as graphs."""
    for number, sample in samples(name, kind, limit):
        arguments = (sample.input, *sample.args)
        try:
            expected = _torch_results(operators()[name].op, arguments, sample.kwargs)
        except _NoReference:
            continue
        module = Applied(operators()[name].op, arguments, sample.kwargs).eval()
        yield _peer(f"{name} {kind} #{number}", module, expected)


def _peer(label: str, module: Applied, expected: Any) -> Peer | Refused:
    tensors = [t.detach().clone() for t in module.tensors]
    try:
        with quiet():
            graph = rlx.from_torch(module, tuple(tensors))
    except rlx.Error as problem:
        return Refused(label, str(problem), isinstance(problem, rlx.UnsupportedError))
    arrays = [as_array(t) for t in tensors]
    results = [_result(*e) for e in expected if e[0] is not None]
    return Named(label, Entry(None), graph, arrays, results)


class Named(Peer):
    """A sample whose inputs have the names of an exported program."""

    @property
    def values(self) -> dict[str, Any]:
        """What the graph takes, by name."""
        return dict(zip((i.name for i in self.graph.inputs), self.arrays, strict=True))
