"""The Jinja environment of chat templates: a sandbox with limits of time and memory.

Only `chat_template.py` imports this module, when the first template is rendered, because it needs the package Jinja2.
"""

from __future__ import annotations

import functools
import json
import threading
import types
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, LoopControlExtension
from jinja2.filters import FILTERS, make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Joiner, Namespace

from rlx.llm.tokenizer.template_limits import (
    LimitError,
    RenderLimits,
    check_length,
    check_parts,
    check_replacement,
    check_values,
    check_width,
    format_fields,
)

# Filters for web pages and for printing. Some take quadratic time, and templates of prompts do not need them.
_LEFT_OUT = frozenset(("pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr"))
_WIDEST_INDENT, _LONGEST_TIME, _MOST_DIGITS, _MOST_COLUMNS = 64, 200, 100, 10_000
_BUILT_IN = (bytes, bool, int, float, list, tuple, dict, set, range, type)
# Methods of other built-in types than strings.
_METHODS = frozenset(("get", "items", "keys", "values", "copy", "index", "count", "is_integer"))


class TemplateCode(CodeGenerator):
    """Compiles a template so that it reports to the limits of its rendering."""

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self._loops = set[int]()

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        """Compile a loop."""
        self._loops.add(id(node.body))
        super().visit_For(node, frame)

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        """Compile statements. Those of a loop start with a check of the time."""
        if id(nodes) in self._loops:
            self.writeline("environment.tick()")
        super().blockvisit(nodes, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        """Compile `a ~ b`."""
        self.write("environment.concatenated((")
        for arg in node.nodes:
            self.visit(arg, frame)
            self.write(", ")
        self.write("))")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        """Compile a list."""
        self._made(super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        """Compile a dictionary."""
        self._made(super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        """Compile a tuple, or several targets of an assignment."""
        if node.ctx == "load":
            self._made(super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        """Compile an index or a slice."""
        if isinstance(node.arg, nodes.Slice):
            self._made(super().visit_Getitem, node, frame)
        else:
            super().visit_Getitem(node, frame)

    def _made(self, visit: Callable[[Any, Frame], None], node: nodes.Node, frame: Frame) -> None:
        self.write("environment.checked(")
        visit(node, frame)
        self.write(")")

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        # Constant expressions are not folded when the template is compiled: the limits do not apply yet.
        if not isinstance(node, nodes.TemplateData | nodes.Const):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)


class GenerationBlock(Extension):
    """The block `{% generation %}`, which marks the answers of the model in a template for training."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        """Return the statements of the block."""
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class TemplateNamespace(Namespace):
    """The object that `namespace` makes. It is not printed with its attributes, which change."""

    def __repr__(self) -> str:
        return "<namespace>"


class TemplateSandbox(ImmutableSandboxedEnvironment):
    """The environment of chat templates."""

    code_generator_class = TemplateCode
    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=[GenerationBlock, LoopControlExtension]
        )
        self._current = threading.local()
        self.concat: Callable[[Iterable[str]], str] = self._concat  # type: ignore[assignment]
        self.filters = {name: self._limited(name, f) for name, f in FILTERS.items() if name not in _LEFT_OUT}
        self.filters |= {"tojson": self._tojson, "sum": self._sum, "join": self._join}
        self.globals = {
            "range": self.globals["range"],
            "dict": lambda *arguments, **entries: dict(*arguments, **entries),
            "namespace": TemplateNamespace,
            "joiner": Joiner,
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }

    @property
    def limits(self) -> RenderLimits:
        """The limits of the rendering of this thread."""
        return self._current.limits

    def rendered(self, template: Template, variables: dict[str, Any]) -> str:
        """Return the text of a template.

        Raises:
            Exception: The template raises it, or exceeds the limits.
        """
        outer = getattr(self._current, "limits", None)
        self._current.limits = RenderLimits()
        try:
            # `Template.render` would rewrite the traceback of an exception, which is not shown.
            return self._concat(template.root_render_func(template.new_context(variables)))
        finally:
            self._current.limits = outer

    def tick(self) -> None:
        """Check the time."""
        self.limits.tick()

    def checked(self, value: Any) -> Any:
        """Return a value that the template has computed, after checking its size."""
        return self.limits.checked(value)

    def concatenated(self, values: Sequence[Any]) -> str:
        """Return the value of `a ~ b`."""
        return self.limits.checked("".join(self.limits.joined("", map(str, values))))

    def _concat(self, parts: Iterable[str]) -> str:
        kept: list[str] = []
        length = 0
        for part in parts:
            length += len(part)
            check_length(length)
            kept.append(part)
        return self.limits.checked("".join(kept))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Return the result of an operator that can make large values."""
        limits = self.limits
        operations = {"+": limits.added, "*": limits.multiplied, "**": limits.raised, "%": limits.formatted}
        return operations[operator](left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function, a macro or a method."""
        limits = __self.limits
        limits.tick()
        for value in (*args, *kwargs.values()):
            limits.size(value)
        method = getattr(__obj, "__wrapped__", __obj)  # `str.format` is wrapped by the sandbox
        owner = getattr(method, "__self__", None) if isinstance(method, types.BuiltinMethodType) else None
        if isinstance(owner, str):
            args = __self._text_arguments(owner, method.__name__, args, kwargs)
        elif isinstance(owner, _BUILT_IN) and method.__name__ not in _METHODS:
            raise LimitError(f"it calls the method '{method.__name__}', which is not available in templates")
        return limits.checked(super().call(__context, __obj, *args, **kwargs))

    def _text_arguments(self, text: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        if name in ("format", "format_map"):
            self.limits.check_format(text, format_fields(text), [*args, kwargs])
        # Keyword arguments of strings' methods are numbers and separators in the order of the positional ones.
        return self.limits.method_arguments(text, name, args if not kwargs else (*args, *kwargs.values()))[: len(args)]

    def _limited(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a filter whose arguments and result are checked."""
        check = _FILTER_CHECKS.get(name)
        # Filters with this mark have the context or the environment as their first argument.
        skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

        @functools.wraps(function)
        def limited(*args: Any, **kwargs: Any) -> Any:
            limits = self.limits
            limits.tick()
            values = args[skipped:]
            for value in (*values, *kwargs.values()):
                limits.size(value)
            if check is not None:
                check(limits, *values, **kwargs)
            return limits.checked(function(*args, **kwargs))

        return limited

    def _tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """Return JSON, which keeps characters outside ASCII and those of HTML."""
        limits = self.limits
        values, characters, depth = limits.size(value)
        if indent is not None and (not isinstance(indent, int) or indent > _WIDEST_INDENT):
            raise LimitError(f"tojson has an indent above {_WIDEST_INDENT}")
        check_length(characters + values * depth * max(indent or 0, 1))
        text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        return limits.checked(text)

    def _join(self, values: Iterable[Any], d: Any = "", attribute: str | int | None = None) -> str:
        """Return texts in one, with another one between them."""
        parts = values if attribute is None else map(make_attrgetter(self, attribute), values)
        return self.limits.checked(str(d).join(map(str, self.limits.joined(str(d), parts))))

    def _sum(self, values: Iterable[Any], attribute: str | int | None = None, start: Any = 0) -> Any:
        """Return the sum of numbers."""
        total, get = start, None if attribute is None else make_attrgetter(self, attribute)
        for value in values:
            self.tick()
            total = self.limits.added(total, value if get is None else get(value))
        return total


def _raise_exception(message: str) -> None:
    """Report that the messages do not fit the template."""
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    """Return the local time in a format of `strftime`."""
    if len(form) > _LONGEST_TIME:
        raise LimitError(f"strftime_now has a format of more than {_LONGEST_TIME} characters")
    return datetime.now().strftime(form)


def _check_columns(_: RenderLimits, __: Any, columns: Any = 0, *___: Any) -> None:
    if isinstance(columns, int) and columns > _MOST_COLUMNS:
        raise LimitError(f"a list is split into more than {_MOST_COLUMNS} columns")


def _check_indent(_: RenderLimits, text: Any, width: Any = 4, *__: Any, **___: Any) -> None:
    step = width if isinstance(width, int) else len(str(width))
    check_length(len(str(text)) + (str(text).count("\n") + 1) * max(step, 0))


def _check_format(limits: RenderLimits, text: Any, *args: Any, **kwargs: Any) -> None:
    limits.check_format(str(text), str(text).count("%"), [*args, kwargs])


def _check_digits(_: RenderLimits, __: Any, precision: Any = 0, *___: Any, **____: Any) -> None:
    if isinstance(precision, int) and abs(precision) > _MOST_DIGITS:
        raise LimitError(f"a number is rounded to more than {_MOST_DIGITS} digits")


def _of_text(check: Callable[..., None]) -> Callable[..., None]:
    """Return a check of a filter from one of a string's method."""
    return lambda _, text, *args, **kwargs: check(str(text), *args, *kwargs.values())


_FILTER_CHECKS: dict[str, Callable[..., None]] = {
    **dict.fromkeys(("batch", "slice"), _check_columns),
    **dict.fromkeys(("title", "wordcount"), lambda _, text: check_parts(str(text))),
    "center": _of_text(check_width),
    "replace": _of_text(check_replacement),
    "list": lambda _, value: check_values(len(value) if isinstance(value, str) else 0, 0),
    "indent": _check_indent,
    "format": _check_format,
    "round": _check_digits,
}
