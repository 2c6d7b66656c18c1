"""Remedies for imports that fail for open sizes: sizes and constants that make the import succeed.

They are found by trial: each attempt imports the model with one more size or constant. An attempt that ends later in the model
than the one before is kept.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.importers.onnx.inputs import OpenSizes, integer_inputs
from rlx.importers.onnx.reading import UNVERIFIED, OnnxModel
from rlx.ir.dims import dim
from rlx.support.errors import Error

_SECONDS, _ATTEMPTS, _STEPS = 4.0, 150, 6
LONGEST_IMPORT = 2.0  # after a longer import no remedy is sought
_FACTORS = (32, 64, 256, 8)
_COMMON = (64, 48, 32, 16, 128, 224, 256, 320, 512, 576, 640, 1024, 8, 4, 2, 1)
_NUMBER = re.compile(r"(?<![\w.])\d{1,6}(?![\w.])")
_COMPARISONS = ("Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual")
_LARGEST, _SUMMANDS = 1 << 14, 5
_UNUSUAL = 9973  # a prime number
_SMALL = (16, 8, 4, 2, 1)  # lengths of loops, which are unrolled
_LETTERS = ("n", "m", "k", "p", "q")  # symbols of multiples

Build = Callable[[OpenSizes, Mapping[str, Any]], Any]
Sizes = Mapping[str, int | str]


@dataclass(frozen=True)
class Remedy:
    """Arguments of `from_onnx` that make the import of a model succeed.

    Attributes:
        sizes: The sizes.
        constants: The constants.
        bindable: The inputs whose values commands take.
    """

    sizes: Mapping[str, int | str]
    constants: Mapping[str, Any]
    bindable: Collection[str] = ()

    @property
    def call(self) -> str:
        """The call of `from_onnx`."""
        constants = {n: v.tolist() if isinstance(v, (np.ndarray, np.generic)) else v for n, v in self.constants.items()}
        given = [f"{n}={dict(v)!r}" for n, v in (("sizes", self.sizes), ("constants", constants)) if v]
        return f"rlx.from_onnx(path, {', '.join(given)})"

    @property
    def flags(self) -> str:
        """The flags of commands; empty if they do not take one of the constants."""
        if not set(self.bindable).issuperset(self.constants):
            return ""
        flat = {n: ",".join(map(str, np.ravel(v).tolist())) for n, v in self.constants.items()}
        words = [f"{name}={value}" for part in (self.sizes, flat) for name, value in part.items()]
        return " ".join(f"--bind='{w}'" if re.search(r"[^\w=.,:/-]", w) else f"--bind={w}" for w in words)


@dataclass(frozen=True)
class _FailedImport:
    """An import that failed.

    Attributes:
        problem: The error.
        sizes: The sizes of the model, as that import had them.
    """

    problem: Error
    sizes: OpenSizes


def switches(model: OnnxModel) -> dict[str, list[Any]]:
    """Return the inputs of one integer or bool that the model compares with constants, with values that they can have."""
    graph, result = model.message.graph, dict[str, list[Any]]()
    known = {t.name: t for t in graph.initializer}
    known |= {n.output[0]: a.t for n in graph.node if n.op_type == "Constant" for a in n.attribute if a.name == "value"}
    for name, (kind, shape) in integer_inputs(model, most=1).items():
        values: list[Any] = [True, False] if kind == "bool" else []
        for node in graph.node:
            if node.op_type in _COMPARISONS and name in node.input:
                for other in (known[i] for i in node.input if i in known):
                    array = model.onnx.numpy_helper.to_array(other)
                    values += [v for v in array.reshape(-1)[:1].tolist() if v not in values]
        if values:
            result[name] = [[v] if shape else v for v in values]
    return result


def find_remedy(
    model: OnnxModel,
    build: Build,
    failed: Error,
    opened: OpenSizes,
    constants: Mapping[str, Any],
    seconds: float = _SECONDS,
) -> Remedy | None:
    """Return sizes and constants with which the import succeeds; None if none are found.

    Args:
        model: The model.
        build: Imports the model with sizes and constants, or raises an error.
        failed: The error of the import without them.
        opened: Its sizes.
        constants: Its constants.
        seconds: The time of this thread after which no attempt starts.
    """
    search = _RemedySearch(model, build, time.thread_time() + seconds)
    given, held, failure = dict(opened.given), dict(constants), _FailedImport(failed, opened)
    for name, values in switches(model).items():
        for value in values if name not in held else ():
            after = search.attempt(given, {**held, name: value})
            if after is None:
                return search.smallest(opened.given, given, {**held, name: value}, constants)
            if after.sizes.reached >= failure.sizes.reached:
                held[name], failure = value, after
                break
    for _ in range(_STEPS):
        for candidate in _candidates(failure):
            after = search.attempt({**given, **candidate}, held)
            if after is None:
                return search.smallest(opened.given, {**given, **candidate}, held, constants)
            if _is_later(after, failure, candidate):
                given, failure = {**given, **candidate}, after
                break
            if search.is_over:
                return None
        else:
            return None
    return None


def fails_for_all_sizes(
    model: OnnxModel, build: Build, failed: Error, opened: OpenSizes, constants: Mapping[str, Any]
) -> bool:
    """Return whether an import fails in the same way with a size that no model has, so that sizes are not the reason.

    Args:
        model: The model.
        build: Imports the model with sizes and constants, or raises an error.
        failed: The error of the import without sizes.
        opened: Its sizes.
        constants: Its constants.
    """
    given = opened.given | dict.fromkeys(opened.open, _UNUSUAL)
    after = _RemedySearch(model, build, 0.0).attempt(given, constants)
    if after is None:
        return False
    symbols = {symbol for value in opened.found.values() for symbol in dim.symbols(value)}
    pattern = "|".join(rf"\b{re.escape(symbol)}\b" for symbol in symbols) or "(?!)"
    return re.sub(pattern, str(_UNUSUAL), failed.message) == after.problem.message


class _RemedySearch:
    """The attempts of a search."""

    def __init__(self, model: OnnxModel, build: Build, end: float):
        self.model, self.build, self.end, self.count = model, build, end, 0
        self.longest = 0.0  # the seconds of the longest attempt

    @property
    def is_over(self) -> bool:
        """Whether no further attempt may start."""
        return self.count >= _ATTEMPTS or time.thread_time() + self.longest > self.end

    def attempt(self, given: Sizes, constants: Mapping[str, Any]) -> _FailedImport | None:
        """Return the failure of an import; None if it succeeds."""
        self.count += 1
        sizes, start = OpenSizes(self.model, given), time.thread_time()
        try:
            self.build(sizes, constants)
        except Error as problem:
            return _FailedImport(problem, sizes)
        except UNVERIFIED as problem:
            return _FailedImport(Error(str(problem)), sizes)
        finally:
            self.longest = max(self.longest, time.thread_time() - start)
        return None

    def smallest(self, before: Sizes, given: Sizes, held: Mapping[str, Any], constants: Mapping[str, Any]) -> Remedy:
        """Return a remedy without the sizes and constants that it does not need."""
        for name in [n for n in given if n not in before]:
            fewer = {n: v for n, v in given.items() if n != name}
            if not self.is_over and self.attempt(fewer, held) is None:
                given = fewer
        for name in [n for n in held if n not in constants]:
            fewer = {n: v for n, v in held.items() if n != name}
            if not self.is_over and self.attempt(given, fewer) is None:
                held = fewer
        return Remedy(given, held, tuple(integer_inputs(self.model)))


def _is_later(after: _FailedImport, before: _FailedImport, candidate: Sizes) -> bool:
    """Return whether an import came further: to a later node or, for equal sizes, to another size of the same node."""
    if after.sizes.reached != before.sizes.reached:
        return after.sizes.reached > before.sizes.reached
    is_equality = all(isinstance(value, str) and value.isidentifier() for value in candidate.values())
    return is_equality and bool(set(_named(after)) - set(_named(before)))


def _named(failure: _FailedImport) -> list[str]:
    """Return the sizes without a value whose symbols are in a message."""
    message, sizes = failure.problem.message, failure.sizes
    free = {name: dim.symbols(sizes.found[name]) for name in sizes.open if name not in sizes.given}
    return [name for name, own in free.items() if any(re.search(rf"\b{re.escape(s)}\b", message) for s in own)]


def _candidates(failure: _FailedImport) -> Iterator[Sizes]:
    """Yield values for sizes. Those in the message are tried first, and sizes of axis 0 last.

    They are multiples and equalities with other sizes, which leave sizes open, and then numbers. Messages without a size are
    those of values that depend on sizes: only numbers help.
    """
    message, sizes = failure.problem.message, failure.sizes
    symbols = {name: dim.symbols(value) for name, value in sizes.found.items() if name in sizes.open}
    free = {name: own for name, own in symbols.items() if name not in sizes.given}
    named = _named(failure)
    chosen = sorted(named or free, key=lambda name: name in sizes.first_axes)
    inner = [name for name in chosen if name not in sizes.first_axes] or chosen
    equal = [
        {one: next(iter(own))}
        for one in chosen
        for other, own in symbols.items()
        if other != one and len(own) == 1 and other not in inner[1:]
    ]
    multiples = [_multiples(sizes, inner, factor) for factor in _FACTORS]
    if not named:
        yield from (dict.fromkeys(chosen, number) for number in _SMALL)
    elif "//" in message:  # sizes after windows or strides
        yield from (*multiples[:1], *_single(inner, _numbers(message)), *multiples[1:], *equal)
    else:
        yield from (*equal, *multiples)
    numbers = list(dict.fromkeys([*_numbers(message), *_COMMON]))
    yield from _single(inner, numbers)
    yield from (dict.fromkeys(chosen, number) for number in numbers)


def _multiples(sizes: OpenSizes, names: list[str], factor: int) -> Sizes:
    """Return sizes that are multiples of a factor, with symbols that the model does not have."""
    taken = {s for value in sizes.found.values() for s in dim.symbols(value)} | set(sizes.names)
    letters = [n for n in (*_LETTERS, *(f"n{i}" for i in range(len(names)))) if n not in taken]
    return {name: f"{factor}*{letter}" for name, letter in zip(names, letters, strict=False)}


def _single(names: list[str], numbers: list[int]) -> Iterator[Sizes]:
    """Yield each number for each of the sizes, and for all of them."""
    for number in numbers:
        if len(names) > 1:
            yield from ({name: number} for name in names)
        yield dict.fromkeys(names, number)


def _numbers(message: str) -> list[int]:
    """Return the numbers of a message that can be sizes, the largest first, and then sums of two of them.

    A window of 70 with a step of 50 has the expression `(size - 20) // 50`.
    """
    found = sorted({int(text) for text in _NUMBER.findall(message) if 1 < int(text) <= _LARGEST}, reverse=True)
    sums = [a + b for i, a in enumerate(found[:_SUMMANDS]) for b in found[i + 1 : _SUMMANDS]]
    return [*found, *sums]
