"""`--load`: imports user modules that register ops, lowerings and passes."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from rlx.support.errors import Error


def load(names: Iterable[str]) -> None:
    """Import Python files (`ops.py`) and modules (`package.ops`).

    Raises:
        Error: A module cannot be found, or raises an exception.
    """
    for name in names:
        try:
            if name.endswith(".py"):
                _load_file(Path(name))
            else:
                importlib.import_module(name)
        except Error:
            raise
        except FileNotFoundError:
            raise Error(f"--load={name}: no such file") from None
        except Exception as problem:
            raise Error(f"--load={name}: {type(problem).__name__}: {problem}") from problem


def _load_file(path: Path) -> None:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise Error(f"--load={path}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # `inspect` needs this to find the source of the module's classes
    spec.loader.exec_module(module)
