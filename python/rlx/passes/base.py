"""`Pass`, a transform of a module, registered by the name used in pipelines and on the command line.

A pass is one file named after it (`rlx-constant-fold` is `constant_fold.py`) with one frozen dataclass, whose
fields are the options:

    @dataclass(frozen=True)
    class ConstantFold(Pass, name="rlx-constant-fold"):
        '''Evaluate ops whose operands are all constants.'''

        max_elements: int = option(65536, "the largest operand or result that is evaluated")

        def run(self, module): ...
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, ClassVar

from rlx import mlir
from rlx.ir.dims.dim import Dim, dim
from rlx.passes import packages
from rlx.passes.packages import PREFIX
from rlx.support.errors import Error, PassError
from rlx.support.guards import is_mapping, is_tuple
from rlx.support.suggestions import suggestion

_passes: dict[str, type[Pass]] = {}


class OptionError(PassError):
    """An option does not exist or has an invalid value; `option` is its name."""

    def __init__(self, message: str, *, option: str = "", location: str | None = None, hint: str | None = None):
        super().__init__(message, location=location, hint=hint)
        self.option = option


def option(
    default: Any, help: str, *, choices: tuple[str, ...] = (), least: float | None = None, rest: bool = False
) -> Any:
    """Declare a field of a pass as an option.

    Args:
        default: Its default value.
        help: One line that describes the option.
        choices: The allowed values of a string option; empty means any.
        least: The smallest value of a number; None means any.
        rest: The field is a mapping that collects all options that are not another field, such as symbols.
    """
    metadata = {"help": help, "choices": choices, "least": least, "rest": rest}
    if is_mapping(default):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Option:
    """The declaration of an option: its name in text, the field, the type and the default."""

    name: str
    field: str
    type: Any
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    rest: bool = False

    def parse(self, text: str | None) -> Any:
        """Parse the value of the option. None means an option without `=`, which is true.

        Raises:
            OptionError: The text is not a value of the option.
        """
        try:
            value = _parse_value(self.type, "true" if text is None and self.type is bool else text)
        except (ValueError, Error) as problem:
            reason = f": {problem.message}" if isinstance(problem, Error) else ""
            expected = _type_name(self.type)
            raise OptionError(
                f"option '{self.name}' takes {expected}, not {text!r}{reason}", option=self.name
            ) from None
        if self.choices and value not in self.choices:
            known = ", ".join(self.choices)
            message = f"option '{self.name}' is one of {known}, not {text!r}{suggestion(str(text), self.choices)}"
            raise OptionError(message, option=self.name)
        if self.least is not None and not value >= self.least:  # also rejects NaN
            message = f"option '{self.name}' takes {_type_name(self.type)} of at least {self.least:g}, not {text!r}"
            raise OptionError(message, option=self.name)
        return value

    def __str__(self) -> str:
        if self.rest:
            return f"<symbol>=<size>: {self.help}"
        kind = "|".join(self.choices) if self.choices else _type_name(self.type)
        return f"{self.name}=<{kind}>: {self.help} (default: {_print_value(self.default) or 'none'})"


class Pass:
    """A transform that edits an MLIR module in place.

    A class declares its properties with its name, `class Simplify(Pass, name="rlx-simplify", exact=True,
    idempotent=True)`. `tests/passes/test_random_graphs.py` checks them. A base class of passes declares `abstract=True`. A
    class with the attribute `name` is not registered: pipelines can run its instances, but text cannot name it.

    Raises:
        Error: The class has no name, or the name is not valid or taken.
    """

    name: ClassVar[str] = ""
    # False for a pass that intentionally changes what a function computes (a gradient); its results are not compared.
    preserves_results: ClassVar[bool] = True
    # Whether the evaluator returns identical numbers after the pass, except for the sign of zero. This means that sums
    # keep their order.
    exact: ClassVar[bool] = False
    # Whether running the pass again leaves the module unchanged.
    idempotent: ClassVar[bool] = False
    # False for a pass that only checks or marks a module without changing ops; the module is not verified after it.
    edits_ops: ClassVar[bool] = True

    def __init_subclass__(
        cls,
        name: str | None = None,
        exact: bool | None = None,
        idempotent: bool | None = None,
        abstract: bool = False,
        **kwargs: Any,
    ):
        super().__init_subclass__(**kwargs)
        if exact is not None:
            cls.exact = exact
        if idempotent is not None:
            cls.idempotent = idempotent
        if name is None:
            if not abstract and "name" not in vars(cls):
                words = "-".join(word.lower() for word in re.findall(r"[A-Z]*[a-z0-9]+|[A-Z]+", cls.__name__))
                hint = f'class {cls.__name__}({cls.__bases__[0].__name__}, name="{PREFIX}{words or "example"}")'
                raise Error(f"the pass {cls.__qualname__} has no name", hint=f"{hint}; abstract=True for a base class")
            return
        if not re.fullmatch(rf"{PREFIX}[a-z0-9]+(-[a-z0-9]+)*", name):
            raise Error(f"{cls.__qualname__}: '{name}' is not a pass name: '{PREFIX}' and words joined by '-'")
        if name not in _passes and packages.name_of(cls.__module__) is None:
            packages.import_file_of(name)  # the name of an RLX pass is taken even if its file has not been imported yet
        other = _passes.get(name)
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise Error(f"pass '{name}' exists twice: {other.__qualname__} and {cls.__qualname__}")
        cls.name = name
        _passes[name] = cls

    def run(self, module: mlir.Module) -> None:
        """Edit a module in place.

        Args:
            module: A verified builtin module.

        Raises:
            Error: The pass failed; the module may be half edited.
        """
        raise NotImplementedError(f"{self.name} does nothing")

    @property
    def emits_unregistered(self) -> bool:
        """Whether it emits ops of dialects that MLIR's bindings do not have: `runner.emitted_dialects` allows them."""
        return False

    @classmethod
    def rules(cls) -> Mapping[str, Callable[..., Any]] | None:
        """Return the rules of a lowering by the names of ops without prefix; None for other passes."""
        return None

    @classmethod
    def summary(cls) -> str:
        """Return the first line of the docstring."""
        return (cls.__doc__ or "").strip().split("\n")[0].strip()

    @classmethod
    def options(cls) -> tuple[Option, ...]:
        """Return the options, in the order of the fields."""
        return _options(cls)

    @classmethod
    def from_options(cls, options: Iterable[tuple[str, str | None]]) -> Pass:
        """Create the pass from options given as text.

        Raises:
            OptionError: An option is unknown, given twice, or has an invalid value.
        """
        declared = {o.name: o for o in cls.options() if not o.rest}
        catch_all = next((o for o in cls.options() if o.rest), None)
        values: dict[str, Any] = {}
        others: dict[str, Any] = {}
        for name, text in options:
            entry = declared.get(name)
            key, target = (entry.field, values) if entry else (name, others)
            if entry is None and catch_all is None:
                accepted = f"; it takes {', '.join(declared)}" if declared else "; it takes none"
                message = f"{cls.name} has no option '{name}'{suggestion(name, declared) or accepted}"
                raise OptionError(message, option=name)
            if key in target:
                raise OptionError(f"{cls.name}: option '{name}' is given twice", option=name)
            target[key] = entry.parse(text) if entry else _parse_rest(catch_all, name, text)
        if catch_all is not None:
            values[catch_all.field] = others
        return cls(**values)

    def __str__(self) -> str:
        options: list[str] = []
        for entry in self.options():
            value = getattr(self, entry.field)
            if entry.rest:
                options += [f"{key}={_quoted(_print_value(v))}" for key, v in value.items()]
            elif value != entry.default:
                options.append(f"{entry.name}={_quoted(_print_value(value))}")
        return f"{self.name}{{{' '.join(options)}}}" if options else self.name


def _parse_rest(catch_all: Any, name: str, text: str | None) -> Any:
    """Return the value of an option that belongs to the mapping of `catch_all`."""
    return dataclasses.replace(catch_all, name=name, type=typing.get_args(catch_all.type)[1]).parse(text)


def _malformed(cls: type[Pass], message: str, hint: str) -> Error:
    """Return the error for a malformed pass class."""
    place = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return Error(f"pass '{cls.name}' ({cls.__qualname__}): {message}", location=place, hint=hint)


@cache
def _options(cls: type[Pass]) -> tuple[Option, ...]:
    if "__dataclass_fields__" not in vars(cls):
        raise _malformed(cls, "it is no dataclass", "decorate the class with @dataclass(frozen=True)")
    try:
        hints = typing.get_type_hints(cls)
    except NameError as problem:
        raise _malformed(cls, f"the type of an option: {problem}", "import it where the program runs") from None
    result: list[Option] = []
    for field in dataclasses.fields(cls):  # pyright: ignore[reportArgumentType]
        if "help" not in field.metadata:
            hint = f'{field.name}: … = option(default, "what it does"), of rlx.passes.base'
            raise _malformed(cls, f"its field '{field.name}' is no option", hint)
        factory = field.default_factory
        default = field.default if factory is dataclasses.MISSING else factory()
        name = field.name.rstrip("_").replace("_", "-")
        entry = Option(name, field.name, hints[field.name], default, **field.metadata)
        result.append(entry)
    return tuple(result)


# --- values in text -------------------------------------------------------------------------------

_TRUE, _FALSE = ("true", "1"), ("false", "0")


def _parse_value(kind: Any, text: str | None) -> Any:
    if text is None:
        raise ValueError
    if kind == Dim:
        return dim(int(text) if text.lstrip("-").isdigit() else text)
    if isinstance(kind, types.UnionType):
        kind = next(k for k in typing.get_args(kind) if k is not type(None))
    if kind is bool:
        if text.lower() not in _TRUE + _FALSE:
            raise ValueError
        return text.lower() in _TRUE
    if typing.get_origin(kind) is tuple:
        inner = typing.get_args(kind)[0]
        return tuple(_parse_value(inner, part.strip()) for part in text.split(",") if part.strip())
    return kind(text)


def _type_name(kind: Any) -> str:
    if kind == Dim:
        return "a size"
    if isinstance(kind, types.UnionType):
        return _type_name(next(k for k in typing.get_args(kind) if k is not type(None)))
    if typing.get_origin(kind) is tuple:
        return f"a list ({_type_name(typing.get_args(kind)[0])}, …)"
    return {bool: "true or false", int: "an integer", float: "a number", str: "a string"}.get(kind, str(kind))


def _print_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_tuple(value):
        return ",".join(map(_print_value, value))
    return "" if value is None else str(value)


def _quoted(text: str) -> str:
    """Return text as the value of an option, quoted if necessary to read it back."""
    if text and not re.search(r"[\s{}'\"]", text):
        return text
    return f"'{text}'" if '"' in text else f'"{text}"'


# --- the registry ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class PassInfo:
    """A registered pass: its name, its summary and its options."""

    name: str
    summary: str
    options: tuple[Option, ...]

    def __str__(self) -> str:
        lines = [f"{self.name} - {self.summary}", *(f"    {o}" for o in self.options)]
        return "\n".join(lines)


@cache
def load() -> Mapping[str, type[Pass]]:
    """Return all passes, by name."""
    packages.import_all()
    return _passes


def find(name: str) -> type[Pass] | None:
    """Return the pass with a name, or None. Imports the file named after the pass, and all files if that fails."""
    if name not in _passes and name.startswith(PREFIX) and re.fullmatch(r"[a-z0-9-]+", name):
        packages.import_file_of(name)
        if name not in _passes:
            packages.import_installed()
        if name not in _passes:
            load()
    cls = _passes.get(name)
    if cls is not None and cls.__module__ in sys.modules:
        # A class is registered before its decorators have run. If another thread is importing its module, wait for that
        # import.
        importlib.import_module(cls.__module__)
    return cls


def infos() -> list[PassInfo]:
    """Return all registered passes, by name."""
    return [PassInfo(name, cls.summary(), cls.options()) for name, cls in sorted(load().items())]
