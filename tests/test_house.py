"""The rules of CONTRIBUTING.md that a program can check: import order, sizes of files and functions, op names."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from rlx.dialect import spec_gen

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "rlx"

ORDER = (
    *(
        "support",
        "mlir",
        "dialect",
        "ir.dims",
        "ir",
        "ir.op",
        "ir.text",
        "ir.graph",
        "numerics",
        "schemes",
        "ops",
        "functions",
        "array_api",
        "blocks",
        "weights",
        "nn",
        "importers",
        "passes",
        "transforms",
        "linalg",
        "sparse",
        "plan",
        "kernels",
        "targets.lowering",
        "targets.linalg",
        "targets.stablehlo",
        "targets",
    ),
    *("report", "runtime", "deploy", "quantization", "train", "models", "llm", "serve", "cli", "answers"),
)
# Modules without a package. They import nothing of RLX, and any module may import them.
FREE = ("version", "native", "tick", "parts")
LONGEST_FILE, LONGEST_FUNCTION, LARGEST_CIRCLE = 450, 60, 15
GENERATED = ("_gen.py", ".pyi")
# Phrases that readers have to read twice, each with a plainer one. Spaces also match line breaks.
UNCLEAR = {
    r"\bWhat\b(?![^.?]*\?)": "a noun phrase: 'Shared helpers for …', 'The operands …'",
    r"\bwhat (?:it|they|each) (?:gives?|takes?|shares?|makes?|says?)\b": "its results, its operands …",
    r"\bof which\b|, by which\b": "two sentences",
    r"\bsay of\b|\bsa(?:ys|id) (?:of|what|whose|how|which|where|by)\b": "documents, names, reports, defines",
    r"(?<!here\s)\b(?:is|are) no (?!longer|more|less|other|such)[a-z]+": "is not a …",
    r"\bha(?:s|ve) not[,.;:]": "lacks, does not have",
    r"\bstands? (?:in|for|behind|beside|there)\b|\blies\b": "is in, is stored in, represents",
    r"\bbehind (?:each|it|them|those|every|another)\b|\bone behind the other\b": "after",
    r"\bbeside\b": "next to, with, in addition to",
    r"\bin turns\b": "alternating",
    r"\btold apart\b|\bhangs on\b": "differs in, depends on",
    r"\bdearer\b": "more expensive",
    r"(?<!\")\b(?:nobody|whoever)\b": "no code, no other user; name the subject",
    r"\b(?:so|as) many as\b|\bso many\b": "the same number of, this number of",
    r"\bbut for\b": "except",
    r"\bin the place of\b": "instead of",
    r"\bfor ever\b": "does not terminate",
    r"\bmend(?:s|ed)?\b": "fix",
    r"\bwithout a word\b": "silently",
    r"\b(?:units?|digits?) in the last place\b": "ulp",
    r"\b(?:is|are) held to\b|\bthe judge\b": "is tested against, the reference",
}
# Git's patterns for the files with prose.
PROSE = (
    ":(glob)python/rlx/*.py",
    *(f"python/rlx/{package}/*.py" for package in sorted({name.partition(".")[0] for name in ORDER} - {"mlir"})),
    *("tools/*.py", "tests/*.py", "examples/*.py", "*.md", "dialect/*.td"),
)
# The largest share of annotations that are a bare `Any`, in percent, by package.
MOST_ANY = {"ops": 8, "functions": 8, "importers": 8, "targets": 8, "nn": 8, "array_api": 8}
Function = ast.FunctionDef | ast.AsyncFunctionDef
Node = ast.Import | ast.ImportFrom | Function | ast.ClassDef | ast.AnnAssign | ast.Constant
# Folders whose files may name ops.
LOWERINGS = {"lowering", "linalg", "stablehlo", "lower"}
# Names of ops that are also ordinary words, or belong to the IR itself.
WORDS = {"linear", "complex", "custom", "yield"}


@cache
def files(pattern: str) -> tuple[Path, ...]:
    """Return the files of the project whose path matches."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", pattern],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("the files of the project are known to git only")
    return tuple(path for name in listed.stdout.split() if (path := ROOT / name).exists())


def written(pattern: str) -> Iterator[Path]:
    """Yield the files that are not generated."""
    return (path for path in files(pattern) if not path.name.endswith(GENERATED))


@cache
def nodes(path: Path) -> tuple[Node, ...]:
    """Return the imports, functions and texts of a file, in any order. Each tree is walked only once.

    Imports that only annotations use are left out, because they do not affect the import order.
    """
    found: list[Node] = []
    waiting: list[ast.AST] = [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, Node):
            found.append(node)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        for child in vars(node).values():
            if isinstance(child, list):
                waiting += (entry for entry in child if isinstance(entry, ast.AST))
            elif isinstance(child, ast.AST):
                waiting.append(child)
    return tuple(found)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def package_of(module: str) -> str:
    """Return the entry of `ORDER` that a module belongs to."""
    _, *names = module.split(".")
    inner = ".".join(names[:2])
    return inner if inner in ORDER else "".join(names[:1])


def imported(path: Path) -> Iterator[str]:
    """Yield the RLX modules that a file names: in imports, including lazy ones, and in texts."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (_module(node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_module(node.value):
            yield node.value


def _module(package: str, name: str) -> str:
    return f"{package}.{name}" if _is_module(f"{package}.{name}") else package


@cache
def _is_module(name: str) -> bool:
    if not re.fullmatch(r"rlx(\.\w+)+", name):
        return False
    path = PACKAGE.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def test_a_module_imports_from_its_left_only() -> None:
    wrong = []
    for path in written("python/rlx/*.py"):
        module = module_name(path)
        if package_of(module) not in ORDER:
            continue
        for name in imported(path):
            if not name.startswith("rlx.") or package_of(name) not in ORDER:
                continue
            if ORDER.index(package_of(name)) > ORDER.index(package_of(module)):
                wrong.append(f"{module} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_files_import_each_other_in_small_circles() -> None:
    """A file of a cycle cannot be understood without all the others. Modules named in `rlx.parts` are imported on demand."""
    modules = {module_name(path): path for path in written("python/rlx/*.py") if package_of(module_name(path)) in ORDER}
    imports = {name: modules.keys() & {*imported(path)} - {name} for name, path in modules.items()}
    reached = {name: _reached(name, imports) for name in imports}
    circles = {frozenset(m for m in reached[name] if name in reached[m]) for name in imports}
    assert [sorted(circle) for circle in circles if len(circle) > LARGEST_CIRCLE] == []


def _reached(start: str, imports: dict[str, set[str]]) -> set[str]:
    """Return the modules that a module imports, directly or indirectly."""
    found, waiting = set[str](), [start]
    while waiting:
        new = imports[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def test_every_package_has_its_place_in_the_order() -> None:
    packages = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in written("python/rlx/*.py")}
    assert packages - {*ORDER, *FREE, "__init__", "__main__"} == set()


def test_the_order_is_what_the_docs_say() -> None:
    text = " → ".join(ORDER)
    for name in ("CONTRIBUTING.md", "docs/architecture.md"):
        assert text in (ROOT / name).read_text(), f"{name} does not have the order: {text}"


def test_files_fit_in_a_head() -> None:
    lengths = {str(p.relative_to(ROOT)): p.read_text().count("\n") for p in written("*.py")}
    assert not {name: n for name, n in lengths.items() if n > LONGEST_FILE}


def test_functions_fit_a_screen() -> None:
    wrong = []
    for path in written("*.py"):
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno is not None:
                length = node.end_lineno - node.lineno + 1
                if length > LONGEST_FUNCTION:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name} has {length} lines")
    assert not wrong, "\n".join(wrong)


def _annotations(node: Node) -> Iterator[ast.expr]:
    """Yield the annotations of a variable, or of the parameters and the result of a function."""
    if isinstance(node, ast.AnnAssign):
        yield node.annotation
    elif isinstance(node, Function):
        own = node.args
        every = (*own.posonlyargs, *own.args, *own.kwonlyargs, own.vararg, own.kwarg)
        yield from (p.annotation for p in every if p is not None and p.annotation is not None)
        if node.returns is not None:
            yield node.returns


def test_annotations_name_types() -> None:
    shares: dict[str, float] = {}
    for package in MOST_ANY:
        found = [a for path in written(f"python/rlx/{package}/*.py") for n in nodes(path) for a in _annotations(n)]
        bare = sum(isinstance(a, ast.Name) and a.id == "Any" for a in found)
        shares[package] = 100 * bare / len(found)
    wrong = {p: f"{share:.1f} % of the annotations are `Any`" for p, share in shares.items() if share > MOST_ANY[p]}
    assert not wrong, (
        f"{wrong}; name the types: rlx.ir.graph.typing has those of arguments, rlx.ir.op.card those of rules"
    )


@pytest.mark.parametrize("package", ["ir", "targets", "runtime", "transforms"])
def test_ops_are_not_named(package: str) -> None:
    """The properties of an op come from its record and its card. Only lowerings name ops."""
    names = {spec.name for spec in spec_gen.OPS} - WORDS
    paths = [path for path in written(f"python/rlx/{package}/*.py") if not {*path.parts} & LOWERINGS]
    assert paths
    wrong = []
    for path in paths:
        for node in nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                name = node.value.removeprefix("rlx.")
                if name in names:
                    wrong.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.value!r}")
    assert not wrong, "\n".join(wrong)


def test_functions_emit_ops_by_methods() -> None:
    """A function that users know by a name is written as users would write it: `b.softmax(x)`, not `b.emit("softmax", …)`."""
    paths = [*written("python/rlx/functions/*.py")]
    assert paths
    assert not [str(path) for path in paths if re.search(r"\.emit\b|\(Card\b", path.read_text())]


def test_helpers_are_in_one_package() -> None:
    """Elsewhere in `ops` are cards, their rules and the surface."""
    wrong = [path for path in written("python/rlx/*.py") if "\n@helper" in path.read_text()]
    assert wrong
    assert not [str(path) for path in wrong if package_of(module_name(path)) != "functions"]


@pytest.mark.parametrize("package", ["numerics", "targets/lowering", "targets/linalg", "targets/stablehlo"])
def test_a_common_lowering_knows_no_compiler(package: str) -> None:
    paths = [*written(f"python/rlx/{package}/*.py")]
    assert paths
    wrong = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()}"
        for path in paths
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\biree|\butil\.|\bflow\.|\bhal\.", line, re.IGNORECASE)
    ]
    assert not wrong, "\n".join(wrong)


def test_a_class_name_has_one_meaning() -> None:
    """Classes share a name if they implement one protocol. An op's card has the op's name, and a layer that of PyTorch."""
    places: dict[str, list[str]] = {}
    protocols = set[str]()
    for path in written("python/rlx/*.py"):
        package = package_of(module_name(path))
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                name = node.name.lstrip("_")
                is_layer = package == "nn"
                places.setdefault(name, []).append("" if is_layer else f"{path.relative_to(ROOT)}:{node.lineno} {name}")
                if any(ast.unparse(base) == "Protocol" for base in node.bases):
                    protocols.add(name)
    wrong = [found for name, found in places.items() if name not in protocols and sum(map(bool, found)) > 1]
    assert not wrong, "\n".join(map(str, wrong))


def test_every_pass_has_a_filecheck_test() -> None:
    from rlx.passes.base import load
    from rlx.passes.packages import name_of

    ours = [name for name, cls in load().items() if name_of(cls.__module__) is not None]
    texts = (path.read_text() for path in files("tests/filecheck/*.mlir"))
    lines = "\n".join(line for text in texts for line in text.splitlines() if "RUN:" in line)
    assert [name for name in sorted(ours) if not re.search(rf"(?<!\w){name}(?![\w-])", lines)] == []


def test_passes_are_run_by_the_runner() -> None:
    """The runner verifies results and excludes other threads. Only passes call the method `run` of a pass."""
    wrong = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()}"
        for path in written("python/rlx/*.py")
        if package_of(module_name(path)) not in ("passes", "transforms")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"\b[A-Z]\w+\(.*\)\.run\(\w", line)
    ]
    assert not wrong, "\n".join(wrong)


def test_public_names_are_those_of_the_snapshot() -> None:
    """A new or removed name is a decision: write it into tests/public_names.txt."""
    import rlx

    names = sorted(rlx.public_names())  # type: ignore[attr-defined]
    snapshot = (Path(__file__).parent / "public_names.txt").read_text().split()
    assert snapshot == sorted(snapshot)
    assert all(a != b for a, b in pairwise(snapshot))
    assert names == snapshot


def test_cached_properties_hold_no_lock() -> None:
    """`functools.cached_property` holds a lock in Python 3.11, which a forked child may inherit. RLX's version does not."""

    def is_that_of_functools(node: ast.AST) -> bool:
        if isinstance(node, ast.ImportFrom):
            return node.module == "functools" and "cached_property" in {name.name for name in node.names}
        return isinstance(node, ast.Attribute) and node.attr == "cached_property"

    wrong = [path for path in written("python/rlx/*.py") if any(map(is_that_of_functools, nodes(path)))]
    assert not wrong


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str(text)), lineno=line):
                yield line, text


def _comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments, those on adjacent lines as one."""
    block: list[str] = []
    start = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        if block and token.start[0] != start + len(block):
            yield start, "\n".join(block)
            block = []
        start = start if block else token.start[0]
        block.append(token.string.lstrip("# "))
    yield start, "\n".join(block)


def _prose(path: Path) -> Iterator[tuple[int, str]]:
    """The prose of a file, each piece with its first line."""
    for line, text in _with_code(path):
        yield line, re.sub(r"`[^`\n]*`", "``", text)


def _with_code(path: Path) -> Iterator[tuple[int, str]]:
    source = path.read_text()
    if path.suffix == ".py":
        yield from _docstrings(ast.parse(source))
        yield from _comments(source)
    else:  # Markdown without its code, and TableGen
        yield 1, re.sub(r"^ *```.*?^ *```", lambda code: "\n" * code[0].count("\n"), source, flags=re.S | re.M)


@pytest.mark.parametrize("pattern", PROSE)
def test_prose_is_plain(pattern: str) -> None:
    """Docstrings, comments, pages and records have none of the phrases of `UNCLEAR`. Generated pages are excluded."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line + text[: match.start()].count(chr(10))}: {' '.join(match[0].split())!r}: {plainer}"
        for path in written(pattern)
        if "Generated by" not in path.read_text()[:100]
        for line, text in _prose(path)
        for unclear, plainer in UNCLEAR.items()
        for match in re.finditer(unclear.replace(" ", r"\s+"), text)
    ]
    assert not wrong, f"{len(wrong)} passages:\n" + "\n".join(wrong)
