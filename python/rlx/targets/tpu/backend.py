"""The back end for TPUs: libtpu compiles StableHLO ahead of time. The executable runs on a machine with a TPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rlx.ir.graph.graph import Graph
from rlx.support.errors import CompileError
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.fields import Check, integer, list_of, name, number, optional
from rlx.targets.building import timed
from rlx.targets.compilation import Compilation
from rlx.targets.protocol import Compiled
from rlx.targets.tpu import process
from rlx.targets.tpu.targets import CHIPS, Chip, Target, device_names, target, target_names
from rlx.targets.xla import backend as xla

_MOST = 1 << 62
_SIZES = ("arguments", "outputs", "temporary", "code")
# The compiler's own estimate is used only within this range, as multiples of the chip's best time: it is often almost 0.
_LEAST, _GREATEST = 0.5, 1000.0


def version() -> str:
    """Return the versions of libtpu and JAX."""
    return process.version()


def compile_program(compilation: Compilation, timeout_s: float | None = None) -> Compiled:
    """Compile a graph for one TPU.

    Raises:
        CompileError: A size is a symbol, libtpu is not installed, or libtpu rejects the program.
        UnsupportedError: An op has no lowering.
    """
    chosen, lir = compilation.target, compilation.lir
    assert isinstance(chosen, Target)
    with timed(compilation.phases, "lower"):
        program = xla.portable(compilation)
    with timed(compilation.phases, "libtpu"):
        header = {"kind": "compile", "topology": chosen.chip.topology, **_types(lir)}
        facts, executable = process.compiled(program, header, timeout_s)
    used = facts["arguments"] + facts["outputs"] + facts["temporary"] + facts["code"]
    if used > chosen.chip.memory:
        raise CompileError(f"the program takes {_size(used)}; {chosen.arch} has {_size(chosen.chip.memory)}")
    info = {size: facts[size] for size in _SIZES} | {
        "compiler": process.version(),
        "kind": facts["kind"],
        "order": [a.name for a in lir.arguments],
        "updates": [o.updates for o in lir.results],
        "flops": _known(facts["flops"]),
        "bytes": _known(facts["bytes"]),
        "seconds": _estimate(facts, chosen.chip),
    }
    return Compiled(executable, info)


def _types(graph: Graph) -> dict[str, Any]:
    """Return the sizes and dtypes of arguments and results, for the worker."""
    return {
        key: [[list(entry.shape.static), entry.shape.dtype.numpy.name] for entry in entries]
        for key, entries in (("arguments", graph.arguments), ("results", graph.results))
    }


def _known(value: float) -> float | None:
    """Return a number reported by the compiler; None if it is negative or not finite."""
    return value if math.isfinite(value) and value >= 0 else None


def least_seconds(flops: float | None, moved: float | None, chip: Chip) -> float | None:
    """Return the minimal time of a chip for these numbers of operations and bytes; None if neither is known."""
    known = [amount / rate for amount, rate in ((flops, chip.flops), (moved, chip.bytes_per_s)) if amount is not None]
    return max(known) if known else None


def _estimate(facts: Mapping[str, Any], chip: Chip) -> float | None:
    """Return the compiler's estimate of the time; None if it is implausible for the operations and bytes."""
    least = least_seconds(_known(facts["flops"]), _known(facts["bytes"]), chip)
    seconds = _known(facts["seconds"])
    if not least or seconds is None or not _LEAST * least <= seconds <= _GREATEST * least:
        return None
    return seconds


def info_fields() -> dict[str, Check]:
    """The entries of an artifact's `info`."""
    return {
        **{size: integer(0, _MOST) for size in _SIZES},
        "compiler": name,
        "kind": name,
        "order": list_of(name),
        "updates": list_of(optional(name)),
        **{fact: optional(number) for fact in ("flops", "bytes", "seconds")},
    }


def emit(kind: str, compilation: Compilation) -> str | None:
    """Return the StableHLO that libtpu compiles, as text."""
    return xla.emit(kind, compilation)


def notes(artifact: Artifact) -> list[str]:
    """Return the facts that the compiler reports about the program."""
    info, chip = artifact.info, CHIPS[artifact.arch]
    memory = ", ".join(f"{size} {_size(info[size])}" for size in _SIZES)
    flops, moved, seconds = info["flops"], info["bytes"], info["seconds"]
    least = least_seconds(flops, moved, chip)
    work = [
        "operations are not known" if flops is None else f"{flops:.4g} operations",
        "bytes are not known" if moved is None else f"{_size(round(moved))} read and written",
    ]
    time = "the compiler's estimate of the time is not usable" if seconds is None else f"estimate {_time(seconds)}"
    bound = "" if least is None else f"; at best {_time(least)}, by the peak of {artifact.arch}"
    return [
        f"memory: {memory}",
        f"work: {', '.join(work)}",
        f"time: {time}{bound}",
        f"for {info['kind']}, compiled by {info['compiler']}",
    ]


def _size(count: int) -> str:
    power = min(max(count.bit_length() - 1, 0) // 10, 4)
    return f"{count} B" if not power else f"{count / 1024**power:.4g} {'KMGT'[power - 1]}iB"


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns"


__all__: Sequence[str] = [
    "compile_program",
    "device_names",
    "emit",
    "info_fields",
    "notes",
    "target",
    "target_names",
    "version",
]
