"""`JointCompilation`: several graphs, compiled to one program whose functions share parameters and states."""

from __future__ import annotations

from collections.abc import Sequence

from rlx import mlir
from rlx.ir.op.signature import bodies
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.cache import DiskCache
from rlx.targets.compilation import Compilation
from rlx.targets.contract import calling
from rlx.targets.hashes import fingerprint
from rlx.targets.protocol import JointCompiler


class JointCompilation:
    """Several graphs, compiled to one program. Parameters and states of the same name are one.

    Args:
        compilations: The compilations of the graphs, for one target, whose signatures have different names.
    """

    def __init__(self, compilations: Sequence[Compilation]):
        self.compilations = list(compilations)
        self._artifacts: list[Artifact] | None = None

    def is_cached(self, cache: DiskCache | None) -> bool:
        """Whether a cache has the program. `artifacts` then reads it."""
        if self._artifacts is None and cache is not None:
            self._artifacts = self._read(cache, self._keys())
        return self._artifacts is not None

    def artifacts(self, *, cache: DiskCache | None = None, timeout: float | None = None) -> list[Artifact]:
        """Return an artifact for each graph, with the same program. The first call does the work: see `Compilation.artifact`.

        Raises:
            CompileError: A graph cannot be expressed or compiled for the target.
        """
        if self._artifacts is None:
            self._artifacts = self._compiled(cache, timeout)
        return self._artifacts

    def _compiled(self, disk: DiskCache | None, timeout: float | None) -> list[Artifact]:
        keys = None if disk is None else self._keys()
        if disk is not None and (artifacts := self._read(disk, keys)) is not None:
            return artifacts
        first = self.compilations[0]
        for compilation in self.compilations:
            compilation.cache = disk
        assert isinstance(first.compiler, JointCompiler)
        with calling(first.backend, "compile_together"):
            results = list(first.compiler.compile_together(self.compilations, timeout))
        each = zip(self.compilations, results, strict=True)
        return [c.finished(compiled, disk, keys[i][0] if keys else None) for i, (c, compiled) in enumerate(each)]

    def _keys(self) -> list[tuple[str, str]] | None:
        """Return for each function its key in a cache, and that of its graph; None if an input of one is unknown."""
        keys = [compilation.key() for compilation in self.compilations]
        known = [key for key in keys if key is not None]
        if len(known) < len(keys):
            return None
        return [(fingerprint("joint", str(i), *known), key) for i, key in enumerate(known)]

    def _read(self, disk: DiskCache, keys: Sequence[tuple[str, str]] | None) -> list[Artifact] | None:
        if keys is None:
            return None
        found = [compilation.read(disk, *both) for compilation, both in zip(self.compilations, keys, strict=True)]
        artifacts = [artifact for artifact in found if artifact is not None]
        is_whole = len(artifacts) == len(found) and len({bytes(a.program) for a in artifacts}) == 1
        return artifacts if is_whole else None


def lowered_together(compilations: Sequence[Compilation]) -> mlir.Module:
    """Return a new module with the functions of several graphs: the input of their target's compiler.

    Raises:
        Error: As for `Compilation.lowered`.
    """
    first, *others = compilations
    module = first.lir.clone().module
    functions = list[mlir.Operation](bodies(module))
    for compilation in others:
        (function,) = bodies(compilation.lir.module)
        with mlir.entered():
            functions.append(function.operation.clone(mlir.ir.InsertionPoint(module.body)))
    for compilation, function in zip(compilations, functions, strict=True):
        compilation.name_function(function)
    first.lower(module)
    return module
