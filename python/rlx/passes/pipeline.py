"""Pipelines as text in MLIR's syntax: `builtin.module(rlx-lower-blocks,func.func(canonicalize,cse{…}))`.

    pipeline ::= op-name `(` element (`,` element)* `)`
    element  ::= pipeline | pass-name (`{` (key (`=` value)?)* `}`)?

A value with spaces is enclosed in quotes or braces. A list without an op name runs on `builtin.module`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from rlx import mlir
from rlx.passes import native
from rlx.passes.base import OptionError, Pass, find, load
from rlx.support.cached_property import cached_property
from rlx.support.errors import PassError
from rlx.support.guards import is_iterable
from rlx.support.short import short_repr
from rlx.support.suggestions import suggestion

if TYPE_CHECKING:
    from rlx.passes.runner import Instrument

MODULE = "builtin.module"
_ANCHORS = (MODULE, "any")
NESTING = 32  # maximum nesting of op names; real pipelines have about three levels
LONGEST = 1 << 20  # maximum characters of a pipeline
_SHOWN = 400  # characters of a line in messages
_INVALID_CHARACTER = re.compile("[\0\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")


@dataclass(frozen=True)
class OptionText:
    """One option in the user's text; `value` is without quotes, or None if there is no `=`."""

    key: str
    value: str | None
    raw: str
    offset: int

    def __str__(self) -> str:
        return self.raw


@dataclass(frozen=True)
class PipelineElement:
    """A pass with its options, or an op name with the elements to run on such ops."""

    name: str
    options: tuple[OptionText, ...] = ()
    children: tuple[PipelineElement, ...] | None = None
    offset: int = 0

    def __str__(self) -> str:
        if self.children is not None:
            return f"{self.name}({','.join(map(str, self.children))})"
        return f"{self.name}{{{' '.join(map(str, self.options))}}}" if self.options else self.name


def _fail(text: str, offset: int, message: str, hint: str | None = None) -> NoReturn:
    line_start = text.rfind("\n", 0, offset) + 1
    line = text[line_start:].split("\n")[0]
    column = offset - line_start
    place = f"pipeline:{text.count(chr(10), 0, offset) + 1}:{column + 1}"
    start = max(0, column - _SHOWN // 2)  # only part of a long line is shown
    line, column = line[start : start + _SHOWN], column - start
    raise PassError(f"{message}\n  {line}\n  {' ' * column}^", location=place, hint=hint) from None


# --- reading --------------------------------------------------------------------------------------


class _PipelineReader:
    def __init__(self, text: str):
        self.text = text
        self.position: int = 0
        self.depth = 0

    def fail(self, message: str, offset: int | None = None) -> NoReturn:
        _fail(self.text, self.position if offset is None else offset, message)

    def peek(self) -> str:
        while self.position < len(self.text) and self.text[self.position].isspace():
            self.position += 1
        return self.text[self.position] if self.position < len(self.text) else ""

    @property
    def next(self) -> str:
        """The next character, for messages."""
        return f"'{self.peek()}'" if self.peek() else "the end"

    def take(self, character: str) -> bool:
        if self.peek() != character:
            return False
        self.position += 1
        return True

    def read(self) -> tuple[PipelineElement, ...]:
        if len(self.text) > LONGEST:
            raise PassError(f"a pipeline of {len(self.text)} characters; at most {LONGEST} are allowed")
        if match := _INVALID_CHARACTER.search(self.text):
            raise PassError(f"the pipeline has {match.group()!r} at column {match.start() + 1}")
        elements = self.elements() if self.peek() else ()
        if self.peek():
            self.fail(f"expected ',' or the end, got {self.next}")
        return elements

    def elements(self) -> tuple[PipelineElement, ...]:
        result = [self.element()]
        while self.take(","):
            result.append(self.element())
        return tuple(result)

    def element(self) -> PipelineElement:
        self.peek()
        start = self.position
        match = _NAME.match(self.text, start)
        if match is None:
            self.fail(f"expected the name of a pass or an op, got {self.next}")
        self.position = match.end()
        name = match.group()
        if self.take("("):
            self.depth += 1
            if self.depth > NESTING:
                self.fail(f"op names are nested more than {NESTING} deep")
            children = () if self.peek() == ")" else self.elements()
            if not self.take(")"):
                self.fail(f"expected ',' or ')' in the list of '{name}', got {self.next}")
            self.depth -= 1
            return PipelineElement(name, (), children, start)
        options = tuple(self.options(name)) if self.take("{") else ()
        return PipelineElement(name, options, None, start)

    def options(self, name: str) -> Iterator[OptionText]:
        while not self.take("}"):
            if not self.peek():
                self.fail(f"the options of '{name}' are not closed: expected '}}'")
            yield self.option(name)

    def option(self, name: str) -> OptionText:
        start = self.position
        match = re.compile(r"[^\s={}]+").match(self.text, start)
        if match is None:
            self.fail(f"expected an option of '{name}', got {self.next}")
        self.position = match.end()
        value = None
        if self.position < len(self.text) and self.text[self.position] == "=":
            self.position += 1
            value = self.value()
        return OptionText(match.group(), value, self.text[start : self.position], start)

    def value(self) -> str:
        start, depth, quote = self.position, 0, ""
        while self.position < len(self.text):
            character = self.text[self.position]
            if quote:
                quote = "" if character == quote else quote
            elif character in "\"'":
                quote = character
            elif character in "{[(":
                depth += 1
            elif depth and character in "}])":
                depth -= 1
            elif not depth and (character.isspace() or character == "}"):
                break
            self.position += 1
        if quote or depth:
            self.fail("the value is not closed", start)
        raw = self.text[start : self.position]
        return raw[1:-1] if len(raw) > 1 and raw[0] == raw[-1] and raw[0] in "\"'" else raw


# --- steps ----------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PipelineStep:
    """One pass that runs on the module: a pass of RLX (`ours`), or one of MLIR, nested in the ops of the pipeline."""

    name: str
    text: str
    ours: Pass | None = None

    @property
    def title(self) -> str:
        """The name that instruments print: the class name, or for a pass of MLIR its name in the same style."""
        if self.ours is not None:
            return type(self.ours).__name__
        return "".join(word.capitalize() for word in re.split("[-_.]", self.name))

    @property
    def preserves_results(self) -> bool:
        """Whether functions compute the same after it. MLIR's passes guarantee this, ours declare it."""
        return self.ours is None or self.ours.preserves_results

    @property
    def emits_unregistered(self) -> bool:
        """Whether it emits ops of dialects that MLIR's bindings do not have."""
        return self.ours is not None and self.ours.emits_unregistered

    def run(self, module: mlir.Module) -> None:
        """Run on a module, in place.

        Raises:
            Error: The pass failed.
        """
        if self.ours is not None:
            self.ours.run(module)
        else:
            native.run(self.text, module)


class PassPipeline:
    """A sequence of passes of RLX and MLIR, as text and ready to run.

    `str(pipeline)` is text that parses to the same pipeline.

    Args:
        elements: Passes, or elements of the text, in order.
        text: The text that the elements come from, for messages.

    Raises:
        PassError: A pass or option does not exist; the message shows its position in the text.
    """

    def __init__(self, elements: Iterable[PipelineElement | Pass], text: str = "", anchor: str = MODULE):
        self.elements = tuple(elements)
        self.anchor = anchor
        self._text = text
        self.steps: tuple[PipelineStep, ...] = tuple(s for e in self.elements for s in self._resolve(e, (anchor,)))

    @classmethod
    def parse(cls, text: str) -> PassPipeline:
        """Parse a pipeline.

        Raises:
            PassError: The syntax is wrong, or a pass or option is unknown; the error has the column in the text.
        """
        elements = _PipelineReader(text).read()
        if len(elements) == 1 and elements[0].children is not None and elements[0].name in _ANCHORS:
            return cls(elements[0].children, text, elements[0].name)
        return cls(elements, text)

    @classmethod
    def of(cls, value: str | Pass | PassPipeline | Iterable[str | Pass]) -> PassPipeline:
        """Return text, a pass, a pipeline, or a list of texts and passes, as one pipeline.

        Raises:
            PassError: See `parse`.
        """
        if isinstance(value, PassPipeline):
            return value
        if isinstance(value, str):
            return cls.parse(value)
        if isinstance(value, Pass):
            return cls([value])
        if not is_iterable(value):
            raise PassError(f"a pipeline is text, passes or pipelines, not {short_repr(value)}")
        elements = [e for v in value for e in (cls.of(v).elements if not isinstance(v, Pass) else [v])]
        return cls(elements, ",".join(map(str, elements)))

    def __str__(self) -> str:
        return f"{self.anchor}({','.join(map(str, self.elements))})"

    def __repr__(self) -> str:
        return f"Pipeline({str(self)!r})"

    def run(self, module: mlir.Module, *, verify_each: bool = True, instruments: Iterable[Instrument] = ()) -> None:
        """Run on a module, in place: see `rlx.passes.runner.run_on_module`."""
        from rlx.passes.runner import run_on_module

        run_on_module(module, self, verify_each=verify_each, instruments=instruments)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the passes, in order."""
        return tuple(step.name for step in self.steps)

    def _resolve(self, element: PipelineElement | Pass, path: tuple[str, ...]) -> Iterator[PipelineStep]:
        if isinstance(element, Pass):
            yield PipelineStep(element.name, str(element), element)
        elif element.children is not None:
            if element.name.startswith("rlx-"):
                _fail(self._text, element.offset, f"'{element.name}' is a pass: write its options in braces")
            for child in element.children:
                yield from self._resolve(child, (*path, element.name))
        else:
            yield self._leaf(element, path)

    def _leaf(self, element: PipelineElement, path: tuple[str, ...]) -> PipelineStep:
        cls = find(element.name)
        if cls is None:
            return self._native(element, path)
        if len(path) > 1:
            message = f"'{element.name}' runs on {MODULE}, not on '{path[-1]}': move it out of {path[-1]}(…)"
            _fail(self._text, element.offset, message)
        try:
            ours = cls.from_options((o.key, o.value) for o in element.options)
        except OptionError as problem:
            mentions = [o for o in element.options if o.key == problem.option]
            offset = mentions[-1].offset if mentions else element.offset
            _fail(self._text, offset, problem.message, problem.hint)
        return PipelineStep(element.name, str(element), ours)

    def _native(self, element: PipelineElement, path: tuple[str, ...]) -> PipelineStep:
        text = str(element)
        for op in reversed(path):
            text = f"{op}({text})"
        problem = native.check(element.name, [(o.key, o.value) for o in element.options], text)
        if problem is not None:
            if problem.unknown:
                known = {*load(), *native.names()}
                message = f"'{element.name}' is not a pass{suggestion(element.name, known)}"
                if "." in element.name:
                    message = f"'{element.name}' is an op: name the passes to run on it, {element.name}(…)"
                _fail(self._text, element.offset, message, "`rlx-opt --list-passes=all` lists all passes")
            mentions = [o for o in element.options if o.key == problem.option]
            _fail(self._text, mentions[-1].offset if mentions else element.offset, problem.message)
        return PipelineStep(element.name, text)
