"""Every op: a printed and parsed module is the same module, in every MLIR form."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

import rlx
from rlx import mlir
from rlx.ir.graph.evaluate import evaluate
from rlx.ir.text import assembly
from rlx.ir.text.modules import parse_module, print_op, verify_module
from tests.conformance.cases import case_shares, composite_groups, op_shares
from tests.conformance.failures import Failures
from tests.conformance.functions import merged
from tests.conformance.values import random_values
from tests.drawing import of_which


def _bytecode(module: Any) -> bytes:
    buffer = io.BytesIO()
    module.operation.write_bytecode(buffer)
    return buffer.getvalue()


def _read_bytecode(data: bytes) -> Any:
    with mlir.entered():
        return mlir.ir.Module.parse(data)


_FORMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "text": (str, parse_module),
    "with debug info": (lambda m: m.operation.get_asm(enable_debug_info=True), parse_module),
    "generic": (lambda m: m.operation.get_asm(print_generic_op_form=True), parse_module),
    "generic with debug info": (
        lambda m: m.operation.get_asm(print_generic_op_form=True, enable_debug_info=True),
        parse_module,
    ),
    "readable": (print_op, parse_module),
    "readable with debug info": (lambda m: print_op(m, debug_info=True), parse_module),
    "bytecode": (_bytecode, _read_bytecode),
}


@of_which("share")
@pytest.mark.parametrize(("op", "share"), op_shares())
@of_which("op", groups=composite_groups())
def test_round_trip(op: str, share: int) -> None:
    failures = Failures()
    graphs = [graph for case in case_shares(op)[share] for graph in (case.graph(), case.graph(case.bindings()[0]))]
    module = merged(graphs)
    verify_module(module)
    for form, (write, read) in _FORMS.items():
        with failures.of(form):
            written = write(module)
            again = read(written)
            verify_module(again)
            failures.expect(form, write(again) == written, "is another module when it is read again")
            debug = [
                m.operation.get_asm(enable_debug_info="debug" in form or form == "bytecode") for m in (module, again)
            ]
            failures.expect(form, debug[0] == debug[1], "prints otherwise when it is read again")
    failures.check()


@of_which("share")
@pytest.mark.parametrize(("op", "share"), op_shares())
@of_which("op", groups=composite_groups())
def test_the_readable_form_is_the_same_op(op: str, share: int) -> None:
    """The readable form has neither quotes nor segment sizes, and MLIR parses its own output."""
    failures = Failures()
    for case in case_shares(op)[share]:
        with failures.of(case):
            module = case.graph().module
            for debug in (False, True):
                generic = module.operation.get_asm(enable_debug_info=debug)
                readable = assembly.write(generic)
                failures.expect(case, f'"rlx.{op}"' not in readable, "is printed in quotes")
                failures.expect(case, "SegmentSizes" not in readable, "is printed with sizes of segments")
                again = parse_module(readable).operation.get_asm(enable_debug_info=debug)
                failures.expect(case, again == generic, "is another op when it is read again")
    failures.check()


@of_which("share")
@pytest.mark.parametrize(("op", "share"), op_shares())
@of_which("op", groups=composite_groups())
def test_parsed_graph_computes_the_same(op: str, share: int) -> None:
    failures = Failures()
    for case in case_shares(op)[share]:
        with failures.of(case):
            bindings = case.bindings()[0]
            values = random_values(case, bindings).by_name()
            graph = case.graph()
            for what, other in (("parsed", rlx.parse(str(graph))), ("cloned", graph.clone())):
                failures.expect(case, str(other) == str(graph), f"{what}: prints otherwise")
                failures.expect(case, other.arguments == graph.arguments, f"{what}: has other arguments")
                failures.expect(case, other.results == graph.results, f"{what}: has other results")
                results = zip(evaluate(other, values), evaluate(graph, values), strict=True)
                failures.expect(
                    case, all(a.tobytes() == b.tobytes() for a, b in results), f"{what}: computes otherwise"
                )
    failures.check()
