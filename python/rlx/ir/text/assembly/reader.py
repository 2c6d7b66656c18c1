"""Conversion of rlx ops from the readable to the generic form."""

from __future__ import annotations

import re

from rlx.dialect.spec import RUNS
from rlx.ir.op.grouping import OPERAND_SEGMENTS, RESULT_SEGMENTS
from rlx.ir.op.registry import SPECS
from rlx.ir.text.assembly.generic import Generic, Op, Types
from rlx.ir.text.assembly.grammar import (
    COMMENT,
    LONGEST,
    PRINTED,
    SPACES,
    STRING,
    OpForm,
    layout,
    run_sizes,
    runs,
    segments,
)
from rlx.ir.text.assembly.positions import GenericText
from rlx.ir.text.assembly.scanner import CLOSING, Scanner, Span
from rlx.support.suggestions import suggestion

# Tokens that may begin an op or that affect where ops may be; `#rlx.dims` and `%rlx.x` are not ops. One match skips all
# text up to the next possible token, which is the fastest way to search.
_TOKEN = re.compile(
    rf'[^"/r(){{}}\[\]]*(?:({STRING})|(//[^\n]*+)|(rlx\.(?<![\w.$#!@%^-]rlx\.)[\w$.]*+)|([(\[{{])|([)\]}}])|["/r])',
    re.ASCII,
)
_OPERANDS = re.compile(SPACES + r"\(((?:[%\w$.#,\[\] \t\r\n-]++|//[^\n]*+)*+)\)", re.ASCII)
_OPENING = re.compile(SPACES + r"\((?:[%\w$.#,\[\] \t\r\n-]++|//[^\n]*+)*+", re.ASCII)
_VALUE = r"%[\w$.-]++(?:#\d++)?"
_BARE = re.compile(rf"{SPACES}({_VALUE}(?:{SPACES},{SPACES}{_VALUE})*+)", re.ASCII)
_ENTRY = re.compile(rf"{STRING}|//[^\n]*+|({OPERAND_SEGMENTS}|{RESULT_SEGMENTS})(?=[ \t\r\n]*+=)|[(){{}}\[\]<>]")
_GROUP = re.compile(rf"({_VALUE})|([\[\],_])", re.ASCII)
_RESOURCES = re.compile(rf'(?:[^"#]++|{STRING}|"|#(?!-\}}))*+#-\}}')  # after the opening brace
_KEYWORD = re.compile(r"([A-Za-z_]\w*+)[ \t\r\n]*+\{", re.ASCII)


def read(text: str, name: str = "<text>") -> GenericText:
    """Return text for MLIR's parser, from text whose rlx ops are in the readable form, the generic one, or both.

    Args:
        text: MLIR text.
        name: The name of the text in messages.

    Raises:
        ParseError: An rlx op does not follow the grammar in docs/assembly.md; the error has line and column.
    """
    # A path that the locale cannot decode contains lone surrogates, which are not valid UTF-8.
    return _AssemblyReader(text, name.encode(errors="backslashreplace").decode()).read()


def _hint_for_unknown(name: str) -> str:
    """Return a hint for an unknown op name.

    The name may be a kind of an op, such as `relu`, which is a method of graphs. Otherwise the hint is an op with a
    similar name.
    """
    ops = [op for op, spec in SPECS.items() if any(a.name == "kind" and name in a.cases for a in spec.attributes)]
    choices = " or ".join(f"'rlx.{op}'" for op in ops if not op.endswith("_backward"))
    return f' (write {choices} with {{kind = "{name}"}})' if choices else suggestion(name, SPECS)


class _AssemblyReader(Scanner):
    """Reads the text once. All text other than rlx ops in the readable form is copied."""

    def __init__(self, text: str, name: str):
        super().__init__(text, name)
        self.out = Generic(self)
        self.opened: list[str | Op] = []
        self.comment = (-1, -1)
        self.has_resources = True

    def read(self) -> GenericText:
        text, position = self.text, 0
        while match := _TOKEN.match(text, position := self._printed(position)):
            kind, position = match.lastindex, match.end()
            if kind == 3:
                position = self._op(match.start(3), position)
            elif kind == 4:
                end = self._end_of_resources(position)
                if end is None:
                    self.opened.append(match[4])
                else:
                    position = end
            elif kind == 5:
                position = self._closed(match[5], position - 1)
            elif kind == 2:
                start, end = match.span(2)
                comment_start, comment_end = self.comment
                # Comments separated only by space count as one.
                continues = comment_end >= 0 and not text[comment_end:start].strip(" \t\r\n")
                self.comment = (comment_start if continues else start, end)
        for op in self.opened:
            if isinstance(op, Op):
                self.fail(op.start, f"expected '}}' at the end of the region of 'rlx.{op.name}'")
        return self.out.source()

    def _printed(self, position: int) -> int:
        """Read ops that are formatted as by the printer, the fast path. Returns the position after them."""
        if self.opened and self.opened[-1] in ("(", "["):
            return position
        while match := PRINTED.match(self.text, position):
            name, operands, one_type = match.group("name", "operands", "type")
            form, count = layout(name), operands.count("%")
            if form is None or not form.plain or (one_type and count > form.most_of_one_type):
                break
            self.out.plain(match, one_type, count)
            position = match.end()
        return position

    def _end_of_resources(self, position: int) -> int | None:
        """Return the end of `{-# … #-}` if the position is after its opening brace, else None."""
        if not self.has_resources or not self.text.startswith("-#", position):
            return None
        match = _RESOURCES.match(self.text, position)
        self.has_resources = match is not None  # without a match, the whole text has no end marker
        return None if match is None else match.end()

    def _op(self, start: int, end: int) -> int:
        """Read an op whose name is at this position. Returns the position after it."""
        text, name = self.text, self.text[start + 4 : end]
        form = layout(name)
        if not self._is_op(start, end, form):
            return end
        if form is None:
            self.fail(start, f"there is no op 'rlx.{name}'{_hint_for_unknown(name)}")
        op = Op(name, start, form)
        operands, position, has_parentheses = self._operands(op, end)
        op.end = position
        after = self.space(position)
        following = text[after : after + 1]
        if following in ("(", "["):  # regions or successors, as in the generic form
            self.out.head(op, end, operands, has_parentheses)
            return self.out.note_moved(position)
        if following == "<":
            self.fail(after, "rlx ops have attributes in {…}, and no properties")
        if following == "{":
            position = self.dictionary(after)
            op.attributes = (after, position)
            after = self.space(position)
        if text.startswith(":", after):
            op.types = self._types(op, self.space(after + 1))
            position = op.types.end
        elif op.count or not form.ends:
            self.fail(position, f"expected ':' and the types of 'rlx.{name}'")
        if form.plain and op.types is not None and op.types.functional and has_parentheses:
            self.out.copy(start)
            self.out.insert(f'"rlx.{name}"', start)
            self.out.copied = end
            return self.out.note_moved(position)
        groups = self._groups(op, operands)
        op.added = self._segments(op, groups)
        self.out.head(op, end, operands, has_parentheses, groups)
        return self.out.note_moved(self._regions(op, position) if form.regions else self.out.tail(op, position))

    def _is_op(self, start: int, end: int, form: OpForm | None) -> bool:
        """Whether a name is at a position where an op may be, and is not the name of an attribute."""
        text = self.text
        if self.opened and self.opened[-1] in ("(", "["):
            return False
        if text.startswith("= ", start - 2) and form is not None and start > 1:
            return True
        after = text[(place := self.space(end)) : place + 1]
        before = self._before(start)
        if after == "=" or before in (",", "<"):
            return False
        if form is None:
            return before == "=" or after in ("(", "%")
        return before != "{" or after not in (",", "}") or (form.ends and after == "}")

    def _before(self, place: int) -> str:
        """Return the last character before a position, ignoring space and comments."""
        while True:
            while place and self.text[place - 1] in " \t\r\n":
                place -= 1
            if place != self.comment[1] or not place:
                return self.text[place - 1 : place]
            place = self.comment[0]
            self.comment = (-1, -1)

    def _operands(self, op: Op, end: int) -> tuple[Span, int, bool]:
        """Return the span of the operands of an op, the position after them, and whether they are in parentheses."""
        text = self.text
        match = _OPERANDS.match(text, end)
        has_parentheses = match is not None
        if match is None:
            if opening := _OPENING.match(text, end):
                self.fail(opening.end(), f"expected operands of 'rlx.{op.name}', such as %x, and ')'")
            match = _BARE.match(text, end)
        if match is None:
            return (end, end), end, False
        operands = match[1]
        op.count = (COMMENT.sub("", operands) if "//" in operands else operands).count("%")
        if op.form.most is not None and op.count > op.form.most:
            self.fail(match.start(1), f"'rlx.{op.name}' takes at most {op.form.most} operands, got {op.count}")
        return match.span(1), match.end(), has_parentheses

    def _types(self, op: Op, start: int) -> Types:
        """Return the types after the colon."""
        text = self.text
        if text.startswith("(", start):
            end = self.parentheses(start)
            arrow = self.space(end)
            if not text.startswith("->", arrow):
                self.fail(arrow, f"expected '->' and the types of the results of 'rlx.{op.name}'")
            results = self.space(arrow + 2)
            stop = self.parentheses(results) if text.startswith("(", results) else self.type(results)
            return Types(True, [(start, end), (results, stop)], stop)
        end = self.type(start)
        spans = [(start, end)]
        while text.startswith(",", after := self.space(end)):
            start = self.space(after + 1)
            if not op.form.ends:
                self.fail(start, "expected one type that all operands and the result have, or (…) -> …")
            end = self.type(start)
            spans.append((start, end))
        if op.count * (end - start) > LONGEST:
            self.fail(start, f"too long to stand for the types of {op.count} operands", "write them as (…) -> …")
        if not op.form.ends and op.form.results_count not in (None, 1):
            self.fail(start, f"'rlx.{op.name}' has {op.form.results_count} results: expected their types as (…) -> (…)")
        return Types(False, spans, end)

    # --- segments ---------------------------------------------------------------------------------

    def _groups(self, op: Op, operands: Span) -> list[list[Span]] | None:
        """Return the spans of the operands of each group, if the text groups the operands rather than an attribute."""
        values = op.form.operands
        if values is None or not op.form.brackets or OPERAND_SEGMENTS in self._declared(op):
            return None
        groups: list[list[Span]] = [[]]
        in_brackets = False
        for match in _GROUP.finditer(self.text, *operands):
            token = match[0]
            if token == "," and not in_brackets:
                groups.append([])
            elif token in "[]":
                in_brackets = token == "["
            elif match[1]:
                groups[-1].append(match.span())
        if len(groups) != len(values):
            names = ", ".join(f"[{v.name}…]" if v.arity == "variadic" else v.name for v in values)
            self.fail(
                op.start,
                f"'rlx.{op.name}' takes ({names}); got {len(groups)} of {len(values)}",
                "_ stands for an absent one",
            )
        return groups

    def _declared(self, op: Op) -> set[str]:
        """Return the names of the segment attributes in the text."""
        if op.attributes is None or "SegmentSizes" not in self.text[slice(*op.attributes)]:
            return set()
        names: set[str] = set()
        depth = 0
        for match in _ENTRY.finditer(self.text, *op.attributes):
            if match[1] and depth == 1:
                names.add(match[1])
            depth += (match[0] in "({[") - (match[0] in ")}]")
        return names

    def _segments(self, op: Op, groups: list[list[Span]] | None) -> str:
        """Return the segment attributes of operands and results that are missing in the text."""
        form, declared, added = op.form, self._declared(op), list[str]()
        operands, results = self._type_lists(op)
        if form.operands is not None and OPERAND_SEGMENTS not in declared:
            if groups is None:
                sizes = self._run_sizes(op, operands, op.count)
            else:
                counts = [len(group) for group in groups]
                sizes = ", ".join(map(str, segments(form.operands, counts, self.list(operands))))
            added.append(f"{OPERAND_SEGMENTS} = array<i32: {sizes}>")
        if form.results and RESULT_SEGMENTS not in declared:
            added.append(f"{RESULT_SEGMENTS} = array<i32: {self._run_sizes(op, results, 1)}>")
        return ", ".join(added)

    def _run_sizes(self, op: Op, span: Span, count: int) -> str:
        """Return the segment sizes of a variadic group with a list of types.

        Args:
            op: The op.
            span: The span of the list.
            count: The number of values, if the list is a single type that all values share.
        """
        sizes = run_sizes(self.text[slice(*span)])
        is_common_type = op.types is not None and not op.types.functional and len(op.types.spans) == 1
        if sizes is None or (is_common_type and count != 1):
            types = self.list(span)
            flat = runs(types * count if is_common_type else types)
            if len(flat) > RUNS:
                self.fail(
                    span[0],
                    f"the types of 'rlx.{op.name}' change too often: at most {RUNS} runs of equal types are possible",
                )
            sizes = ", ".join(map(str, flat))
        return sizes

    def _type_lists(self, op: Op) -> tuple[Span, Span]:
        """Return the spans of the types of operands and of results."""
        if op.types is None:
            return (op.end, op.end), (op.end, op.end)
        spans = op.types.spans
        if not op.types.functional:
            whole_list = (spans[0][0], spans[-1][1])
            return whole_list, whole_list
        (start, end), results = spans
        inner = (results[0] + 1, results[1] - 1) if self.text.startswith("(", results[0]) else results
        return (start + 1, end - 1), inner

    # --- regions ----------------------------------------------------------------------------------

    def _region(self, op: Op, position: int) -> tuple[int, int, int] | None:
        """Return index, keyword position and brace position of the region that begins here; None if none begins."""
        names = op.form.regions
        start = self.space(position)
        if len(names) == 1:
            return (0, start, start) if self.text.startswith("{", start) else None
        match = _KEYWORD.match(self.text, start)
        if match is None or match[1] not in names[op.region :]:
            return None
        return names.index(match[1]), start, match.end() - 1

    def _regions(self, op: Op, position: int) -> int:
        """Begin the first region, if any. In the generic form, regions are between operands and attributes."""
        self.out.copy(op.end)
        region = self._region(op, position)
        if region is None:
            if self.text.startswith("{", start := self.space(position)):
                self.fail(start, f"expected '{op.form.regions[0]} {{', the name of the region of 'rlx.{op.name}'")
            self.out.insert(f" ({', '.join(['{}'] * len(op.form.regions))})", position)
            return self.out.tail(op, position)
        index, keyword, brace = region
        self.out.skip(position)
        self.out.insert(" (" + "{}, " * index, keyword)
        self.opened.append(op)
        return self.out.enter(op, index, keyword, brace)

    def _closed(self, bracket: str, place: int) -> int:
        """Handle a closing bracket. Returns the position after it."""
        top = self.opened[-1] if self.opened else ""
        if not isinstance(top, Op):
            if top and CLOSING[top] == bracket:
                self.opened.pop()
            return place + 1
        if bracket != "}":
            return place + 1  # a syntax error, which MLIR reports
        self.out.copy(place + 1)
        position = place + 1
        region = self._region(top, position) if top.region < len(top.form.regions) else None
        if region is not None:
            index, keyword, brace = region
            self.out.insert(", " + "{}, " * (index - top.region), keyword)
            position = self.out.enter(top, index, keyword, brace)
        else:
            self.opened.pop()
            self.out.end(top, place)
        return self.out.note_moved(position)
