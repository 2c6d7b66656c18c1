"""Import of optional packages, and the error for a package that is not installed."""

from __future__ import annotations

import importlib
from typing import Any

from rlx.support.errors import Error

# The requirement to pass to pip, for packages whose requirement differs from the package name.
_INSTALLS = {
    "iree.runtime": "iree-base-runtime",
    "iree.compiler": "iree-base-compiler",
    "jax": "'rlx[jax]'",
    "jaxlib": "'rlx[jax]'",
    "flatbuffers": "'rlx[jax]'",
    "onnx": "'rlx[onnx]'",
    "torch": "'rlx[torch]'",
    "tokenizers": "'rlx[text]'",
    "jinja2": "'rlx[llm]'",
    "starlette": "'rlx[serve]'",
    "uvicorn": "'rlx[serve]'",
    "llguidance": "'rlx[llm]'",
    "tensorboardX": "'rlx[tensorboard]'",
    "matplotlib": "'rlx[plot]'",
    "shtab": "'rlx[completion]'",
    "unicorn": "'rlx[cortexm]'",
    "elftools": "'rlx[cortexm]'",
    "llvmlite": "'rlx[fpga]'",
}


def import_package(name: str, purpose: str) -> Any:
    """Import a package, or a module of it.

    Args:
        name: The package or module to import.
        purpose: The feature that needs the package; the message starts with it.

    Raises:
        Error: It cannot be imported; the hint is the command that installs it.
    """
    try:
        return importlib.import_module(name)
    except ImportError as problem:
        raise missing(name, purpose, problem) from None


def missing(name: str, purpose: str, problem: object) -> Error:
    """Return the error for a package that cannot be imported."""
    package = next((p for p in _INSTALLS if name == p or name.startswith(p + ".")), name.partition(".")[0])
    return Error(
        f"{purpose} needs the package '{package}', which cannot be imported: {problem}",
        hint=f"pip install {_INSTALLS.get(package, package)}",
    )
