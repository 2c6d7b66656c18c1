"""Loading of files with compiled programs."""

from __future__ import annotations

import os
from typing import Any

from rlx.ir.calls import with_call_errors
from rlx.ir.checks import check_string
from rlx.runtime.program import Program
from rlx.runtime.program_file import entries_of
from rlx.targets.artifacts.archive import Archive
from rlx.targets.artifacts.entry import check_cpu
from rlx.weights import open_parameters


@with_call_errors
def load(
    path: str | os.PathLike[str],
    *,
    params: Any = None,
    cast: bool = False,
    target: str | None = None,
    threads: int | None = None,
    expected_sha256: str | None = None,
) -> Program:
    """Load a compiled program. Programs are code: load only trusted files, or check the file by its SHA-256.

    Of a file with programs for several targets it is the one for this machine: see `StoredPrograms.choose`. Parameters
    that are in the file, or in another file that it refers to, are mapped into memory: these files must not be written to
    as long as the program is used.

    Args:
        path: A file written by `Program.save` or `rlx compile`.
        params: Weights, by name or as the path of a file, instead of those of the file; arrays are copied.
        cast: True converts weights of other dtypes: see `Program.set_params`.
        target: The name of the only target to choose from, such as `"cpu"`.
        threads: Threads that the program may use on the CPU.
        expected_sha256: The SHA-256 that the file must have, in hexadecimal, as `rlx compile` prints it.

    Raises:
        Error: The file is missing, damaged, or not the expected one, or a parameter does not fit.
        ExecutionError: It has no program that this machine can run, or its only one needs another CPU.
    """
    if target is not None:
        check_string(target, "target")
    file = Archive.load(path, expected_sha256=expected_sha256)
    compiled = Program(entries_of(file, target, threads=threads))
    for function in compiled._functions:
        check_cpu(function.artifact)
    given = None if params is None else open_parameters(params)
    stored = file.parameters
    if stored is not None and not (given is not None and stored.places.keys() <= given.keys()):
        compiled.set_params(stored.arrays(file.signature, file.folder), copy=False)
    if given is not None:
        compiled.set_params(given, cast=cast)
    return compiled
