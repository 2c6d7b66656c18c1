"""The TableGen reader: the records of files, and the errors for invalid files.

If LLVM is installed, `llvm-tblgen` is the reference: it must return the same records, and refuse the same files.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from rlx.support.errors import ParseError
from tools.tablegen import Dag, Record, Records, from_json, read

LLVM_TBLGEN = shutil.which("llvm-tblgen", path="/usr/lib/llvm-22/bin:" + (os.environ.get("PATH") or ""))
_FIRST = 22  # older versions support less of the language, and write other JSON


@cache
def _is_too_old(tool: str) -> bool:
    version = re.search(r"version (\d+)", subprocess.run([tool, "--version"], capture_output=True, text=True).stdout)
    return version is None or int(version[1]) < _FIRST


def records_of(folder: Path, text: str) -> Records:
    (folder / "root.td").write_bytes(text.encode())
    return read(folder / "root.td", [folder], folder)


def by_llvm(folder: Path, text: str) -> Records | str:
    """Return the records that LLVM reads, or its error message."""
    if LLVM_TBLGEN is None or _is_too_old(LLVM_TBLGEN):
        pytest.skip(f"NOT CHECKED: llvm-tblgen {_FIRST} or later is absent (Debian: llvm-22)")
    (folder / "root.td").write_bytes(text.encode())
    command = [LLVM_TBLGEN, "--dump-json", "-I", str(folder), str(folder / "root.td"), "-o", str(folder / "out.json")]
    result = subprocess.run(command, capture_output=True, text=True)
    return result.stderr if result.returncode else from_json(folder / "out.json")


def plain(value: Any) -> Any:
    """Return a value without objects: records by name, anonymous records by their fields."""
    if isinstance(value, Record):
        return {k: plain(v) for k, v in value.fields.items()} if value.anonymous else value.name
    if isinstance(value, Dag):
        return (plain(value.operator), [(plain(v), name) for v, name in value.arguments])
    return [plain(item) for item in value] if isinstance(value, list) else value


def fields(record: Record) -> dict[str, Any]:
    return {name: plain(value) for name, value in record.fields.items()}


# Text, and the fields of its record `R`.
READ = {
    "literals": (
        'def R { string s = "a\\n\\"b\\\\"; string t = "joined " "text"; code c = [{ x[0] "q" }];\n'
        "int i = -3; int h = 0x1F; bit b = true; }",
        {"s": 'a\n"b\\', "t": "joined text", "c": ' x[0] "q" ', "i": -3, "h": 31, "b": 1},
    ),
    "unset": ("class C; def R { string s; C c = ?; list<int> l; }", {"s": None, "c": None, "l": None}),
    "comments": ("// one\n/* two /* nested */ \n*/ def R { int i = 1; // end\n}", {"i": 1}),
    "parameters with defaults": (
        'class C<string a, string b = "b", list<string> c = [b]> { string x = a # b; list<string> y = c; } def R : C<"a">;',
        {"x": "ab", "y": ["b"]},
    ),
    "fields see what let makes of others": (
        'class C { string a = "a"; string b = a # "!"; } class D : C { let a = "d"; } def R : D { string c = b # a; }',
        {"a": "d", "b": "d!", "c": "d!d"},
    ),
    "the last let counts": (
        "class C<int n> { int a = n; } class D<int n> : C<n> { let a = 2; } def R : D<1> { let a = 3; }",
        {"a": 3},
    ),
    "several parents": (
        "class A { int a = 1; } class B<int n> { int b = n; } def R : A, B<2> { let a = b; }",
        {"a": 2, "b": 2},
    ),
    "lists": (
        'defvar F = ["a", "b"]; def R { list<string> x = !listconcat(F, [], ["c"]); list<string> y = F # ["d"];\n'
        "string z = F[1]; list<list<int>> n = [[1], [], [2, 3]]; }",
        {"x": ["a", "b", "c"], "y": ["a", "b", "d"], "z": "b", "n": [[1], [], [2, 3]]},
    ),
    "paste": ('def R { string s = "n" # 3 # "m"; }', {"s": "n3m"}),
    "dags": (
        "def ins; def A; class V<int n> { int count = n; } def R { dag d = (ins A:$x, V<2>:$y, V<3>); dag e = (ins); }",
        {"d": ("ins", [("A", "x"), ({"count": 2}, "y"), ({"count": 3}, "")]), "e": ("ins", [])},
    ),
    "records in records": (
        'class C<string t> { string text = t; } def N : C<"n">; class W<C c> { C inner = c; string s = "of " # c.text; }\n'
        'def R : W<C<"x">> { C named = N; list<C> all = [N, C<"y">]; string t = N.text; }',
        {"inner": {"text": "x"}, "s": "of x", "named": "N", "all": ["N", {"text": "y"}], "t": "n"},
    ),
    "a name that is a parameter of one class and a field of another": (
        'class A<string t> { string text = t; } class B<string text> : A<text>; def R : B<"x">;',
        {"text": "x"},
    ),
    "directives": (
        "#define YES\n#ifdef YES\n#ifdef NO\ndef Q { this is not read }\n#else // here\ndef R { int i = 1; }\n#endif\n"
        "#else\nnor this\n#endif\n",
        {"i": 1},
    ),
    "non-ASCII": ('def R { string s = "x̂·√2 – é"; }', {"s": "x̂·√2 – é"}),
    "Windows line ends": ("def R {\r\n  int i = 1; // c\r\n}\r\n", {"i": 1}),
}


@pytest.mark.parametrize("name", READ)
def test_reads(tmp_path: Path, name: str) -> None:
    text, expected = READ[name]
    assert fields(records_of(tmp_path, text)["R"]) == expected


@pytest.mark.parametrize("name", READ)
def test_llvm_reads_the_same(tmp_path: Path, name: str) -> None:
    ours, theirs = records_of(tmp_path, READ[name][0]), by_llvm(tmp_path, READ[name][0])
    assert isinstance(theirs, Records), theirs
    assert {n: fields(r) for n, r in ours.items()} == {n: fields(r) for n, r in theirs.items() if not r.anonymous}
    for record_name, record in ours.items():
        assert (record.classes, record.line) == (theirs[record_name].classes, theirs[record_name].line)


def test_includes_once_by_guards_and_says_where_records_stand(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.td").write_text("#ifndef A\n#define A\nclass C { int i = 1; }\ndef A : C;\n#endif\n")
    records = records_of(tmp_path, 'include "sub/a.td"\ninclude "sub/a.td"\n\ndef R : C;')
    assert [(r.name, r.path, r.line) for r in records.of_class("C")] == [("R", "root.td", 4), ("A", "sub/a.td", 4)]


# Text, `line:column`, and a part of the message. LLVM refuses these too.
REFUSED = {
    "an unknown class": ("def R : Cc;", "1:9", "there is no class 'Cc'"),
    "an unknown class, with a hint": ("class Color;\ndef R : Colour<>;", "2:9", "did you mean 'Color'?"),
    "an unknown name": ("def R { int i = j; }", "1:17", "there is no value 'j'"),
    "a name that comes later": ("def R { Q q = Q; }\nclass Q;", "1:9", "there is no class 'Q'"),
    "an unknown field": ("class C { int size = 1; }\ndef R : C { let siz = 2; }", "2:17", "no field 'siz' in 'R'"),
    "a field of a record": ("class C; def N : C; def R { int i = N.x; }", "1:39", "no field 'x' in 'N'"),
    "a type": ('def R { int i = "1"; }', "1:17", "expected a value of type 'int' for the field 'i', got a string"),
    "an element's type": ('def R { list<string> l = ["a", 1]; }', "1:26", "type 'string' for the element of field 'l'"),
    "a record of another class": (
        "class A; class B; def N : A;\ndef R { B b = N; }",
        "2:15",
        "expected a value of type 'B' for the field 'b', got the record 'N' (A)",
    ),
    "an argument's type": ("class C<int n>; def R : C<[]>;", "1:27", "for the parameter 'n' of 'C', got a list"),
    "a missing argument": ("class C<int n>;\ndef R : C;", "2:9", "'C' needs a value for its parameter 'n'"),
    "too many arguments": ("class C<int n>; def R : C<1, 2>;", "1:30", "'C' takes 1 argument, got 2"),
    "a class for a record": ("class C; def R { C c = C; }", "1:24", "'C' is a class; 'C<…>' is a record of it"),
    "two records of a name": ("def R;\n def R;", "2:6", "the record 'R' is defined already, at root.td:1:5"),
    "two classes of a name": ("class R { int i; }\nclass R { int j; }", "2:7", "the class 'R' is defined already"),
    "two variables of a name": ("defvar a = 1;\ndefvar a = 2;", "2:8", "the variable 'a' is defined already"),
    "a class that comes twice": ("class A;\nclass B : A;\ndef R : B, A;", "3:12", "'R' is of the class 'A' already"),
    "a field of itself": (
        "class A { int a = 1; }\ndef R : A { let a = a; }",
        "2:21",
        "the field 'a' depends on itself",
    ),
    "one list to join": ("def R { list<int> l = !listconcat([1]); }", "1:23", "takes two lists or more, got 1"),
    "an index too large": ('defvar L = ["a"];\ndef R { string s = L[1]; }', "2:22", "there is no element 1 of 1"),
    "a paste of what is no text": ("def N; def R { string s = N # []; }", "1:27", "'#' joins two strings or two lists"),
    "no semicolon": ("def R {\n  int i = 1\n}", "3:1", "expected ';' after the field 'i', got '}'"),
    "no brace": ("def R {\n  int i = 1;\n", "1:7", "the body of 'R' has no '}'"),
    "no body": ("class A;\ndef R : A\nclass B;", "3:1", "expected '{' or ';' after the head of 'R', got 'class'"),
    "no comma": ("def R { list<int> l = [1 2]; }", "1:26", "expected ',' or ']' in the list, got '2'"),
    "an open string": ('def R { string s = "a;\n}', "1:20", "a string must end with"),
    "an escape": ('def R { string s = "\\q"; }', "1:20", "a string may not have '\\q'"),
    "an open code block": ("def R { code c = [{ x; }", "1:18", "a code block must end with '}]'"),
    "an open comment": ("def R; /* x /* y */", "1:8", "a comment must end with '*/'"),
    "an open directive": ("#ifndef A\ndef R;", "1:1", "'#ifndef' has no '#endif'"),
    "an open directive, skipped": ("\n#ifdef A\ndef R;\n", "2:1", "'#ifdef' has no '#endif'"),
    "a closed directive": ("def R;\n#endif", "2:1", "'#endif' without an '#ifdef'"),
    "a directive without a name": ("#define\n", "1:1", "expected one name after '#define'"),
    "no statement": ("R : A;", "1:1", "expected 'include', 'class', 'def' or 'defvar', got 'R'"),
    "no value": ("def R { int i = ; }", "1:17", "expected a value, got ';'"),
    "a character": ("def R { int i = 1 @ 2; }", "1:19", "there is no token that begins with '@'"),
    "a missing file": ('\n include "none.td"', "2:10", "there is no file 'none.td' to include"),
    "a dag without an operator": (
        "def R { dag d = (1); }",
        "1:18",
        "the operator of a dag must be a record, got a number",
    ),
    "a name of a dag": (
        "def ins; def R { dag d = (ins 1:x); }",
        "1:33",
        "expected a name like '$x' after ':', got 'x'",
    ),
    "a field of its own": ('def R { string a = b # "x"; string b = a # "y"; }', "1:40", "depends on itself"),
}
# Text that LLVM accepts and this reader refuses instead of reading it differently, and text that overflows LLVM's
# stack.
ABSENT = {
    "foreach": ("foreach i = [1, 2] in def R # i;", "1:1", "'foreach' is not in the part of TableGen that is read here"),
    "multiclass": ("multiclass M { def R; }", "1:1", "'multiclass' is not in the part"),
    "let around records": ("class C { int i = 1; }\nlet i = 2 in def R : C;", "2:1", "'let' is not in the part"),
    "bits": ("def R { bits<2> b = 0; }", "1:9", "'bits' is not in the part"),
    "operators": ('def R { string s = !strconcat("a", "b"); }', "1:20", "'!strconcat' is not read here, only '!listconcat'"),
    "conditions": ("def R { int i = !cond(true: 1); }", "1:27", "expected ',' or ')' in !cond, got ':'"),
    "records without a name": ("def : C;", "1:5", "expected the name of the record, got ':'"),
    "a class that comes twice, inside first": (
        "class A;\nclass B : A;\ndef R : A, B;",
        "2:11",
        "'R' is of the class 'A' already",
    ),
    "a global name after a paste": (
        'defvar a = "x";\ndef R { string s = "s" # a; }',
        "2:26",
        "LLVM takes 'a' after '#' as text",
    ),
    "a field of a record after a paste": (
        'def N { string t = "x"; }\ndef R { string s = "s" # N.t; }',
        "2:26",
        "LLVM takes 'N' after '#' as text",
    ),
    "two meanings of a name": (
        'class A<string t> { string s = t; } class B { string t = "b"; }\ndef R : A<"a">, B;',
        "1:32",
        "'t' is a parameter and a field here; rename one",
    ),
    "a file of itself": ('include "root.td"', "1:9", "files include each other more than 64 deep"),
    "deep brackets": ("def R { list<int> l = " + "[" * 200 + "]" * 200 + "; }", "1:87", "brackets are more than 64 deep here"),
}  # fmt: skip


@pytest.mark.parametrize("name", [*REFUSED, *ABSENT])
def test_says_what_is_wrong_and_where(tmp_path: Path, name: str) -> None:
    text, place, message = (REFUSED | ABSENT)[name]
    with pytest.raises(ParseError) as caught:
        records_of(tmp_path, text)
    assert caught.value.location == f"root.td:{place}"
    assert message in str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
def test_llvm_refuses_it_too(tmp_path: Path, name: str) -> None:
    assert isinstance(by_llvm(tmp_path, REFUSED[name][0]), str)


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root.td").write_bytes(b'def R { string s = "\xff"; }')
    with pytest.raises(ParseError, match=r"is not UTF-8 at byte 20"):
        read(tmp_path / "root.td", [], tmp_path)


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    """All prefixes of a text with every syntax element, and the text without any one character, are read or refused."""
    text = "".join(READ[name][0] + "\n" for name in ("literals", "lists", "directives")).replace("def R", "def R%d")
    text = text % tuple(range(text.count("%d")))
    for i in range(len(text)):
        try:
            records_of(tmp_path, text[:i] if i % 3 == 0 else text[:i] + text[i + 1 :])
        except ParseError as problem:
            assert problem.location is not None and problem.location.startswith("root.td:")
