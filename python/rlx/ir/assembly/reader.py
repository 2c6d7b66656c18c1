"""From the readable form of rlx ops to the generic one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import NoReturn

from rlx.dialect.spec import RUNS
from rlx.ir.assembly.grammar import (
    COMMENT,
    PRINTED,
    SPACE,
    STRING,
    TYPE,
    TYPE_NAME,
    TYPES,
    Layout,
    layout,
    run_sizes,
    runs,
    segments,
    split_types,
)
from rlx.ir.assembly.positions import Source
from rlx.ir.attributes import suggestion
from rlx.ir.errors import ParseError
from rlx.ir.grouping import OPERAND_SEGMENTS, RESULT_SEGMENTS
from rlx.ir.registry import SPECS

# What may begin an op, and what says where ops may stand; `#rlx.dims` and `%rlx.x` are no ops.
# What is none of this is skipped up to the next character that may begin one: that is the fast way to search.
_TOKEN = re.compile(
    rf'[^"/r(){{}}\[\]]*(?:({STRING})|(//[^\n]*+)|(rlx\.(?<![\w.$#!@%^-]rlx\.)[\w$.]*+)|([(\[{{])|([)\]}}])|["/r])',
    re.ASCII,
)
_OPERANDS = re.compile(r"[ \t\r\n]*+\(((?:[%\w$.#,\[\] \t\r\n-]++|//[^\n]*+)*+)\)", re.ASCII)
_VALUE = r"%[\w$.-]++(?:#\d++)?"
_BARE = re.compile(rf"[ \t\r\n]*+({_VALUE}(?:[ \t\r\n]*+,[ \t\r\n]*+{_VALUE})*+)", re.ASCII)
_ATTRIBUTES = re.compile(rf'\{{(?:[^{{}}"/()<>\[\]]++|{STRING})*+\}}')
_BRACKET = re.compile(rf"{STRING}|//[^\n]*+|->|[(){{}}\[\]<>]")
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
_ENTRY = re.compile(rf"{STRING}|//[^\n]*+|({OPERAND_SEGMENTS}|{RESULT_SEGMENTS})(?=[ \t\r\n]*+=)|[(){{}}\[\]<>]")
_GROUP = re.compile(rf"({_VALUE})|([\[\],_])", re.ASCII)
_KEYWORD = re.compile(r"([A-Za-z_]\w*+)[ \t\r\n]*+\{", re.ASCII)
# What may follow an op in its line without standing in another column than the user wrote it.
_QUIET = re.compile(r"[ \t]*+(?:loc\([^\n]*+|//[^\n]*+)?(?:\r?\n|\Z)")
_OPENING = re.compile(r"[ \t\r\n]*+\((?:[%\w$.#,\[\] \t\r\n-]++|//[^\n]*+)*+", re.ASCII)
_BREAK = re.compile(rf"{STRING}|(\r?\n|//[^\n]*+)")
_COMMA = re.compile(rf"{STRING}|->|[,(){{}}\[\]<>]")
_ALIAS = re.compile(rf"^[ \t]*+(![\w$.]++)[ \t]*+=[ \t]*+({TYPE.pattern})", re.MULTILINE | re.ASCII)


@dataclass(slots=True)
class _Types:
    """The types of an op: of operands and of results, or a list."""

    functional: bool
    spans: list[tuple[int, int]]
    end: int


@dataclass(slots=True)
class _Op:
    """An op that is being read, and what its generic form has after its regions."""

    name: str
    start: int
    form: Layout
    count: int = 0  # of operands
    end: int = 0  # of the operands
    attributes: tuple[int, int] | None = None
    types: _Types | None = None
    added: str = ""  # attributes
    region: int = 0  # how many of them are begun


def read(text: str, name: str = "<text>") -> Source:
    """Text for MLIR's parser, from text whose rlx ops are in the readable form, the generic one, or both.

    Args:
        text: MLIR text.
        name: What to call it in messages.

    Raises:
        ParseError: An rlx op is not written as docs/assembly.md says, with line and column.
    """
    return _Reader(text, name).read()


class _Reader:
    """One pass over the text. What is not an rlx op in the readable form is copied."""

    def __init__(self, text: str, name: str):
        self.text = text
        self.name = name
        self.pieces: list[str] = []
        self.origins: list[int] = []
        self.copied = 0  # how much of the text has its place in the pieces
        self.opened: list[str | _Op] = []
        self.comment = (-1, -1)
        self.moved = False

    def read(self) -> Source:
        text, position = self.text, 0
        while found := _TOKEN.match(text, position):
            kind, position = found.lastindex, found.end()
            if kind == 3:
                position = self._op(found.start(3), position)
            elif kind == 4:
                self.opened.append(found[4])
            elif kind == 5:
                position = self._closed(found[5], position - 1)
            elif kind == 2:
                start, end = found.span(2)
                before, until = self.comment
                # Comments with nothing between them are one.
                follows = until >= 0 and not text[until:start].strip(" \t\r\n")
                self.comment = (before if follows else start, end)
        for op in self.opened:
            if isinstance(op, _Op):
                self._fail(op.start, f"expected '}}' at the end of the region of 'rlx.{op.name}'")
        self._copy(len(text))
        return Source(text, self.name, self.pieces, self.origins, self.moved)

    # --- pieces -----------------------------------------------------------------------------------

    def _copy(self, end: int) -> None:
        """Take over the text up to here as it stands."""
        self.pieces.append(self.text[self.copied : end])
        self.origins.append(self.copied)
        self.copied = end

    def _insert(self, text: str, place: int) -> None:
        """Text that the user did not write; errors in it belong to a place."""
        self.pieces.append(text)
        self.origins.append(~place)

    def _move(self, span: tuple[int, int]) -> None:
        """Text that stands elsewhere, in one line."""
        start, end = span
        if "\n" in self.text[start:end] or "//" in self.text[start:end]:
            for found in _BREAK.finditer(self.text, start, end):
                if found[1]:
                    self._move_line(start, found.start())
                    self._insert(" ", found.start())
                    start = found.end()
        self._move_line(start, end)

    def _move_line(self, start: int, end: int) -> None:
        self.pieces.append(self.text[start:end])
        self.origins.append(start)

    def _space(self, position: int) -> int:
        found = SPACE.match(self.text, position)
        return position if found is None else found.end()

    def _fail(self, place: int, message: str, hint: str | None = None) -> NoReturn:
        line, column = Source(self.text, self.name, [self.text], [0], False).place_of(place)
        raise ParseError(message, location=f"{self.name}:{line}:{column}", hint=hint)

    # --- ops --------------------------------------------------------------------------------------

    def _op(self, start: int, end: int) -> int:
        """Read an op from its name on; returns where to read on."""
        text, name = self.text, self.text[start + 4 : end]
        form = layout(name)
        if not self._is_op(start, end, form):
            return end
        if form is None:
            self._fail(start, f"there is no op 'rlx.{name}'{suggestion(name, SPECS)}")
        printed = PRINTED.match(text, end) if form.plain else None
        if printed is not None and (form.results_count == 1 or printed["type"] is None):
            return self._plain(f'"rlx.{name}"', start, end, printed)
        op = _Op(name, start, form)
        operands, position, written = self._operands(op, end)
        op.end = position
        after = self._space(position)
        following = text[after : after + 1]
        if following in ("(", "["):  # regions, or successors, as in the generic form
            self._head(op, end, operands, written)
            return self._quiet(position)
        if following == "<":
            self._fail(after, "rlx ops have attributes in {…}, and no properties")
        if following == "{":
            position = self._dictionary(after)
            op.attributes = (after, position)
            after = self._space(position)
        if text.startswith(":", after):
            op.types = self._types(op, self._space(after + 1))
            position = op.types.end
        elif op.count or not form.ends:
            self._fail(position, f"expected ':' and the types of 'rlx.{name}'")
        if form.plain and op.types is not None and op.types.functional and written:
            self._copy(start)
            self._insert(f'"rlx.{name}"', start)
            self.copied = end
            return self._quiet(position)
        groups = self._groups(op, operands)
        op.added = self._segments(op, groups)
        self._head(op, end, operands, written, groups)
        return self._quiet(self._regions(op, position) if form.regions else self._tail(op, position))

    def _quiet(self, position: int) -> int:
        """Note whether something follows that now stands in another column; returns the position."""
        if not _QUIET.match(self.text, position):
            self.moved = True
        return position

    def _plain(self, quoted: str, start: int, end: int, printed: re.Match[str]) -> int:
        """Most ops there are: the name is put in quotes, and the type that all have is written for each."""
        text, place = self.text, printed.start("type")
        if place < 0:
            self.pieces += text[self.copied : start], quoted
            self.origins += self.copied, ~start
            self.copied = end
            return printed.end()
        kind, count = printed["type"], printed["operands"].count("%")
        if count:
            self.pieces += (
                text[self.copied : start],
                quoted,
                text[end:place],
                "(",
                kind,
                f", {kind}" * (count - 1) + ") -> ",
            )
            self.origins += self.copied, ~start, end, ~place, place, ~place
        else:
            self.pieces += text[self.copied : start], quoted, text[end:place], "() -> "
            self.origins += self.copied, ~start, end, ~place
        self.copied = place
        return printed.end()

    def _is_op(self, start: int, end: int, form: Layout | None) -> bool:
        """Whether a name stands where an op does, and not an attribute."""
        text = self.text
        if self.opened and self.opened[-1] in ("(", "["):
            return False
        if text.startswith("= ", start - 2) and form is not None and start > 1:
            return True
        after = text[(place := self._space(end)) : place + 1]
        before = self._before(start)
        if after == "=" or before in (",", "<"):
            return False
        if form is None:
            return before == "=" or after in ("(", "%")
        return before != "{" or after not in (",", "}") or (form.ends and after == "}")

    def _before(self, place: int) -> str:
        """The last character before a place that is neither space nor comment."""
        while True:
            while place and self.text[place - 1] in " \t\r\n":
                place -= 1
            if place != self.comment[1] or not place:
                return self.text[place - 1 : place]
            place = self.comment[0]
            self.comment = (-1, -1)

    def _operands(self, op: _Op, end: int) -> tuple[tuple[int, int], int, bool]:
        """Where the operands of an op stand, where they end, and whether there are parentheses around them."""
        text = self.text
        found = _OPERANDS.match(text, end)
        written = found is not None
        if found is None:
            if opening := _OPENING.match(text, end):
                self._fail(opening.end(), f"expected operands of 'rlx.{op.name}', such as %x, and ')'")
            found = _BARE.match(text, end)
        if found is None:
            return (end, end), end, False
        operands = found[1]
        op.count = (COMMENT.sub("", operands) if "//" in operands else operands).count("%")
        return found.span(1), found.end(), written

    def _dictionary(self, start: int) -> int:
        """The end of an attribute dictionary."""
        found = _ATTRIBUTES.match(self.text, start)
        return self._balanced(start) if found is None else found.end()

    def _balanced(self, start: int) -> int:
        """The end of what stands in brackets. Angle brackets count only in types: attributes hold `>=`, too."""
        opened: list[int] = []
        angles = self.text[start] == "<"
        for found in _BRACKET.finditer(self.text, start):
            bracket = found[0]
            if bracket in "([{" or (angles and bracket == "<"):
                opened.append(found.start())
            elif bracket in ")]}" or (angles and bracket == ">"):
                if _CLOSING[self.text[opened[-1]]] != bracket:
                    break
                opened.pop()
                if not opened:
                    return found.end()
        self._fail(opened[-1], f"'{self.text[opened[-1]]}' is not closed")

    # --- types ------------------------------------------------------------------------------------

    def _types(self, op: _Op, start: int) -> _Types:
        """The types after the colon."""
        text = self.text
        if text.startswith("(", start):
            end = self._parentheses(start)
            arrow = self._space(end)
            if not text.startswith("->", arrow):
                self._fail(arrow, f"expected '->' and the types of the results of 'rlx.{op.name}'")
            results = self._space(arrow + 2)
            stop = self._parentheses(results) if text.startswith("(", results) else self._type(results)
            return _Types(True, [(start, end), (results, stop)], stop)
        end = self._type(start)
        spans = [(start, end)]
        while text.startswith(",", after := self._space(end)):
            start = self._space(after + 1)
            if not op.form.ends:
                self._fail(start, "expected one type that all operands and the result have, or (…) -> …")
            end = self._type(start)
            spans.append((start, end))
        if not op.form.ends and op.form.results_count not in (None, 1):
            self._fail(
                start, f"'rlx.{op.name}' has {op.form.results_count} results: expected their types as (…) -> (…)"
            )
        return _Types(False, spans, end)

    def _parentheses(self, start: int) -> int:
        found = TYPES.match(self.text, start)
        return self._balanced(start) if found is None else found.end()

    def _type(self, start: int) -> int:
        found = TYPE.match(self.text, start)
        if found is not None:
            return found.end()
        name = TYPE_NAME.match(self.text, start)
        if name is None:
            self._fail(start, "expected a type")
        return self._balanced(name.end()) if self.text.startswith("<", name.end()) else name.end()

    def _list(self, span: tuple[int, int]) -> list[str]:
        """The types of a list, each as it would be printed, so that equal ones are equal text."""
        text = self.text[slice(*span)]
        types = split_types(text)
        if types is None:
            types, start, depth = [], 0, 0
            text = " ".join(COMMENT.sub(lambda m: "" if m[1] else m[0], text).split())
            for found in _COMMA.finditer(text):
                depth += (found[0] in "(<[{") - (found[0] in ")>]}")
                if found[0] == "," and not depth:
                    types.append(text[start : found.start()].strip())
                    start = found.end()
            types += [text[start:].strip()] if text[start:].strip() else []
        return [self.aliases.get(t, t) for t in types] if "!" in text else types

    @cached_property
    def aliases(self) -> dict[str, str]:
        """What the aliases of types stand for."""
        return {found[1]: found[2] for found in _ALIAS.finditer(self.text)}

    # --- segments ---------------------------------------------------------------------------------

    def _groups(self, op: _Op, operands: tuple[int, int]) -> list[list[tuple[int, int]]] | None:
        """Where the operands of each group stand, when the text says how they are grouped and no attribute does."""
        values = op.form.operands
        if values is None or not op.form.brackets or OPERAND_SEGMENTS in self._declared(op):
            return None
        groups: list[list[tuple[int, int]]] = [[]]
        inside = False
        for found in _GROUP.finditer(self.text, *operands):
            token = found[0]
            if token == "," and not inside:
                groups.append([])
            elif token in "[]":
                inside = token == "["
            elif found[1]:
                groups[-1].append(found.span())
        if len(groups) != len(values):
            names = ", ".join(f"[{v.name}…]" if v.arity == "variadic" else v.name for v in values)
            self._fail(
                op.start,
                f"'rlx.{op.name}' takes ({names}); got {len(groups)} of {len(values)}",
                "_ stands for an absent one",
            )
        return groups

    def _declared(self, op: _Op) -> set[str]:
        """Which segment sizes the attributes give."""
        if op.attributes is None or "SegmentSizes" not in self.text[slice(*op.attributes)]:
            return set()
        names, depth = set(), 0
        for found in _ENTRY.finditer(self.text, *op.attributes):
            if found[1] and depth == 1:
                names.add(found[1])
            depth += (found[0] in "({[") - (found[0] in ")}]")
        return names

    def _segments(self, op: _Op, groups: list[list[tuple[int, int]]] | None) -> str:
        """The attributes that say how operands and results are grouped, where the text does not give them."""
        form, declared, added = op.form, self._declared(op), []
        operands, results = self._type_lists(op)
        if form.operands is not None and OPERAND_SEGMENTS not in declared:
            if groups is None:
                sizes = self._run_sizes(op, operands, op.count)
            else:
                counts = [len(group) for group in groups]
                sizes = ", ".join(map(str, segments(form.operands, counts, self._list(operands))))
            added.append(f"{OPERAND_SEGMENTS} = array<i32: {sizes}>")
        if form.results and RESULT_SEGMENTS not in declared:
            added.append(f"{RESULT_SEGMENTS} = array<i32: {self._run_sizes(op, results, 1)}>")
        return ", ".join(added)

    def _run_sizes(self, op: _Op, span: tuple[int, int], count: int) -> str:
        """The sizes of a variadic group whose types are a list.

        Args:
            op: The op.
            span: Where the list stands.
            count: How often its type occurs when it is but one that all have.
        """
        sizes = run_sizes(self.text[slice(*span)])
        alone = op.types is not None and not op.types.functional and len(op.types.spans) == 1
        if sizes is None or (alone and count != 1):
            types = self._list(span)
            flat = runs(types * count if alone else types)
            if len(flat) > RUNS:
                self._fail(
                    span[0],
                    f"the types of 'rlx.{op.name}' change too often: at most {RUNS} runs of equal types are possible",
                )
            sizes = ", ".join(map(str, flat))
        return sizes

    def _type_lists(self, op: _Op) -> tuple[tuple[int, int], tuple[int, int]]:
        """Where the types of operands and results stand."""
        if op.types is None:
            return (op.end, op.end), (op.end, op.end)
        spans = op.types.spans
        if not op.types.functional:
            every = (spans[0][0], spans[-1][1])
            return every, every
        (start, end), results = spans
        inner = (results[0] + 1, results[1] - 1) if self.text.startswith("(", results[0]) else results
        return (start + 1, end - 1), inner

    # --- what is written --------------------------------------------------------------------------

    def _head(
        self,
        op: _Op,
        end: int,
        operands: tuple[int, int],
        written: bool,
        grouped: list[list[tuple[int, int]]] | None = None,
    ) -> None:
        """The name in quotes, and the operands in parentheses."""
        self._copy(op.start)
        self._insert(f'"rlx.{op.name}"', op.start)
        self.copied = end
        if not written:
            self._copy(operands[0])
            self._insert("(", operands[0])
            self._copy(operands[1])
            self._insert(")", operands[1])
        elif grouped is not None:
            start, stop = operands
            self._copy(start)
            for i, span in enumerate(value for group in grouped for value in group):
                self._insert(", " if i else "", span[0])
                self._move(span)
            self._skip(stop)

    def _skip(self, end: int) -> None:
        """Leave out the text up to here, but for line breaks."""
        self._insert("\n" * self.text.count("\n", self.copied, end), self.copied)
        self.copied = end

    def _tail(self, op: _Op, position: int) -> int:
        """Attributes and types, where they stand."""
        if op.added and op.attributes is not None:
            self._copy(op.attributes[0] + 1)
            self._insert(op.added + self._separator(op), op.attributes[0])
        elif op.added:
            self._copy(op.end)
            self._insert(f" {{{op.added}}}", op.start)
        if op.types is None:
            self._copy(position)
            self._insert(" : () -> ()", position)
        elif not op.types.functional:
            first, last = op.types.spans[0], op.types.spans[-1]
            self._copy(first[0])
            self._insert("(", first[0])
            if len(op.types.spans) == 1:
                self._repeat(first, op.count - op.form.ends)
            if not op.form.ends:
                self._insert(") -> ", first[0])
            elif op.count > 1 and first == last:
                self._insert(", ", first[0])
            self._copy(last[1])
            if op.form.ends:
                self._insert(") -> ()", last[1])
        return position

    def _separator(self, op: _Op) -> str:
        """What stands between added attributes and those that are there."""
        start, end = op.attributes or (0, 0)
        return "" if self._space(start + 1) == end - 1 else ", "

    def _repeat(self, span: tuple[int, int], count: int) -> None:
        """A type, so many times."""
        for i in range(count):
            self._insert(", " if i else "", span[0])
            self._move(span)

    def _region(self, op: _Op, position: int) -> tuple[int, int, int] | None:
        """Which region of an op begins here, where its keyword stands, and its brace."""
        names = op.form.regions
        start = self._space(position)
        if len(names) == 1:
            return (0, start, start) if self.text.startswith("{", start) else None
        found = _KEYWORD.match(self.text, start)
        if found is None or found[1] not in names[op.region :]:
            return None
        return names.index(found[1]), start, found.end() - 1

    def _regions(self, op: _Op, position: int) -> int:
        """The beginning of the first region: the generic form has regions between operands and attributes."""
        self._copy(op.end)
        found = self._region(op, position)
        if found is None:
            if self.text.startswith("{", start := self._space(position)):
                self._fail(start, f"expected '{op.form.regions[0]} {{', the name of the region of 'rlx.{op.name}'")
            self._insert(f" ({', '.join(['{}'] * len(op.form.regions))})", position)
            return self._tail(op, position)
        index, keyword, brace = found
        self._skip(position)
        self._insert(" (" + "{}, " * index, keyword)
        self.opened.append(op)
        return self._enter(op, index, keyword, brace)

    def _enter(self, op: _Op, index: int, keyword: int, brace: int) -> int:
        self._copy(keyword)
        self.copied = brace
        self._copy(brace + 1)
        op.region = index + 1
        return brace + 1

    def _closed(self, bracket: str, place: int) -> int:
        """Go on after a closing bracket."""
        top = self.opened[-1] if self.opened else ""
        if not isinstance(top, _Op):
            if top and _CLOSING[top] == bracket:
                self.opened.pop()
            return place + 1
        if bracket != "}":
            return place + 1  # MLIR says what is wrong
        self._copy(place + 1)
        position = place + 1
        found = self._region(top, position) if top.region < len(top.form.regions) else None
        if found is not None:
            index, keyword, brace = found
            self._insert(", " + "{}, " * (index - top.region), keyword)
            position = self._enter(top, index, keyword, brace)
        else:
            self.opened.pop()
            self._end(top, place)
        return self._quiet(position)

    def _end(self, op: _Op, place: int) -> None:
        """What the generic form has after the regions."""
        self._insert(", {}" * (len(op.form.regions) - op.region) + ")", place)
        if op.attributes is not None:
            start, end = op.attributes
            self._insert(f" {{{op.added}{self._separator(op) if op.added else ''}", start)
            self._move((start + 1, end))
        elif op.added:
            self._insert(f" {{{op.added}}}", op.start)
        assert op.types is not None
        spans = op.types.spans
        self._insert(" : ", spans[0][0])
        if op.types.functional:
            self._move(spans[0])
        else:
            self._insert("(", spans[0][0])
            self._repeat(spans[0], op.count)
            self._insert(")", spans[0][0])
        self._insert(" -> ", spans[-1][0])
        self._move(spans[-1])
