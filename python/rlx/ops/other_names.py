"""Names of other libraries, and the RLX calls that replace them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from inspect import Parameter, signature
from typing import Any

from rlx.ir.location import asked_after
from rlx.ops.vocabulary import elementwise, layers, shapes, tensors
from rlx.ops.vocabulary import keywords as keywords  # these two fill the advice tables of `rlx.ir.op.calls`
from rlx.ops.vocabulary import options as options
from rlx.ops.vocabulary.spaces import SPACES, WITHIN
from rlx.support.suggestions import suggestion

# NumPy and array API names of methods with the same arguments.
METHOD_OF = {
    "absolute": "abs",
    "fabs": "abs",
    "negative": "neg",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "true_divide": "div",
    "power": "pow",
    "float_power": "pow",
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "around": "round",
    "fix": "trunc",
    "invert": "bitwise_not",
    "bitwise_count": "popcount",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "amax": "max",
    "amin": "min",
    "permute_dims": "transpose",
    "degrees": "rad2deg",
    "radians": "deg2rad",
    "gammaln": "lgamma",
    "expit": "sigmoid",
    "cumulative_sum": "cumsum",
    "cumulative_prod": "cumprod",
    "bitwise_invert": "bitwise_not",
    "bitwise_left_shift": "left_shift",
    "bitwise_right_shift": "right_shift",
}
# Other names in NumPy, JAX or PyTorch -> the RLX call. `g` is the graph, or `rlx.ops`.
CALLS = {
    **elementwise.ELEMENTWISE,
    **elementwise.MAKING,
    **elementwise.RANDOM,
    **shapes.REDUCING,
    **shapes.SHAPING,
    **shapes.INDEXING,
    **layers.MATRICES,
    **layers.LAYERS,
    **layers.LOSSES,
    **tensors.CONVERSIONS,
    **tensors.VALUES,
    **tensors.DECLARATIONS,
}

# Methods of graphs that tensors do not have, because the PyTorch method of that name has another meaning.
OF_GRAPHS = {
    "scatter_add": "g.put_along_axis(x, indices, values, axis, reduction='add') as PyTorch's, or x.at[…].add(values)",
    "where": "g.where(condition, x, other)",
    "gather": "g.take_along_axis(x, indices, axis) as PyTorch's, g.gather(x, indices, axis=…) for whole slices",
    "triangular_solve": "g.triangular_solve(a, x), with the matrix first",
    "solve": "g.solve(a, x), with the matrix first",
    "svd": "g.svd(x), whose last result is transposed already",
    "index": "x[i, j]",
}

_UNCHANGED = "tensors are values and are never changed"
# Prefixes and suffixes of PyTorch functions that mark a variant.
_PREFIXES = ("native_", "unsafe_", "special_", "linalg_", "fft_", "quantized_", "cudnn_", "miopen_", "mkldnn_", "sym_")
_SUFFIXES = ("_copy", "_ex", "_with_indices", "_forward")


def problem(owner: str, name: str, known: Iterable[str], methods: Mapping[str, Any]) -> AttributeError:
    """Return the error for an unknown name, with the call of the same meaning or a name of similar spelling.

    Args:
        owner: The object in which the name was looked up, for the message.
        name: The name.
        known: The existing names.
        methods: The methods of graphs.
    """
    call = within(name, methods) or call_for(name, methods)
    return AttributeError(f"{owner} has no '{name}'{f'; instead: {call}' if call else suggestion(name, known)}")


def within(name: str, methods: Mapping[str, Any]) -> str:
    """Return the call for a name that the caller looks up in a module of another library.

    For `g.scipy.special.erf` it is the call for `erf`. The result is empty if the caller looks up no name in the
    module, or an unknown name.
    """
    path = [name, *asked_after(name)] if name in SPACES else []
    if len(path) < 2 or path[-1] in SPACES:
        return ""
    if call := WITHIN.get(".".join(path[-2:])):
        return call
    if path[-1][0].isupper():
        return f"rlx.nn.{path[-1]}" if "nn" in path else ""
    of_random = elementwise.RANDOM.get(path[-1], "") if "random" in path else ""
    return of_random or call_for(path[-1], methods)


def call_for(name: str, methods: Mapping[str, Any]) -> str:
    """Return the call that replaces a name of another library; empty if none is known."""
    if name in METHOD_OF:
        return f"g.{METHOD_OF[name]}(…), with the same arguments"
    if call := OF_GRAPHS.get(name) or CALLS.get(name):
        return call
    if name in methods:
        return called("g", name, methods[name])
    if name.endswith("_") and (call := call_for(name[:-1], methods)):
        return call if _UNCHANGED in call else f"{call}: {_UNCHANGED}"
    for base in _plainer(name):
        if call := call_for(base, methods):
            return call
    folded = [method for method in methods if _folded(method) == _folded(name)]
    return called("g", folded[0], methods[folded[0]]) if folded else ""


def called(owner: str, name: str, method: Any) -> str:
    """Return a call of a method with its argument names: `g.cumsum(x, axis, exclusive=False)`."""
    shown: list[str] = []
    for parameter in signature(method).parameters.values():
        if parameter.name == "self" or (parameter.name == "shape" and parameter.default is None):
            continue
        star = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        default = "" if parameter.default is Parameter.empty else f"={parameter.default!r}"
        shown.append(f"{star}{parameter.name}{default}")
    return f"{owner}.{name}({', '.join(shown)})"


def attribute_problem(owner: str, name: str, calls: Mapping[str, str], known: Iterable[str]) -> AttributeError:
    """Return the error for an unknown attribute of an object of `owner`, with the table entry or a name of similar spelling."""
    call = calls.get(name)
    said = f"; instead: {call}" if call else suggestion(name, known)
    return AttributeError(f"{owner} has no attribute '{name}'{said}")


def _plainer(name: str) -> Iterable[str]:
    yield from (name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix))
    yield from (name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix))


def _folded(name: str) -> str:
    return name.replace("_", "").casefold()
