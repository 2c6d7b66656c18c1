"""Names of other libraries, and the RLX calls that replace them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from inspect import Parameter, signature
from typing import Any

from rlx.answers.reader import table
from rlx.dialect.dtypes import ROWS
from rlx.ir.op.custom import calls_named
from rlx.ops import surface
from rlx.ops.numpy_functions import METHOD_OF
from rlx.support.caller import asked_after
from rlx.support.suggestions import suggestion

# Names that are modules in other libraries but not in RLX. The name looked up in them determines the answer.
SPACES = frozenset(
    {
        *("nn", "functional", "linalg", "lax", "ops", "np", "jnp", "numpy", "scipy", "special", "random", "fft"),
        *("image", "signal", "stats", "ndimage", "optim"),
    }
)
_FILES = (
    *("elementwise", "creation", "random", "reductions", "shapes", "indexing", "matrices", "layers", "losses"),
    *("conversions", "values", "declarations"),
)
_UNCHANGED = "tensors are values and are never changed"
# Prefixes and suffixes of PyTorch functions that mark a variant.
_PREFIXES = ("native_", "unsafe_", "special_", "linalg_", "fft_", "quantized_", "cudnn_", "miopen_", "mkldnn_", "sym_")
_SUFFIXES = ("_copy", "_ex", "_with_indices", "_forward")


@cache
def calls() -> dict[str, str]:
    """Return the RLX call for each other name in NumPy, JAX or PyTorch."""
    return dtypes() | table(*(f"tensors/{file}" for file in _FILES))


def dtypes() -> dict[str, str]:
    """Return the RLX dtype for each NumPy or ml_dtypes name."""
    return {row.numpy_name: f"rlx.{'bool_' if row.kind == 'bool' else row.name}" for row in ROWS}


def counterpart(name: str) -> str:
    """Return the call for a function of NumPy without a method; empty if none is known."""
    return calls().get(name, "")


def name_problem(owner: str, name: str, known: Iterable[str]) -> AttributeError:
    """Return the error for an unknown name, with the call of the same meaning or a name of similar spelling.

    Args:
        owner: The object in which the name was looked up, for the message.
        name: The name.
        known: The existing names.
    """
    call = ", or ".join(filter(None, [*calls_named(name)[:1], within(name) or call_for(name)]))
    return AttributeError(f"{owner} has no '{name}'{f'; instead: {call}' if call else suggestion(name, known)}")


def within(name: str) -> str:
    """Return the call for a name that the caller looks up in a module of another library.

    For `g.scipy.special.erf` it is the call for `erf`. The result is empty if the caller looks up no name in the
    module, or an unknown name.
    """
    path = [name, *asked_after(name)] if name in SPACES else []
    if len(path) < 2 or path[-1] in SPACES:
        return ""
    if call := table("within").get(".".join(path[-2:])):
        return call
    if path[-1][0].isupper():
        return f"rlx.nn.{path[-1]}" if "nn" in path else ""
    of_random = table("tensors/random").get(path[-1], "") if "random" in path else ""
    return of_random or call_for(path[-1])


def call_for(name: str) -> str:
    """Return the call that replaces a name of another library; empty if none is known."""
    methods = surface.methods()
    if name in METHOD_OF:
        return f"g.{METHOD_OF[name]}(…), with the same arguments"
    if call := table("tensors/graphs").get(name) or calls().get(name):
        return call
    if name in methods:
        return called("g", name, methods[name])
    if name.endswith("_") and (call := call_for(name[:-1])):
        return call if _UNCHANGED in call else f"{call}: {_UNCHANGED}"
    for base in _plainer(name):
        if call := call_for(base):
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


def attribute_problem(owner: str, name: str, file: str, known: Iterable[str]) -> AttributeError:
    """Return the error for an unknown attribute of an object, with the entry of its table or a name of similar spelling.

    Args:
        owner: The object, for the message.
        name: The attribute.
        file: The table of its kind, such as "modules".
        known: The existing attributes.
    """
    call = table(f"attributes/{file}").get(name)
    said = f"; instead: {call}" if call else suggestion(name, known)
    return AttributeError(f"{owner} has no attribute '{name}'{said}")


def _plainer(name: str) -> Iterable[str]:
    yield from (name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix))
    yield from (name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix))


def _folded(name: str) -> str:
    return name.replace("_", "").casefold()
