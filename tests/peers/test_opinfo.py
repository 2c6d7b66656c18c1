"""PyTorch's own samples of its operators: what RLX gives is what PyTorch gives, but for what docs/conventions.md says.

PyTorch belongs to no extra of the package; where it is installed, a sample of the samples runs, and all of them with
`make test-all` (`pytest --full`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import islice

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    pytest.importorskip(
        "torch.testing._internal.common_methods_invocations", reason="PyTorch's test tools are not there"
    )

import rlx
from rlx.ir.evaluate import evaluate
from tests.conformance import compiled, compiled_xla
from tests.conformance.compiled import contiguous
from tests.conformance.failures import Failures
from tests.peers import conventions
from tests.peers.gradients import gradient_peers, gradient_problems
from tests.peers.judging import problems
from tests.peers.opinfo import DTYPES, FAMILIES, Peer, Refused, operators, pairs, peers, special_peers
from tests.peers.unsaid import UNSAID
from tests.peers.vocabulary import TABLE

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")

torch.set_num_threads(1)  # threads that wait for each other cost more than these small tensors

# Unless all is run, one operator in so many is tried in a dtype, another in the next one, and some dtypes are compiled.
_STEP, _SPECIAL_STEP, _GRADIENT_STEP, _COMPILED_STEP = 20, 4, 16, 120
_COMPILED = ("f32", "bf16", "i32", "c64")
_PART = 40
# How much less exact the functions of an implementation are: see tests/conformance/tolerance.py.
_FACTORS = {"iree": 2.0, "xla": 3.5}


def _limit(full: bool) -> int | None:
    """How many samples of an operator are tried."""
    return None if full else 1


def _chosen(kind: str, step: int, full: bool) -> list[str]:
    step = 1 if full else step
    names = [name for name, other in pairs() if other == kind]
    return names[DTYPES.index(kind) % step :: step]


def _found(made: Iterator[Peer | Refused], failures: Failures) -> Iterator[Peer]:
    """What can be tried; what RLX refuses has to be a convention."""
    for peer in made:
        if isinstance(peer, Peer):
            yield peer
        elif not peer.left_out:
            failures.expect(peer.name, conventions.refuses(peer.reason), f"refused: {peer.reason}")


def test_every_operator_is_in_the_table_or_has_a_reason() -> None:
    assert FAMILIES and not set(TABLE) & set(UNSAID)
    if torch.__version__.startswith("2.13."):
        assert set(operators()) == set(TABLE) | set(UNSAID)


@pytest.mark.parametrize("kind", DTYPES)
def test_evaluated(kind: str, full: bool) -> None:
    failures = Failures()
    for name in _chosen(kind, _STEP, full):
        for peer in _found(peers(name, kind, _limit(full)), failures):
            with failures.of(peer.name):
                results = evaluate(peer.graph, peer.values)
                for problem in problems(peer, results, peer.graph.function):
                    failures.add(peer.name, problem)
                for result, expected in zip(results, peer.expected, strict=True):
                    right = conventions.dtype_is_right(peer, rlx.dtype(result.dtype), expected.dtype)
                    failures.expect(peer.name, right, f"is {result.dtype}, PyTorch's is {expected.dtype}")
    failures.check()


@pytest.mark.parametrize("kind", DTYPES)
def test_special_numbers(kind: str, full: bool) -> None:
    """NaN, infinities, both zeros, denormals and the extremes of integers, each with each, in what is one op in RLX."""
    failures = Failures()
    for name in _chosen(kind, _SPECIAL_STEP, full):
        for peer in _found(special_peers(name, kind), failures):
            if conventions.is_one_op(peer.graph) and name not in conventions.OTHER_SPECIAL_VALUES:
                with failures.of(peer.name):
                    for problem in problems(peer, evaluate(peer.graph, peer.values), peer.graph.function):
                        failures.add(peer.name, problem)
    failures.check()


def test_gradients(full: bool) -> None:
    failures = Failures()
    for name in _chosen("f64", _GRADIENT_STEP, full):
        with failures.of(name):
            for peer in _found(gradient_peers(name, _limit(full)), failures):
                for problem in gradient_problems(peer, evaluate(peer.graph, peer.values)):
                    failures.add(peer.name, problem)
    failures.check()


@pytest.mark.parametrize("kind", DTYPES)
@pytest.mark.parametrize("implementation", ["xla", "iree"])
def test_compiled(implementation: str, kind: str, full: bool) -> None:
    if not full and kind not in _COMPILED:
        pytest.skip("compiled with --full")
    failures = Failures()
    compile_graphs = {"iree": compiled.compile_graphs, "xla": compiled_xla.compile_graphs}[implementation]
    for part in _parts(_peers_of(kind, full)):
        for peer, program in zip(part, compile_graphs([p.graph for p in part]), strict=True):
            if program.problem is not None:
                failures.add(peer.name, program.problem)
                continue
            with failures.of(peer.name):
                results = program.run(contiguous(peer.arrays))
                for problem in problems(peer, results, program.function, _FACTORS[implementation]):
                    failures.add(peer.name, problem)
    failures.check()


def _peers_of(kind: str, full: bool) -> Iterator[Peer]:
    for name in _chosen(kind, _COMPILED_STEP, full):
        yield from (peer for peer in peers(name, kind, _limit(full)) if isinstance(peer, Peer))


def _parts(made: Iterator[Peer]) -> Iterator[list[Peer]]:
    while part := list(islice(made, _PART)):
        yield part
