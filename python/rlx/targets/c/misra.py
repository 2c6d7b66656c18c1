"""Deviations of programs from MISRA C:2012, with their reasons, as a list of suppressions for cppcheck."""

from __future__ import annotations

from dataclasses import dataclass

from rlx.targets.c.lower.program import CSource
from rlx.version import __version__


@dataclass(frozen=True)
class Deviation:
    """A rule that programs deviate from.

    Attributes:
        rule: Its number in MISRA C:2012.
        category: `"required"` or `"advisory"`.
        reason: The reason.
    """

    rule: str
    category: str
    reason: str


DEVIATIONS = (
    Deviation("2.2", "required", "index expressions of some sizes have a factor of 1 or a difference from 0"),
    Deviation("2.3", "advisory", "a type checks the compiler: it does not compile where right shifts lose the sign"),
    Deviation("2.5", "advisory", "the macros of the header are for its users"),
    Deviation(
        "5.6", "required", "each network declares the types of its arena's elements in its own file, with equal names"
    ),
    Deviation("5.9", "advisory", "static functions of several networks in one firmware may have equal names"),
    Deviation("8.9", "advisory", "test vectors are long, and so are in front of the function that reads them"),
    Deviation(
        "10.1", "required", "requantisation shifts signed numbers to the right; the type of 2.3 checks the compiler"
    ),
    Deviation(
        "10.3", "required", "comparisons are stored as 0 or 1; pointers that advance are reported too, and INT32_MIN"
    ),
    Deviation("10.4", "required", "cppcheck does not know the types of some elements: both operands are int32_t"),
    Deviation("10.7", "required", "products of 64 bits have an operand of 32 bits, which the other one widens"),
    Deviation(
        "10.8", "required", "sums that may wrap are unsigned, and cast back; a cast gives packed weights their sign"
    ),
    Deviation("11.5", "advisory", "the arena holds values of several types; its offsets are aligned for each of them"),
    Deviation("12.1", "advisory", "index expressions have the precedence of arithmetic, without parentheses"),
    Deviation("15.5", "advisory", "helpers that saturate return early"),
    Deviation("17.8", "advisory", "inner loops advance their pointer parameters, which saves registers"),
    Deviation("18.4", "advisory", "rows of weights and of inputs are pointers plus offsets, all within one array"),
    Deviation("19.2", "advisory", "a union aligns the arena"),
    Deviation("21.15", "required", "memcpy reads two or four bytes as one integer, which no aliasing rule forbids"),
)
# Checks of cppcheck itself that depend on the sizes of a graph: conditions about the border of an image may be constant.
OTHERS = ("knownConditionTrueFalse", "moduloofone", "variableScope")


def suppressions_of(program: CSource) -> str:
    """Return the list of suppressions for the files of a program, with the reasons as comments."""
    files = program.files
    # Of these files only, in any folder: a pattern with a star at its end or start would also match files of others.
    names = [files.header, files.source, files.weights_header, files.weights, files.test]
    patterns = [pattern for name in names for pattern in (name, f"*/{name}")]
    lines = [
        f"// Deviations of {program.name} from MISRA C:2012, written by RLX {__version__}:",
        f"// cppcheck --addon=misra --std=c99 --suppressions-list={files.misra} {files.source} {files.weights} {files.test}",
    ]
    for deviation in DEVIATIONS:
        lines.append(f"// Rule {deviation.rule}, {deviation.category}: {deviation.reason}.")
        lines += [f"misra-c2012-{deviation.rule}:{pattern}" for pattern in patterns]
    lines.append("// Conditions that some sizes make constant.")
    lines += [f"{check}:{pattern}" for check in OTHERS for pattern in patterns]
    return "\n".join(lines) + "\n"
