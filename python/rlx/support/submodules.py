"""Import of all modules of a package, so that each registers its contents without a list of modules."""

from __future__ import annotations

import importlib
import pkgutil
import sys


def import_all(package: str) -> None:
    """Import every module of a package and of the packages inside, in the order of their names.

    Args:
        package: The package's name. The package has been imported, or its import is in progress.
    """
    for module in pkgutil.iter_modules(sys.modules[package].__path__, f"{package}."):
        importlib.import_module(module.name)
        if module.ispkg:
            import_all(module.name)
