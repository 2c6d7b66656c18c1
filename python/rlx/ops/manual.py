"""Generated docstrings of op and helper methods: arguments, results and errors."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, Signature
from typing import Any

from rlx.dialect.spec import AttributeSpec, OpSpec, ValueSpec

# One-line summaries of the methods for the kinds of an op: op -> {kind: text}.
KINDS: Mapping[str, Mapping[str, str]] = {
    "activation": {
        "gelu": "x·Φ(x), with Φ the distribution function of the normal distribution",
        "gelu_approx": "`gelu` in its tanh approximation",
        "silu": "x·sigmoid(x), also called swish",
        "relu": "The greater of x and 0",
        "sigmoid": "1/(1 + exp(-x))",
        "tanh": "Hyperbolic tangent",
        "exp": "e to the power of x",
        "log": "Natural logarithm",
        "sqrt": "Square root",
        "rsqrt": "1 over the square root",
        "neg": "-x",
        "abs": "Absolute value",
        "sin": "Sine of an angle in radians",
        "cos": "Cosine of an angle in radians",
        "tan": "Tangent of an angle in radians",
        "atan": "Inverse tangent, in radians, from -π/2 to π/2",
        "round": "The nearest integer; halves round to the even one",
        "floor": "The greatest integer that is not above x",
        "ceil": "The least integer that is not below x",
        "exp2": "2 to the power of x",
        "expm1": "exp(x) - 1, accurate near 0",
        "log2": "Logarithm to base 2",
        "log10": "Logarithm to base 10",
        "log1p": "log(1 + x), accurate near 0",
        "cbrt": "Cube root, also of negative numbers",
        "erf": "Error function",
        "erfc": "1 - erf(x), accurate for large x",
        "asin": "Inverse sine, in radians, from -π/2 to π/2",
        "acos": "Inverse cosine, in radians, from 0 to π",
        "sinh": "Hyperbolic sine",
        "cosh": "Hyperbolic cosine",
        "asinh": "Inverse hyperbolic sine",
        "acosh": "Inverse hyperbolic cosine",
        "atanh": "Inverse hyperbolic tangent",
    },
    "binary": {
        "add": "Sum",
        "sub": "Difference",
        "mul": "Product",
        "div": "Quotient of floats or complex numbers",
        "max": "The greater of two elements",
        "min": "The lesser of two elements",
        "pow": "Power",
        "atan2": "The angle of the point (rhs, lhs), in radians, from -π to π",
    },
    "compare": {
        "eq": "Whether elements are equal",
        "ne": "Whether elements differ",
        "lt": "Whether elements of lhs are less than those of rhs",
        "le": "Whether elements of lhs are less than or equal to those of rhs",
        "gt": "Whether elements of lhs are greater than those of rhs",
        "ge": "Whether elements of lhs are greater than or equal to those of rhs",
    },
    "reduce": {
        "sum": "Sum over axes",
        "mean": "Mean over axes",
        "max": "The greatest element over axes",
        "min": "The least element over axes",
        "prod": "Product over axes",
    },
}

# The meaning of arguments with the same name in all ops.
_MEANINGS = {
    "axes": "An axis, several, or None for all; negative ones count from the last.",
    "axis": "An axis; a negative one counts from the last.",
    "keep_dims": "Whether to keep the axes, with size 1.",
    "keepdims": "NumPy's spelling of `keep_dims`.",
    "xs": "A sequence of tensors.",
    "perm": "For each axis of the result, the corresponding axis of the operand.",
    "eps": "Added to the variance, against division by 0.",
    "stride": "The step from one window to the next: one number, or one for each spatial axis.",
    "dilation": "The distance between neighbours in a window: one number, or one for each spatial axis.",
    "padding": "One number, one for each spatial axis, or (before, after) pairs.",
    "args": "Tensors that are passed to the functions.",
    "then": "A function of tensors, called if the condition is true.",
    "els": "A function of tensors, called otherwise, with results like those of `then`.",
    "cond": "A function of the carried tensors to a bool of rank 0: whether to continue.",
    "body": "A function of tensors: one step.",
    "init": "The initial values of the tensors that are carried from step to step.",
    "fwd": "A function of tensors: the op itself.",
    "vjp": "A function of the operands, the results and the cotangents, to the cotangents of the operands; or None.",
    "jvp": "A function of the operands and their tangents, to the tangents of the results; or None.",
    "function": "A function of tensors.",
    "op": "A class of `rlx.CustomOp`, or its name.",
    "kwargs": "Attributes of the op.",
    "value": "An array or a number.",
    "shape": "The expected shape of the result; any other shape is an error.",
    "scale": "A factor, or one for each spatial axis.",
    "state": "The state after earlier steps; or None.",
    "state_size": "The size of the state; None if it is known.",
    "bias": "Added to each channel of the result; or None.",
    "largest": "Whether the greatest elements come first, instead of the least.",
    "antialias": "When shrinking, whether to weight all covered elements instead of the nearest ones.",
    "dtype": "The dtype of the result; None to derive it from the values.",
    "full_matrices": "Whether the orthogonal matrices are square.",
    "n": "The number of elements along the axis: it is cut, or padded with zeros; or None.",
}
# Meanings that differ in some helpers, whose docstrings omit these arguments.
_OF_HELPERS = {
    "keepdims": _MEANINGS["keep_dims"],
    "shape": "The sizes of the result.",
    "dtype": "The dtype of the result; None for the default.",
    "k": "The diagonal: 0 is the main one, positive numbers are above it.",
    "offset": "The diagonal: 0 is the main one, positive numbers are above it.",
    "ddof": "Subtracted from the number of elements in the divisor.",
    "prediction": "The output of a network.",
    "target": "The expected output, in the same shape.",
    "reduction": "'mean', 'sum' or 'none', for all elements.",
    "norm": "'backward', 'forward' or 'ortho': the direction that is divided by the size, as in NumPy.",
    "rtol": "The allowed distance, relative to the second operand.",
    "atol": "The allowed absolute distance.",
    "equal_nan": "Whether NaN counts as equal to NaN.",
    "fill_value": "The value of each element.",
    "kernel": "The size of a window: one number, or one for each spatial axis.",
}
# Descriptions by type, for arguments whose name has no entry.
_OF_TYPES = {
    "TensorLike": "A tensor, or an array or number next to a tensor.",
    "int": "An integer.",
    "float": "A number.",
    "bool": "True or False.",
    "str": "A text.",
    "Size": "A size, which may be symbolic.",
    "ShapeLike": "Sizes.",
    "int | Sequence[int]": "An integer, or several.",
    "Sequence[int]": "Integers.",
}
_RAISES = "Raises:\n    ShapeError: Shapes, dtypes or arguments do not fit; it names the caller's line."
_TYPES = {
    "i64": "an integer",
    "f64": "a number",
    "bool": "true or false",
    "i64s": "integers",
    "str": "a text",
    "dims": "sizes",
    "dtype": "a dtype",
    "elements": "an array",
    "dict": "a mapping",
}


def kind_summary(op: str, kind: str) -> str:
    """Return a one-line summary, without a full stop, of one kind of an op."""
    return KINDS.get(op, {}).get(kind) or f"`{op}` of kind `{kind}`"


def of_op(spec: OpSpec, signature: Signature, more: str = "") -> str:
    """Return the docstring of an op's method.

    `more` documents arguments that differ from those of the record, in prose, in a section `Own arguments:`, or both. The
    description of the record is left out if it is about operands, attributes or regions that the method does not have.
    """
    return _page(spec.summary, spec, signature, more)


def of_kind(spec: OpSpec, kind: str, signature: Signature) -> str:
    """Return the docstring of the method for one kind of an op."""
    return _page(f"{kind_summary(spec.name, kind)}: `{spec.name}` of kind `{kind}`", spec, signature)


def of_helper(function: Callable[..., Any], signature: Signature) -> str:
    """Return the docstring of a helper's method: that of the helper without the graph, plus missing sections."""
    builder = f"    {next(iter(inspect.signature(function).parameters))}: The "
    hidden = tuple(f"{builder}{name}." for name in ("builder", "graph"))
    text = "\n".join(line for line in (inspect.getdoc(function) or "").splitlines() if line not in hidden)
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    if "Args:\n" not in text and parameters:
        said = "\n".join(["Args:", *(f"    {p.name}: {_of_helper(p)}" for p in parameters)])
        first = min(at for mark in ("\n\nReturns:", "\n\nRaises:", "") if (at := _place(text, mark)) >= 0)
        text = f"{text[:first]}\n\n{said}{text[first:]}"
    return text if "Raises:\n" in text else f"{text}\n\n{_RAISES}"


def of_tensor(page: str, operand: str) -> str:
    """Return the docstring of a tensor's method from that of the builder's method, whose first operand is the tensor."""
    before, mark, section = page.partition("\nArgs:\n")
    arguments, _, after = section.partition("\n\n")
    others = re.sub(rf"^    {operand}: .*(?:\n {{8}}.*)*\n?", "", arguments, flags=re.M)
    kept = f"{mark}{others}\n\n" if others else "\n"
    return f"{before}\nThe operand `{operand}` is this tensor.\n{kept}{after}"


def _place(text: str, mark: str) -> int:
    """Return the position at which a section begins; the end of the text if the mark is empty."""
    return text.find(mark) if mark else len(text)


def _of_helper(parameter: Parameter) -> str:
    """Return the description of an argument by its name, or else by its type."""
    kind = str(parameter.annotation)
    if parameter.name == "axis" and "Sequence" in kind:
        return f"An axis, or several; negative ones count from the last{'; or None' if 'None' in kind else ''}."
    said = (
        _OF_HELPERS.get(parameter.name) or _MEANINGS.get(parameter.name) or _OF_TYPES.get(kind.removesuffix(" | None"))
    )
    if said is None:
        return f"{kind}."
    return f"{said[:-1]}; or None." if kind.endswith(" | None") and "None" not in said else said


def _page(summary: str, spec: OpSpec, signature: Signature, more: str = "") -> str:
    prose, _, section = inspect.cleandoc(more).partition("Own arguments:\n")
    own = {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(section)}
    description = "" if foreign_names(spec, signature) else inspect.cleandoc(spec.description)
    sections = [f"{summary}.", description, prose.rstrip()]
    parameters = [p for p in signature.parameters.values() if p.name != "self"]
    arguments = [f"    {p.name}: {own.get(p.name) or _meaning(spec, p)}" for p in parameters]
    if arguments:
        sections.append("\n".join(["Args:", *arguments]))
    if results := [f"    {_value(result)}." for result in spec.results]:
        sections.append("\n".join(["Returns:", *(f"    {line.strip()}" for line in results)]))
    sections.append(_RAISES)
    return "\n\n".join(section for section in sections if section)


# An entry of a section of arguments, with its continuation lines.
_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.M)


def foreign_names(spec: OpSpec, signature: Signature) -> set[str]:
    """Return the names in the description of an op that are in its record, but are not parameters of its method."""
    record = {entry.name for entry in (*spec.operands, *spec.attributes, *spec.regions)}
    return record & {*re.findall(r"`(\w+)", spec.description)} - set(signature.parameters)


def _meaning(spec: OpSpec, parameter: Parameter) -> str:
    for operand in spec.operands:
        if operand.name == parameter.name:
            return f"{_value(operand)}." if parameter.default is Parameter.empty else f"{_value(operand)}; or None."
    attribute = next((a for a in spec.attributes if a.name == parameter.name), None)
    if parameter.name == "axis" and any(a.name == "axes" for a in spec.attributes):
        return "NumPy's spelling of `axes`."
    if parameter.name in _MEANINGS:
        return _MEANINGS[parameter.name]
    return _of_helper(parameter) if attribute is None else _attribute(attribute)


def _attribute(attribute: AttributeSpec) -> str:
    if attribute.cases:
        return f"{_listed(repr(case) for case in attribute.cases)}."
    text = _TYPES[attribute.kind]
    where = f" in {attribute.interval}" if attribute.interval else ""
    optional = " Optional." if attribute.default is None else ""
    return f"{text[0].upper()}{text[1:]}{where}.{optional}"


def _value(value: ValueSpec) -> str:
    dtypes = "any dtype" if {"storage", "complexes"} <= set(value.accepts) else _listed(value.accepts)
    return f"{'Tensors' if value.arity == 'variadic' else 'Tensor'} of {dtypes}"


def _listed(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last
