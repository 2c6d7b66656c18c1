"""The XLA options that a program may have. They affect only code generation.

XLA has hundreds of options. Some write files (`xla_dump_to`), load files, or end the process for a wrong value. A program with
its options may come from another user. So options that are not listed here, and values outside these ranges, are rejected in
flags and in files. Other options can be set by XLA's own environment variable `XLA_FLAGS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from rlx.support.errors import CompileError, Error
from rlx.targets.artifacts.fields import Check, boolean, integer, one_of, row, text, unexpected_value

# Pairs of name and value.
Options = tuple[tuple[str, bool | int | str], ...]


def with_threads(options: Iterable[tuple[str, bool | int | str]], threads: int | None) -> Options:
    """Return the options for a number of threads: 1, or None for one per core."""
    return (*options, ("xla_cpu_multi_thread_eigen", False)) if threads == 1 else tuple(options)


def _vector_width(value: Any, what: str) -> int:
    if type(value) is not int or value not in (128, 256, 512):
        raise unexpected_value(what, "128, 256 or 512", value)
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
    """Parse an option from a flag: `--xla_backend_optimization_level=0`.

    Raises:
        CompileError: The flag has another form, the option is unknown, or its value is not valid.
    """
    name, equals, text_value = flag.removeprefix("--").partition("=")
    if not name.startswith("xla_") or not equals:
        raise CompileError(
            f"flag {flag!r:.100}: expected an option of XLA, such as --xla_cpu_use_fusion_emitters=false"
        )
    truth_values: dict[str, bool] = {"true": True, "false": False}
    value = truth_values.get(
        text_value.lower(), int(text_value) if text_value.isdecimal() and len(text_value) < 10 else text_value
    )
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
        f"programs cannot have the option {name!r} of XLA",
        hint=f"{hint}set others in the environment variable XLA_FLAGS; known: {', '.join(OPTIONS)}",
    )
