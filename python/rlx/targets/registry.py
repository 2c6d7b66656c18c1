"""All back ends: those that come with RLX, and those that other packages register as entry points of `rlx.backends`.

The metadata of this kind of package has an entry `toy = "toy_backend"` in that group: a module, or `module:object`, with the
functions of `protocol.Compiler`. It is loaded when a target is used that RLX itself lacks. A back end that cannot be
loaded, or whose names are taken, is left out. All others can be used, and `rlx doctor` reports the reason.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache, partial
from importlib import metadata
from typing import Any

from rlx.ir.checks import check_string
from rlx.support.cached_property import cached_property
from rlx.support.errors import CompileError, Error
from rlx.support.printable import printable
from rlx.support.short import short_repr
from rlx.targets.contract import calling, check_functions, check_target, names_of
from rlx.targets.protocol import Compiler, Loader, Runtime, Target

GROUP = "rlx.backends"
RLX = "rlx"  # the origin of the back ends that come with RLX
# Packages with a module `backend`, and a module `targets` that is quick to import and has the names. Some also have a module
# `program`, which runs programs without the compiler.
_BUILT_IN = {
    "iree": "rlx.targets.iree",
    "xla": "rlx.targets.xla",
    "tpu": "rlx.targets.tpu",
    "c": "rlx.targets.c",
    "fpga": "rlx.targets.fpga",
    "evaluator": "rlx.targets.evaluator",
}
_RUNS_ALONE = ("iree",)
_log = logging.getLogger("rlx")


@dataclass(frozen=True)
class Registered:
    """A back end.

    Attributes:
        name: Its name.
        origin: The package that it is part of: `rlx`, or the name and version of another package.
        targets: The names of its targets, including aliases.
        devices: The names of the devices that its programs run on.
    """

    name: str
    origin: str
    targets: tuple[str, ...]
    devices: tuple[str, ...]
    _load: Callable[[], Compiler] = field(repr=False, compare=False)
    _load_program: Callable[[], Any] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def compiler(self) -> Compiler:
        """The back end itself, which is imported now."""
        return self._load()

    @cached_property
    def loader(self) -> Loader:
        """The part that reads and runs its programs. It is imported now, without the compiler if possible."""
        return self.compiler if self._load_program is None else self._load_program()

    @property
    def runtime(self) -> Runtime | None:
        """The part that runs its programs; None if it only compiles."""
        return self.loader if isinstance(self.loader, Runtime) else None

    def __str__(self) -> str:
        return f"back end '{self.name}' of {self.origin}"


@dataclass(frozen=True)
class BackendProblem:
    """The reason why a back end of another package is left out."""

    backend: str
    message: str

    def __str__(self) -> str:
        return printable(f"{self.backend} is left out: {self.message}")


# --- finding --------------------------------------------------------------------------------------


def backend_of(target: str) -> Registered:
    """The back end that compiles for a target.

    Raises:
        CompileError: The target is unknown.
    """
    check_string(target, "a target")
    for backend in backends():  # back ends after the right one are not imported
        if target in backend.targets:
            return backend
    known = target_names()
    close = get_close_matches(target, known, n=1)
    hints = [f"did you mean {close[0]!r}?"] if close else []
    hints += [f"known: {', '.join(known)}", *map(str, problems())]
    raise CompileError(f"unknown target: {short_repr(target)}", hint="; ".join(hints).replace("?; ", "? "))


def target_of(name: str, arch: Any = None, flags: Any = ()) -> Target:
    """A target from the arguments of a user.

    Raises:
        CompileError: The target or architecture is unknown, a flag is wrong, or the back end breaks the protocol.
        Error: The architecture is not a string, or the flags are not strings.
    """
    if arch is not None:
        check_string(arch, "arch")
    if not isinstance(flags, (tuple, list)) or not all(isinstance(flag, str) for flag in flags):
        raise Error(f"flags must be a tuple of strings, got {short_repr(flags)}")
    backend = backend_of(name)
    with calling(backend, "target"):
        target = backend.loader.target(name, arch, tuple(flags))
    if backend.origin != RLX:  # the type checker checks those of RLX against the protocol
        check_target(backend, target, name)
    return target


def runtime_of(target: str) -> Runtime:
    """The runtime that runs the programs of a target.

    Raises:
        CompileError: The target is unknown.
        Error: Its programs cannot run here.
    """
    backend = backend_of(target)
    if backend.runtime is None or target not in backend.devices:
        if (name := target_of(target).name) in backend.devices:
            raise Error(
                f"'{target}' is another name of the target '{name}', and no device",
                hint=f"rlx.Session({short_repr(name)})",
            )
        raise Error(
            f"nothing here runs programs for target '{target}', which is a kind of file",
            hint=f"`rlx compile --target={target}` writes one; devices: {', '.join(device_names())}",
        )
    return backend.runtime


def target_names() -> list[str]:
    """The names of all targets, including aliases."""
    return [name for backend in backends() for name in backend.targets]


def device_names() -> list[str]:
    """The names of all devices."""
    return [name for backend in backends() for name in backend.devices]


def backends() -> Iterator[Registered]:
    """All back ends: first those that come with RLX; those of other packages are imported when the iteration reaches them."""
    yield from map(_built_in, _present())
    yield from _installed()[0]


def problems() -> tuple[BackendProblem, ...]:
    """The back ends that are left out, and why."""
    return _installed()[1]


# --- loading --------------------------------------------------------------------------------------


@cache
def _present() -> tuple[str, ...]:
    """The names of the back ends that come with RLX. A distribution that only runs programs lacks some of them."""
    return tuple(name for name, package in _BUILT_IN.items() if importlib.util.find_spec(package) is not None)


@cache
def _built_in(name: str) -> Registered:
    package = _BUILT_IN[name]
    targets: Any = importlib.import_module(f"{package}.targets")
    load: Any = partial(importlib.import_module, f"{package}.backend")
    program: Any = partial(importlib.import_module, f"{package}.program") if name in _RUNS_ALONE else None
    return Registered(name, RLX, targets.target_names(), targets.device_names(), load, program)


@cache
def _installed() -> tuple[tuple[Registered, ...], tuple[BackendProblem, ...]]:
    """The back ends of other packages."""
    loaded: list[Registered] = []
    refused: list[BackendProblem] = []
    for entry in sorted(metadata.entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        origin = "an unnamed package" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
        try:
            loaded.append(_checked(entry.name, origin, entry.load()))
        except (Exception, SystemExit) as problem:  # code of another package may raise anything
            reason = problem.message if isinstance(problem, Error) else f"{type(problem).__name__}: {problem}"
            refused.append(BackendProblem(f"back end '{entry.name}' of {origin}", reason))
    clashes = [_clash(backend, loaded) for backend in loaded]
    refused += [BackendProblem(str(backend), clash) for backend, clash in zip(loaded, clashes, strict=True) if clash]
    for problem in refused:
        _log.warning("%s", problem)
    return tuple(b for b, clash in zip(loaded, clashes, strict=True) if not clash), tuple(refused)


def _checked(name: str, origin: str, compiler: Any) -> Registered:
    """A back end, after a check that it has all functions of the protocols and valid names.

    Raises:
        Error: It lacks something, or something is of the wrong kind.
    """
    has_runtime = hasattr(compiler, "load")
    for protocol in (Compiler, Runtime) if has_runtime else (Compiler,):
        check_functions(compiler, protocol)
    targets = names_of(compiler.target_names(), "target_names")
    devices = names_of(compiler.device_names(), "device_names") if has_runtime else ()
    if unknown := set(devices) - set(targets):
        raise Error(f"{', '.join(sorted(unknown))} is among its devices, but is not one of its targets")
    return Registered(name, origin, targets, devices, lambda: compiler)


def _clash(backend: Registered, loaded: list[Registered]) -> str:
    """An error message if this back end shares a name with another one, else an empty string."""
    for other in (*map(_built_in, _present()), *loaded):
        if other is not backend:
            if other.name == backend.name:
                return f"{other} has the same name"
            if shared := sorted(set(backend.targets) & set(other.targets)):
                return f"{other} has a target '{shared[0]}', too"
    return ""
