"""The readable form of rlx ops: accepted text, unchanged text, and locations."""

from __future__ import annotations

import contextlib
import random
import re

import pytest

import rlx
from rlx import mlir
from rlx.ir.op import registry
from rlx.ir.op.attributes import from_mlir
from rlx.ir.op.registry import SPECS
from rlx.ir.text import assembly
from rlx.ir.text.modules import parse_module, print_op

ARGUMENTS = "%x: tensor<4xf32>, %xs: tensor<5x4xf32>, %c: tensor<i1>, %b: tensor<4xi1>"


def function(body: str) -> str:
    return f"func.func @f({ARGUMENTS}) {{\n{body}\n  return\n}}\n"


def printed(body: str) -> list[str]:
    """Return the printed lines of a function's body."""
    text = print_op(parse_module(function(body), "f.mlir"))
    assert print_op(parse_module(text)) == text
    return [line.strip() for line in text.splitlines()[2:-2]]


TANH = '%0 = rlx.activation(%arg0) {kind = "tanh"} : tensor<4xf32>'
EACH = '%0 = rlx.activation %x {kind = "tanh"} : tensor<4xf32>'


@pytest.mark.parametrize(
    "body",
    [
        '%0 = "rlx.activation"(%x) {kind = "tanh"} : (tensor<4xf32>) -> tensor<4xf32>',
        '%0 = rlx.activation(%x) {kind = "tanh"} : (tensor<4xf32>) -> tensor<4xf32>',
        '%0 = rlx.activation(%x) {kind = "tanh"} : (tensor<4xf32>) -> (tensor<4xf32>)',
        '%0 = rlx.activation(%x) {kind = "tanh"} : tensor<4xf32>',
        '%0 = rlx.activation %x {kind = "tanh"} : tensor<4xf32>',
        '%0 = rlx.activation %x {kind = "tanh"} : (tensor<4xf32>) -> tensor<4xf32>',
        '%0=rlx.activation(%x){kind="tanh"}:tensor<4xf32>',
        '%0 =\n rlx.activation // {\n (\n%x // )\n ) {\n kind // = "}\n = "tanh"}\n : (tensor<4xf32>) // -\n -> tensor<4xf32>',
        '%0 = rlx.activation %x {kind = "tanh"} : tensor<4xf32> loc("a b(":3:4)',
        'rlx.activation %x {kind = "tanh"} : tensor<4xf32>',
    ],
)
def test_an_op_may_be_written_in_many_ways(body: str) -> None:
    assert printed(body) == [TANH, "return"]


def test_aliases_stand_for_types() -> None:
    text = '!t = tensor<4xf32> // a\n#kind = "tanh"\n' + function("%0 = rlx.activation %x {kind = #kind} : !t")
    assert TANH in print_op(parse_module(text))
    runs = "!t = tensor<4xf32>\n" + function(
        "%0:2 = rlx.optimization_barrier([%x, %x], [%x]) : (!t, tensor<4xf32>, !t) -> (tensor< 4xf32>, !t)"
    )
    assert "([%arg0, %arg0], [%arg0])" in print_op(parse_module(runs))


REGIONS = {
    "%0 = rlx.checkpoint() : tensor<4xf32> { rlx.yield %x : tensor<4xf32> }": [
        "%0 = rlx.checkpoint() : tensor<4xf32> {",
        "rlx.yield %arg0 : tensor<4xf32>",
        "}",
        "return",
    ],
    """%0:2 = rlx.scan %x, %xs {
      length = [5], num_carries = 1,  // one
      reverse = false} : (tensor<4xf32>,
        tensor<5x4xf32>) -> (tensor<4xf32>, tensor<5x4xf32>)
    { // here
    ^bb0(%a: tensor<4xf32>, %e: tensor<4xf32>): rlx.yield %a, %e : tensor<4xf32>
    } loc("there")""": [
        "%0:2 = rlx.scan(%arg0, %arg1) {length = [5], num_carries = 1, reverse = false}"
        " : (tensor<4xf32>, tensor<5x4xf32>) -> (tensor<4xf32>, tensor<5x4xf32>) {",
        "^bb0(%arg4: tensor<4xf32>, %arg5: tensor<4xf32>):",
        "rlx.yield %arg4, %arg5 : tensor<4xf32>, tensor<4xf32>",
        "}",
        "return",
    ],
    """%0 = rlx.if(%c) : (tensor<i1>) -> tensor<4xf32> then {
      rlx.yield(%x) : (tensor<4xf32>) -> ()
    } // }
    else { %1 = rlx.if %c : (tensor<i1>) -> tensor<4xf32> then {rlx.yield %x : tensor<4xf32>}else{
      rlx.yield %x : tensor<4xf32> }
      rlx.yield %1 : tensor<4xf32> }""": [
        "%0 = rlx.if(%arg2) : (tensor<i1>) -> tensor<4xf32> then {",
        "rlx.yield %arg0 : tensor<4xf32>",
        "} else {",
        "%1 = rlx.if(%arg2) : (tensor<i1>) -> tensor<4xf32> then {",
        "rlx.yield %arg0 : tensor<4xf32>",
        "} else {",
        "rlx.yield %arg0 : tensor<4xf32>",
        "}",
        "rlx.yield %1 : tensor<4xf32>",
        "}",
        "return",
    ],
    # Regions in the position of the generic form, with and without quotes.
    """%0 = rlx.if(%c) ({ rlx.yield %x : tensor<4xf32> }, {
      "rlx.yield"(%x) {operandSegmentSizes = array<i32: 1ZEROS>} : (tensor<4xf32>) -> ()
    }) {resultSegmentSizes = array<i32: 1ZEROS>} : (tensor<i1>) -> tensor<4xf32>""".replace("ZEROS", ", 0" * 15): [
        "%0 = rlx.if(%arg2) : (tensor<i1>) -> tensor<4xf32> then {",
        "rlx.yield %arg0 : tensor<4xf32>",
        "} else {",
        "rlx.yield %arg0 : tensor<4xf32>",
        "}",
        "return",
    ],
    """%0 = rlx.custom_fn(%x) : tensor<4xf32> forward {
    ^bb0(%a: tensor<4xf32>): rlx.yield %a : tensor<4xf32>
    } jvp {
    ^bb0(%a: tensor<4xf32>, %d: tensor<4xf32>): rlx.yield %d : tensor<4xf32>
    }""": [
        "%0 = rlx.custom_fn(%arg0) : tensor<4xf32> forward {",
        "^bb0(%arg4: tensor<4xf32>):",
        "rlx.yield %arg4 : tensor<4xf32>",
        "} jvp {",
        "^bb0(%arg4: tensor<4xf32>, %arg5: tensor<4xf32>):",
        "rlx.yield %arg5 : tensor<4xf32>",
        "}",
        "return",
    ],
}


@pytest.mark.parametrize("body", REGIONS, ids=range(len(REGIONS)))
def test_regions_come_last(body: str) -> None:
    assert printed(body) == REGIONS[body]


def test_sizes_of_segments_that_do_not_follow_stay() -> None:
    sizes = "operandSegmentSizes = array<i32: 1, 1" + ", 0" * 14 + ">"
    body = f"%0 = rlx.checkpoint() : tensor<4xf32> {{ rlx.yield(%x, %x) {{{sizes}}} : (tensor<4xf32>, tensor<4xf32>) -> () }}"
    generic = assembly.read(body).text.replace("tensor<4xf32> {", "tensor<4xf32>")
    assert sizes in generic and generic.count("operandSegmentSizes") == 1
    line = f'"rlx.yield"(%0, %1) {{{sizes}}} : (tensor<4xf32>, tensor<4xf32>) -> ()'
    assert assembly.write(line) == line.replace('"rlx.yield"', "rlx.yield")
    # The same text in a string is not an attribute.
    line = '%0 = "rlx.custom"(%1) {attributes_ = {}, name = "{SIZES}", SIZES} : (tensor<f32>) -> tensor<f32>'
    line = line.replace("SIZES", "operandSegmentSizes = array<i32: 1" + ", 0" * 15 + ">")
    assert assembly.write(line).count("SegmentSizes") == 1


UNTOUCHED = [
    '// rlx.matmul(%x) : tensor<4xf32>\nmodule attributes {rlx.stage = "mir", rlx.note, a = "rlx.matmul(%x) \\" // {"} {}',
    'module attributes { // , {\n // rlx\n rlx.yield, rlx.matmul} {\n}',
    "#rlx.matmul = loc(unknown)\n!rlx.matmul = i32\nmodule @rlx.matmul {}",
    "func.func @f(%rlx.x: i32 {rlx.donate, rlx.name = \"x\"}) { cf.br ^rlx.x\n^rlx.x: return }",
    '"rlx.matmul"(%0, %1) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>',
    '%0 = "rlx.if"(%c) ({\n}, {\n}) {a = "}) rlx.x("} : (tensor<i1>) -> ()',
    "%2 = arith.addf %0, %1 : f32 loc(#loc)\n#loc = loc(\"rlx.py\":1:1)",
    "my.rlx.matmul(%x)",
    "",
    "{-# dialect_resources: {builtin: {rlx.matmul: \"0x08000000\"}} #-}",
]  # fmt: skip


@pytest.mark.parametrize("text", UNTOUCHED)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert assembly.read(text).text == text


def test_what_follows_a_name_in_a_string_is_no_op_when_printing() -> None:
    text = 'module attributes {a = "\\0A%0 = \\22rlx.matmul\\22(%x, %y) : (f32, f32) -> f32"} {\n}\n'
    assert assembly.write(text) == text


@pytest.mark.parametrize(
    ("body", "place", "message"),
    [
        ("  %0 = rlx.activatio %x : tensor<4xf32>", "2:8", r"no op 'rlx.activatio' \(did you mean 'activation'\?\)"),
        ("  rlx.activatio(%x) : tensor<4xf32>", "2:3", "no op 'rlx.activatio'"),
        ("  %0 = rlx.relu %x : tensor<4xf32>", "2:8", r"no op 'rlx.relu' \(write 'rlx.activation' with \{kind = \"relu\"\}\)"),
        ("  %0 = rlx.sum %x : tensor<4xf32>", "2:8", r"no op 'rlx.sum' \(write 'rlx.pool' or 'rlx.reduce' with"),
        ('  %0 = rlx.activation %x {kind = "tanh"}', "2:41", "expected ':' and the types of 'rlx.activation'"),
        ("  %0 = rlx.activation(%x {} : tensor<4xf32>", "2:26", r"expected operands of 'rlx.activation'.* '\)'"),
        ("  %0 = rlx.activation(%x) : (tensor<4xf32>", "2:29", r"'\(' is not closed"),
        ("  %0 = rlx.activation(%x) : tensor<4xf32", "2:35", "'<' is not closed"),
        ("  %0 = rlx.activation(%x) : (tensor<4xf32>) tensor<4xf32>", "2:45", "expected '->'"),
        ("  %0 = rlx.activation(%x) : ?", "2:29", "expected a type"),
        ("  %0 = rlx.activation(%x) <{a = 1}> : tensor<4xf32>", "2:27", "no properties"),
        ("  %0 = rlx.activation %x, %x : tensor<4xf32>", "2:23", "takes at most 1 operands, got 2"),
        ("  %0 = rlx.binary(%x, %x) : tensor<4xf32>, tensor<4xf32>", "2:44", "expected one type"),
        ("  %0:2 = rlx.topk(%x) {k = 1} : tensor<4xf32>", "2:33", "'rlx.topk' has 2 results"),
        ("  %0 = rlx.if(%c) : (tensor<i1>) -> tensor<4xf32> {", "2:51", "expected 'then {'"),
        ("  }\n  %0 = rlx.checkpoint() : f32 { {", "3:8", "expected '}' at the end of the region"),
        ("  %0 = rlx.optimization_barrier(%x) : tensor<4xf32>", "2:8", r"takes \(\[inputs…\], \[after…\]\); got 1 of 2"),
        ("  rlx.yield = 3", "2:3", "'rlx.yield' is not expected here"),
        # MLIR's own messages, whose columns quotes and types have shifted.
        (f'  {EACH} %1 = rlx.activation %x {{kind = "tan h"}} : tensor<4xf32>', "2:63", "'tan h' is not one of"),
        (f"  {EACH} %1 = rlx.activation %nothing {{}} : tensor<4xf32>", "2:78", "undeclared SSA value"),
        ("  %0 = rlx.binary(%x, %x) {} : (tensor<4xf32>) -> tensor<4xf32>", "2:32", "expected 2 operand types but had 1"),
        ("  %0 = rlx.binary(%x, %x) {} : tensor<4xq32>", "2:41", "expected"),
        (f"  {EACH} %y = rlx.softmax", "2:74", "expected ':'"),
        (f'  {EACH} %1 = rlx.activation %x {{a = "é"}} : tensor<4xf32> %2 = ?', "2:112", "expected"),
        ("  %0 = rlx.scan(%x, %xs) {length = [5],\n num_carries = oh} : tensor<4xf32> {\n  }", "3:15", "expected attribute"),
        ("  %0 = rlx.scan(%x, %xs) {}\n : (!nothing) -> tensor<4xf32> {\n  }", "3:13", "undefined symbol alias"),
        ("  %0 = rlx.checkpoint() : tensor<4xf32> { %1 = rlx.activation %x {} : tensor<4xf32> oh }", "2:85", "unknown"),
        ("  %0 = rlx.if(%c) : (tensor<i1>) -> () then {} else { oh }", "2:55", "unknown"),
    ],
)  # fmt: skip
def test_errors_are_where_the_user_wrote_them(body: str, place: str, message: str) -> None:
    with pytest.raises(rlx.ParseError, match=message) as caught:
        parse_module(function(body), "f.mlir")
    assert caught.value.location == f"f.mlir:{place}", caught.value


def test_a_wrong_attribute_is_told_what_was_expected() -> None:
    for attribute in (a for spec in SPECS.values() for a in spec.attributes):
        message = rf"'{attribute.name}' is of the wrong kind: unit; expected \w"
        with mlir.entered(), pytest.raises(rlx.ShapeError, match=message):
            from_mlir(attribute, mlir.ir.Attribute.parse("unit"))


def test_locations_are_where_the_user_wrote_them() -> None:
    """Ops and block arguments after others in one line, in one function or in several without a module."""
    end = "rlx.yield %x : tensor<4xf32>"
    region = f"%3 = rlx.if %c : (tensor<i1>) -> tensor<4xf32> then {{ {end} }} else {{{end}}}"
    inner = "%5 = rlx.custom_fn(%x) : tensor<4xf32> forward {^bb0(%y: tensor<4xf32>): rlx.yield %y : tensor<4xf32>}"
    line = f"{EACH} {EACH.replace('%0', '%1')} {region} %4 = rlx.checkpoint() : tensor<4xf32> {{ {inner} {end} }}"
    text = function(line)
    for source in (text, text + "func.func private @g()\n"):
        module = parse_module(source, "f.mlir")
        ends = [found.start() + 1 for found in re.finditer(r"rlx\.\w+", line)]
        found: list[str] = []

        def visit(op: mlir.ir.Operation, found: list[str] = found) -> object:
            if op.name.startswith("rlx."):
                found.append(str(op.location))
            for region in op.regions:
                found += [str(a.location) for b in region for a in b.arguments if "rlx" in op.name]
            return mlir.ir.WalkResult.ADVANCE

        module.operation.walk(visit)
        expected = {f'loc("f.mlir":2:{column})' for column in [*ends, line.index("%y") + 1]}
        assert set(found) == expected


def test_every_word_keeps_its_place() -> None:
    """The location of each word of the user's text leads back to it, wherever the text is moved."""
    text = function(list(REGIONS)[1])
    source = assembly.read(text, "f")
    assert source.text.count("\n") == text.count("\n")
    for word in re.findall(r"\w+", text):
        if text.count(word) != 1 or word in ("rlx", "scan", "yield", "one"):
            continue
        at = source.text.index(word)
        line, column = source.text.count("\n", 0, at) + 1, at - source.text.rfind("\n", 0, at)
        assert source.place(line, column) == source.place_of(text.index(word)), word


def _corpus() -> list[str]:
    from tests.conformance.cases import cases, op_names

    texts = []
    for name in op_names():
        graph = next(iter(cases(name))).graph()
        texts += [str(graph), str(graph.module), print_op(graph.module, debug_info=True)]
    return texts


_WORDS = [
    "(",
    ")",
    "{",
    "}",
    "<",
    ">",
    "[",
    "]",
    '"',
    "//",
    "\n",
    " ",
    "%",
    "%0",
    "rlx.",
    "rlx.matmul",
    "rlx.yield",
    ":",
]
_WORDS += [
    "->",
    "=",
    ",",
    "#",
    "!",
    "loc(",
    "\\",
    "then {",
    "} else {",
    "_",
    "é",
    "\0",
    "\ud800",
    '"rlx.matmul"',
    "tensor<4xf32>",
]


def _damaged(rng: random.Random, text: str) -> str:
    characters = list(text)
    for _ in range(rng.randint(1, 4)):
        at, other = rng.randrange(len(characters) + 1), rng.randrange(len(characters) + 1)
        match rng.randrange(4):
            case 0:
                characters[at:at] = rng.choice(_WORDS)
            case 1:
                del characters[at : at + rng.randint(1, 6)]
            case 2:
                characters[at:at] = characters[other : other + rng.randint(1, 60)]
            case _:
                characters[at : at + 20] = characters[other : other + 20]
    return "".join(characters)


def test_any_text_is_read_or_refused() -> None:
    """Damaged texts of all ops in both forms raise only `ParseError`. Lines stay, and printing is a fixed point."""
    texts = _corpus()
    rng = random.Random(10)
    for _ in range(3000):
        text = _damaged(rng, rng.choice(texts))
        written = assembly.write(text)
        assert assembly.write(written) == written
        try:
            source = assembly.read(text, "f")
        except rlx.ParseError as problem:
            assert re.fullmatch(r"f:\d+:\d+", problem.location or "")
            continue
        assert source.text.count("\n") == text.count("\n")
        lines = text.count("\n") + 1
        for _ in range(3):
            line, column = source.place(rng.randint(1, lines), rng.randint(1, 200))
            assert 1 <= line <= lines and column >= 1


@pytest.mark.parametrize(
    "text",
    [
        "rlx.matmul(" * 20_000,
        "rlx.checkpoint() : f32 {" * 20_000,
        "rlx.matmul {" + "{" * 20_000,
        "%0 = rlx.matmul : " + "tensor<" * 20_000,
        "rlx.yield " + ", ".join(["%a"] * 20_000) + " : " + "tensor<" + "4x" * 20_000 + "f32>",
        "rlx.yield " + "// a\n" * 20_000,
        "// a\n" * 20_000 + "{rlx.a, " * 20_000,
        '"\\"' * 20_000,
        "rlx.x = " * 20_000,
        "}" * 20_000,
        " " * 200_000 + "rlx.a",
    ],
    ids=range(11),
)
def test_long_texts_take_no_stack_and_no_quadratic_time(text: str) -> None:
    with contextlib.suppress(rlx.ParseError):
        assert len(assembly.read(text).text) < 4 * len(text) + 1000
    assert assembly.write(text) == text


def test_every_op_has_a_layout() -> None:
    """Every op has a grouping of its operands, and region names are words."""
    from rlx.ir.text.assembly.grammar import layout

    for name, spec in registry.SPECS.items():
        form = layout(name)
        assert form is not None
        assert sum(v.arity == "variadic" for v in spec.results) in (0, len(spec.results)) and len(
            set(form.regions)
        ) == len(form.regions)
        assert all(re.fullmatch(r"[a-z]+", region) for region in form.regions)


@pytest.mark.parametrize("part", ['"\\', "{-#", '{-#"', "rlx.add(", "%a, ", "{a = ", "// c\n", "rlx.yield %a {"])
def test_a_long_text_that_ends_nowhere_is_read_once(part: str) -> None:
    """Quotes and resources are read in linear time; a quadratic reader takes half an hour here."""
    with contextlib.suppress(rlx.ParseError):
        assembly.read(part * 300_000)
