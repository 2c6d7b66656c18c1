"""`rlx.irdl.mlir`: the IRDL that registers the dialect at run time."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.dialect.spec import RUNS, AttributeKind, OpSpec, ValueSpec
from tools.ods import BANNER

# IRDL identifies an attribute by the builtin class that stores it. RLX's verifier checks everything else.
_STORAGE: dict[AttributeKind, str | None] = {
    "i64": "builtin.integer",
    "f64": "builtin.float",
    "bool": "builtin.integer",
    "i64s": "builtin.dense_array",
    "str": "builtin.string",
    "enum": "builtin.string",
    "dims": "builtin.array",
    "dtype": "builtin.type",
    "elements": None,
    "dict": "builtin.dictionary",
}


def irdl_source(ops: Sequence[OpSpec]) -> str:
    """Return IRDL that declares every op: arity, required attributes, regions. The verifier checks the rest."""
    lines = [f"// {BANNER}", "irdl.dialect @rlx {"]
    lines += ["  irdl.attribute @dims {", "    %any = irdl.any", "    irdl.parameters(symbols: %any)", "  }"]
    for op in ops:
        lines += _operation(op)
    return "\n".join([*lines, "}", ""])


def _operation(op: OpSpec) -> list[str]:
    lines = [f"  irdl.operation @{op.name} {{"]
    operands, results = _entries(op.operands), _entries(op.results)
    lines += [f"    %type_{name} = irdl.any" for name, _ in (*operands, *results)]
    required = [a for a in op.attributes if a.required]
    for attribute in required:
        base = _STORAGE[attribute.kind]
        constraint = f'irdl.base "#{base}"' if base else "irdl.any"
        lines.append(f"    %{attribute.name} = {constraint}")
    lines += [f"    %region{i} = irdl.region" for i, _ in enumerate(op.regions)]
    if operands:
        lines.append(f"    irdl.operands({_declared(operands)})")
    if required:
        named = ", ".join(f'"{a.name}" = %{a.name}' for a in required)
        lines.append(f"    irdl.attributes {{ {named} }}")
    if results:
        lines.append(f"    irdl.results({_declared(results)})")
    if op.regions:
        named = ", ".join(f"{r.name}: %region{i}" for i, r in enumerate(op.regions))
        lines.append(f"    irdl.regions({named})")
    return [*lines, "  }"]


def _entries(values: Sequence[ValueSpec]) -> list[tuple[str, str]]:
    """Return name and prefix of each entry that declares operands or results.

    An IRDL constraint is a variable: all its uses must have the same type. So each value has its own constraint. A
    variadic group, whose values may have different types, is declared as `RUNS` groups of one type each.
    """
    entries: list[tuple[str, str]] = []
    for value in values:
        if value.arity == "variadic":
            entries += [(f"{value.name}_{run}", "variadic ") for run in range(RUNS)]
        else:
            entries.append((value.name, "optional " if value.arity == "optional" else ""))
    return entries


def _declared(entries: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name}: {prefix}%type_{name}" for name, prefix in entries)
