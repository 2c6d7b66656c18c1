"""The inputs to damage: the tests' texts, a sample of every op in every dtype, and lowered modules."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_LONGEST = 6000  # characters: longer texts take more time and find nothing else


@cache
def texts() -> tuple[str, ...]:
    """Return module texts, each valid or an example of an invalid one."""
    return (*files(), *samples(), *lowered())


@cache
def files() -> tuple[str, ...]:
    """Return the parts of `tests/filecheck/**/*.mlir`, without the comments that check them."""
    found = []
    for path in sorted((_ROOT / "tests" / "filecheck").rglob("*.mlir")):
        text = re.sub(r"^\s*//(?! -----).*\n", "", path.read_text(), flags=re.MULTILINE)
        found += [part for part in text.split("// -----\n") if part.strip() and len(part) < _LONGEST]
    return tuple(found)


@cache
def graphs() -> tuple[object, ...]:
    """Return graphs of one op each: the samples of its card with and without symbols, in two dtypes."""
    from tests.conformance.cases import cases, op_names

    found = []
    for op in op_names():
        seen: dict[int, int] = {}
        for case in cases(op):
            seen[case.index] = seen.get(case.index, 0) + 1
            if seen[case.index] > 2:
                continue
            found.append(case.graph())
            if case.symbols:
                found.append(case.graph(case.bindings()[0]))
    return tuple(found)


@cache
def samples() -> tuple[str, ...]:
    """Return the texts of `graphs`, in the readable form, in the generic one, and some with locations."""
    found = dict.fromkeys(str(graph) if i % 2 else str(graph.module) for i, graph in enumerate(graphs()))  # type: ignore[attr-defined]
    debug = [g.module.operation.get_asm(enable_debug_info=True) for g in graphs()[::20]]  # type: ignore[attr-defined]
    return (*(t for t in found if len(t) < _LONGEST), *(t for t in debug if len(t) < _LONGEST))


@cache
def lowered() -> tuple[str, ...]:
    """Return some graphs after the pipelines that users run."""
    import rlx

    found = []
    for i, graph in enumerate(graphs()[::7]):
        pipeline = ("rlx-lower-blocks,rlx-decompose,canonicalize,cse", "rlx-lower-blocks,rlx-to-linalg")[i % 2]
        try:
            text = str(rlx.passes.run(graph, pipeline))  # type: ignore[attr-defined]
        except rlx.Error:
            continue
        if len(text) < _LONGEST:
            found.append(text)
    return tuple(dict.fromkeys(found))


@cache
def words() -> tuple[str, ...]:
    """Return the dialect's names (ops, attributes, types, enumeration cases) and those of MLIR's syntax."""
    from rlx.ir.op import registry

    registry.load()
    found = dict.fromkeys(f'"rlx.{name}"' for name in registry.SPECS)
    found |= dict.fromkeys(f"rlx.{name}" for name in registry.SPECS)
    for spec in registry.SPECS.values():
        for attribute in spec.attributes:
            found[attribute.name] = None
            found |= dict.fromkeys(f'"{case}"' for case in attribute.cases)
    types = (
        "f32",
        "f16",
        "bf16",
        "f64",
        "i8",
        "i16",
        "i32",
        "i64",
        "ui8",
        "ui32",
        "i1",
        "complex<f32>",
        "index",
        "none",
    )
    found |= dict.fromkeys(types) | {f"tensor<{n}{t}>": None for t in types for n in ("", "4x", "2x3x", "?x", "0x")}
    return (*found, *_AROUND, *_AROUND)


_AROUND = (
    *("module", "func.func", "private", "return", "loc(unknown)", 'loc("a":1:1)', 'loc(callsite("a" at "b"))', "unit"),
    *('tensor<?xf32, #rlx.dims<["n"]>>', '#rlx.dims<["n*m", 3]>', '#rlx.dims<["(n+1)//2"]>', "tensor<*xf32>"),
    *("rlx.name", "rlx.kind", "rlx.init", "rlx.updates", "rlx.donate", "rlx.stage", '"input"', '"param"', '"state"'),
    *(
        "[]",
        "{}",
        "()",
        "({})",
        "({^bb0: })",
        "array<i64>",
        "array<i64: 0, -1>",
        "dense<0.0>",
        "dense<> : tensor<0xf32>",
    ),
    *("dense<1> : tensor<99999999999xi8>", "dense<1.0> : tensor<4294967296x4294967296xf32>", "@main", "%0", "%arg0"),
    *("true", "false", '"a"', '""', '"\\FF"', "0 : i64", "-1 : i64", "1.0 : f32", "0x7FF0000000000000 : f64", "1 : i1"),
    *(
        "#a = [#a]",
        "!a = !a",
        "#m = affine_map<(d0) -> (d0)>",
        'opaque<"x", "0x">',
        "dense_resource<r> : tensor<4xf32>",
    ),
    *("operandSegmentSizes", "resultSegmentSizes", "array<i32: 1, 1>", "sym_visibility", "sym_name", "function_type"),
)
