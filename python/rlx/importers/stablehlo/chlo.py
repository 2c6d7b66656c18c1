"""Conversion of CHLO ops in text to custom calls of the same name. MLIR's bindings cannot parse CHLO."""

from __future__ import annotations

import re

# `%0 = chlo.erf %x : tensor<4xf32> -> tensor<4xf32>`. Ops with two operands list both types. A location may follow.
_FUNCTION = re.compile(r"(?m)(%\w+ = )chlo\.(\w+) (%[\w#]+(?:, %[\w#]+)*) : ([^\n]+?) -> ([^\n]+?)(\s+loc\([^\n]*)?$")
# `%values, %indices = chlo.top_k(%x, k = 2) : tensor<4xf32> -> (tensor<2xf32>, tensor<2xi32>)`.
_TOP_K = re.compile(r"(%\w+, %\w+ = )chlo\.top_k\((%[\w#]+), k = (\d+)\) : ([^\n]+?) -> ")

# The generic form: `%0 = "chlo.mulhi"(%x, %y) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>`.
_GENERIC = re.compile(r'"chlo\.(\w+)"\(([^()]*)\) : \(')


def as_custom_calls(text: str) -> str:
    """Return the text with its CHLO ops as `stablehlo.custom_call @chlo.erf(%x) : (…) -> …`. Line numbers are preserved."""
    text = _FUNCTION.sub(
        lambda m: f"{m[1]}stablehlo.custom_call @chlo.{m[2]}({m[3]}) : ({m[4]}) -> {m[5]}{m[6] or ''}", text
    )
    text = _GENERIC.sub(r"stablehlo.custom_call @chlo.\1(\2) : (", text)
    return _TOP_K.sub(r"\1stablehlo.custom_call @chlo.top_k(\2) {k = \3 : i64} : (\4) -> ", text)
