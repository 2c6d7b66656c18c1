"""Identifiers in C: close to the user's names, without keywords and names that a program uses."""

from __future__ import annotations

import re

_WORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while "
    # Names in the emitted code and its headers, and common definitions of C++ and of toolchain headers.
    "state params arena channel sums bool true false asm class new delete this template typename operator namespace and "
    "and_eq bitand bitor compl not not_eq or or_eq xor xor_eq try catch throw public private protected friend virtual "
    "mutable explicit export using concept requires co_await co_return co_yield const_cast dynamic_cast static_cast "
    "reinterpret_cast typeid typeof typeof_unqual decltype alignas alignof nullptr noexcept constexpr consteval constinit "
    "static_assert thread_local main errno signbit fpclassify signgam math_errhandling offsetof "
    "abs exp log sin cos tan tanh sqrt pow round memcpy memset NULL NAN INFINITY I "
    "int8_t uint8_t int16_t uint16_t int32_t uint32_t int64_t uint64_t linux unix arm i386 mips sparc vax "
    # Variables and macros of kernels.
    "i j k l p q r n c o ky kx kz row column plane out_x out_y out_z position next_position group pair rows columns rest "
    "scratch block count STEP IN_ARENA ADVANCE COPY_WORD COPY_HALF COPY_ALIGNED_WORD COPY_TO_ALIGNED"
)
_KEYWORDS = frozenset(_WORDS.split())


def identifier(name: str, fallback: str = "x") -> str:
    """Return a C identifier for a name. It is not a keyword."""
    text = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_")[:40] or fallback
    if text[0].isdigit():
        text = f"{fallback}_{text}"
    return f"{text}_" if text in _KEYWORDS or _OURS.match(text) else text


# Functions and types of a program and of its caller (`rlx_run`), macros of <stdint.h>, and macros and functions of <math.h>.
_OURS = re.compile(
    r"rlx$|(step|finish|gather|multiply|arena|requantize|saturate|wrapping)_|int\d+x\d+_t$|r\d+$|\w+_t$"
    r"|U?INT\w*_(C|MAX|MIN)$|(SIZE|PTRDIFF|SIG_ATOMIC|WCHAR|WINT)_(MAX|MIN)$"
    r"|(M|FP|HUGE|MATH)_|HUGE_VAL[FL]?$|MAXFLOAT$|is(finite|inf|nan|normal|unordered|less|greater)|"
    r"(a?(sin|cos|tan)h?|exp2?|log(2|10|1p|b)?|expm1|sqrt|cbrt|pow|erfc?|f?abs|r?int|round|floor|ceil|trunc|fmod|hypot)[fl]?$"
)
