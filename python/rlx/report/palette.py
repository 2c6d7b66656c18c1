"""The colours of ops in drawings, by what they do to numbers."""

from __future__ import annotations

from rlx.ir import registry

COLOURS = {
    "inputs": "#cfe8ff",
    "products": "#ffd9a8",
    "reductions": "#cdeccd",
    "elementwise": "#fff3b8",
    "data": "#e3e6ea",
}
OTHER = "#ffffff"
# What is not an op, and ops without operands.
_INPUTS = ("input", "param", "state", "output", "constant")
_BY_WORK = {
    "product": "products",
    "reduction": "reductions",
    "moves_data": "data",
    "elementwise": "elementwise",
    "local": "elementwise",
}


def group_of(name: str) -> str:
    """The group of an op or of a kind of argument: a key of `COLOURS`, or nothing."""
    if name in _INPUTS:
        return "inputs"
    spec = registry.SPECS.get(name)
    return _BY_WORK.get(spec.work, "") if spec is not None and spec.work else ""


def colour_of(name: str) -> str:
    """The colour of an op or of a kind of argument."""
    return COLOURS.get(group_of(name), OTHER)
