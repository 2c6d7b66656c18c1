"""The native module of RLX (`lib/`, C++). It is imported on first use, never by `import rlx`."""

from __future__ import annotations

import functools
import importlib
import sys
import sysconfig
from types import ModuleType


@functools.cache
def native() -> ModuleType:
    """Return the extension module ``rlx._native``.

    Raises:
        rlx.support.errors.Error: The module was not built, or not for this interpreter.
    """
    try:
        return importlib.import_module("rlx._native")
    except ImportError as error:
        from rlx.support.errors import Error

        raise Error(
            f"the native module rlx._native cannot be imported by {sys.executable}: {error}; expected a file "
            f"_native{sysconfig.get_config_var('EXT_SUFFIX')} in the installed package",
            hint="in a checkout run `make test` or `make demo` and use .venv/bin/python, or run "
            "`pip install .`; for sources on PYTHONPATH, `cmake -S . -B build && cmake --build build` puts "
            "the module beside them. Each needs a C++17 compiler",
        ) from error
