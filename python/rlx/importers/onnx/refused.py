"""Ops of ONNX that are not imported, and why."""

from __future__ import annotations

STRINGS = "RLX has no strings"
_MAPS = "its operands or results are strings or maps"
RANDOM = "its random numbers are not specified"
# The reason why an ONNX op has no rule.
REASONS = {
    **dict.fromkeys(("StringConcat", "StringNormalizer", "StringSplit", "RegexFullMatch"), STRINGS),
    **dict.fromkeys(("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"), RANDOM),
    **dict.fromkeys(("Bernoulli",), RANDOM),
    **{f"ai.onnx.ml.{name}": _MAPS for name in ("CastMap", "CategoryMapper", "DictVectorizer")},
    "ImageDecoder": "it decodes image files",
    "MaxRoiPool": "its windows depend on the elements of an operand",
    "ai.onnx.preview.training.Gradient": "`rlx.grad` computes gradients",
}
