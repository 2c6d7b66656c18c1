"""Packages that contain passes: RLX's own, those of its back ends, and other packages.

A file directly in a package of passes may define the pass whose name, without the prefix, is the name of the file.
Other packages declare the module of their passes in their metadata:

    [project.entry-points."rlx.passes"]
    mine = "my_package.passes"
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import metadata

from rlx.parts import BACKENDS, PASSES
from rlx.support.errors import Error

PREFIX = "rlx-"
GROUP = "rlx.passes"
_log = logging.getLogger("rlx")


def name_of(module: str) -> str | None:
    """Return the name of the pass that a module of RLX may define; None if the module is not in a package of passes."""
    package, _, file = module.rpartition(".")
    prefix = PREFIX if package in PASSES else _prefix_of_backend(package)
    return None if prefix is None else prefix + file.replace("_", "-")


def import_file_of(name: str) -> None:
    """Import the file that defines a pass, if RLX has one."""
    file = name.removeprefix(PREFIX).replace("-", "_")
    backend, _, rest = file.partition("_")
    candidates = [f"{package}.{file}" for package in PASSES]
    if rest and importlib.util.find_spec(f"{BACKENDS}.{backend}") is not None:
        candidates.append(f"{BACKENDS}.{backend}.passes.{rest}")
    for module in candidates:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as problem:
            if problem.name not in (module, module.rpartition(".")[0]):
                raise


def import_all() -> None:
    """Import every file of every package of passes, and the modules of other packages.

    A module of another package that cannot be imported is skipped with a warning.
    """
    for package in (*PASSES, *_packages_of_backends()):
        folder = importlib.import_module(package).__path__
        for module in pkgutil.iter_modules(folder, f"{package}."):
            if not module.ispkg:
                importlib.import_module(module.name)
    import_installed()


@cache
def import_installed() -> None:
    """Import the modules of other packages, once."""
    for entry in sorted(metadata.entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        origin = "an unnamed package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
        try:
            entry.load()
        except (Exception, SystemExit) as problem:  # code of another package may raise anything
            reason = problem.message if isinstance(problem, Error) else f"{type(problem).__name__}: {problem}"
            _log.warning("passes '%s' of %s are left out: %s", entry.name, origin, reason)


def _packages_of_backends() -> Iterator[str]:
    for module in pkgutil.iter_modules(importlib.import_module(BACKENDS).__path__, f"{BACKENDS}."):
        package = f"{module.name}.passes"
        if module.ispkg and importlib.util.find_spec(package) is not None:
            yield package


def _prefix_of_backend(package: str) -> str | None:
    backend, _, folder = package.removeprefix(f"{BACKENDS}.").partition(".")
    is_one = package.startswith(f"{BACKENDS}.") and folder == "passes"
    return f"{PREFIX}{backend}-" if is_one else None
