"""Examples of ops on the pages of the site: a call, the op as text, and the numbers of a run.

They are made from the samples of the ops' cards, which the conformance tests use, and evaluated when the site is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from zlib import crc32

import numpy as np

import rlx
from rlx.ir.dims.dim import dim, evaluate, symbols
from rlx.ir.op import registry
from rlx.ir.op.card import Card, OpSample, SampleOperand, as_results
from rlx.ir.shape import Shape
from rlx.ops import surface

_SIZE = 3  # of symbols in samples
_MOST, _LONGEST, _FEWEST = 40, 1_500, 12  # elements of a value that is printed, characters and elements of an example


@dataclass(frozen=True)
class OpExample:
    """A use of an op.

    Attributes:
        python: The code that makes a graph of it; empty if the method of the op takes other arguments than the op.
        mlir: The op as text.
        values: The inputs and results of a run, by name.
    """

    python: str
    mlir: str
    values: tuple[tuple[str, np.ndarray], ...]

    def markdown(self, *, python: bool) -> str:
        """Return the example as Markdown.

        Args:
            python: Show the code of the graph, else the op as text.
        """
        code = f"```python\n{self.python}\n```" if python and self.python else f"```text\n{self.mlir}\n```"
        shown = [f"{name} = {_text(value, len(name) + 3)}" for name, value in self.values if value.size <= _MOST]
        shown += [f"{name}: {value.dtype}{list(value.shape)}" for name, value in self.values if value.size > _MOST]
        return f"Example:\n\n{code}\n\n```text\n" + "\n".join(shown) + "\n```\n"


def example_of(method: str) -> OpExample | None:
    """Return the example of a method of graphs; None if it is not the method of an op or of one kind of an op."""
    return _examples().get(method)


@cache
def _examples() -> dict[str, OpExample]:
    registry.load()
    found: dict[str, OpExample] = {}
    for name, card in registry.registered().items():
        if card.spec.custom or card.spec.terminator:
            continue
        if (example := _best(card, surface.method_name(name), None)) is not None:
            found[surface.method_name(name)] = example
        for method, kind in surface.kinds().get(name, {}).items():
            if (example := _best(card, method, kind)) is not None:
                found[method] = example
    return found


def _best(card: Card, method: str, kind: str | None) -> OpExample | None:
    """Return the best sample as an example, of those of a kind."""
    made: list[OpExample] = []
    for sample in card.samples():
        if kind is None or str(sample.attributes.get("kind")) == kind:
            try:
                example = _made(card, sample, method, kind)
            except rlx.Error:  # sizes that the op does not take
                continue
            made.append(example)
    return min(made, key=_rank, default=None)


def _rank(example: OpExample) -> tuple[bool, bool, bool, int]:
    """Return the key by which the best example is the first one: short, with code, with enough numbers, and small."""
    size = sum(value.size for _, value in example.values)
    empty = any(value.size == 0 for _, value in example.values)
    return empty, len(example.markdown(python=True)) > _LONGEST or size < _FEWEST, not example.python, size


def _made(card: Card, sample: OpSample, method: str, kind: str | None) -> OpExample:
    names = _operand_names(card, sample)
    operands = [
        o for entry in sample.operands for o in (entry if isinstance(entry, list) else [entry]) if o is not None
    ]
    dtype = rlx.dtype((sample.dtypes or _accepted(card))[0])
    shapes = [Shape([_bound(d) for d in o.dims], o.dtype_in(dtype)) for o in operands]
    sizes = {a.name for a in card.spec.attributes if a.kind == "dims"}
    attributes = {
        name: tuple(map(_bound, value)) if name in sizes and value is not None else value
        for name, value in sample.attributes.items()
    }
    graph = rlx.Graph("example", stage=card.spec.stage)
    inputs = [graph.input(name, shape) for name, shape in zip(names, shapes, strict=True)]
    if sample.build is None:
        results = graph.emit(card.name, _grouped(sample, inputs), **attributes)
    else:
        results = sample.build(graph, *inputs, **attributes)
    outputs = list(as_results(results))
    graph.set_outputs({f"result{i or ''}": output for i, output in enumerate(outputs)})
    random = np.random.default_rng(crc32(method.encode()))
    values = {n: _drawn(random, o, s) for n, o, s in zip(names, operands, shapes, strict=True)}
    computed = rlx.evaluate(graph, values)
    shown = [*values.items(), *zip((o.name for o in graph.outputs), computed, strict=True)]
    calls = [] if sample.build is not None else _calls(method, kind, card, sample, attributes)
    written = (_python(names, shapes, call, len(outputs)) for call in calls)
    python = next((code for code in written if _gives(code, values, computed)), "")
    return OpExample(python, _op_text(graph), tuple(shown))


def _operand_names(card: Card, sample: OpSample) -> list[str]:
    """Return a name for each present operand."""
    names: list[str] = []
    for i, entry in enumerate(sample.operands):
        name = card.spec.operands[min(i, len(card.spec.operands) - 1)].name if card.spec.operands else f"x{i}"
        names += [f"{name}{j}" for j in range(len(entry))] if isinstance(entry, list) else [name] if entry else []
    # `g` is the graph in the code of examples.
    return [name if names.count(name) == 1 and name != "g" else f"{name}{i}" for i, name in enumerate(names)]


def _grouped(sample: OpSample, inputs: Sequence[Any]) -> list[Any]:
    remaining = iter(inputs)
    return [
        [next(remaining) for _ in entry] if isinstance(entry, list) else None if entry is None else next(remaining)
        for entry in sample.operands
    ]


def _calls(method: str, kind: str | None, card: Card, sample: OpSample, attributes: Mapping[str, Any]) -> Iterator[str]:
    """Yield spellings of the call: methods may take operands as a list, or have other defaults than the op."""
    names = iter(_operand_names(card, sample))
    words: list[str] = []
    absent = False
    for spec, entry in zip(card.spec.operands, sample.operands, strict=False):
        if entry is None:
            absent = True
        elif isinstance(entry, list):
            words.append(f"[{', '.join(next(names) for _ in entry)}]")
        else:
            name = next(names)
            words.append(f"{spec.name}={name}" if absent else name)
    given = {n: v for n, v in attributes.items() if v is not None and not (kind and n == "kind")}
    telling = {n: v for n, v in given.items() if not (isinstance(v, tuple) and v and set(v) in ({0}, {1}))}
    for operands in (words, [f"[{', '.join(words)}]"]):
        for chosen in (given, telling):
            options = [f"{n}={_literal(v)}" for n, v in chosen.items()]
            yield f"g.{method}({', '.join([*operands, *options])})"


def _python(names: Sequence[str], shapes: Sequence[Shape], call: str, count: int) -> str:
    """Return code that makes a graph."""
    lines = ['g = rlx.Graph("example")']
    for name, shape in zip(names, shapes, strict=True):
        dtype = "" if shape.dtype is rlx.f32 else f', "{shape.dtype.name}"'
        lines.append(f'{name} = g.input("{name}", {tuple(shape.static)}{dtype})')
    return "\n".join([*lines, f"g.set_outputs({f'list({call})' if count > 1 else f'[{call}]'})"])


def _gives(code: str, values: Mapping[str, np.ndarray], expected: Sequence[np.ndarray]) -> bool:
    """Return whether code runs and its graph gives some results. The method may take other arguments than the op."""
    namespace: dict[str, Any] = {"rlx": rlx}
    try:
        exec(code, namespace)  # code of this module
        results = rlx.evaluate(namespace["g"], values)
    except (rlx.Error, AttributeError, TypeError, NameError, SyntaxError):
        return False
    return [r.tobytes() for r in results] == [e.tobytes() for e in expected]


def _op_text(graph: rlx.Graph) -> str:
    """Return the lines of the ops in a graph, without the function around them."""
    lines = str(graph).splitlines()
    body = [
        line for line in lines if re.match(r"    \S|     ", line) and not line.strip().startswith(("return", "func"))
    ]
    return "\n".join(line[4:] for line in body)


def _drawn(random: np.random.Generator, operand: SampleOperand, shape: Shape) -> np.ndarray:
    low, high = operand.low, operand.high
    size = shape.static
    if shape.dtype.is_bool:
        return random.integers(0, 2, size).astype(bool)
    count = int(np.prod(size, dtype=np.int64))
    if operand.distinct:
        values = random.permutation(max(count, 1))[:count].reshape(size) + int(low)
        return values.astype(shape.dtype.numpy)
    if shape.dtype.is_integer:
        drawn = random.integers(int(low), max(int(high), int(low) + 1), size).astype(shape.dtype.numpy)
        return np.sort(drawn) if operand.ascending else drawn
    values = np.round(random.uniform(low, high, size), 1)
    if operand.diagonal and len(size) > 1:
        values = values + operand.diagonal * np.eye(size[-2], size[-1])
    return values.astype(shape.dtype.numpy)


def _accepted(card: Card) -> tuple[str, ...]:
    values = [*card.spec.operands, *card.spec.results]
    return tuple(values[0].dtypes) if values else ("f32",)


def _bound(size: Any) -> int:
    expression = dim(size)
    return int(evaluate(expression, dict.fromkeys(symbols(expression), _SIZE)))


def _literal(value: Any) -> str:
    if isinstance(value, rlx.DType):
        return f'"{value.name}"'
    return repr(value.tolist()) if isinstance(value, np.ndarray) else repr(value)


def _text(value: np.ndarray, indent: int) -> str:
    text = np.array2string(value, precision=3, suppress_small=True, separator=", ", max_line_width=100)
    return text.replace("\n", "\n" + " " * indent)


def with_examples(page: str) -> str:
    """Return a page of the op reference with an example after the table of each op."""

    def added(match: re.Match[str]) -> str:
        example = example_of(surface.method_name(match[2]))
        return match[0] if example is None else f"{match[1]}{example.markdown(python=False)}\n{match[3]}"

    return re.sub(r"(^## `rlx\.(\w+)`\n.*?)(^Declared in )", added, page, flags=re.M | re.S)
