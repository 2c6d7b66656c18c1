"""The command line of `rlx-opt`: flags in any order, pass flags in the order of execution."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import NoReturn

from rlx.report.text import table

PROGRAM = "rlx-opt"


class CommandLineError(Exception):
    """The command line is invalid; the text is the reason."""


@dataclass(frozen=True)
class OptFlag:
    """One flag: its name, the form of its value (`""` for none, `[=X]` for an optional one, `=X`), and its help."""

    name: str
    value: str
    help: str

    @property
    def needs_value(self) -> bool:
        return self.value.startswith("=")

    @property
    def usage(self) -> str:
        """The flag in the form that users write."""
        return f"-o {self.value[1:]}" if self.name == "o" else f"--{self.name}{self.value}"


FLAGS = (
    OptFlag("o", "=FILE", "the output file; nothing is written after a failure (default: -)"),
    OptFlag("pass-pipeline", "=TEXT", "passes to run, such as 'builtin.module(rlx-lower-blocks,func.func(cse))'"),
    OptFlag("split-input-file", "[=MARKER]", "process the parts between lines '// -----' separately"),
    OptFlag("verify-diagnostics", "[=only-expected]", "check diagnostics against 'expected-error {{…}}' comments"),
    OptFlag("verify-each", "[=0|1]", "verify after every pass (default: 1)"),
    OptFlag(
        "check-numerics",
        "[=SEED]",
        "evaluate on random inputs before and after every pass; report the first pass that changes a result",
    ),
    OptFlag("bisect", "", "find the first rewrite after which the module is wrong; exit code 1 if there is one"),
    OptFlag(
        "reduce",
        "[=COMMAND]",
        "shrink the module while the passes still fail in the same way or change its results, or while "
        "COMMAND FILE fails (exit status not 0)",
    ),
    OptFlag(
        "inputs", "=SEED|FILE", "the inputs for evaluation: a seed (default: 0), or arrays by name in an .npz file"
    ),
    OptFlag(
        "tolerance", "=X", "the largest difference of floats, relative to the largest value (default: 1e-4 for f32)"
    ),
    OptFlag("rewrite-limit", "=N", "stop after N rewrites, counted over all passes"),
    OptFlag("mlir-print-ir-before", "=PASS,…", "print the IR before these passes"),
    OptFlag("mlir-print-ir-after", "=PASS,…", "print the IR after these passes"),
    OptFlag("mlir-print-ir-before-all", "", "print the IR before every pass"),
    OptFlag("mlir-print-ir-after-all", "", "print the IR after every pass"),
    OptFlag("mlir-print-ir-after-change", "", "print the IR after passes that changed it"),
    OptFlag("mlir-print-ir-after-failure", "", "print the IR after a pass that failed"),
    OptFlag("mlir-timing", "", "print the time of every pass"),
    OptFlag("mlir-pass-statistics", "", "print the number of applications of each rewrite pattern"),
    OptFlag("mlir-print-debuginfo", "", "print locations"),
    OptFlag("mlir-print-op-generic", "", "print all ops in MLIR's generic form, those of rlx in quotes"),
    OptFlag(
        "mlir-elide-elementsattrs-if-larger",
        "=N",
        "leave out constants of more than N elements when printing",
    ),
    OptFlag("emit-bytecode", "", "write MLIR bytecode instead of text"),
    OptFlag("allow-unregistered-dialect", "", "accept ops of dialects that are not known in the input"),
    OptFlag("dump-pass-pipeline", "", "print the pipeline that runs"),
    OptFlag("load", "=FILE.py|MODULE", "import a module that registers ops or passes; may be given several times"),
    OptFlag(
        "list-passes", "[=all]", "list the passes of RLX with their options, and those of MLIR with =all; then stop"
    ),
    OptFlag("version", "", "print the version, then stop"),
    OptFlag("help", "", "print this text, then stop"),
)
_BY_NAME = {flag.name: flag for flag in FLAGS} | {"h": FLAGS[-1]}


@dataclass
class Settings:
    """The parsed command line."""

    values: dict[str, str | None] = field(default_factory=dict)
    input: str | None = None
    passes: list[tuple[str, str | None]] = field(default_factory=list)
    load: list[str] = field(default_factory=list)
    print_before: list[str] = field(default_factory=list)
    print_after: list[str] = field(default_factory=list)

    def has(self, name: str) -> bool:
        """Return whether a flag is set. `=0` or `=false` unset it."""
        return name in self.values and self.values[name] not in ("0", "false")

    @property
    def verify_each(self) -> bool:
        return "verify-each" not in self.values or self.has("verify-each")

    @property
    def file(self) -> str:
        """The input's name in messages."""
        return "<stdin>" if self.input in (None, "-") else str(self.input)


def parse(arguments: Sequence[str]) -> Settings:
    """Return the settings for arguments. An unknown flag may be the name of a pass.

    Raises:
        CommandLineError: A flag lacks its value, or has an invalid one.
    """
    settings = Settings()
    words = list(reversed(arguments))
    while words:
        word = words.pop()
        if word == "-" or not word.startswith("-"):
            if settings.input is not None:
                _fail(f"expected one input file, got '{settings.input}' and '{word}'")
            settings.input = word
            continue
        name, equals, text = word.lstrip("-").partition("=")
        value = text if equals else None
        flag = _BY_NAME.get(name)
        if flag is None:
            settings.passes.append((name, value))
            continue
        if flag.needs_value and value is None:
            if not words:
                _fail(f"{word} takes a value: {flag.usage}")
            value = words.pop()
        _enter(settings, flag, value)
    return settings


def _enter(settings: Settings, flag: OptFlag, value: str | None) -> None:
    if flag.name in ("mlir-print-ir-before", "mlir-print-ir-after"):
        target = settings.print_before if flag.name.endswith("before") else settings.print_after
        target += [name.strip() for name in (value or "").split(",") if name.strip()]
        return
    if flag.name == "load":
        settings.load.append(str(value))
        return
    if value is not None and (flag.value in ("", "[=0|1]")) and value not in ("0", "1", "true", "false"):
        _fail(f"--{flag.name} is 0 or 1, not '{value}'")
    if flag.value in ("[=SEED]", "=N") and value is not None and not re.fullmatch("[0-9]{1,18}", value):
        _fail(f"--{flag.name} takes a number, not '{value}'")
    if flag.value == "=X" and not _is_tolerance(str(value)):
        _fail(f"--{flag.name} takes a number that is not negative, not '{value}'")
    if flag.value == "[=all]" and value not in (None, "all"):
        _fail(f"--{flag.name} has no value, or is all")
    if flag.value == "[=only-expected]" and value not in (None, "all", "only-expected"):
        _fail(f"--{flag.name} is all or only-expected, not '{value}'")
    settings.values[flag.name] = value


def _is_tolerance(text: str) -> bool:
    try:
        return 0 <= float(text) < float("inf")
    except ValueError:
        return False


def _fail(message: str) -> NoReturn:
    raise CommandLineError(f"{message}\nTry: '{PROGRAM} --help'")


def unknown(name: str, passes: Sequence[str]) -> CommandLineError:
    """Return the error for a flag that is neither a flag of `rlx-opt` nor a pass."""
    close = get_close_matches(name, [*_BY_NAME, *passes], 1)
    guess = f"\nDid you mean '--{close[0]}'?" if close else ""
    return CommandLineError(f"unknown command line argument '--{name}'{guess}\nTry: '{PROGRAM} --help'")


def help_text() -> str:
    """Return the output of `--help`."""
    options = "\n".join(table([(f.usage, f.help) for f in FLAGS], indent="  ", long={1}))
    return f"""\
usage: {PROGRAM} [FILE|-] [-o OUT] [--pass-pipeline=TEXT | --PASS[=OPTIONS] …] [flags]

Run passes on MLIR text or bytecode. Without passes the module is read, verified and printed.

Every pass is also a flag. Passes run in the order of their flags:
  {PROGRAM} model.mlir --rlx-lower-blocks --rlx-decompose="except=softmax,attention" --canonicalize --cse
  {PROGRAM} model.mlir --pass-pipeline='builtin.module(rlx-bind{{batch=1}},func.func(canonicalize,cse))'

flags:
{options}

Diagnostics go to standard error as file:line:col: error: …; the exit code is 0, or 1 after an error.
"""
