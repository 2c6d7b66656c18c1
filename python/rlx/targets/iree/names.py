"""Names in a compiled program that are used both when it is compiled and when it is run."""

from __future__ import annotations

from rlx.targets.hashes import fingerprint

PARAMETER_SCOPE = "model"
GETTER, SETTER = "rlx.get.", "rlx.set."
# IREE's files for the linker begin with the name of the function. With "_dispatch_…" they have to fit into 255 bytes.
_LONGEST = 128


def exported(name: str) -> str:
    """The name that a program's function has in IREE: that of the graph, with a hash in place of its end if it is long."""
    if len(name.encode()) <= _LONGEST:
        return name
    return f"{name.encode()[: _LONGEST // 2].decode(errors='ignore')}.{fingerprint(name)[:16]}"


def symbol_of(kind: str, name: str) -> str:
    """The global that holds a parameter or state."""
    return f"{kind}.{name}"


def state_getter(name: str) -> str:
    """The function that returns a state."""
    return f"{GETTER}{name}"


def state_setter(name: str) -> str:
    """The function that sets a state."""
    return f"{SETTER}{name}"
