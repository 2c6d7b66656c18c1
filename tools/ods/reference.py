"""`docs/reference/ops/`: a page for each family of ops, and an index."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.dialect.spec import TraitSpec
from tools.ods import BANNER
from tools.ods.ops import DeclaredOp


def pages(ops: Sequence[DeclaredOp]) -> dict[str, str]:
    """Return the Markdown pages: file name and text."""
    families: dict[str, list[DeclaredOp]] = {}
    for op in ops:
        families.setdefault(op.spec.family, []).append(op)
    note = f"<!-- {BANNER} -->\n\n"
    result = {
        f"{family}.md": note + f"# {family}\n\n" + "\n".join(_section(op) for op in members)
        for family, members in families.items()
    }
    index = [note + "# Op reference", "", "| op | stage | |", "|---|---|---|"]
    for spec in sorted((op.spec for op in ops), key=lambda spec: spec.name):
        link = f"[`{spec.name}`]({spec.family}.md#rlx{spec.name})"
        index.append(f"| {link} | {spec.stage.upper()} | {spec.summary.replace('|', chr(92) + '|')} |")
    return result | {"README.md": "\n".join([*index, *_traits(ops), ""])}


def _traits(ops: Sequence[DeclaredOp]) -> list[str]:
    """Return the traits, each with its ops."""
    lines = ["", "## Traits", "", "| trait | an op that has it | ops |", "|---|---|---|"]
    summaries = {name: says for op in ops for name, says in op.trait_summaries.items()}
    for name, says in sorted(summaries.items()):
        having = sorted(
            f"`{op.spec.name}`" + (f" ({', '.join(trait.cases)})" if trait.cases else "")
            for op in ops
            for trait in op.spec.traits
            if trait.name == name
        )
        lines.append(f"| `{name}` | {says} | {' '.join(having)} |")
    return lines


def _section(op: DeclaredOp) -> str:
    spec = op.spec
    out = [f"## `rlx.{spec.name}`", "", f"*{spec.summary}*", "", spec.description, ""]
    if spec.traits:
        out += [f"[Traits](README.md#traits): {', '.join(map(_trait, spec.traits))}.", ""]
    rows = [("operand", v.name, v.arity, " ".join(v.accepts)) for v in spec.operands]
    for a in spec.attributes:
        default = "required" if a.required else f"default `{a.default!r}`"
        rows.append(
            ("attribute", a.name, default, " · ".join(f"`{c}`" for c in a.cases) or op.attribute_summaries[a.name])
        )
    rows += [("region", r.name, r.arity, "") for r in spec.regions]
    rows += [("result", v.name, v.arity, " ".join(v.accepts)) for v in spec.results]
    out += ["| kind | name | presence | type |", "|---|---|---|---|"]
    out += [f"| {kind} | `{name}` | {how.replace('single', '')} | {what} |" for kind, name, how, what in rows]
    return "\n".join([*out, "", f"Declared in `{spec.defined_at}`.", ""])


def _trait(trait: TraitSpec) -> str:
    cases = ", ".join(f"`{case}`" for case in trait.cases)
    return f"`{trait.name}`" + (f" ({trait.attribute} {cases})" if cases else "")
