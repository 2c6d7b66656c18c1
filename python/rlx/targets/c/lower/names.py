"""Identifiers in C: close to the user's names, without keywords and names that a program uses."""

from __future__ import annotations

import re
from dataclasses import dataclass

from rlx.targets.lowering.names import scope_words

_WORDS = (
    "auto break case char const continue default do double else enum extern float for goto if inline int long register "
    "restrict return short signed sizeof static struct switch typedef union unsigned void volatile while "
    # Names in the emitted code and its headers, and common definitions of C++ and of toolchain headers.
    "state params arena channel constant sums bool true false asm class new delete this template typename operator namespace "
    "and and_eq bitand bitor compl not not_eq or or_eq xor xor_eq try catch throw public private protected friend virtual "
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


# Headers of the library and of toolchains, devices of Windows, and targets of CMake: files of these names hide others, or
# cannot be written, and libraries cannot be added.
_RESERVED_WORDS = (
    "assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic "
    "stdbool stddef stdint stdio stdlib stdnoreturn string strings tgmath threads time uchar wchar wctype unistd features "
    "arm_acle arm_neon arm_mve arm_math cmsis_gcc cmsis_compiler core_cm0 core_cm4 core_cm7 core_cm33 con prn aux nul "
    "com1 com2 com3 com4 lpt1 lpt2 lpt3 lpt4 rlx host runtime main "
    "all clean depend edit_cache help install package rebuild_cache test"
)
_RESERVED = frozenset(_RESERVED_WORDS.split())
_DEFAULT = "model"
_LONGEST_LAYER = 32
_LONGEST = 63  # the length up to which C99 distinguishes identifiers in a file


def program_name(name: str) -> str:
    """Return the prefix of a program's files and external names. `main`, the default name of graphs, gives `model`."""
    text = re.sub(r"[^0-9A-Za-z]+", "_", name).strip("_")[:_LONGEST].rstrip("_")
    if name == "main" or not text:
        return _DEFAULT
    if text[0].isdigit():
        return f"{_DEFAULT}_{text}"
    is_taken = text.lower() in _RESERVED or _OURS.match(text)
    return f"{text}_{_DEFAULT}" if is_taken else text


@dataclass(frozen=True)
class FileNames:
    """The names of a program's files, which all begin with its name."""

    program: str

    @property
    def header(self) -> str:
        """The declarations for callers."""
        return f"{self.program}.h"

    @property
    def source(self) -> str:
        """The code."""
        return f"{self.program}.c"

    @property
    def weights_header(self) -> str:
        """The declarations of the constants."""
        return f"{self.program}_weights.h"

    @property
    def weights(self) -> str:
        """The constants."""
        return f"{self.program}_weights.c"

    @property
    def test(self) -> str:
        """The self-test with its test vectors."""
        return f"{self.program}_test.c"

    @property
    def readme(self) -> str:
        """The description for users."""
        return f"{self.program}.md"

    @property
    def report(self) -> str:
        """The footprint, if it is asked for."""
        return f"{self.program}_report.txt"

    @property
    def misra(self) -> str:
        """The deviations from MISRA C:2012."""
        return f"{self.program}_misra.txt"

    @property
    def cmake(self) -> str:
        """The library for CMake."""
        return f"{self.program}.cmake"

    @property
    def pack(self) -> str:
        """The description of a CMSIS-Pack."""
        return f"RLX.{self.program}.pdsc"


def layer_name(scope: str) -> str:
    """Return an identifier for the scope of an op, `encoder/block0/query`: as many of its innermost names as fit."""
    words = scope_words(scope, _LONGEST_LAYER)
    return identifier(words) if words else ""


# Functions and types of a program and of its caller (`rlx_run`), macros of <stdint.h>, and macros and functions of <math.h>.
_OURS = re.compile(
    r"rlx$|(step|finish|gather|multiply|arena|requantize|saturate|wrapping)_|int\d+x\d+_t$|r\d+$|\w+_t$"
    r"|U?INT\w*_(C|MAX|MIN)$|(SIZE|PTRDIFF|SIG_ATOMIC|WCHAR|WINT)_(MAX|MIN)$"
    r"|(M|FP|HUGE|MATH)_|HUGE_VAL[FL]?$|MAXFLOAT$|is(finite|inf|nan|normal|unordered|less|greater)|"
    r"(a?(sin|cos|tan)h?|exp2?|log(2|10|1p|b)?|expm1|sqrt|cbrt|pow|erfc?|f?abs|r?int|round|floor|ceil|trunc|fmod|hypot)[fl]?$"
)
