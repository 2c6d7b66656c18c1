"""`CompileOptions`: the options of a compilation, which calls in Python and the commands are made from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self, SupportsIndex, TypedDict

from rlx.ir.calls import with_call_errors
from rlx.ir.checks import check_string
from rlx.support.errors import Error
from rlx.support.options import described
from rlx.support.short import short_repr

if TYPE_CHECKING:
    from rlx.targets.dispatch import KernelDispatchPolicy

# The levels of optimisation, and the default one.
LEVELS, DEFAULT_LEVEL = (0, 1, 2, 3), 2
LAPACK_CHOICES = ("auto", "off")
_LONGEST_NAME = 64
_NAME = rf"[A-Za-z][A-Za-z0-9_.-]{{0,{_LONGEST_NAME - 1}}}"


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """The options of a compilation, for a given graph and target.

    A new option is a field here, the same name in `CompileKeywords`, and a check if not every value is valid.

    Raises:
        Error: A value is not valid.
    """

    bind: Mapping[str, int] | None = field(
        default=None,
        metadata=described(
            "Sizes of symbols that are fixed now; the others stay dynamic. (XLA compiles again for each set of sizes.)",
            "--bind",
            action="append",
            metavar="SYMBOL=SIZE",
            help="fix the size of a symbol",
        ),
    )
    precision: Any = field(
        default=None,
        metadata=described(
            '`"f16"` or `"bf16"`: compute in that dtype; reductions, what would leave its range, and the boundary stay in f32. '
            "Other policies by name, and a mapping of ops to dtypes: see docs/quantisation.md.",
            "--precision",
            metavar="NAME",
            help="f16, bf16, auto_mixed …: what to compute in",
        ),
    )
    passes: str | None = field(
        default=None,
        metadata=described(
            "A pipeline to run first, as text.",
            "--passes",
            metavar="PIPELINE",
            help="a pipeline to run first, as rlx-opt takes it",
        ),
    )
    policy: str = field(
        default="direct",
        metadata=described(
            '`"direct"` fuses ops (`rlx-fuse`) unless the module declares otherwise, `"fusable"` leaves primitives.',
            "--policy",
            choices=("direct", "fusable"),
            help="fuse ops, or leave primitives",
        ),
    )
    opt: int = field(
        default=DEFAULT_LEVEL,
        metadata=described(
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
        metadata=described(
            "Simplify floats as if they were real numbers, from level 1 on (docs/optimisation.md).",
            "--fast-math",
            action="store_true",
            help="simplify floats as if they were real numbers: no NaN, any order of sums",
        ),
    )
    dispatch: KernelDispatchPolicy | str | None = field(
        default=None,
        metadata=described(
            "Which composite ops are lowered by rules of the target: a `KernelDispatchPolicy`, or its text.",
            "--dispatch",
            metavar="POLICY",
            help="prefer-native (the default), force-native or force-common: whether the target lowers composite ops by rules "
            "of its own, or gets them decomposed; for single ops: prefer-native,softmax=common",
        ),
    )

    kernels: str = field(
        default="auto",
        metadata=described(
            'Which ops of a CPU program are implemented by kernels (docs/kernels.md): `"auto"` where they are faster, `"all"`, '
            '`"off"`; then `+NAME` and `-NAME` for single kernels or ops, as in `"auto -softmax"`.',
            "--kernels",
            metavar="CHOICE",
            help="auto (the default), all or off: which ops are implemented by kernels; for single kernels or ops: "
            "--kernels='auto -softmax'",
        ),
    )
    lapack: str = field(
        default="auto",
        metadata=described(
            'Whether factorisations in a session on this machine\'s CPU are calls of LAPACK: `"auto"` where they are faster '
            'and SciPy is installed, or `"off"`. Saved programs never have calls (docs/performance.md).',
            "--lapack",
            choices=LAPACK_CHOICES,
            help="auto (the default) or off: whether a program that runs at once calls LAPACK for factorisations; "
            "programs in files never do",
        ),
    )
    name: str | None = field(
        default=None,
        metadata=described(
            "The name of the program, instead of that of the graph. Functions, files, modules and memories of the source code "
            "that a target writes begin with it, so that several networks fit into one firmware or design. It begins with a "
            "letter, and has letters, digits, `_`, `-` and `.`.",
            "--name",
            metavar="NAME",
            help="the name of the program and the prefix of names and files of source code (default: that of the graph)",
        ),
    )

    def __post_init__(self) -> None:
        # Not imported above: they import MLIR, and the commands need only the fields.
        from rlx.ir.op.signature import POLICIES
        from rlx.kernels.choice import KernelChoice
        from rlx.passes.dtypes.precision_policies import precision_policy
        from rlx.targets.dispatch import policy_of

        if not isinstance(self.policy, str) or self.policy not in POLICIES:
            raise Error(f"policy {short_repr(self.policy)} is not one of {', '.join(POLICIES)}")
        if self.bind is not None:
            _check_sizes(self.bind)
        if self.passes is not None:
            check_string(self.passes, "passes")
        precision_policy(self.precision)
        if isinstance(self.opt, bool) or not isinstance(self.opt, int) or self.opt not in LEVELS:
            raise Error(f"opt={short_repr(self.opt)} is not one of the levels {', '.join(map(str, LEVELS))}")
        if not isinstance(self.fast_math, bool):
            raise Error(f"fast_math={short_repr(self.fast_math)} is neither True nor False")
        policy_of(self.dispatch)
        check_string(self.kernels, "kernels")
        if self.kernels not in ("auto", "off"):
            KernelChoice.parse(self.kernels)
        if not isinstance(self.lapack, str) or self.lapack not in LAPACK_CHOICES:
            raise Error(f"lapack={short_repr(self.lapack)} is not one of {', '.join(map(repr, LAPACK_CHOICES))}")
        if self.name is not None:
            _check_name(self.name)

    @property
    def prepared(self) -> Self:
        """The options for a graph that has its name and sizes, and has gone through `passes`: the others."""
        return replace(self, bind=None, passes=None, name=None)

    @property
    def compilation(self) -> CompileOptions:
        """The options of the compilation alone, where there are others besides."""
        return CompileOptions(**self.keywords())

    @with_call_errors
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
    kernels: str
    lapack: str
    name: str | None


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not re.fullmatch(_NAME, name):
        raise Error(
            f"name={short_repr(name)} is not the name of a program",
            hint=f"a letter, then letters, digits, '_', '-' and '.'; at most {_LONGEST_NAME} characters",
        )


def _check_sizes(bind: Any) -> None:
    import numpy as np

    if not isinstance(bind, Mapping):
        raise Error(f"bind must be a mapping of symbols to sizes, got {short_repr(bind)}")
    for name, size in bind.items():
        if isinstance(size, (bool, np.ndarray, type)) or not isinstance(size, SupportsIndex):
            raise Error(f"bind: the size of {name} must be an integer, got {short_repr(size)}")
