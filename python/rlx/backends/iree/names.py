"""Names in a compiled program that are used both when it is compiled and when it is run."""

from __future__ import annotations

PARAMETER_SCOPE = "model"
GETTER, SETTER = "rlx.get.", "rlx.set."


def symbol_of(kind: str, name: str) -> str:
    """The global that holds a parameter or state."""
    return f"{kind}.{name}"


def state_getter(name: str) -> str:
    """The function that returns a state."""
    return f"{GETTER}{name}"


def state_setter(name: str) -> str:
    """The function that sets a state."""
    return f"{SETTER}{name}"
