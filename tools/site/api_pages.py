"""The pages of the Python API: every public name with its signature and docstring, as Python itself shows them.

Most methods of `rlx.Graph` are created at run time, so the package is imported and inspected. Its source does not
contain them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import rlx
from rlx import ops
from rlx.ir.op import registry
from rlx.ops import surface
from tools.site.docstrings import body, signature, summary
from tools.site.op_examples import example_of

INDEX = "python-api.md"
FOLDER = "python-api"
# The pages, by the packages of their names. Names of other packages are on the first page.
_PAGES = {
    "graphs": ("Graphs and types", ("ir", "mlir", "tick", "version", "transforms.call")),
    "running": ("Compile and run", ("runtime", "backends", "blocks")),
    "transforms": ("Transforms", ("transforms",)),
    "models-in": ("Models in, quantisation", ("importers", "quantization", "passes")),
}
_FAMILIES = {"index": "indexing"}  # a page `index` is the address of its folder
# The names of a module that users begin with. Names that are not there are left out.
_FIRST = {
    "rlx.train": ("fit", "TrainStep", "TrainedModel", "Adam", "AdamW", "SGD", "cosine", "save", "load"),
    "rlx.nn": ("Module", "Sequential", "Linear", "Conv"),
    "rlx.llm": ("load", "LanguageModel", "quantize"),
    "rlx.models": ("load",),
}
_NOT_SHOWN = {"mlir": "MLIR's own bindings, for extensions"}


def pages() -> dict[str, str]:
    """Return every page below `python-api/`: its path in the site, and its Markdown."""
    result = {f"{FOLDER}/{name}.md": text for name, text in _names().items()}
    result |= {f"{FOLDER}/ops/{name}.md": text for name, text in _ops().items()}
    return result | {f"{FOLDER}/{module.__name__.split('.')[1]}.md": _module(module) for module in _modules()}


def index() -> str:
    """Return the end of `python-api.md`: the tables of all names."""
    homes = rlx.public_names()  # type: ignore[attr-defined]
    lines = ["## Names of `rlx`", "", "| name | description |", "|---|---|"]
    for name in sorted(homes, key=str.lower):
        thing = getattr(rlx, name)
        if isinstance(thing, ModuleType):
            address = "" if name in _NOT_SHOWN else f"{FOLDER}/ops/index.md" if name == "ops" else f"{FOLDER}/{name}.md"
        else:
            address = f"{FOLDER}/{_page_of(homes[name])}.md#{_anchor(name)}"
        shown = f"[`rlx.{name}`]({address})" if address else f"`rlx.{name}`"
        lines.append(f"| {shown} | {_NOT_SHOWN.get(name) or _what(name, thing)} |")
    lines += ["", "## Ops", "", "Each is a method of `rlx.Graph`, and a function of `rlx.ops` that takes tensors.", ""]
    return "\n".join([*lines, *_table_of_ops(f"{FOLDER}/ops/"), ""])


def _what(name: str, thing: Any) -> str:
    if isinstance(thing, rlx.DType):
        return "A dtype"
    return "The version" if name == "__version__" else summary(thing)


# --- names ----------------------------------------------------------------------------------------


def _page_of(home: str) -> str:
    found = [
        (len(part), page)
        for page, (_, parts) in _PAGES.items()
        for part in parts
        if f"{home}.".startswith(f"rlx.{part}.")
    ]
    return max(found)[1] if found else "graphs"


def _names() -> dict[str, str]:
    texts = {page: [f"# {title}", ""] for page, (title, _) in _PAGES.items()}
    for name, home in sorted(rlx.public_names().items(), key=lambda item: item[0].lower()):  # type: ignore[attr-defined]
        thing = getattr(rlx, name)
        if isinstance(thing, ModuleType):
            continue
        texts[_page_of(home)] += _value(name, thing) if not callable(thing) else _entry(f"rlx.{name}", thing)
    return {page: "\n".join(lines) for page, lines in texts.items()}


def _value(name: str, thing: Any) -> list[str]:
    what = f"The dtype `{thing}`, NumPy's `{thing.numpy}`." if isinstance(thing, rlx.DType) else f"`{thing!r}`"
    return [f"## `rlx.{name}` {{ #{_anchor(name)} }}", "", what, ""]


def _anchor(name: str) -> str:
    return f"rlx.{name.strip('_')}" if name.startswith("__") else f"rlx.{name}"  # "__" is emphasis in Markdown


def _entry(path: str, thing: Any, level: int = 2) -> list[str]:
    """Return the entry of a function, or of a class with its members."""
    kind = "class " if isinstance(thing, type) else ""
    lines = [f"{'#' * level} `{path}` {{ #{path} }}", ""]
    lines += ["```python", kind + signature(path.rpartition(".")[2], thing), "```", "", body(thing), ""]
    if isinstance(thing, type):
        for name, member in members(thing):
            lines += _member(f"{path}.{name}", name, member, level + 1)
    return lines


def _member(path: str, name: str, member: Any, level: int) -> list[str]:
    head = [f"{'#' * level} `{name}` {{ #{path} }}", ""]
    if callable(member) or isinstance(member, (classmethod, staticmethod)):
        function = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        return [*head, "```python", signature(name, function), "```", "", body(function), ""]
    return [*head, body(member), ""]


def members(thing: type) -> Iterator[tuple[str, Any]]:
    """Yield the documented public members of a class that it defines itself. Ops have separate pages."""
    made = surface.methods()
    for owner in reversed([c for c in thing.__mro__ if c.__module__.startswith("rlx.")]):
        for name, member in vars(owner).items():
            public = not name.startswith("_") and not isinstance(member, type)
            is_last = next(c for c in thing.__mro__ if name in vars(c)) is owner
            if public and is_last and made.get(name) is not member and _documented(member):
                yield name, member


def _documented(member: Any) -> bool:
    is_described = callable(member) or isinstance(member, (property, classmethod, staticmethod))
    return is_described and bool(inspect.getdoc(getattr(member, "__func__", member)))


# --- modules --------------------------------------------------------------------------------------


def _modules() -> list[ModuleType]:
    found = (getattr(rlx, name) for name in rlx.public_names())  # type: ignore[attr-defined]
    return [m for m in found if isinstance(m, ModuleType) and m is not ops and m.__name__ != "rlx.mlir"]


def _module(module: ModuleType) -> str:
    lines = [f"# `{module.__name__}`", "", body(module), ""]
    order = {name: i for i, name in enumerate(_FIRST.get(module.__name__, ()))}
    names = getattr(module, "__all__", None) or vars(module)
    for name in sorted(names, key=lambda name: (order.get(name, len(order)), name.lower())):
        thing = getattr(module, name)
        own = getattr(thing, "__module__", "") or ""
        if not name.startswith("_") and own.startswith(module.__name__) and callable(thing):
            lines += _entry(f"{module.__name__}.{name}", thing)
    return "\n".join(lines)


# --- ops ------------------------------------------------------------------------------------------


def families() -> dict[str, list[str]]:
    """Return the methods of graphs by family: that of the op, or the folder of the helper in `rlx.functions`."""
    op_of = {name: op for op, named in surface.kinds().items() for name in named}
    op_of |= {surface.method_name(op): op for op in registry.registered()}
    helpers = surface.helpers()
    result: dict[str, list[str]] = {}
    for name in surface.methods():
        family = helpers[name].__module__.split(".")[2] if name in helpers else registry.SPECS[op_of[name]].family
        result.setdefault(_FAMILIES.get(family, family), []).append(name)
    return {family: sorted(names) for family, names in sorted(result.items())}


def _table_of_ops(folder: str) -> list[str]:
    rows = {n: f"{folder}{family}.md#rlx.ops.{n}" for family, names in families().items() for n in names}
    summaries = surface.summaries()
    lines = ["| op | what it gives |", "|---|---|"]
    return lines + [f"| [`{n}`]({rows[n]}) | {summaries[n].replace('|', chr(92) + '|')} |" for n in sorted(rows)]


def _ops() -> dict[str, str]:
    intro = [
        "# Ops",
        "",
        "Each is a method of `rlx.Graph`, `g.matmul(x, w)`, and a function of `rlx.ops`, `rlx.ops.matmul(x, w)`. Tensors come",
        "first. What an op is in the IR, with its attributes and traits, is in the",
        "[op reference](../../reference/ops/index.md).",
        "",
    ]
    methods = surface.methods()
    result = {"index": "\n".join([*intro, *_table_of_ops("")])}
    for family, names in families().items():
        lines = [f"# {family.replace('_', ' ').capitalize()}", ""]
        for name in names:
            # A package, such as `rlx.ops.attention`, has its own description.
            lines += _entry(f"rlx.ops.{name}", methods[name])
            if (example := example_of(name)) is not None:
                lines += [example.markdown(python=True), ""]
        result[family] = "\n".join(lines)
    return result
