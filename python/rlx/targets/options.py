"""`CompileOptions`: the options of a compilation, which calls in Python and the commands are made from."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, TypedDict, TypeVar

from rlx.ir.checks import check_string
from rlx.support.errors import Error
from rlx.support.short import shown

if TYPE_CHECKING:
    from rlx.targets.dispatch import KernelDispatchPolicy

Documented = TypeVar("Documented", bound=Callable[..., Any])

# The levels of optimisation, and the default one.
LEVELS, DEFAULT_LEVEL = (0, 1, 2, 3), 2
_DOCSTRING_WIDTH = 128


@dataclass(frozen=True)
class OptionHelp:
    """The documentation of an option, and its form on the command line.

    Attributes:
        text: Its meaning, for docstrings.
        flag: What it is called on the command line.
        argument: How `argparse` takes it: keywords of `add_argument`, with a `help` in terms of the command line.
    """

    text: str
    flag: str
    argument: Mapping[str, Any]


def _described(text: str, flag: str, **argument: Any) -> dict[str, OptionHelp]:
    """The metadata of an option."""
    return {"help": OptionHelp(text, flag, argument)}


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """What a program is compiled to, for a given graph and target.

    A new option is a field here, the same name in `CompileKeywords`, and a check if not every value is valid.

    Raises:
        Error: A value is not valid.
    """

    bind: Mapping[str, int] | None = field(
        default=None,
        metadata=_described(
            "Sizes of symbols that are fixed now; the others stay dynamic. (XLA compiles again for each set of sizes.)",
            "--bind",
            action="append",
            metavar="SYMBOL=SIZE",
            help="fix the size of a symbol",
        ),
    )
    precision: Any = field(
        default=None,
        metadata=_described(
            '`"f16"` or `"bf16"`: compute in that dtype; reductions, what would leave its range, and the boundary stay in f32. '
            "Other policies by name, and a mapping of ops to dtypes: see docs/quantisation.md.",
            "--precision",
            metavar="NAME",
            help="f16, bf16, auto_mixed …: what to compute in",
        ),
    )
    passes: str | None = field(
        default=None,
        metadata=_described(
            "A pipeline to run first, as text.",
            "--passes",
            metavar="PIPELINE",
            help="a pipeline to run first, as rlx-opt takes it",
        ),
    )
    policy: str = field(
        default="direct",
        metadata=_described(
            '`"direct"` fuses ops (`rlx-fuse`) unless the module declares otherwise, `"fusable"` leaves primitives.',
            "--policy",
            choices=("direct", "fusable"),
            help="fuse ops, or leave primitives",
        ),
    )
    opt: int = field(
        default=DEFAULT_LEVEL,
        metadata=_described(
            "The level of optimisation: 0 does what is needed, 1 to 3 look for a program that is faster and smaller, whose "
            "numbers are the same within the tolerance of its dtypes.",
            "-O",
            type=int,
            choices=LEVELS,
            metavar="LEVEL",
            help="the level of optimisation, 0 to 3 (default: %(default)s)",
        ),
    )
    fast_math: bool = field(
        default=False,
        metadata=_described(
            "Simplify floats as if they were real numbers, from level 1 on (docs/optimisation.md).",
            "--fast-math",
            action="store_true",
            help="simplify floats as if they were real numbers: no NaN, any order of sums",
        ),
    )
    dispatch: KernelDispatchPolicy | str | None = field(
        default=None,
        metadata=_described(
            "Which composite ops are lowered by rules of the target: a `KernelDispatchPolicy`, or its text.",
            "--dispatch",
            metavar="POLICY",
            help="prefer-native (the default), force-native or force-common: whether the target lowers composite ops by rules "
            "of its own, or gets them decomposed; for single ops: prefer-native,softmax=common",
        ),
    )

    def __post_init__(self) -> None:
        # Not imported above: they import MLIR, and the commands need only the fields.
        from rlx.ir.op.signature import POLICIES
        from rlx.passes.dtypes.precision_policies import precision_policy
        from rlx.targets.dispatch import policy_of

        if not isinstance(self.policy, str) or self.policy not in POLICIES:
            raise Error(f"policy {shown(self.policy)} is not one of {', '.join(POLICIES)}")
        if self.bind is not None:
            _check_sizes(self.bind)
        if self.passes is not None:
            check_string(self.passes, "passes")
        precision_policy(self.precision)
        if isinstance(self.opt, bool) or not isinstance(self.opt, int) or self.opt not in LEVELS:
            raise Error(f"opt={shown(self.opt)} is not one of the levels {', '.join(map(str, LEVELS))}")
        if not isinstance(self.fast_math, bool):
            raise Error(f"fast_math={shown(self.fast_math)} is neither True nor False")
        policy_of(self.dispatch)

    @property
    def prepared(self) -> Self:
        """The options for a graph that has its sizes bound, and has gone through `passes`: the others."""
        return replace(self, bind=None, passes=None)

    def keywords(self) -> CompileKeywords:
        """The options as keywords of a call."""
        values: Any = {option.name: getattr(self, option.name) for option in fields(CompileOptions)}
        return values


class CompileKeywords(TypedDict, total=False):
    """The fields of `CompileOptions` as keywords of a call, for `**options: Unpack[CompileKeywords]`."""

    bind: Mapping[str, int] | None
    precision: Any
    passes: str | None
    policy: str
    opt: int
    fast_math: bool
    dispatch: KernelDispatchPolicy | str | None


def _check_sizes(bind: Any) -> None:
    import numpy as np

    if not isinstance(bind, Mapping):
        raise Error(f"bind must be a mapping of symbols to sizes, got {shown(bind)}")
    for name, size in bind.items():
        if isinstance(size, (bool, np.ndarray, type)) or not isinstance(size, SupportsIndex):
            raise Error(f"bind: the size of {name} must be an integer, got {shown(size)}")


def option_help() -> dict[str, tuple[Any, OptionHelp]]:
    """The default and the documentation of each option, by name."""
    return {option.name: (option.default, option.metadata["help"]) for option in fields(CompileOptions)}


def documents_options(thing: Documented) -> Documented:
    """A decorator of a function or class: in its docstring, the line of `options` becomes a line for each option."""
    lines = (thing.__doc__ or "").split("\n")
    for i, line in enumerate(lines):
        if line.lstrip().startswith("options:"):
            before = line[: len(line) - len(line.lstrip())]
            entries = [f"{name}: {option.text}" for name, (_, option) in option_help().items()]
            wrapped = (
                textwrap.wrap(entry, _DOCSTRING_WIDTH, initial_indent=before, subsequent_indent=f"{before}    ")
                for entry in entries
            )
            lines[i : i + 1] = [text for entry in wrapped for text in entry]
            thing.__doc__ = "\n".join(lines)
            break
    return thing


def takes_options(function: Documented) -> Documented:
    """A decorator of a function with `**options: Unpack[CompileKeywords]`: `help` and errors of calls name each option."""
    signature: Any = inspect.signature(function)
    kept = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    declared = [
        inspect.Parameter(o.name, inspect.Parameter.KEYWORD_ONLY, default=o.default, annotation=o.type)
        for o in fields(CompileOptions)
    ]
    function.__signature__ = signature.replace(parameters=[*kept, *declared])  # type: ignore[attr-defined]
    return documents_options(function)
