"""Names of the values in a module, which Verilog shows where CIRCT needs a wire for a value. Without them wires are `_GEN_12`.

A value is named after the register that it becomes, or after its operands (`row_is_7`, `rows_used_minus_1`). Where that is too
long, it is named after the value that reads it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_LONGEST = 32
_LINE = re.compile(r"(%\w+) = (comb|seq|hw)\.([\w.]+) (.*)")
_VALUE = re.compile(r"%\w+")
_CONSTANT = re.compile(r"(true|false|-?\d+)\b")
_UNNAMED = re.compile(r"v\d+")
_JOINED = {"and": "and", "or": "or", "xor": "xor", "add": "plus", "sub": "minus", "mul": "times"}
_COMPARED = {"eq": "is", "ne": "is_not", "lt": "below", "le": "up_to", "gt": "above", "ge": "from"}


def with_names(lines: Sequence[str], outputs: Mapping[str, str]) -> list[str]:
    """Return the lines of a module with a name for every value of the comb dialect that has none.

    Args:
        lines: The lines, one op in each.
        outputs: The text of the value of each output port, by the name of the port.
    """
    parsed = [_LINE.match(line) for line in lines]
    names = _known(lines, parsed)
    for found in parsed:
        if found is not None and found[2] == "seq":
            following = _VALUE.findall(found[4])[0]
            names.setdefault(following, f"{names[found[1]]}_next")
    for found in parsed:
        if found is not None and found[2] == "comb" and found[1] not in names:
            name = _after_operands(found[3], found[4], names)
            if name is not None and len(name) <= _LONGEST:
                names[found[1]] = name
    for port, value in outputs.items():
        names.setdefault(value, f"{port}_term")
    for found in reversed(parsed):
        if found is not None and found[1] in names:
            for operand in _VALUE.findall(found[4]):
                names.setdefault(operand, f"{names[found[1]].removesuffix('_term')}_term")
    return [
        _hinted(line, names[found[1]]) if found is not None and found[2] == "comb" and found[1] in names else line
        for line, found in zip(lines, parsed, strict=True)
    ]


def _known(lines: Sequence[str], parsed: Sequence[re.Match[str] | None]) -> dict[str, str]:
    """Return the names that values have already: ports, registers, results of instances, hints and constants."""
    names: dict[str, str] = {}
    for line, found in zip(lines, parsed, strict=True):
        for value in _VALUE.findall(line):
            if not _UNNAMED.fullmatch(value[1:]):
                names.setdefault(value, value[1:])
        if found is None:
            continue
        hint = re.search(r'sv\.namehint = "(\w+)"', found[4])
        if hint is not None:
            names[found[1]] = hint[1]
        elif found[3] == "constant" and (constant := _CONSTANT.match(found[4])) is not None:
            names[found[1]] = {"true": "1", "false": "0"}.get(constant[1], constant[1].replace("-", "minus_"))
    return names


def _after_operands(op: str, rest: str, names: Mapping[str, str]) -> str | None:
    """Return a name made of those of the operands; None if one of them has none, or there are many."""
    values = _VALUE.findall(rest.rpartition(" : ")[0])
    known = [names.get(v) for v in values]
    if any(name is None for name in known):
        return None
    operands = [name for name in known if name is not None]
    if op == "xor" and operands[-1] in ("minus_1", "1"):
        return f"not_{operands[0]}"
    if op in _JOINED and len(operands) == 2:
        operands = operands if op == "sub" else sorted(operands, key=_is_constant)
        return f"{operands[0]}_{_JOINED[op]}_{operands[1]}"
    if op == "icmp":
        return f"{operands[0]}_{_COMPARED[rest.split()[0][-2:]]}_{operands[1]}"
    if op == "mux" and _is_constant(operands[1]):
        return f"{operands[0]}_number" if _is_constant(operands[2]) else f"{operands[2]}_unless_{operands[0]}"
    if op == "mux":
        return f"{operands[1]}_if_{operands[0]}"
    if op == "extract":
        low = re.search(r"from (\d+)", rest)
        return None if low is None else f"{operands[0]}_from_{low[1]}"
    if op == "replicate":
        return f"{operands[0]}_repeated"
    variables = [name for name in operands if not _is_constant(name)]
    return f"{variables[-1]}_wide" if op == "concat" and variables and len(set(variables)) <= 2 else None


def _is_constant(name: str) -> bool:
    return name.removeprefix("minus_").isdigit()


def _hinted(line: str, name: str) -> str:
    """Return the line of an op with a name for its value. CIRCT makes names unique, and valid if they begin with a digit."""
    if "sv.namehint" in line or name[0].isdigit():
        return line
    colon = line.index(" : ")
    return f'{line[:colon]} {{sv.namehint = "{name}"}}{line[colon:]}'
