"""Every op: malformed text raises an error with line, column and op name, and never crashes the process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pytest

import rlx
from rlx import mlir
from rlx.dialect.spec import OpSpec
from rlx.ir.op import registry
from rlx.ir.op.attributes import to_mlir
from rlx.ir.op.grouping import SEGMENTS
from rlx.ir.shape import Shape, shape_of_type
from tests.conformance.cases import composite_groups, plain_op_names
from tests.conformance.failures import Failures
from tests.conformance.refusals import base_case, is_axis, right_use
from tests.conformance.values import generator
from tests.drawing import drawn, of_which

# Attributes as text. The second entry lists the kinds for which the text has the right form, whatever its value.
_TEXTS: dict[str, tuple[str, ...]] = {
    '"no such thing"': ("str", "enum"),
    '""': ("str", "enum"),
    "1.5 : f64": ("f64",),
    "1.5 : f32": (),
    "0x7FF0000000000000 : f64": ("f64",),
    "0 : i64": ("i64",),
    "-1 : i64": ("i64",),
    "99 : i64": ("i64",),
    "9223372036854775807 : i64": ("i64",),
    "1 : i32": (),
    "1 : index": (),
    "1 : si64": (),
    "true": ("bool",),
    "unit": (),
    "[]": ("dims",),
    "[1]": ("dims",),
    "[-1]": ("dims",),
    '["n"]': ("dims",),
    '["n", 2, "n+"]': ("dims",),
    '["n//0"]': ("dims",),
    "[1.5]": (),
    "[[1]]": (),
    "array<i64>": ("i64s",),
    "array<i64: 0>": ("i64s",),
    "array<i64: 9, -9, 3, 3>": ("i64s",),
    "array<i32: 0>": (),
    "array<f64: 0.0>": (),
    "f32": ("dtype",),
    "i4": (),
    "index": (),
    "tensor<2xf32>": (),
    "dense<1.0> : tensor<2xf32>": ("elements",),
    "dense<1> : tensor<2xi4>": (),
    "dense<1> : tensor<2xindex>": (),
    "dense<1.0> : vector<2xf32>": (),
    "sparse<[[0]], [1.0]> : tensor<2xf32>": (),
    "@symbol": (),
    "{a = 1 : i64}": (),
    "affine_map<(d0) -> (d0)>": (),
    '#rlx.dims<["n"]>': (),
    "loc(unknown)": (),
}
# Types that no operand or result of an rlx op can have.
_TYPES = (
    "f32",
    "i32",
    "index",
    "none",
    "tuple<>",
    "vector<2xf32>",
    "memref<2xf32>",
    "tensor<*xf32>",
    "tensor<2xi4>",
    "tensor<2xui64>",
    "tensor<2xsi32>",
    "tensor<2xindex>",
    "tensor<2xf8E4M3FN>",
    "tensor<2xcomplex<f64>>",
    "tensor<2xvector<2xf32>>",
    "tensor<?xf32>",
    'tensor<2xf32, "encoding">',
    'tensor<?xf32, "n">',
    'tensor<2xf32, #rlx.dims<["n"]>>',
    'tensor<?xf32, #rlx.dims<["n", "m"]>>',
    "tensor<?xf32, #rlx.dims<[]>>",
    "tensor<?xf32, #rlx.dims<[3]>>",
    'tensor<?xf32, #rlx.dims<["3"]>>',
    'tensor<?xf32, #rlx.dims<["n+"]>>',
    'tensor<?xf32, #rlx.dims<["n//0"]>>',
    "tensor<?xf32, #rlx.dims<f32>>",
    'tensor<?xf32, #rlx.dims<["n", f32]>>',
)


@dataclass(frozen=True)
class Written:
    """An op in the generic form, split into its parts.

    Attributes:
        what: A description of the mistake.
        operands: The operand types.
        attributes: The texts of attributes by name.
        results: The result types.
        regions: The text after the operands.
        certain: Whether it must be refused.
    """

    op: str
    what: str
    operands: tuple[str, ...]
    attributes: dict[str, str]
    results: tuple[str, ...]
    regions: str = ""
    certain: bool = True

    def text(self) -> str:
        """Return a module with the op in line 4."""
        arguments = ", ".join(f"%a{i}: {t}" for i, t in enumerate(self.operands))
        names = ", ".join(f"%a{i}" for i in range(len(self.operands)))
        attributes = ", ".join(f"{k} = {v}" for k, v in self.attributes.items())
        results = f"%0:{len(self.results)} = " if self.results else ""
        types = f"({', '.join(self.operands)}) -> ({', '.join(self.results)})"
        stage = registry.card(self.op).spec.stage
        return (
            f'module attributes {{rlx.stage = "{stage}"}} {{\n'
            f"  func.func @main({arguments}) {{\n\n"
            f'    {results}"rlx.{self.op}"({names}) {self.regions} {{{attributes}}} : {types}\n'
            "    return\n  }\n}\n"
        )


def _right(op: str) -> Written:
    case = base_case(op)
    bindings = case.bindings()[0]
    use = right_use(case, bindings)
    flat = [s for entry in use.operands for s in (entry if isinstance(entry, list) else [entry]) if s is not None]
    stored = {
        a.name: str(to_mlir(a, use.attributes[a.name])) for a in case.card.spec.attributes if a.name in use.attributes
    }
    graph = case.graph(bindings)
    built = graph.function.entry_block.operations[0].operation
    stored |= {name: str(built.attributes[name]) for name in SEGMENTS if name in built.attributes}
    results = tuple(str(o.shape.type) for o in graph.outputs)
    return Written(op, "nothing", tuple(str(s.type) for s in flat), stored, results, certain=False)


def _wrong(spec: OpSpec, right: Written) -> Iterator[Written]:
    yield replace(right, what="one operand too many", operands=(*right.operands, "tensor<2xf32>"))
    yield replace(right, what="many operands", operands=(*right.operands, *["tensor<2xf32>"] * 30))
    if right.operands:
        yield replace(right, what="one operand too few", operands=right.operands[:-1])
        yield replace(right, what="no operands", operands=())
    for i in range(len(right.operands)):
        for type_ in _TYPES:
            operands = (*right.operands[:i], type_, *right.operands[i + 1 :])
            yield replace(right, what=f"operand {i} is {type_}", operands=operands)
    yield from _wrong_attributes(spec, right)
    yield from _wrong_results(right)
    yield replace(right, what="a region", regions="({})")
    yield replace(right, what="a region with a block", regions='({ "rlx.no_terminator"() : () -> () })')


def _wrong_attributes(spec: OpSpec, right: Written) -> Iterator[Written]:
    def with_attribute(name: str, value: str, certain: bool) -> Written:
        attributes = right.attributes | {name: value}
        return replace(right, what=f"{name} = {value}", attributes=attributes, certain=certain)

    yield with_attribute("no_such_attribute", "1 : i64", True)
    yield with_attribute("axes_", "[]", True)
    yield with_attribute("operandSegmentSizes", "array<i32: 1>", True)
    yield with_attribute('"other.dialect"', "1 : i64", False)
    for attribute in spec.attributes:
        name = attribute.name
        if attribute.required:
            kept = {k: v for k, v in right.attributes.items() if k != name}
            yield replace(right, what=f"{name} missing", attributes=kept)
        for text, kinds in _TEXTS.items():
            wrong_case = attribute.kind == "enum" and text.strip('"') not in attribute.cases
            yield with_attribute(name, text, attribute.kind not in kinds or wrong_case)
        if is_axis(attribute):
            for text in ("99 : i64", "-1 : i64") if attribute.kind == "i64" else ("array<i64: 99>", "array<i64: -1>"):
                yield with_attribute(name, text, True)


def _wrong_results(right: Written) -> Iterator[Written]:
    for i, result in enumerate(right.results):
        shape = shape_of_type(_type(result))
        others = [str(Shape((*shape.dims, 2), shape.dtype).type), str(shape.with_dims(("other",) * shape.rank).type)]
        others += [str(shape.with_dtype(d).type) for d in ("i16", "c64", "bool", "u32") if shape.dtype.name != d]
        others += [str(shape.with_dims([*shape.dims[:-1], shape.dims[-1] + 1]).type)] if shape.rank else []
        for type_ in (*others, *_TYPES):
            if type_ != result:
                results = (*right.results[:i], type_, *right.results[i + 1 :])
                yield replace(right, what=f"result {i} is {type_}", results=results)
    yield replace(right, what="one result too few", results=right.results[:-1])
    yield replace(right, what="one result too many", results=(*right.results, "tensor<2xf32>"))


def _type(text: str) -> Any:
    return mlir.ir.Type.parse(text, context=mlir.context())


@pytest.mark.parametrize("op", plain_op_names())
@drawn("third", range(3), ids="third{}".format)
@of_which("op", groups=composite_groups())
def test_parser_refuses(op: str, third: int) -> None:
    failures = Failures()
    right = _right(op)
    rlx.parse(right.text())
    for written in islice(_wrong(registry.card(op).spec, right), third, None, 3):
        text = written.text()
        try:
            graph = rlx.parse(text)
        except rlx.ParseError as problem:
            failures.expect(written.what, f"rlx.{op}" in str(problem), f"the message does not name the op: {problem}")
            place = re.fullmatch(r"<text>:(\d+):(\d+)", problem.location or "")
            line = int(place[1]) if place else 0
            failures.expect(written.what, line in (2, 4), f"the message has the place {problem.location}: {problem}")
        except Exception as problem:
            failures.add(written.what, f"raises {type(problem).__name__}: {problem}"[:300])
        else:
            failures.expect(written.what, not written.certain, "is accepted")
            failures.expect(written.what, str(rlx.parse(str(graph))) == str(graph), "does not print as it was read")
    failures.check()


_TOKEN = re.compile(r'"[^"]*"|[%@#!]?[A-Za-z_][\w.]*|-?\d+|\s+|.')
_DAMAGES = 40


def _damaged(text: str, rng: np.random.Generator) -> str:
    """Return the text with a token removed, doubled, moved or replaced, or with its end cut off."""
    tokens = _TOKEN.findall(text)
    i, j = rng.integers(len(tokens), size=2)
    match int(rng.integers(5)):
        case 0:
            del tokens[i]
        case 1:
            tokens.insert(i, tokens[j])
        case 2:
            tokens[i], tokens[j] = tokens[j], tokens[i]
        case 3:
            tokens[i] = str(rng.choice(["-1", "99999999999999999999", "?", "x", "f32", "{", ")", '"', "\0", "é"]))
        case _:
            del tokens[i:]
    return "".join(tokens)


@pytest.mark.parametrize("op", plain_op_names())
@of_which("op", groups=composite_groups())
def test_parser_survives_damage(op: str) -> None:
    failures = Failures()
    rng = generator("damage", op)
    for text in (_right(op).text(), str(base_case(op).graph())):
        for _ in range(_DAMAGES):
            damaged = _damaged(text, rng)
            with failures.of(damaged):
                try:
                    rlx.parse(damaged)
                except rlx.Error as problem:
                    failures.expect(damaged, bool(problem.message), "the error says nothing")
    failures.check()
