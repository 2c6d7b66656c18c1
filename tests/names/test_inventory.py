"""The tests of names know all code that writes another language."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import rlx

PACKAGE = Path(rlx.__file__).parent
# The form of a text constant of each language.
MARKS = {
    "c": r"#include|#define|typedef ",
    "html": r"</\w+>|<svg|<!doctype",
    "llvm": r"define \w+ @",
    "markdown": r"---\||^## |^```",
    "mlir": r"func\.func @|hw\.module|module attributes",
    "terminal": "\x1b",
    "verilog": r"endmodule|always_ff",
    "linker": r"SECTIONS",
    "script": r"#!/|^set -e|\$\{",
    "yaml": r"^---\n",
    "graphviz": r"digraph",
    "make": r"\.PHONY|add_executable",
    "latex": r"\\begin\{",
}
PROGRAMS, SHOWN, ESCAPES = "test_programs.py", "test_shown.py", "test_escapes.py"
_OF_RLX = "text of RLX without names, or a pattern that is looked for"
_WORDS = "words of the language, which names may not be"
# The modules with these constants, and the file that tests names there, or the reason why there are none.
KNOWN: dict[tuple[str, str], str] = {
    ("targets/c/emulate.py", "c"): PROGRAMS,
    ("targets/c/emulate.py", "linker"): _OF_RLX,
    ("targets/c/host.py", "c"): PROGRAMS,
    ("targets/c/readme.py", "c"): PROGRAMS,
    ("targets/c/readme.py", "markdown"): PROGRAMS,
    ("targets/fpga/axi/modules.py", "verilog"): PROGRAMS,
    ("targets/fpga/axi/testbench.py", "verilog"): PROGRAMS,
    ("targets/fpga/axi/wrapper.py", "verilog"): PROGRAMS,
    ("targets/fpga/project.py", "verilog"): _OF_RLX,
    ("targets/fpga/scripts.py", "script"): PROGRAMS,
    ("targets/fpga/drive.py", "llvm"): PROGRAMS,
    ("targets/fpga/report.py", "markdown"): PROGRAMS,
    ("targets/fpga/verilog.py", "verilog"): PROGRAMS,
    ("support/markdown.py", "markdown"): ESCAPES,
    ("targets/c/lower/files.py", "c"): PROGRAMS,
    ("targets/c/lower/header.py", "c"): PROGRAMS,
    ("targets/c/lower/program.py", "mlir"): _OF_RLX,
    ("targets/c/lower/selftest.py", "c"): PROGRAMS,
    ("targets/c/packaging.py", "html"): PROGRAMS,
    ("targets/c/packaging.py", "script"): PROGRAMS,
    ("targets/fpga/worker.py", "mlir"): _OF_RLX,
    ("targets/iree/kernel_objects.py", "mlir"): _OF_RLX,
    ("targets/c/lower/names.py", "c"): _WORDS,
    ("targets/c/lower/products.py", "c"): _OF_RLX,
    ("targets/fpga/lower/design.py", "mlir"): PROGRAMS,
    ("targets/fpga/lower/names.py", "c"): _WORDS,
    ("targets/fpga/lower/names.py", "verilog"): _WORDS,
    ("targets/xla/client.py", "mlir"): _OF_RLX,
    ("targets/xla/defects.py", "mlir"): _OF_RLX,
    ("report/comparison.py", "html"): SHOWN,
    ("report/compile_report.py", "html"): SHOWN,
    ("report/graph_svg.py", "html"): SHOWN,
    ("report/history.py", "html"): SHOWN,
    ("report/html.py", "html"): SHOWN,
    ("report/memory_svg.py", "html"): SHOWN,
    ("report/palette.py", "html"): SHOWN,
    ("report/roofline_svg.py", "html"): SHOWN,
    ("cli/display.py", "terminal"): _OF_RLX,
    ("llm/tokenizer/vocabulary.py", "html"): _OF_RLX,
    ("report/progress.py", "terminal"): ESCAPES,
    ("serve/tool_format.py", "html"): "texts in front of calls and after them, which are looked for",
    ("train/curves_svg.py", "html"): SHOWN,
    ("train/progress_bar.py", "terminal"): ESCAPES,
}


def constants(path: Path) -> Iterator[str]:
    """Yield the text constants of a module, except docstrings."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def found() -> set[tuple[str, str]]:
    """Return each module with each language that its constants resemble."""
    every = ((path, text) for path in PACKAGE.rglob("*.py") for text in constants(path))
    return {
        (path.relative_to(PACKAGE).as_posix(), language)
        for path, text in every
        for language, mark in MARKS.items()
        if re.search(mark, text, re.MULTILINE)
    }


def test_every_module_that_writes_a_language_is_known() -> None:
    """A new module must use the escaping function of the language, and needs a line here."""
    assert found() == KNOWN.keys()


def test_files_of_tests_are_there() -> None:
    folder = Path(__file__).parent
    assert all((folder / reason).exists() for reason in KNOWN.values() if reason.endswith(".py"))
