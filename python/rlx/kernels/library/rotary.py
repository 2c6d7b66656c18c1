"""The kernel of rotary position embeddings: all heads of a token are rotated by its row of the tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.ir.dtype import f32
from rlx.kernels.buffer import Buffer, Lanes, greatest
from rlx.kernels.case import KernelCase
from rlx.kernels.kernel import Kernel
from rlx.kernels.registry import kernel
from rlx.kernels.values import Value

_ELEMENTS = 16384  # of a workgroup


def _takes(case: KernelCase) -> bool:
    """Whether heads are adjacent in a row, and pairs of lanes fill vectors."""
    attributes, lanes = case.attributes, case.cpu.lanes(f32)
    head_dim, pairs = attributes["head_dim"], attributes["n_rot"] // 2
    is_whole = pairs > 0 and pairs % lanes == 0 and head_dim % lanes == 0
    return case.tensors[0].rank == 3 and case.are_all("f32") and is_whole


@kernel("rope", name="rotary", takes=_takes)
def rotary(k: Kernel, x: Buffer, cos: Buffer, sin: Buffer, y: Buffer, *, head_dim: int, n_rot: int, style: str) -> None:
    """Rotate pairs of lanes of each head; the other lanes are unchanged."""
    rows, result, lanes = x.rows(), y.rows(), k.cpu.lanes(f32)
    length, width, pairs = x.shape[1], x.shape[2], n_rot // 2
    assert isinstance(width, int)
    tables = (cos.rows(), sin.rows())
    for row in k.parallel(rows.shape[0], greatest(1, _ELEMENTS // width)):
        # Tables [S, N] are the same for all entries of the batch.
        own = row if cos.rank == 3 else row % length
        for pair in k.range(0, pairs, lanes):
            cosine, sine = (table[own, k.at(pair)] for table in tables)
            for head in k.range(0, width, head_dim):
                places = _places(k, head, pair, pairs, style)
                first, second = _pairs([rows[row, place] for place in places], style)
                rotated = (first * cosine - second * sine, second * cosine + first * sine)
                for place, value in zip(places, _joined(rotated, style), strict=True):
                    result[row, place] = value
        if n_rot < head_dim:
            for head in k.range(0, width, head_dim):
                for lane in k.range(n_rot, head_dim, lanes):
                    result[row, k.at(head + lane)] = rows[row, k.at(head + lane)]


def _places(k: Kernel, head: Value, pair: Value, pairs: int, style: str) -> list[Lanes]:
    """Return the places of two vectors with the pairs."""
    lanes = k.cpu.lanes(f32)
    starts = (head + pair, head + pair + pairs) if style == "neox" else (head + 2 * pair, head + 2 * pair + lanes)
    return [k.at(start) for start in starts]


def _pairs(vectors: Sequence[Value], style: str) -> tuple[Value, Value]:
    """Return the first and the second elements of the pairs in two vectors."""
    first, second = vectors
    if style == "neox":
        return first, second
    count: Any = first.lanes
    return first.shuffle(second, range(0, 2 * count, 2)), first.shuffle(second, range(1, 2 * count, 2))


def _joined(rotated: tuple[Value, Value], style: str) -> tuple[Value, Value]:
    """Return two vectors with pairs as they are stored."""
    first, second = rotated
    if style == "neox":
        return rotated
    count: Any = first.lanes
    order = [i for pair in zip(range(count), range(count, 2 * count), strict=True) for i in pair]
    return first.shuffle(second, order[:count]), first.shuffle(second, order[count:])
