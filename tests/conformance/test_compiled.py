"""Every op: the CPU computes what the evaluator computes, static and dynamic, on plain and special values.

A run has one share of each op's cases, and one of three composite ops. Several ops are compiled as one module, for one
CPU level or for all: see `tests/drawing.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rlx.targets.iree import transfer
from rlx.targets.linalg import claimed_ops
from tests.conformance.cases import Bindings, Case, bundle_shares, bundles, case_shares, cases
from tests.conformance.compiled import Program, compile_graphs, contiguous, lendable
from tests.conformance.failures import Failures
from tests.conformance.judge import judge
from tests.conformance.levels import FOREIGN, at_any_level, skip_if_not_run
from tests.conformance.values import random_values, value_sets
from tests.drawing import of_which

_LENT_RUNS = 4  # the first two are on trial copies


def _has_static_sibling(case: Case) -> bool:
    """Return whether another case differs only in its sizes, and those are static."""
    return any(
        not other.symbols and other.dtype == case.dtype and other.sample.attributes == case.sample.attributes
        for other in cases(case.op)
    )


@at_any_level()
@of_which("share")
@pytest.mark.parametrize(("ops", "share"), bundle_shares(claimed_ops()))
@of_which("ops", groups=bundles(claimed_ops()))
def test_compiled(ops: str, share: int, level: str, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    _check(_cases(ops, share, full), level, monkeypatch)


@of_which("share")
@pytest.mark.parametrize(("ops", "share"), bundle_shares(claimed_ops()))
@of_which("ops", of_each=2)
def test_compiled_for_another_machine(ops: str, share: int, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the programs cannot run, they are only compiled. Hence these are drawn in addition, and few of them."""
    _check(_cases(ops, share, full), FOREIGN, monkeypatch)


def _check(share: Sequence[Case], level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = Failures()
    chosen, programs = _programs(share, level)
    for (case, how, bindings), program in zip(chosen, programs, strict=True):
        label = f"{case}, {how}"
        if program.problem is not None:
            failures.add(label, program.problem)
            continue
        with failures.of(label):
            if program.lacks is not None:
                continue
            for sizes in bindings:
                _check_results(case, program, sizes, label, failures)
            _check_lent_arguments(case, program, bindings[0], label, failures, monkeypatch)
    failures.check()
    skip_if_not_run(level, programs)


def _cases(ops: str, share: int, full: bool) -> list[Case]:
    """Return a share of the cases of each op of a bundle. Ops with fewer shares repeat them, unless all are run."""
    found: list[Case] = []
    for op in ops.split("+"):
        dealt = case_shares(op)
        if share < len(dealt) or not full:
            found += dealt[share % len(dealt)]
    return found


def _programs(share: Sequence[Case], level: str) -> tuple[list[tuple[Case, str, list[Bindings]]], list[Program]]:
    """Return the cases of a share with static or symbolic sizes and bindings, and the program of each."""
    chosen: list[tuple[Case, str, list[Bindings]]] = []
    for case in share:
        bindings: list[Bindings] = list(case.bindings())
        if not case.symbols or not _has_static_sibling(case):
            chosen.append((case, "static", bindings[:1]))
        if case.symbols:
            chosen.append((case, "dynamic", bindings))
    graphs = [case.graph(bindings[0] if how == "static" else None) for case, how, bindings in chosen]
    return chosen, compile_graphs(graphs, level=level)


def _check_results(case: Case, program: Program, bindings: Bindings, label: str, failures: Failures) -> None:
    for values in value_sets(case, bindings):
        verdict = judge(case, program.graph, values, bindings, program.function)
        arguments = contiguous(values.arrays)
        results = program.run(arguments)
        for problem in verdict.problems(results):
            failures.add(label, f"{values.name} {dict(bindings)}: {problem}")
        kept = all(a.tobytes() == b.tobytes() for a, b in zip(arguments, values.arrays, strict=True))
        failures.expect(label, kept, f"{values.name} {dict(bindings)}: an argument was changed")


def _check_lent_arguments(
    case: Case,
    program: Program,
    bindings: Bindings,
    label: str,
    failures: Failures,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check that programs read large arguments in place and do not change them. Here all arguments count as large."""
    values = random_values(case, bindings)
    expected = [r.tobytes() for r in program.run(contiguous(values.arrays))]
    with monkeypatch.context() as patch:
        patch.setattr(transfer, "COPY_LIMIT", 0)
        run = program.again()
        for number in range(_LENT_RUNS):
            arguments = [lendable(array, number) for array in values.arrays]
            results = [r.tobytes() for r in run(arguments)]
            failures.expect(label, results == expected, f"lent arguments, run {number}: other results")
            kept = all(a.tobytes() == b.tobytes() for a, b in zip(arguments, values.arrays, strict=True))
            failures.expect(label, kept, f"lent arguments, run {number}: an argument was changed")
