"""PyTorch's own samples of its operators through `rlx.from_torch`: results equal PyTorch's, or the sample is refused.

If PyTorch is installed, some of the samples run, and more of each operator with `make test-all` (`pytest --full`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import rlx
from rlx.ir.graph.evaluate import evaluate
from tests.conformance.compiled import compile_graphs, contiguous
from tests.conformance.failures import Failures
from tests.drawing import drawn, shares
from tests.importers.torch_operators import KINDS, REFUSED, UNSAID, imported
from tests.peers.judging import problems
from tests.peers.opinfo import Peer, operators_of, quiet

pytestmark = [
    # Some packages of PyTorch lack its test tools. Importing them takes seconds, so it is done when they are used.
    pytest.mark.skipif(find_spec("torch.testing._internal.common_methods_invocations") is None, reason="no test tools"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]

torch.set_num_threads(1)

# The number of shares of the operators.
_EVALUATED, _COMPILED = 100, 160


def _share(kind: str, count: int, share: int) -> list[str]:
    return shares([n for n in operators_of(kind) if n not in UNSAID], count, lambda _: None)[share]


def _graphs(kind: str, count: int, share: int, full: bool, failures: Failures) -> Iterator[Peer]:
    """Yield the imported samples of a share. Only known refusals are allowed."""
    for name in _share(kind, count, share):
        with failures.of(f"{name} {kind}"):
            for sample in imported(name, kind, 3 if full else 1):
                if isinstance(sample, Peer):
                    yield sample
                else:
                    failures.expect(sample.name, name in REFUSED, f"refused: {sample.reason}")


@drawn("share", range(_EVALUATED))
@pytest.mark.parametrize("kind", KINDS)
def test_evaluated(kind: str, share: int, full: bool) -> None:
    failures = Failures()
    for peer in _graphs(kind, _EVALUATED, share, full, failures):
        with failures.of(peer.name), quiet():
            results = evaluate(peer.graph, peer.values)
            for problem in problems(peer, results, peer.graph.function):
                failures.add(peer.name, problem)
            for result, expected in zip(results, peer.expected, strict=True):
                right = expected.dtype is None or rlx.dtype(result.dtype) is expected.dtype
                failures.expect(peer.name, right, f"is {result.dtype}, PyTorch's is {expected.dtype}")
    failures.check()


@drawn("share", range(_COMPILED))
@drawn("kind", KINDS)
def test_compiled(kind: str, share: int, full: bool) -> None:
    failures = Failures()
    # A module with parameters cannot be part of a joint program.
    made = [p for p in _graphs(kind, _COMPILED, share, full, Failures()) if not p.graph.params and not p.graph.states]
    for peer, program in zip(made, compile_graphs([p.graph for p in made]), strict=True):
        if program.problem is not None:
            failures.add(peer.name, program.problem)
            continue
        with failures.of(peer.name), np.errstate(all="ignore"):
            for problem in problems(peer, program.run(contiguous(peer.arrays)), program.function, 2.0):
                failures.add(peer.name, problem)
    failures.check()
