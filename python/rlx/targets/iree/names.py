"""Names in a compiled program that are used both when it is compiled and when it is run."""

from __future__ import annotations

from rlx.targets.hashes import fingerprint

PARAMETER_SCOPE = "model"
GETTER, SETTER = "rlx.get.", "rlx.set."
SUBSPAN = "__rlx.subspan"  # the function that returns a part of a buffer
LENT_WEIGHTS = "__rlx.weights"  # the function that takes the weights which kernels read in the caller's memory
POINTERS = "rlx.lapack.pointers"  # the scope and the name of the parameter with pointers of LAPACK's routines
LENT_KEY = "rlx.weights"  # their names in its `iree.reflection`, as JSON
# The names of IREE's linker files begin with the function name. Including "_dispatch_…" they must fit into 255 bytes.
_LONGEST = 128


def exported_name(name: str) -> str:
    """Return the name of a program's function in IREE: the name of the graph. A hash replaces the end of a long name."""
    if len(name.encode()) <= _LONGEST:
        return name
    return f"{name.encode()[: _LONGEST // 2].decode(errors='ignore')}.{fingerprint(name)[:16]}"


def symbol_of(kind: str, name: str) -> str:
    """Return the name of the global for a parameter or state."""
    return f"{kind}.{name}"


def state_getter(name: str) -> str:
    """Return the name of the function that reads a state."""
    return f"{GETTER}{name}"


def state_setter(name: str) -> str:
    """Return the name of the function that sets a state."""
    return f"{SETTER}{name}"
