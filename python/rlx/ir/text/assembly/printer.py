"""Conversion of rlx ops from the generic to the readable form."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rlx.dialect.spec import RUNS, ValueSpec
from rlx.ir.op.grouping import OPERAND_SEGMENTS, RESULT_SEGMENTS
from rlx.ir.text.assembly.grammar import STRING, OpForm, layout, run_sizes, segments, split_types


def _dictionary(levels: int) -> str:
    inner = rf"|{_dictionary(levels - 1)}" if levels else ""
    return rf'\{{(?:[^"{{}}\n]++|{STRING}{inner})*+\}}'


# MLIR prints an op on one line, except for its regions, which are indented.
_REST = (
    rf"(?: (?P<attributes>{_dictionary(4)}))?"
    rf' : \((?P<types>(?:[^"()\n]++|{STRING})*+)\)'
    rf' -> (?P<results>(?:[^" \n]++|{STRING}| (?!loc\())++)(?P<location> loc\(.*)?$'
)
_LINE = re.compile(
    rf"^(?P<indent> *)(?:"
    rf'(?P<head>(?:%[^"\n={{]*+= )?)"rlx\.(?P<name>\w+)"\((?P<operands>[^()"\n]*+)\)(?:(?P<opens> \(\{{)$|{_REST})'
    rf"|\}}(?:(?P<next>, \{{)$|\){_REST.replace('?P<', '?P<end_')}))",
    re.MULTILINE | re.ASCII,
)
_NUMBER = re.compile(
    rf"{STRING}|(?<![\w.])(-?\d+) : i64(?=[,}}\]])|(?<![\w.])(-?\d+\.\d+(?:e[+-]\d+)?) : f64(?=[,}}\]])", re.ASCII
)
_SEGMENTS = re.compile(
    rf"{STRING}|{_dictionary(3)}"
    rf"|(?:, )?(?P<name>{OPERAND_SEGMENTS}|{RESULT_SEGMENTS}) = array<i32: (?P<sizes>\d+(?:, \d+)*+)>"
)


@dataclass(slots=True)
class _Open:
    """An op whose regions are being copied. `pieces` has the index of the piece before each region; the first is the head."""

    indent: str
    head: str
    name: str
    operands: str
    pieces: list[int]


def write(text: str) -> str:
    """Return the text of a module with its rlx ops in the readable form.

    An op whose text differs from the output of MLIR's printer stays in the generic form, which `read` accepts as well.

    Args:
        text: Text printed by MLIR.
    """
    pieces: list[str] = []
    opened: list[_Open] = []
    last = 0
    for match in _LINE.finditer(text):
        indent, head, name, operands, opens, attributes, types, results, location = match.groups()[:9]
        if name is not None and not opens:
            readable = _op(name, operands, attributes, types, results)
            if readable is not None:
                pieces += text[last : match.end("head")], readable
                last = match.end() if location is None else match.start("location")
            continue
        while opened and len(opened[-1].indent) >= len(indent) + (name is None):
            opened.pop()  # the end of the op was not recognised, so it stays in the generic form
        if name is None and (not opened or opened[-1].indent != indent):
            continue
        pieces += text[last : match.start()], match[0]
        last = match.end()
        if opens:
            opened.append(_Open(indent, head, str(name), operands, [len(pieces) - 1]))
        elif match["next"]:
            opened[-1].pieces.append(len(pieces) - 1)
        else:
            _close(pieces, opened.pop(), match)
    pieces.append(text[last:])
    return "".join(pieces)


def _close(pieces: list[str], op: _Open, match: re.Match[str]) -> None:
    """Write the head of an op after its last region has been copied."""
    form = layout(op.name)
    text = _op(op.name, op.operands, match["end_attributes"], match["end_types"], match["end_results"])
    if form is None or text is None or len(op.pieces) != len(form.regions):
        return
    text = f"{op.indent}{op.head}{text}"
    end = len(pieces) - 1
    single = len(form.regions) == 1
    for name, piece, following in zip(form.regions, op.pieces, [*op.pieces[1:], end], strict=True):
        if not single and following == piece + 2 and not pieces[piece + 1].strip():
            pieces[piece] = pieces[piece + 1] = ""  # an empty region
            continue
        pieces[piece] = f"{text} {{" if single else f"{text} {name} {{"
        text = f"{op.indent}}}"
    pieces[end] = text + (match["end_location"] or "")


def _op(name: str, operands: str, attributes: str | None, types: str, results: str) -> str | None:
    """Return the readable form of an op without its regions; None if the op does not exist."""
    form = layout(name)
    if form is None:
        return None
    derived = False
    if attributes is not None:
        if form.operands is not None or form.results:
            operands, attributes, derived = _without_segments(form, operands, attributes, types, results)
        if " : i64" in attributes or " : f64" in attributes:
            attributes = _NUMBER.sub(lambda m: m[1] or m[2] or m[0], attributes)
    tail = f" {attributes}" if attributes and attributes != "{}" else ""
    if form.ends and derived and results == "()":
        return f"rlx.{name}{operands and ' '}{operands}{tail}{types and ' : '}{types}"
    text = f"rlx.{name}({operands}){tail}"
    count = operands.count("%")
    # A type that all operands and the result share is written once.
    one_type = results == types if count == 1 else not count or types == ", ".join([results] * count)
    return f"{text} : {results}" if one_type and results[0] != "(" else f"{text} : ({types}) -> {results}"


def _without_segments(form: OpForm, operands: str, attributes: str, types: str, results: str) -> tuple[str, str, bool]:
    """Return operands and attributes without segment sizes, if `read` would derive the same ones.

    The last result is whether the sizes of operands were omitted.
    """
    entries = attributes[1:]
    sizes_by_name = _segment_sizes(entries)
    drop: set[str] = set()
    if form.operands is not None and OPERAND_SEGMENTS in sizes_by_name:
        if not form.brackets:
            if sizes_by_name[OPERAND_SEGMENTS] == run_sizes(types):
                drop.add(OPERAND_SEGMENTS)
        elif grouped := _in_groups(form.operands, sizes_by_name[OPERAND_SEGMENTS], operands, types):
            drop.add(OPERAND_SEGMENTS)
            operands = grouped
    if form.results and sizes_by_name.get(RESULT_SEGMENTS) == run_sizes(
        results[1:-1] if results[0] == "(" else results
    ):
        drop.add(RESULT_SEGMENTS)
    if drop:
        attributes = "{" + _SEGMENTS.sub(lambda m: "" if m["name"] in drop else m[0], entries).removeprefix(", ")
    return operands, attributes, OPERAND_SEGMENTS in drop


def _segment_sizes(entries: str) -> dict[str, str]:
    """Return the segment sizes among attributes, as text."""
    return {match["name"]: match["sizes"] for match in _SEGMENTS.finditer(entries) if match["name"]}


def _counts(values: Sequence[ValueSpec], sizes: list[int]) -> list[int] | None:
    """Return the number of values of each operand of a record; None if the segment sizes do not fit the record."""
    counts: list[int] = []
    position = 0
    for value in values:
        width = RUNS if value.arity == "variadic" else 1
        counts.append(sum(sizes[position : position + width]))
        position += width
    return counts if position == len(sizes) else None


def _in_groups(values: tuple[ValueSpec, ...], sizes: str, operands: str, types: str) -> str | None:
    """Return operands with several groups of variable length: lists in brackets, `_` for an absent operand.

    Returns None if the segment sizes do not follow from the groups.
    """
    flat = [int(size) for size in sizes.split(", ")]
    counts, names, value_types = _counts(values, flat), operands.split(", ") if operands else [], split_types(types)
    if counts is None or value_types is None or not sum(counts) == len(names) == len(value_types):
        return None
    if segments(values, counts, value_types) != flat:
        return None
    groups: list[str] = []
    position = 0
    for value, count in zip(values, counts, strict=True):
        group = ", ".join(names[position : position + count])
        groups.append(f"[{group}]" if value.arity == "variadic" else group or "_")
        position += count
    return ", ".join(groups)
