"""Types of quantised files, by the names and numbers of llama.cpp, and the formats of tensors in them.

Source: include/llama.h, and `llama_ftype_get_default_type` in src/llama-quant.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rlx.ir.op.attributes import suggestion
from rlx.schemes import SCHEMES, Scheme
from rlx.schemes.blocks import Blocks, V
from rlx.support.errors import Error
from rlx.support.short import short_repr


def _f32(blocks: Blocks[V]) -> V:
    return blocks.from_bits(blocks.quads(0, 1))


def _f16(blocks: Blocks[V]) -> V:
    return blocks.half(0)


def _bf16(blocks: Blocks[V]) -> V:
    return blocks.from_bits(blocks.words(0, 1) << 16)


# Plain formats, as packed ones with one element in a block. Their tensors are converted by rows, as those of packed
# formats are. `packing.py` has their encoders.
PLAIN = {
    "f32": Scheme("f32", 1, 4, 0, _f32),
    "f16": Scheme("f16", 1, 2, 1, _f16),
    "bf16": Scheme("bf16", 1, 2, 30, _bf16),
}


@dataclass(frozen=True)
class FileType:
    """A type of files.

    Attributes:
        name: The name: `"Q4_K_M"`.
        base: The format of most tensors.
        number: The value of `general.file_type`; None if llama.cpp has no number for it.
        is_mixed: Whether tensors have other formats by the rules of `mixture.py`.
    """

    name: str
    base: Scheme
    number: int | None
    is_mixed: bool = True


# Names, numbers, and formats where these are not the names.
_NUMBERS = {
    **{"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q5_0": 8, "Q5_1": 9, "Q2_K": 10, "Q3_K_S": 11},
    **{"Q3_K_M": 12, "Q3_K_L": 13, "Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17, "Q6_K": 18},
    **{"IQ2_XXS": 19, "IQ2_XS": 20, "Q2_K_S": 21, "IQ3_XS": 22, "IQ3_XXS": 23, "IQ4_NL": 25, "IQ3_S": 26},
    **{"IQ3_M": 27, "IQ2_S": 28, "IQ2_M": 29, "IQ4_XS": 30, "BF16": 32, "TQ1_0": 36, "TQ2_0": 37},
    **{"MXFP4_MOE": 38, "NVFP4": 39, "Q1_0": 40, "Q2_0": 41},
}
_BASES = {
    **{"Q2_K_S": "q2_k", "Q3_K_S": "q3_k", "Q3_K_M": "q3_k", "Q3_K_L": "q3_k", "Q4_K_S": "q4_k", "Q4_K_M": "q4_k"},
    **{"Q5_K_S": "q5_k", "Q5_K_M": "q5_k", "IQ3_XS": "iq3_s", "IQ3_M": "iq3_s", "IQ2_S": "iq2_xs", "IQ2_M": "iq2_s"},
    "MXFP4_MOE": "mxfp4",
}
_ALIASES = {"Q3_K": "Q3_K_M", "Q4_K": "Q4_K_M", "Q5_K": "Q5_K_M"}
_UNMIXED = ("F32", "F16", "BF16", "NVFP4")  # llama.cpp's program does not offer NVFP4
# Formats of intermediate results, which files do not have.
_NOT_STORED = ("q8_1", "q8_k")


def _file_type(name: str, number: int) -> FileType:
    base = _BASES.get(name, name.lower())
    return FileType(name, PLAIN.get(base) or SCHEMES[base], number, name not in _UNMIXED)


FILE_TYPES: Mapping[str, FileType] = {name: _file_type(name, number) for name, number in _NUMBERS.items()}


def find_file_type(name: object) -> FileType:
    """Return the type of a name, in any case: a key of `FILE_TYPES`, or a format that can be written.

    Raises:
        Error: There is none of this name.
    """
    if isinstance(name, str):
        upper = _ALIASES.get(name.upper(), name.upper())
        if upper in FILE_TYPES:
            return FILE_TYPES[upper]
        if name.lower() in TENSOR_FORMATS:
            return FileType(upper, TENSOR_FORMATS[name.lower()], None, is_mixed=False)
        if name in SCHEMES:
            raise _not_written(name)
    names = [*FILE_TYPES, *(n for n in TENSOR_FORMATS if n.upper() not in (*FILE_TYPES, *_ALIASES))]
    similar = suggestion(name.upper(), names) if isinstance(name, str) else ""
    raise Error(f"no type of files is called {short_repr(name)}{similar}; known are {', '.join(names)}")


TENSOR_FORMATS: Mapping[str, Scheme] = {
    **PLAIN,
    **{
        s.name: s
        for s in SCHEMES.values()
        if s.encode is not None and s.ggml_type is not None and s.name not in _NOT_STORED
    },
}


def find_tensor_format(name: object) -> Scheme:
    """Return the format of a name, in any case: a packed one with an encoder, or f32, f16 or bf16.

    Raises:
        Error: There is none of this name.
    """
    if isinstance(name, str):
        if name.lower() in TENSOR_FORMATS:
            return TENSOR_FORMATS[name.lower()]
        if name in SCHEMES:
            raise _not_written(name)
    similar = suggestion(name.lower(), list(TENSOR_FORMATS)) if isinstance(name, str) else ""
    known = ", ".join(TENSOR_FORMATS)
    raise Error(f"no format of tensors is called {short_repr(name)}{similar}; known are {known}")


def _not_written(name: str) -> Error:
    if SCHEMES[name].ggml_type is None:
        return Error(f"GGUF files have no format {name.lower()}")
    return Error(f"tensors of the format {name.lower()} are read only; RLX cannot quantise to it")
