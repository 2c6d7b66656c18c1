"""Differences between two listings of one graph: removed ops, added ops, and changed operands.

Values are renumbered in each listing, so lines cannot be compared as text. Ops are matched by their content and the ops
before them, starting from unambiguous matches.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from rlx.ir.calls import with_call_errors
from rlx.ir.graph.listing import GraphReport, OpReport
from rlx.support.cached_property import cached_property
from rlx.support.printable import printable
from rlx.support.short import report_repr

_ROUNDS = 3  # levels of preceding ops that distinguish an op from similar ones
_COMPARED = 250_000  # maximum pairs of ops without an unambiguous match for which the best match is searched
CONTEXT = 2


@dataclass(frozen=True)
class DiffLine:
    """A line of a diff.

    Attributes:
        sign: `"-"`: only before. `"+"`: only after. `" "`: in both. `"…"`: common lines are omitted here.
        text: The op, with the numbers of its listing, or the number of omitted lines.
    """

    sign: str
    text: str

    def __str__(self) -> str:
        return f"{self.sign} {printable(self.text, keep='')}"


@dataclass(frozen=True)
class ListingDiff:
    """The difference of two listings of one graph. `str()` has the changed lines with some context.

    Attributes:
        before: One listing.
        after: The other one.
    """

    before: GraphReport
    after: GraphReport

    @cached_property
    def lines(self) -> tuple[DiffLine, ...]:
        """The ops of both listings, in order."""
        return tuple(_lines(self.before, self.after))

    def changes(self) -> str:
        """Return the ops whose number changed, on one line."""
        old, new = self.before.histogram, self.after.histogram
        parts = [f"-{n} {name}" for name, n in (old - new).items()] + [
            f"+{n} {name}" for name, n in (new - old).items()
        ]
        return ", ".join(parts) or "the same ops"

    def summary(self) -> str:
        """Return the changes with the stages."""
        return f"{self.before.stage} to {self.after.stage}: {self.changes()}"

    @property
    def removed(self) -> int:
        """The number of removed or changed ops."""
        return sum(line.sign == "-" for line in self.lines)

    @property
    def added(self) -> int:
        """The number of added or changed ops."""
        return sum(line.sign == "+" for line in self.lines)

    def counts(self) -> str:
        """Return the numbers of removed and added ops in words."""
        return f"{self.removed} ops went, {self.added} came"

    def hunks(self, context: int = CONTEXT) -> list[DiffLine]:
        """Return the changed lines with `context` lines around them. Each gap is one line with the sign `…`."""
        changed = [i for i, line in enumerate(self.lines) if line.sign != " "]
        shown: list[DiffLine] = []
        end = 0
        for i in changed:
            start = max(end, i - context)
            shown += [DiffLine("…", f"{start - end} ops")] if start > end else []
            end = max(end, min(i + context + 1, len(self.lines)))
            shown += self.lines[start:end]
        rest = len(self.lines) - end
        return [*shown, DiffLine("…", f"{rest} ops")] if changed and rest else shown

    def __repr__(self) -> str:
        return report_repr(self, self.summary())

    def __str__(self) -> str:
        return "".join(f"{line}\n" for line in self.hunks())


@with_call_errors
def inspect_diff(before: GraphReport, after: GraphReport) -> ListingDiff:
    """Return the differences between two listings of one graph, such as those of two stages."""
    return ListingDiff(before, after)


def _lines(before: GraphReport, after: GraphReport) -> Iterator[DiffLine]:
    olds, news = before.ops, after.ops
    pairs = sorted(_Matching(olds, news).pairs())
    renamed = {a.name: a.name for a in after.arguments}
    i = j = 0
    for old, new in [*pairs, (len(olds), len(news))]:
        yield from (DiffLine("-", _changed_text(op)) for op in olds[i:old])
        yield from (DiffLine("+", _changed_text(op)) for op in news[j:new])
        if old < len(olds):
            yield from _both(olds[old], news[new], renamed)
            renamed.update(zip(olds[old].results, news[new].results, strict=True))
        i, j = old + 1, new + 1


def _both(old: OpReport, new: OpReport, renamed: dict[str, str]) -> Iterator[DiffLine]:
    """Yield the lines of an op that is in both listings. It has changed if an operand is another value than before."""
    pairs = zip(old.operands, new.operands, strict=True)
    if all(renamed.get(before, after) == after for before, after in pairs):
        yield DiffLine(" ", str(new))
    else:
        yield DiffLine("-", str(old))
        yield DiffLine("+", str(new))


def _changed_text(op: OpReport) -> str:
    """Return the text of an op that one listing has. Constants that differ only in values have one text, but two hashes."""
    return f"{op}, values {op.content_hash}" if op.content_hash else str(op)


class _Matching:
    """Matches the ops of two listings."""

    def __init__(self, olds: Sequence[OpReport], news: Sequence[OpReport]):
        self._levels = [(_keys(olds, rounds), _keys(news, rounds)) for rounds in (_ROUNDS, 0)]

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield the positions of matching ops in both listings."""
        pending: list[tuple[tuple[int, int, int, int], int]] = []
        pending.append(((0, len(self._levels[0][0]), 0, len(self._levels[0][1])), 0))
        while pending:
            (i, i_end, j, j_end), level = pending.pop()
            olds, news = self._levels[level]
            while i < i_end and j < j_end and olds[i] == news[j]:
                yield i, j
                i, j = i + 1, j + 1
            while i < i_end and j < j_end and olds[i_end - 1] == news[j_end - 1]:
                i_end, j_end = i_end - 1, j_end - 1
                yield i_end, j_end
            if i == i_end or j == j_end:
                continue
            anchors = _anchors(olds[i:i_end], news[j:j_end])
            if anchors:
                start_i, start_j = i, j
                for old, new in anchors:
                    pending.append(((i, start_i + old, j, start_j + new), level))
                    yield start_i + old, start_j + new
                    i, j = start_i + old + 1, start_j + new + 1
                pending.append(((i, i_end, j, j_end), level))
            elif level + 1 < len(self._levels):
                pending.append(((i, i_end, j, j_end), level + 1))
            elif (i_end - i) * (j_end - j) <= _COMPARED:
                matcher = SequenceMatcher(None, olds[i:i_end], news[j:j_end], autojunk=False)
                for block in matcher.get_matching_blocks():
                    yield from ((i + block.a + k, j + block.b + k) for k in range(block.size))


def _keys(ops: Sequence[OpReport], rounds: int) -> list[Hashable]:
    """Return keys that identify each op and its producers, `rounds` levels back. Names of arguments count."""
    plain = [(op.depth, op.body, op.content_hash, op.location, len(op.operands), len(op.results)) for op in ops]
    keys: list[Hashable] = list(plain)
    for _ in range(rounds):
        made_by = {name: (i, keys[k]) for k, op in enumerate(ops) for i, name in enumerate(op.results)}
        reads = [tuple(made_by.get(n, "" if n.startswith("%") else n) for n in op.operands) for op in ops]
        keys = [hash((is_, read)) for is_, read in zip(plain, reads, strict=True)]
    return keys


def _anchors(olds: Sequence[Hashable], news: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the positions of keys that occur once in both listings: the longest increasing subsequence of these pairs."""
    once_before, once_after = Counter(olds), Counter(news)
    place = {key: j for j, key in enumerate(news) if once_after[key] == 1}
    common = [(i, place[key]) for i, key in enumerate(olds) if once_before[key] == 1 and key in place]
    ends: list[int] = []  # for each length, the smallest last position of a subsequence
    last: list[int] = []  # its index in `common`
    previous: list[int] = []
    for index, (_, j) in enumerate(common):
        length = bisect_left(ends, j)
        previous.append(last[length - 1] if length else -1)
        ends[length : length + 1], last[length : length + 1] = [j], [index]
    series: list[tuple[int, int]] = []
    index = last[-1] if last else -1
    while index >= 0:
        series.append(common[index])
        index = previous[index]
    return series[::-1]
