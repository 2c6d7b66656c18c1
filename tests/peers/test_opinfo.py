"""PyTorch's own samples of its operators: RLX's results equal PyTorch's, except for docs/conventions.md.

PyTorch is not in an extra of the package. If it is installed, some of the samples run, and all of them with
`make test-all` (`pytest --full`).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import islice

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import rlx
from rlx.ir.graph.evaluate import evaluate
from tests.conformance import compiled, compiled_xla
from tests.conformance.compiled import contiguous
from tests.conformance.failures import Failures
from tests.drawing import drawn, shares
from tests.peers import conventions
from tests.peers.gradients import gradient_peers, gradient_problems
from tests.peers.judging import problems
from tests.peers.opinfo import DTYPES, FAMILIES, Peer, Refused, is_elementwise, operators, pairs, peers, special_peers
from tests.peers.unsaid import UNSAID
from tests.peers.vocabulary import TABLE

pytestmark = [
    # Some packages of PyTorch lack its test tools. Importing them takes seconds, so it is done when they are used.
    pytest.mark.skipif(find_spec("torch.testing._internal.common_methods_invocations") is None, reason="no test tools"),
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning"),
]

torch.set_num_threads(1)  # threads that wait for each other cost more than these small tensors

# The numbers of shares of the operators. A run has one share for each dtype, or for some.
_EVALUATED, _SPECIAL, _GRADIENTS, _COMPILED = 64, 12, 40, 240
_MOST_COMPILED = 2
_PART = 40
# The accuracy of an implementation's functions, as a factor: see tests/conformance/tolerance.py.
_FACTORS = {"iree": 2.0, "xla": 3.5}


def _limit(full: bool) -> int | None:
    """Return the number of samples per operator."""
    return None if full else 1


def _share(kind: str, number: int, share: int, suits: Callable[[str], bool] = lambda _: True) -> list[str]:
    """Return one of `number` shares of the suitable operators that accept a dtype."""
    return shares([name for name, other in pairs() if other == kind and suits(name)], number, lambda _: None)[share]


def _found(made: Iterator[Peer | Refused], failures: Failures) -> Iterator[Peer]:
    """Yield the supported samples. A refusal by RLX must be a convention, and the table has the reasons for the rest.

    A share may consist of operators that RLX does not support in a dtype, so refusals count as checks.
    """
    for peer in made:
        if isinstance(peer, Peer):
            yield peer
        elif peer.left_out:
            failures.checked += 1
        else:
            failures.expect(peer.name, conventions.refuses(peer.reason), f"refused: {peer.reason}")


def test_every_operator_is_in_the_table_or_has_a_reason() -> None:
    assert FAMILIES and not set(TABLE) & set(UNSAID)
    if torch.__version__.startswith("2.13."):
        assert set(operators()) == set(TABLE) | set(UNSAID)


@drawn("share", range(_EVALUATED))
@pytest.mark.parametrize("kind", DTYPES)
def test_evaluated(kind: str, share: int, full: bool) -> None:
    failures = Failures()
    for name in _share(kind, _EVALUATED, share):
        for peer in _found(peers(name, kind, _limit(full)), failures):
            with failures.of(peer.name):
                results = evaluate(peer.graph, peer.values)
                for problem in problems(peer, results, peer.graph.function):
                    failures.add(peer.name, problem)
                for result, expected in zip(results, peer.expected, strict=True):
                    right = conventions.dtype_is_right(peer, rlx.dtype(result.dtype), expected.dtype)
                    failures.expect(peer.name, right, f"is {result.dtype}, PyTorch's is {expected.dtype}")
    failures.check()


@drawn("share", range(_SPECIAL))
@pytest.mark.parametrize("kind", DTYPES)
def test_special_numbers(kind: str, share: int) -> None:
    """All pairs of NaN, infinities, zeros, denormals and integer limits give PyTorch's results, if the operator is one op."""

    def has_special_values(name: str) -> bool:
        return is_elementwise(name) and not conventions.has_other_special_values(name, kind)

    failures = Failures()
    for name in _share(kind, _SPECIAL, share, has_special_values):
        for peer in _found(special_peers(name, kind), failures):
            if conventions.is_one_op(peer.graph):
                with failures.of(peer.name):
                    for problem in problems(peer, evaluate(peer.graph, peer.values), peer.graph.function):
                        failures.add(peer.name, problem)
    failures.check()


@drawn("share", range(_GRADIENTS))
def test_gradients(share: int, full: bool) -> None:
    failures = Failures()
    for name in _share("f64", _GRADIENTS, share):
        with failures.of(name):
            for peer in _found(gradient_peers(name, _limit(full)), failures):
                for problem in gradient_problems(peer, evaluate(peer.graph, peer.values)):
                    failures.add(peer.name, problem)
    failures.check()


@drawn("share", range(_COMPILED))
@drawn("kind", DTYPES, of_each=_MOST_COMPILED)
@pytest.mark.parametrize("implementation", ["xla", "iree"])
def test_compiled(implementation: str, kind: str, share: int, full: bool) -> None:
    failures = Failures()
    compile_graphs = {"iree": compiled.compile_graphs, "xla": compiled_xla.compile_graphs}[implementation]
    names = _share(kind, _COMPILED, share)
    for part in _parts(peer for name in names for peer in _found(peers(name, kind, _limit(full)), failures)):
        for peer, program in zip(part, compile_graphs([p.graph for p in part]), strict=True):
            if program.problem is not None:
                failures.add(peer.name, program.problem)
                continue
            with failures.of(peer.name):
                results = program.run(contiguous(peer.arrays))
                for problem in problems(peer, results, program.function, _FACTORS[implementation]):
                    failures.add(peer.name, problem)
    failures.check()


def _parts(made: Iterator[Peer]) -> Iterator[list[Peer]]:
    while part := list(islice(made, _PART)):
        yield part
