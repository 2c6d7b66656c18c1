"""Guards: PyTorch's assumptions about open sizes from tracing a module."""

from __future__ import annotations

import contextlib
import itertools
import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

from rlx.importers.torch.sizes import LARGEST_SIZE, SymbolNames, bound_of
from rlx.ir.dims.bounds import Bound, Bounds
from rlx.ir.dims.dim import Dim, DimExpr, parse
from rlx.support.errors import Error, UnsupportedError

# For one symbol, every size from the smallest up to _SMALL is tested, and the larger sizes _LARGE. For several symbols,
# _DRAWS random samples are tested.
_SMALL, _LARGE, _DRAWS = 40, (64, 100, 255, 1000), 200
# A bound of one size, in the text that is stored in files: `L['x'].size()[0] >= 5`.
_BOUND = re.compile(r"L\[[^()]*\]\.size\(\)\[\d+\] (<=|>=|<|>) \d+|\d+ (<=|>=|<|>) L\[[^()]*\]\.size\(\)\[\d+\]")
_SIZE = re.compile(r"L\['(\w+)'\]\.size\(\)\[(\d+)\]")
_FORMULA = re.compile(r"(?:\bs\d+\b|\b\d+\b|[-+*/%()=!<> ])+")
_HINT = "fix the size: leave it out of dynamic_shapes, or give a torch.export.Dim with bounds within which it holds"


def guards_of(program: Any, sizes: SymbolNames) -> Bounds:
    """Return the conditions on sizes within their ranges under which the program is equivalent to the module.

    Symbols that must be equal are united.

    Under `Dim.AUTO` and `Dim.DYNAMIC`, PyTorch exports a program for example sizes and records its assumptions about
    them. Bounds of single sizes are not included: they are the ranges of the symbols.

    Args:
        program: The exported program.
        sizes: The symbols of the program.

    Raises:
        UnsupportedError: The program differs from the module for some sizes in the ranges, and this cannot be checked.
    """
    environment = _environment(program)
    ranges = {**getattr(environment, "var_to_range", {}), **getattr(program, "range_constraints", {})}
    guards = [guard.expr for guard in getattr(environment, "guards", ()) if hasattr(guard, "expr")]
    if not guards:  # a program from a file has only the text of its guards
        return _of_texts(program, ranges)
    replaced: dict[Any, Any] = dict(getattr(environment, "replacements", {}))
    for guard in dict.fromkeys(guards):
        if pair := _equal_symbols(guard, replaced):
            sizes.unite(*pair)
            replaced[pair[1]] = pair[0]
    found: dict[Bound, None] = {}
    for guard in dict.fromkeys(guards):
        if not hasattr(guard, "free_symbols") or _is_of_0_and_1(guard):
            continue
        guard = guard.xreplace(replaced)
        broken = next((tried for tried in _sizes(guard.free_symbols, ranges) if _is_false(guard, tried)), None)
        if broken is None:
            continue
        bound = _translated(guard, sizes)
        if bound is None:
            shown = re.sub(r"\bs\d+\b", lambda found: sizes.names.get(found[0], found[0]), str(guard))
            given = ", ".join(f"{sizes.names.get(str(s), s)}={size}" for s, size in broken.items())
            raise UnsupportedError(f"the program is the module only where {shown}, not for {given}", hint=_HINT)
        found[bound] = None
    return tuple(found)


def _equal_symbols(guard: Any, replaced: Mapping[Any, Any]) -> tuple[Any, Any] | None:
    """Return the two symbols that an equation equates, possibly with common factors: `4*s0*s1 == 4*s0*s2`."""
    if type(guard).__name__ != "Equality":
        return None
    left, right = (side.xreplace(replaced) for side in guard.args)
    if left == 0 or right == 0:
        return None
    above, below = (left / right).as_numer_denom()
    return (above, below) if above.is_Symbol and below.is_Symbol else None


def _translated(guard: Any, sizes: SymbolNames) -> Bound | None:
    """Return a guard as a bound on the difference of both sides; None if RLX has no such sizes."""
    try:
        left, right = map(sizes.translated, guard.args)
    except (Error, ValueError):
        return None
    return _compared(left, type(guard).__name__, right)


def _compared(left: Dim, kind: str, right: Dim) -> Bound | None:
    size, number = (left, right) if isinstance(right, int) else (left - right, 0)
    if not isinstance(size, DimExpr):
        return None
    match kind:
        case "Equality" | "==":
            return Bound(size, number, number)
        case "Unequality" | "!=":
            return Bound(size, unlike=number)
        case "LessThan" | "StrictLessThan":
            return Bound(size, high=number - (kind != "LessThan"))
        case "GreaterThan" | "StrictGreaterThan":
            return Bound(size, low=number + (kind != "GreaterThan"))
        case _:
            return None


def _of_texts(program: Any, ranges: Mapping[Any, Any]) -> Bounds:
    """Return the bounds for guards given as text.

    Guards on sums, products and remainders of sizes are evaluated; other guards are rejected.
    """
    tensors = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}

    def size(found: re.Match[str]) -> str:
        shape = getattr(tensors.get(found[1]), "shape", ())
        return f"({shape[int(found[2])]})" if int(found[2]) < len(shape) else found[0]

    bounds: dict[Bound, None] = {}
    for text in dict.fromkeys(map(str, getattr(program, "_guards_code", None) or ())):
        if _BOUND.fullmatch(text) or text.endswith((" != 0", " != 1")):
            continue
        formula = _SIZE.sub(size, text)
        symbols = [s for s in ranges if re.search(rf"\b{s}\b", formula)]
        # Only sizes, numbers and operators are evaluated: a file may contain arbitrary text.
        plain = _FORMULA.fullmatch(formula) and "**" not in formula
        if plain and all(_holds(formula, tried) for tried in _sizes(symbols, ranges)):
            continue
        bound = _parsed(formula) if plain else None
        if bound is None:
            raise UnsupportedError(f"the program is the module only where {text}", hint=_HINT)
        bounds[bound] = None
    return tuple(bounds)


def _parsed(formula: str) -> Bound | None:
    """Return a bound for an equation or inequality of sizes."""
    sides = re.split(" (==|!=) ", formula)
    if len(sides) != 3:
        return None
    try:
        return _compared(parse(sides[0]), sides[1], parse(sides[2]))
    except Error:
        return None


def _holds(formula: str, sizes: Mapping[Any, int]) -> bool:
    try:
        return bool(eval(formula, {"__builtins__": {}}, {str(s): n for s, n in sizes.items()}))
    except Exception:
        return False


def _environment(program: Any) -> Any:
    """Return the shape environment of a program, None if it has no symbols."""
    values = (node.meta.get("val") for node in program.graph.nodes)
    modes = (getattr(value, "fake_mode", None) for value in values)
    return next((e for mode in modes if (e := getattr(mode, "shape_env", None)) is not None), None)


def _is_of_0_and_1(guard: Any) -> bool:
    """Return whether a guard excludes the sizes 0 or 1. PyTorch assumes this for all open sizes."""
    return type(guard).__name__ == "Unequality" and any(side in (0, 1) for side in guard.args)


def _is_false(guard: Any, sizes: Mapping[Any, int]) -> bool:
    """Return whether sizes violate a guard. A guard that cannot be evaluated is not violated."""
    with contextlib.suppress(Exception):  # a division by a size of 0, or functions with another definition in PyTorch
        return str(guard.subs(dict(sizes))) == "False"
    return False


def _sizes(symbols: Any, ranges: Mapping[Any, Any]) -> Iterator[dict[Any, int]]:
    """Yield sizes for the symbols, within their ranges."""
    order = sorted((s for s in symbols if s in ranges), key=str)
    if not order or len(order) < len(symbols):
        return
    choices = []
    for symbol in order:
        low, high = bound_of(ranges[symbol], "lower", 0), bound_of(ranges[symbol], "upper", LARGEST_SIZE)
        choices.append([n for n in (*range(low, low + _SMALL), *(low + far for far in _LARGE), high) if n <= high])
    draw = random.Random(0)
    one = ((n,) for n in choices[0]) if len(order) == 1 else None
    several = ([draw.choice(c) for c in choices] for _ in range(_DRAWS))
    for numbers in one or itertools.chain([[c[0] for c in choices]], several):
        yield dict(zip(order, numbers, strict=True))
