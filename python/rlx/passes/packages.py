"""The places in which passes are looked for: RLX's own packages of passes, those of its back ends, and other packages.

A file directly in a package of passes may define the pass whose name, without the prefix, is the name of the file. Another
package that has passes says in its metadata which module defines them:

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

from rlx.ir.errors import Error

PREFIX = "rlx-"
GROUP = "rlx.passes"
_PACKAGES = (
    "rlx.passes",
    *(f"rlx.passes.{kind}" for kind in ("simplification", "recognition", "fusion", "dtypes", "integer", "checking")),
    *("rlx.transforms", "rlx.plan.passes", "rlx.lower"),
)
# `rlx-iree-scatter` is a pass of the back end in `iree/`, in a folder `passes` if it has any.
_BACKENDS = "rlx.backends"
_log = logging.getLogger("rlx")


def name_of(module: str) -> str | None:
    """The name of the pass that a module of RLX may define; None for a module that is in no package of passes."""
    package, _, file = module.rpartition(".")
    prefix = PREFIX if package in _PACKAGES else _prefix_of_backend(package)
    return None if prefix is None else prefix + file.replace("_", "-")


def import_file_of(name: str) -> None:
    """Import the file in which the pass of a name is defined, if RLX has such a file."""
    file = name.removeprefix(PREFIX).replace("-", "_")
    backend, _, rest = file.partition("_")
    candidates = [f"{package}.{file}" for package in _PACKAGES]
    if rest and importlib.util.find_spec(f"{_BACKENDS}.{backend}") is not None:
        candidates.append(f"{_BACKENDS}.{backend}.passes.{rest}")
    for module in candidates:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as problem:
            if problem.name not in (module, module.rpartition(".")[0]):
                raise


def import_all() -> None:
    """Import every file of every package of passes, and the modules of other packages.

    A module of another package that cannot be imported is left out, with a warning.
    """
    for package in (*_PACKAGES, *_packages_of_backends()):
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
    for module in pkgutil.iter_modules(importlib.import_module(_BACKENDS).__path__, f"{_BACKENDS}."):
        package = f"{module.name}.passes"
        if module.ispkg and importlib.util.find_spec(package) is not None:
            yield package


def _prefix_of_backend(package: str) -> str | None:
    backend, _, folder = package.removeprefix(f"{_BACKENDS}.").partition(".")
    is_one = package.startswith(f"{_BACKENDS}.") and folder == "passes"
    return f"{PREFIX}{backend}-" if is_one else None
