"""Removal of Shardy shardings (dialect sdy), which JAX writes when it traces a function under a mesh.

MLIR's bindings do not know the dialect. For one device, its meshes, attributes and constraints have no effect, so they
are removed from the text before parsing.
"""

from __future__ import annotations

import math
import re

from rlx.support.errors import UnsupportedError

_STRING = r'"[^"\n]*"'
_FLAT = rf"<(?:[^<>\"\n]|{_STRING})*>"
_ANGLED = rf"<(?:[^<>\"\n]|{_STRING}|{_FLAT})*>"
_MESH = re.compile(rf"^[ \t]*sdy\.mesh @(?P<name>{_STRING}|[\w$.-]+) = (?P<mesh>{_ANGLED})[^\n]*\n", re.MULTILINE)
_AXIS = re.compile(r'"(?P<name>[^"\n]*)"\s*=\s*(?P<size>\d+)')
_ATTRIBUTE = rf"sdy\.sharding\s*=\s*#sdy\.sharding(?:_per_value)?{_ANGLED}"
_ATTRIBUTES = re.compile(rf",\s*{_ATTRIBUTE}|{_ATTRIBUTE}(?:,\s*)?")
_CONSTRAINT = re.compile(rf"\bsdy\.sharding_constraint (?P<operand>%[\w#$.-]+) {_ANGLED} : (?P<type>tensor{_ANGLED})")


def without_shardings(text: str, name: str) -> str:
    """Return the text of a module without its shardings.

    Args:
        text: The text.
        name: The name of the module in messages.

    Raises:
        UnsupportedError: A mesh has several devices.
    """
    if "sdy." not in text:
        return text
    for mesh in _MESH.finditer(text):
        axes = {axis["name"]: int(axis["size"]) for axis in _AXIS.finditer(mesh["mesh"])}
        if (devices := math.prod(axes.values())) != 1:
            sizes = ", ".join(f"{axis}={size}" for axis, size in axes.items())
            line = text.count("\n", 0, mesh.start()) + 1
            raise UnsupportedError(
                f"the module is for {devices} devices: its mesh '{mesh['name']}' has the axes {sizes}",
                location=f"{name}:{line}:1",
                hint="export it without a mesh, or for one of one device; rlx.from_jax imports the function itself",
            )
    text = _MESH.sub("\n", text)
    text = _CONSTRAINT.sub(r"stablehlo.reshape \g<operand> : (\g<type>) -> \g<type>", text)
    return _ATTRIBUTES.sub("", text)
