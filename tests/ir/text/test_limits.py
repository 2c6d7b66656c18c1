"""Text that crashes MLIR's parser is refused beforehand, with a location; all other text passes."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import rlx
from rlx.cli import opt
from rlx.ir.text import limits


def _attribute(body: str) -> str:
    return f"module attributes {{test.a = {body}}} {{\n}}\n"


def _aliases(sigil: str, step: str) -> Callable[[int], str]:
    def text(n: int) -> str:
        chain = "".join(f"{sigil}a{i + 1} = {step.replace('*', f'{sigil}a{i}')}\n" for i in range(n))
        return f"{sigil}a0 = f32\n{chain}" + _attribute(f"{sigil}a{n}")

    return text


# Text by size. MLIR crashes on most of these at 100,000, or does not terminate.
FAMILIES: dict[str, Callable[[int], str]] = {
    "arrays": lambda n: _attribute("[" * n + "]" * n),
    "dictionaries": lambda n: _attribute("{a = " * n + "1" + "}" * n),
    "unclosed": lambda n: _attribute("[" * n),
    "tuples": lambda n: _attribute("tuple<" * n + "f32" + ">" * n),
    "functions": lambda n: _attribute("(" * n + ") -> ()" * n),
    "encodings": lambda n: _attribute("tensor<2xf32, " * n + "1" + ">" * n),
    "elements": lambda n: _attribute(f"dense<{'[' * n}1{']' * n}> : tensor<1xi32>"),
    "dims": lambda n: _attribute(f"#rlx.dims<{'[' * n}{']' * n}>"),
    "modules": lambda n: "module {" * n + "}" * n + "\n",
    "regions": lambda n: '"builtin.module"() ({\n' * n + "}) : () -> ()\n" * n,
    "locations": lambda n: f"module {{}} loc({'fused[' * n}unknown{']' * n})\n",
    "call sites": lambda n: f"module {{}} loc({'callsite(unknown at ' * n}unknown{')' * n})\n",
    "mixed brackets": lambda n: _attribute("[{a = tuple<(" * n),
    "commented brackets": lambda n: _attribute("[ // ]\n" * n + "]" * n),
    "quoted brackets": lambda n: _attribute('["]",' * n + "1" + "]" * n),
    "minus": lambda n: _attribute(f"affine_map<(d0) -> ({'-' * n}d0)>"),
    "sums": lambda n: _attribute(f"affine_map<(d0) -> (d0{' + d0' * n})>"),
    "sums with comments": lambda n: _attribute("affine_map<(d0) -> (d0" + " + // , = :\nd0" * n + ")>"),
    "remainders": lambda n: _attribute(f"affine_map<(d0)[s0] -> (d0{' mod s0' * n})>"),
    "products": lambda n: _attribute(f"affine_set<(d0)[s0] : (d0{' * s0' * n} == 0)>"),
    "sums in brackets": lambda n: _attribute(
        "affine_map<(d0) -> (" + "(" * 20 + "d0" + (" + d0" * (n // 20) + ")") * 20 + ")>"
    ),
    "attribute aliases": _aliases("#", "[*]"),
    "type aliases": _aliases("!", "() -> *"),
    "doubling attributes": _aliases("#", "[*, *]"),
    "doubling types": _aliases("!", "tuple<*, *>"),
    "doubling after comments": _aliases("#", "// [\n[ // ]\n*, *]"),
    "digits": lambda n: _attribute("9" * n),
    "hexadecimal digits": lambda n: _attribute("0x" + "F" * n),
    "bits": lambda n: _attribute(f"1 : i{n}"),
    "results": lambda n: f"func.func @f(%a: i32) {{\n  return %a#{n}00 : i32\n}}\n",
    "dimensions": lambda n: _attribute(f"tensor<{'1x' * n}f32>"),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_parser_does_not_survive_is_refused_with_a_place(family: str) -> None:
    with pytest.raises(rlx.ParseError) as caught:
        rlx.parse(FAMILIES[family](100_000))
    assert re.fullmatch(r"<text>:\d+:\d+", caught.value.location or "")
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("family", FAMILIES)
def test_a_little_of_it_passes(family: str) -> None:
    limits.check(FAMILIES[family](10))


def test_the_limit_of_nesting_is_exact() -> None:
    around = 1  # the braces of the attribute dictionary
    limits.check(_attribute("[" * (limits.NESTING - around) + "]" * (limits.NESTING - around)))
    with pytest.raises(rlx.ParseError, match=f"nested more than {limits.NESTING} deep"):
        limits.check(_attribute("[" * (limits.NESTING - around + 1)))


def test_the_place_is_that_of_the_bracket() -> None:
    with pytest.raises(rlx.ParseError) as caught:
        limits.check("// é [[[\nmodule attributes {é" + "[" * 300, "m.mlir")
    column = len("module attributes {é".encode()) + limits.NESTING
    assert caught.value.location == f"m.mlir:2:{column}"


@pytest.mark.parametrize(
    "text",
    [
        "// " + "[" * 9999 + "\nmodule {}\n",
        _attribute('"' + "[" * 9999 + '"'),
        _attribute('"\\"' + "[" * 9999 + '"'),
        _attribute("[" + "[], " * 9999 + "]"),
        _attribute(f"dense<[{', '.join(['-1'] * 5000)}]> : tensor<5000xi32>"),
        _attribute(f"dense<[{', '.join(['- 1 // ,' + chr(10)] * 5000)}]> : tensor<5000xi32>"),
        _attribute("affine_set<(d0) : (d0 >= 0, d0 <= 5)>") * 300,
        "".join(f"#a{i} = [#b, #b]\n" for i in range(5000)),
        "#a = loc(unknown)\nmodule {\n" + "} loc(#a)\nmodule {" * 5000 + "}\n",
    ],
)
def test_what_only_looks_like_it_passes(text: str) -> None:
    limits.check(text)


def test_all_texts_of_the_tests_pass() -> None:
    for path in (Path(__file__).parents[2] / "filecheck").rglob("*.mlir"):
        limits.check(path.read_text(), path.name)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("module {\0}\n", "<text>:1:9"),
        ("module {}\n// \ud800\n", "<text>:2:4"),
        ('module {\n"\\FFfoo"() : () -> ()\n}\n', "<text>:2:1"),
        ('module attributes {"\\FF" = "mir"} {\n}\n', "<text>:1:20"),
        (_attribute('"a\\C3"'), "<text>:1:29"),
    ],
)
def test_what_is_no_text_is_refused(text: str, place: str) -> None:
    with pytest.raises(rlx.ParseError) as caught:
        rlx.parse(text)
    assert caught.value.location == place


def test_escaped_utf8_is_text() -> None:
    limits.check(_attribute('"\\C3\\A9 \\\\FF"') + '// "\\FF"\n')


@pytest.mark.parametrize("path", ["a\0b", "\ud800", "", 3, b"x", None])
def test_what_names_no_file_is_refused(path: str) -> None:
    with pytest.raises(rlx.Error, match="expected the path of a file"):
        rlx.parse(path)


def test_rlx_opt_refuses_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "deep.mlir"
    file.write_text(FAMILIES["arrays"](100_000))
    assert opt.main([str(file), "-o", str(tmp_path / "out.mlir")]) == 1
    assert f"{file}:1:" in capsys.readouterr().err
    assert not (tmp_path / "out.mlir").exists()
