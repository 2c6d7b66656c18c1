"""The self-test of a program: a C file with its test vectors, which compares the outputs with those of the evaluator."""

from __future__ import annotations

import numpy as np

from rlx.targets.c.lower.arguments import CArgument, arguments_of, by_kind
from rlx.targets.c.lower.notation import count
from rlx.targets.c.lower.program import CSource
from rlx.targets.c.lower.tables import table_of
from rlx.targets.c.lower.values import float_text, stored_type
from rlx.targets.c.lower.vectors import TOLERANCE, SelfTestVectors
from rlx.targets.c.lower.writer import Writer
from rlx.version import __version__


def self_test_of(program: CSource) -> str:
    """Return the text of the self-test.

    Raises:
        Error: An evaluator fails.
    """
    vectors, of_kind = program.vectors, by_kind(arguments_of(program))
    w, upper = Writer(), program.name.upper()
    exact = "bit for bit" if vectors.exact else f"within {TOLERANCE} of the largest number, integers within 1"
    w.comment(
        f"{program.title}: the self-test of a network, written by RLX {__version__}.\n\n"
        f"{program.name}_self_test returns 0 if the outputs of {len(vectors.inputs)} calls are those of RLX's evaluator, "
        f"{exact}. Otherwise it returns 100 times the number of the call plus the number of the output, both from 1. If "
        f"{upper}_TEST_MAIN is defined, this file has a main, whose status is 0 or 1."
    )
    w.line(f'#include "{program.files.header}"')
    if not _is_finite(vectors):  # NAN and INFINITY are macros of this header
        w.line("#include <math.h>")
    w.line()
    for i, a in enumerate(of_kind["input"]):
        _table(w, f"input_{a.name}", a, [call[i] for call in vectors.inputs])
    for i, a in enumerate(of_kind["output"]):
        _table(w, f"expected_{a.name}", a, [call[i] for call in vectors.outputs])
    for a in of_kind["param"]:
        _table(w, f"param_{a.name}", a, [vectors.params[a.entry.name]])
    w.line(f"int32_t {program.name}_self_test(void)")
    w.line("{")
    w.depth += 1
    _body(w, program, vectors, of_kind)
    w.depth -= 1
    w.line("}")
    w.line()
    w.line(f"#ifdef {upper}_TEST_MAIN")
    w.text(f"int main(void)\n{{\n    return ({program.name}_self_test() == 0) ? 0 : 1;\n}}")
    w.line("#endif")
    return str(w)


def _is_finite(vectors: SelfTestVectors) -> bool:
    arrays = [*vectors.params.values(), *(a for call in (*vectors.inputs, *vectors.outputs) for a in call)]
    return all(np.isfinite(a).all() for a in arrays if a.dtype.kind == "f")


def _table(w: Writer, name: str, argument: CArgument, arrays: list[np.ndarray]) -> None:
    """Write an array with a row for each call."""
    flat = np.stack([a.reshape(-1) if a.size else np.zeros(1, a.dtype) for a in arrays])
    table = table_of(name, flat, stored_type(argument.dtype), "")
    w.line(f"static const {table.kind} {table.declarator} = {{")
    w.depth += 1
    for line in table.body:
        w.line(line)
    w.depth -= 1
    w.line("};")
    w.line()


def _body(w: Writer, program: CSource, vectors: SelfTestVectors, of_kind: dict[str, list[CArgument]]) -> None:
    name = program.name
    w.line(f"static {name}_state state;")
    for a in of_kind["output"]:
        w.line(f"static {stored_type(a.dtype)} output_{a.name}[{count(a.shape)}];")
    if of_kind["param"]:
        w.line(f"{name}_params params;")
    w.line("int32_t failed = 0;")
    w.line()
    for a in of_kind["param"]:
        w.line(f"params.{a.name} = param_{a.name}[0];")
    if of_kind["state"]:
        w.line(f"{name}_init(&state);")
    arguments = ["&state", *(["&params"] if of_kind["param"] else [])]
    arguments += [f"input_{a.name}[call]" for a in of_kind["input"]] + [f"output_{a.name}" for a in of_kind["output"]]
    with w.block(f"for (int32_t call = 0; call < {len(vectors.inputs)}; call++)"):
        w.line(f"{name}_run({', '.join(arguments)});")
        for i, a in enumerate(of_kind["output"]):
            if not a.entry.shape.num_elements:
                continue
            differs = _differs(a, vectors, i)
            with w.loop("i", f"{a.macro}_SIZE"), w.block(f"if ((failed == 0) && ({differs}))"):
                w.line(f"failed = (100 * (call + 1)) + {i + 1};")
    w.line("return failed;")


def _differs(argument: CArgument, vectors: SelfTestVectors, output: int) -> str:
    """The condition that an element differs from the expected one."""
    got, wanted = f"output_{argument.name}[i]", f"expected_{argument.name}[call][i]"
    if vectors.exact:
        return f"{got} != {wanted}"
    if argument.dtype.is_inexact:
        largest = max(float(np.abs(call[output]).max(initial=0)) for call in vectors.outputs)
        limit = float_text(float(np.float32(TOLERANCE * largest + 1e-30)))
        return f"!((({got} - {wanted}) <= {limit}) && (({wanted} - {got}) <= {limit}))"
    return f"(((int64_t){got} - (int64_t){wanted}) > 1) || (((int64_t){wanted} - (int64_t){got}) > 1)"
