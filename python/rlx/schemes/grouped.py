"""Formats of other tools than ggml: blocks of 32, 64 or 128 elements, whose names have the fields of a layout.

| name | layout |
|---|---|
| `int4_block64`, `int8_block32` | symmetric integers |
| `int4_block128_asym` | with a zero-point |
| `affine4_block64` | with a bias, of 2, 3, 4, 5, 6 or 8 bits, as MLX has them |
| `fp8_e4m3_block128`, `fp8_e5m2_block128` | 8-bit floats |

Scales are f16. With the suffix `_bf16` or `_f32`, scales and biases have this dtype; those of 8-bit floats are always f32.
"""

from __future__ import annotations

import re
from functools import lru_cache

from rlx.schemes.layouts import BLOCKS, SCALES, BlockLayout, FloatLayout, IntegerLayout
from rlx.schemes.scheme import Scheme

_FLOATS = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2"}
_NAME = re.compile(
    r"(?:int(?P<bits>4|8)_block(?P<block>32|64|128)(?P<zero>_asym)?|affine(?P<steps>[234568])_block(?P<size>32|64|128))"
    r"(?:_(?P<scale>bf16|f32))?"
)
_FLOAT_NAME = re.compile(r"fp8_(?P<kind>e4m3|e5m2)_block(?P<block>32|64|128)")


def integer_name(kind: str, bits: int, block: int, scale: str) -> str:
    """Return the name of the format of a layout of integers, whose fields are those of `IntegerLayout`."""
    suffix = "" if scale == "f16" else f"_{scale}"
    if kind == "affine":
        return f"affine{bits}_block{block}{suffix}"
    return f"int{bits}_block{block}{'_asym' if kind == 'asymmetric' else ''}{suffix}"


def _layout(name: str) -> BlockLayout | None:
    found = _FLOAT_NAME.fullmatch(name)
    if found is not None:
        return FloatLayout(_FLOATS[found["kind"]], int(found["block"]))
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    scale = SCALES[found["scale"] or "f16"]
    if found["steps"] is not None:
        return IntegerLayout("affine", int(found["steps"]), int(found["size"]), scale)
    return IntegerLayout("asymmetric" if found["zero"] else "symmetric", int(found["bits"]), int(found["block"]), scale)


@lru_cache(maxsize=256)
def scheme_of_layout(name: str) -> Scheme | None:
    """Return the format whose name has the fields of a layout; None for other names."""
    layout = _layout(name)
    if layout is None:
        return None
    return Scheme(name, layout.block, layout.nbytes, None, layout.decode, layout.encode, layout)


def _names() -> list[str]:
    """Return the names of the formats that are listed: those with the usual dtype of scales."""
    integers = [(kind, bits) for bits in (4, 8) for kind in ("symmetric", "asymmetric")]
    integers += [("affine", bits) for bits in (2, 3, 4, 5, 6, 8)]
    names = [integer_name(kind, bits, block, "f16") for kind, bits in integers for block in reversed(BLOCKS)]
    return names + [f"fp8_{kind}_block{block}" for kind in _FLOATS for block in reversed(BLOCKS)]


SCHEMES = tuple(scheme for scheme in map(scheme_of_layout, _names()) if scheme is not None)
