"""Decoration of SPIR-V arithmetic, so that drivers do not reassociate or contract it.

Drivers may compute `(x + c) - c` as `x`, and Mesa does, unless an instruction has the decoration `NoContraction`. IREE never
emits it, so it is added to IREE's own output before this is encoded (`reassociated-arithmetic`). SPIRV-Cross, which makes
Metal's shading language of SPIR-V, calls functions for decorated instructions that Metal's compiler does not optimise.

The products and sums of contractions stay undecorated. Their order does not matter, and fused multiply-adds double their speed.
"""

from __future__ import annotations

import re
from collections import Counter

# The last phase of IREE's compiler before shaders are encoded.
PHASE = "executable-targets"

_ARITHMETIC = ("FAdd", "FSub", "FMul", "FDiv", "FRem", "FMod", "FNegate", "VectorTimesScalar", "Dot")
_INSTRUCTION = re.compile(rf"^\s*(?P<result>%\w+) = spirv\.(?P<op>{'|'.join(_ARITHMETIC)}) (?P<operands>%[^:{{]*?) : ")
_VALUE = re.compile(r"%\w+")
_BLOCK = re.compile(r"^\s*\^\w+\((?P<arguments>.*)\):")
_FUNCTION = re.compile(r"^\s*spirv\.func ")
# IREE prints this attribute of `rlx-iree-in-place-updates` in a form that it cannot parse.
_PRINTED, _PARSED = "#stream.partitioning_config<favor-debug>", '#stream.partitioning_config<"debug">'


def decorated(ir: str) -> str:
    """Return IR of the phase `PHASE`, in MLIR's custom form, with `NoContraction` on its floating-point arithmetic."""
    functions: list[list[str]] = [[]]
    for line in ir.replace(_PRINTED, _PARSED, 1).splitlines(keepends=True):
        if _FUNCTION.match(line):
            functions.append([])
        functions[-1].append(line)
    return "".join("".join(_decorated_lines(lines)) for lines in functions)


def _decorated_lines(lines: list[str]) -> list[str]:
    """Return the lines of a function with decorations. Names of values are unique in a function."""
    contractions = _contractions(lines)
    found: list[str] = []
    for line in lines:
        match = _INSTRUCTION.match(line)
        if match and match["result"] not in contractions:
            end = match.end("operands")
            line = f"{line[:end]} {{no_contraction}}{line[end:]}"
        found.append(line)
    return found


def _contractions(lines: list[str]) -> set[str]:
    """Return the products and sums of contractions: a product that is used only in a sum with a loop's carry."""
    uses = Counter(value for line in lines for value in _VALUE.findall(line.partition(" = ")[2] or line))
    carries: set[str] = set()
    products: set[str] = set()
    found: set[str] = set()
    for line in lines:
        if block := _BLOCK.match(line):
            carries.update(_VALUE.findall(block["arguments"]))
        match = _INSTRUCTION.match(line)
        if not match:
            continue
        operands = _VALUE.findall(match["operands"])
        if match["op"] == "FMul" and uses[match["result"]] == 1:
            products.add(match["result"])
        elif match["op"] == "FAdd" and products.intersection(operands) and carries.intersection(operands):
            carries.add(match["result"])
            found |= {match["result"], *products.intersection(operands)}
    return found
