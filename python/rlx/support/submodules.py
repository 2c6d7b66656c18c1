"""Importing all files of a package, where each registers what it holds: a new file is found without a list."""

from __future__ import annotations

import importlib
import pkgutil
import sys


def import_all(package: str) -> None:
    """Import every module of a package and of the packages inside, in the order of their names.

    Args:
        package: Its name. It is imported already, or is just being so.
    """
    for module in pkgutil.iter_modules(sys.modules[package].__path__, f"{package}."):
        importlib.import_module(module.name)
        if module.ispkg:
            import_all(module.name)
