"""Names that are code, markup or commands in some language, and graphs that use them everywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import rlx

# By the kind of attack. All are Unicode without NUL, the only requirement for a name.
_COMMENTS = [
    "w */ void __attribute__((constructor)) run(void) { __builtin_trap(); } /* ",
    *(
        "*/",
        "/*",
        "*/ /*",
        "/*/",
        "//",
        "// \\",
        "a\\",
        "a\\\nb",
        "*\\\n/",
        "??/",
        "a ??/\nb",
        "*??/\n/",
        "????/",
        "--",
        "(* a *)",
    ),
    *("a b \\ c d " * 30, "a " * 60 + "\\ b", "a " * 60 + "*/ b", "-->", "<!--", "; a", "# a"),
]
_STRINGS = [
    '"',
    "'",
    "`",
    '"""',
    "a\"b'c`d",
    "\\",
    "\\22",
    "\\x1b",
    "\\\\",
    '"); abort(); ("',
    "'; exit 1; '",
    "{0} %s %n %(a)s",
    "%d%%",
]
_COMMANDS = [
    "$(exit 1)",
    "`exit 1`",
    "${IFS}",
    "a; exit 1",
    "a && exit 1",
    "-rf",
    "--help",
    "../../a",
    "C:\\a",
    "=1+1",
    "a,b",
    "a=b",
]
_TEMPLATES = [
    "{{ a }}",
    "{% a %}",
    "${a}",
    "<%= a %>",
    "#{a}",
    "`define a 1",
    '`include "a"',
    "$finish;",
    "\\a ",
    "%a",
    "@a",
    "!a",
]
_MARKUP = [
    *(
        "</script><script>a",
        "</style><b>",
        "<img src=x onerror=alert(1)>",
        '"><b>',
        "' onload='a",
        "]]>",
        "<![CDATA[",
        "<?a?>",
    ),
    *(
        "&lt;",
        "&#x202e;",
        "&",
        "<a",
        "a>b",
        "javascript:a",
        "a|b",
        "|",
        "| a |\n|---|",
        "# a",
        "- a",
        "1. a",
        "> a",
        "---",
        "===",
    ),
    *(
        "[a](b)",
        "![a](b)",
        "http://a.b",
        "www.a.b",
        "a@b.cd",
        "**a**",
        "_a_",
        "*a*",
        "~~a~~",
        "```",
        "`a`",
        "    a",
        "\ta",
        "a #",
    ),
]
_CONTROLS = [
    *(
        "\x1b[2J",
        "\x1b]0;t\x07",
        "\r",
        "\n",
        "a\nb",
        "a\r\nb",
        "\x7f",
        "\x9b1m",
        "\x01",
        "\x08",
        "\x0b\x0c",
        "\x1c\x1d\x1e",
        "\x85",
    ),
    *(
        "\u202e",
        "a\u202eb\u2066",
        "\u2028",
        "\u2029",
        "\u200b",
        "\ufeff",
        "\xad",
        "\ue000",
        "\U000e0041",
        "\uffff",
        " ",
        " a ",
        "\xa0",
    ),
]
_WORDS = [
    *(
        "int",
        "float",
        "main",
        "class",
        "restrict",
        "auto",
        "constexpr",
        "nullptr",
        "INT32_MAX",
        "NULL",
        "uint8_t",
        "size_t",
    ),
    *(
        "state",
        "params",
        "arena",
        "memcpy",
        "sum",
        "i",
        "x",
        "count",
        "rlx",
        "rlx_run",
        "step_1_add",
        "bytes",
        "aligned",
    ),
    *(
        "module",
        "always",
        "endmodule",
        "logic",
        "begin",
        "wire",
        "clk",
        "rst",
        "assign",
        "unique0",
        "add1",
        "add1_words",
    ),
    *("input", "output", "param", "None", "class_", "con", "nul", "__proto__", "constructor", "toString"),
]
_LIKE = [
    "a b",
    "a-b",
    "a.b",
    "a_b",
    "A_B",
    "a  b",
    "a/b",
    "a:b",
    "a::b",
    "(a)",
    "[a]",
    "{a}",
    "größe",
    "é",
    "e\u0301",
    "名前",
    "🦉",
]
_FIGURES = ["9", "0x10", "1e5", "-1", "1_000", "x_9"]
LONG = "a" * 10_000
NAMES = tuple(
    dict.fromkeys(
        [*_COMMENTS, *_STRINGS, *_COMMANDS, *_TEMPLATES, *_MARKUP, *_CONTROLS, *_WORDS, *_LIKE, *_FIGURES, LONG]
    )
)
BENIGN = tuple(f"n{i}" for i in range(len(NAMES)))
# Strings that cannot be names.
IMPOSSIBLE = ("", "a\0b", "\ud800")
KINDS = ("input", "param", "state")


def is_harmless(text: str, keep: str = "\n\t") -> bool:
    """Return whether a terminal shows text unchanged: no escape sequences, no cursor movement or bidirectional controls."""
    return all(c.isprintable() or c in keep for c in text)


def added(x: Any, y: Any, file: str) -> Any:
    """Return a sum whose location is in a file of this name."""
    scope = {"x": x, "y": y}
    exec(compile("z = x + y", file, "exec"), scope)
    return scope["z"]


def graph_of(
    names: Sequence[str], name: str, turn: int = 0, kinds: Sequence[str] = KINDS, dtype: str = "i32", size: int = 3
) -> Any:
    """Return a graph whose arguments, outputs, scopes and files have these names.

    Args:
        names: The names.
        name: The name of the graph.
        turn: The kind of argument of the first name. The kinds of later names follow cyclically.
        kinds: The kinds.
        dtype: The dtype of all values.
        size: The number of elements of each.

    Each output is the sum of the argument of its name and of the one before, and becomes the next value of a state.
    """
    g: Any = rlx.Graph(name)
    made = []
    for i, each in enumerate(names):
        kind = kinds[(i + turn) % len(kinds)]
        made.append((kind, getattr(g, kind)(each, (size,), dtype)))
    outputs = {}
    for i, (each, (kind, x)) in enumerate(zip(names, made, strict=True)):
        with g.named(each):
            outputs[each] = added(x, made[i - 1][1], each)
        if kind == "state":
            g.update(x, outputs[each])
    g.set_outputs(outputs)
    return g


def arrays_of(graph: Any, kind: str) -> dict[str, np.ndarray]:
    """Return arrays for the arguments of a kind, all different."""
    found = [a for a in graph.arguments if a.kind == kind]
    return {a.name: np.arange(i, i + a.shape.static[0]).astype(a.shape.dtype.numpy) for i, a in enumerate(found, 5)}
