"""Check this installation: versions, the native module, the cache, and compiling and running a graph.

The exit code is 1 if something that RLX needs is broken.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata

from rlx.cli.display import Steps
from rlx.cli.streams import say


@dataclass(frozen=True)
class DoctorFinding:
    """The result of one check: its name, whether it passed, and the details."""

    what: str
    ok: bool
    found: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print a list of objects")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from rlx.report.text import table

    findings = []
    with Steps(only_terminal=True)("check"):
        for name, check in (_CHECKS | _checks_of_others()).items():
            findings.append(_checked(name, check))
    if arguments.json:
        say(json.dumps([asdict(f) for f in findings], indent=1))
    else:
        say("\n".join(table([("ok" if f.ok else "BROKEN", f.what, f.found) for f in findings], long={2})))
    return 0 if all(f.ok for f in findings) else 1


def _checked(name: str, check: Callable[[], str]) -> DoctorFinding:
    """Run one check. If it raises an exception, the check fails with this message."""
    started = time.perf_counter()
    try:
        result = check()
    except Exception as problem:
        return DoctorFinding(name, False, f"{type(problem).__name__}: {problem}")
    return DoctorFinding(name, True, f"{result} ({(time.perf_counter() - started) * 1e3:.0f} ms)")


def _python() -> str:
    return f"{platform.python_version()}, {sys.executable}, {platform.platform()}"


def _rlx() -> str:
    from rlx.version import __version__

    return f"{__version__}, {__file__.rpartition('cli')[0]}"


def _packages() -> str:
    names = ("numpy", "ml_dtypes", "safetensors")
    return ", ".join(f"{name} {metadata.version(name)}" for name in names)


def _mlir() -> str:
    from rlx import mlir

    mlir.context()
    distribution = "torch-mlir" if mlir.provider == "torch_mlir" else "mlir-python-bindings"
    try:
        version = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        version = "of unknown version"
    return f"{distribution} {version}, the rlx dialect loads"


def _iree() -> str:
    names = ("iree-base-compiler", "iree-base-runtime")
    versions = {name: metadata.version(name) for name in names}
    if len({tuple(version.split(".")[:2]) for version in versions.values()}) > 1:
        raise RuntimeError(f"compiler and runtime must be of one version: {versions}")
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _cpu() -> str:
    from rlx.targets.host import usable_cpus
    from rlx.targets.iree.cpu import describe_host

    return f"{usable_cpus()} usable, {describe_host()}"


def _native() -> str:
    from rlx.native import native
    from rlx.tick import Tick

    return f"{native().__file__}, cycle counter {Tick.source}"


def _cache() -> str:
    from rlx.targets.cache import DiskCache
    from rlx.targets.hashes import fingerprint

    cache = DiskCache()
    if problem := cache.problem():
        raise RuntimeError(f"no program is kept: {problem}; set RLX_CACHE_DIR to a directory that is yours alone")
    key = fingerprint("rlx doctor")
    if not cache.put(key, b"doctor") or cache.get(key) != b"doctor":
        raise RuntimeError(f"{cache.directory} cannot be written; set RLX_CACHE_DIR to a directory that can")
    return f"{cache.directory}, {len(cache)} programs, {cache.size() / 1e6:.1f} MB"


def _back_ends() -> str:
    from rlx.targets.registry import RLX, backends, problems, target_of

    if left_out := problems():
        raise RuntimeError("\n".join(map(str, left_out)))
    for target in (target for backend in backends() if backend.origin != RLX for target in backend.targets):
        target_of(target)
    return "; ".join(f"{b.name} of {b.origin}: {', '.join(b.targets)}" for b in backends())


def _devices() -> str:
    from rlx.cli.devices import devices

    usable = [d.uri for d in devices() if d.available]
    if not usable:
        raise RuntimeError("no device can be opened; `rlx devices` says why")
    return ", ".join(usable)


def _compile_and_run(device: str) -> str:
    import numpy as np

    import rlx

    g = rlx.Graph("doctor")
    x, w = g.input("x", (2, 8)), g.param("w", (8, 4))
    g.set_outputs([g.softmax(g.relu(g.matmul(x, w)), axis=-1)])
    rng = np.random.default_rng(0)
    arrays = {
        "x": rng.normal(size=(2, 8)).astype(np.float32),
        "w": rng.normal(size=(8, 4)).astype(np.float32),
    }
    started = time.perf_counter()
    program = rlx.Session(device).compile(g, params={"w": arrays["w"]}, cache=False)
    program.load()
    compiled_after = time.perf_counter() - started
    (result,) = program.run({"x": arrays["x"]})
    (expected,) = rlx.evaluate(g, arrays)
    error = float(np.abs(result - expected).max())
    if not error < 1e-6:
        raise RuntimeError(f"the compiled program's result is {error:.3g} off the evaluator's")
    started = time.perf_counter()
    for _ in range(100):
        program.run({"x": arrays["x"]})
    call = (time.perf_counter() - started) / 100
    return f"compiled in {compiled_after:.2f} s, {call * 1e6:.1f} µs a call, {error:.1g} off the evaluator"


def _xla() -> str:
    for name in ("jax", "jaxlib"):
        try:
            metadata.version(name)
        except metadata.PackageNotFoundError:
            return f"not installed: {name}, for the device xla (pip install 'rlx[jax]')"
    from rlx.targets.xla import soundness

    if problem := soundness.refusal(soundness.found(again=True)):
        raise problem
    return f"jaxlib {soundness.version()} shows no known defect, {_compile_and_run('xla')}"


def _checks_of_others() -> dict[str, Callable[[], str]]:
    """Return a check for each device of other packages."""
    from rlx.targets.registry import RLX, backends

    others = [backend for backend in backends() if backend.origin != RLX]
    return {f"device {name}": partial(_try, name) for backend in others for name in backend.devices}


def _try(device: str) -> str:
    from rlx.support.errors import UnsupportedError

    try:
        return _compile_and_run(device)
    except UnsupportedError as problem:  # a device does not have to support every op
        return f"not tried: {problem.message}"


_CHECKS: dict[str, Callable[[], str]] = {
    "python": _python,
    "rlx": _rlx,
    "packages": _packages,
    "mlir bindings": _mlir,
    "iree": _iree,
    "cpu": _cpu,
    "native module": _native,
    "cache": _cache,
    "back ends": _back_ends,
    "devices": _devices,
    "compile and run": lambda: _compile_and_run("cpu"),
    "xla": _xla,
}
