"""`einsum`: a sum of products in Einstein notation, as a chain of `dot_general`s."""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rlx.functions.shape.make import diagonal
from rlx.ir.dims.dim import Dim
from rlx.ir.graph.builder import Builder, Tensor
from rlx.ir.graph.typing import TensorLike
from rlx.ops.lift import common
from rlx.ops.surface import helper
from rlx.support.errors import ShapeError

# The size assumed for a symbolic axis when the order of the products is chosen.
_TYPICAL = 64


class _Term:
    """A tensor with one label per axis. Labels are unique."""

    def __init__(self, x: Tensor, labels: str):
        self.x, self.labels = x, labels


@helper
def einsum(b: Builder, subscripts: str | Tensor, *operands: TensorLike) -> Tensor:
    """NumPy's `einsum`: `einsum("bij,bjk->bik", x, y)` is a batched matrix product.

    A label that two operands share and the result lacks is summed over. A label that occurs twice in an operand selects
    its diagonal. `...` represents axes that broadcast. The order of the products is determined by `numpy.einsum_path`.

    Args:
        b: The builder.
        subscripts: The labels of each operand's axes, then `->` and the labels of the result. Without `->`, the result
            has all labels that occur once, in alphabetical order. Or, as in NumPy, the first operand; each operand is
            then followed by a list of integers.
        operands: Tensors, which promote to one dtype.

    Raises:
        ShapeError: The labels do not fit the operands, or one label has two sizes.
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _from_lists((subscripts, *operands))
    tensors = common(b, *operands) if operands else []
    inputs, result = _parsed(subscripts, tensors)
    sizes = _sizes(inputs, tensors)
    for label in result:
        if label not in sizes:
            raise ShapeError(f"label '{_shown(label)}' of the result is that of no operand: '{subscripts}'")
    terms = [_term(b, x, labels, sizes) for x, labels in zip(tensors, inputs, strict=True)]
    for chosen in _order(terms, result, sizes):
        taken = [terms.pop(place) for place in sorted(chosen, reverse=True)]
        needed = set(result).union(*(t.labels for t in terms))
        joined = taken.pop()
        while taken:
            following = taken.pop()
            joined = _product(b, joined, following, needed.union(*(t.labels for t in taken)))
        terms.append(joined)
    (last,) = terms
    last = _summed(b, last, set(result))
    return b.transpose(last.x, [last.labels.index(label) for label in result])


def _from_lists(arguments: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """Convert NumPy's other form: operand, list of integers, operand, list, …, and optionally the list of the result."""
    *pairs, last = arguments if len(arguments) % 2 else (*arguments, None)
    operands, lists = pairs[::2], [*pairs[1::2], *([] if last is None else [last])]

    def text(labels: Iterable[Any]) -> str:
        try:
            if isinstance(labels, Tensor):  # iteration over a tensor would yield slices
                raise TypeError
            return "".join("..." if i is Ellipsis else string.ascii_letters[i] for i in labels)
        except (TypeError, IndexError):
            raise ShapeError(f"expected subscripts, as 'ij,jk->ik', or lists of integers, not {labels!r:.60}") from None

    texts = [text(labels) for labels in lists]
    return ",".join(texts[: len(operands)]) + ("" if last is None else f"->{texts[-1]}"), tuple(operands)


def _parsed(subscripts: str, tensors: Sequence[Tensor]) -> tuple[list[str], str]:
    """Return the labels of the operands and of the result, with unique labels for the axes that `...` represents."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if set(text.replace("->", "").replace("...", "").replace(",", "")) - set(string.ascii_letters) or "," in right:
        raise ShapeError(f"subscripts are letters, ',', '->' and '...', not '{subscripts}'")
    if len(inputs) != len(tensors):
        raise ShapeError(f"'{subscripts}' has labels for {len(inputs)} operands, and {len(tensors)} were given")
    spread = [
        x.rank - len(labels.replace("...", "")) if "..." in labels else 0
        for labels, x in zip(inputs, tensors, strict=True)
    ]
    for labels, x, count in zip(inputs, tensors, spread, strict=True):
        if count < 0 or (("..." not in labels) and len(labels) != x.rank) or labels.count("...") > 1:
            raise ShapeError(f"the labels '{labels}' do not fit {x.shape}")
    ellipsis = "".join(chr(0x100 + i) for i in range(max(spread, default=0)))  # not letters that a user can write
    inputs = [t.replace("...", ellipsis[len(ellipsis) - n :]) for t, n in zip(inputs, spread, strict=True)]
    if arrow:
        if len(set(right)) != len(right) - 2 * right.count("..."):
            raise ShapeError(f"a label occurs twice in the result of '{subscripts}'")
        return inputs, right.replace("...", ellipsis)
    occurring = "".join(inputs)
    once = sorted(label for label in set(occurring) - set(ellipsis) if occurring.count(label) == 1)
    return inputs, ellipsis + "".join(once)


def _shown(label: str) -> str:
    return label if label in string.ascii_letters else "..."


def _sizes(inputs: Sequence[str], tensors: Sequence[Tensor]) -> dict[str, Dim]:
    """Return the size of each label; size 1 broadcasts."""
    sizes: dict[str, Dim] = {}
    for labels, x in zip(inputs, tensors, strict=True):
        for label, size in zip(labels, x.shape.dims, strict=True):
            known = sizes.setdefault(label, size)
            if known == 1:
                sizes[label] = size
            elif size not in (1, known):
                raise ShapeError(f"label '{_shown(label)}' has size {known} and, in {x.shape}, {size}")
    return sizes


def _term(b: Builder, x: Tensor, labels: str, sizes: dict[str, Dim]) -> _Term:
    """Return an operand without its broadcast axes and with diagonals taken."""
    kept = [i for i, label in enumerate(labels) if x.shape.dims[i] == sizes[label]]
    if len(kept) < x.rank:
        x = b.reshape(x, [x.shape.dims[i] for i in kept])
        labels = "".join(labels[i] for i in kept)
    while len(set(labels)) < len(labels):
        twice = next(label for label in labels if labels.count(label) > 1)
        first, second = labels.index(twice), labels.rindex(twice)
        x = diagonal(b, x, 0, first, second)
        labels = "".join(v for i, v in enumerate(labels) if i not in (first, second)) + twice
    return _Term(x, labels)


def _order(terms: Sequence[_Term], result: str, sizes: dict[str, Dim]) -> list[tuple[int, ...]]:
    """Return the terms to multiply at each step. Each product is appended as the last term."""
    if len(terms) < 3:
        return [tuple(range(len(terms)))]
    letters = dict(zip(sizes, string.ascii_letters, strict=False))
    if len(letters) < len(sizes):
        return [tuple(range(len(terms)))]
    known = {label: size if type(size) is int else _TYPICAL for label, size in sizes.items()}
    shapes = [np.broadcast_to(np.float32(0), [known[label] for label in t.labels]) for t in terms]
    texts = ["".join(letters[label] for label in t.labels) for t in terms]
    present = "".join(letters[label] for label in result if any(label in t.labels for t in terms))
    path, _ = np.einsum_path(f"{','.join(texts)}->{present}", *shapes, optimize="greedy")
    return [tuple(step) for step in path[1:]]


def _summed(b: Builder, term: _Term, needed: set[str]) -> _Term:
    """Sum a term over all labels except the needed ones."""
    axes = [i for i, label in enumerate(term.labels) if label not in needed]
    if not axes:
        return term
    return _Term(b.sum(term.x, axes), "".join(label for label in term.labels if label in needed))


def _product(b: Builder, left: _Term, right: _Term, needed: set[str]) -> _Term:
    """Return the product of two terms, summed over the shared labels that are not needed later."""
    left = _summed(b, left, needed | set(right.labels))
    right = _summed(b, right, needed | set(left.labels))
    shared = [label for label in left.labels if label in right.labels]
    batch = [label for label in shared if label in needed]
    contracted = [label for label in shared if label not in needed]
    if not contracted:
        return _elementwise(b, left, right, batch)
    axes = [[t.labels.index(label) for label in group] for group in (contracted, batch) for t in (left, right)]
    labels = batch + [v for t in (left, right) for v in t.labels if v not in shared]
    return _Term(b.dot_general(left.x, right.x, *axes), "".join(labels))


def _elementwise(b: Builder, left: _Term, right: _Term, batch: Sequence[str]) -> _Term:
    """Return the product of two terms that share no summed label."""
    labels = "".join([*batch, *(v for t in (left, right) for v in t.labels if v not in batch)])
    sides: list[Tensor] = []
    for term in (left, right):
        x = b.transpose(term.x, [term.labels.index(label) for label in labels if label in term.labels])
        dims = iter(x.shape.dims)
        sides.append(b.reshape(x, [next(dims) if label in term.labels else 1 for label in labels]))
    return _Term(b.mul(*sides), labels)
