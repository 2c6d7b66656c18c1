"""The options of XLA's that a program may carry: those that say how code is made, and touch nothing outside it.

XLA has hundreds. Some write files (`xla_dump_to`), load others, or end the process for a wrong value, and a program with its
options may come from elsewhere. So what is not listed here, in these ranges, is refused, in flags and in files. For all others
there is XLA's own environment variable, `XLA_FLAGS`.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from rlx.backends.fields import Check, boolean, integer, one_of, refused, row, text
from rlx.ir.errors import CompileError, Error

# By name.
Options = tuple[tuple[str, bool | int | str], ...]


def _vector_width(value: Any, what: str) -> int:
    if type(value) is not int or value not in (128, 256, 512):
        raise refused(what, "128, 256 or 512", value)
    return value


OPTIONS: Mapping[str, Check] = {
    **dict.fromkeys(
        (
            "xla_allow_excess_precision",
            "xla_cpu_enable_concurrency_optimized_scheduler",
            "xla_cpu_enable_fast_math",
            "xla_cpu_enable_fast_min_max",
            "xla_cpu_enable_platform_dependent_math",
            "xla_cpu_fast_math_honor_division",
            "xla_cpu_fast_math_honor_functions",
            "xla_cpu_fast_math_honor_infs",
            "xla_cpu_fast_math_honor_nans",
            "xla_cpu_multi_thread_eigen",
            "xla_cpu_strict_dot_conv_math",
            "xla_cpu_use_fusion_emitters",
            "xla_cpu_use_onednn",
            "xla_cpu_use_xnnpack",
            "xla_llvm_disable_expensive_passes",
        ),
        boolean,
    ),
    "xla_backend_optimization_level": integer(0, 3),
    "xla_cpu_max_isa": one_of("SSE4_2", "AVX", "AVX2", "AVX512", "AVX512_VNNI", "AVX512_BF16"),
    "xla_cpu_parallel_codegen_split_count": integer(1, 64),
    "xla_cpu_prefer_vector_width": _vector_width,
}


def option(value: Any, what: str) -> list[Any]:
    """The check of an entry of `info["options"]`: a name and a value."""
    name, chosen = row(text, lambda value, _: value)(value, what)
    return [name, _check_of(name)(chosen, f"the option {name}")]


def from_flag(flag: str) -> tuple[str, Any]:
    """An option as a flag has it: `--xla_backend_optimization_level=0`.

    Raises:
        CompileError: It is written otherwise, is not known, or has another kind of value.
    """
    name, equals, written = flag.removeprefix("--").partition("=")
    if not name.startswith("xla_") or not equals:
        raise CompileError(f"flag {flag!r}: expected an option of XLA's, such as --xla_cpu_use_fusion_emitters=false")
    known: dict[str, bool] = {"true": True, "false": False}
    value = known.get(written.lower(), int(written) if written.isdecimal() and len(written) < 10 else written)
    try:
        return name, _check_of(name)(value, f"flag {flag!r}")
    except Error as problem:
        raise CompileError(problem.message, hint=problem.hint) from None


def _check_of(name: str) -> Check:
    if name in OPTIONS:
        return OPTIONS[name]
    close = get_close_matches(name, OPTIONS, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise CompileError(
        f"programs carry no option {name!r} of XLA's",
        hint=f"{hint}set others in the environment variable XLA_FLAGS; known: {', '.join(OPTIONS)}",
    )
