"""`Compilation`: a graph on its way to a target, from what was given to the artifact."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from rlx.backends.artifact import Artifact, Signature
from rlx.backends.building import cached, code_fingerprint, placed, timed
from rlx.backends.cache import DiskCache, fingerprint
from rlx.backends.dispatch import KernelDispatchPolicy, policy_of
from rlx.backends.protocol import Compiler, Target
from rlx.backends.registry import backend_of
from rlx.backends.stages import check_options, check_policy, prepared, preparing, to_mir
from rlx.ir.custom import sources
from rlx.ir.errors import StageError
from rlx.ir.graph import Graph
from rlx.ir.requirements import Requirement, requirements
from rlx.ir.signature import STAGES
from rlx.passes import run
from rlx.passes.levels import DEFAULT_LEVEL, check_level
from rlx.passes.pipeline import Pipeline
from rlx.version import __version__


class Compilation:
    """A graph at every stage on its way to a target. Each stage is made when it is first asked for, and once.

    All steps are passes, and `pipeline_text` has them: `rlx-opt` makes the same of the same module.

    Args:
        graph: HIR or MIR, with outputs. It must stay as it is until all that is wanted of the compilation is made.
        target: What for; `registry.target_of` gives it.
        policy: `"direct"` fuses ops at MIR, unless the module declares otherwise; `"fusable"` leaves primitives.
        passes: A pipeline to run first.
        bind: Sizes of symbols that are fixed; the others stay symbolic.
        precision: `"f16"` or `"bf16"`, or the dtype; None and f32 leave the graph as it is.
        opt: The level of optimisation, 0 to 3: `rlx.passes.levels`.
        dispatch: Which composite ops the target lowers by rules of its own: a `KernelDispatchPolicy`, or its text.

    Attributes:
        given: The graph.
        target: The target.
        dispatch_policy: Which composite ops the target lowers by rules of its own.
        phases: Seconds that each phase took; `cached` is there where the program comes from the cache.

    Raises:
        Error: An option is of the wrong kind.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        *,
        policy: str = "direct",
        passes: str | None = None,
        bind: Mapping[str, int] | None = None,
        precision: Any = None,
        opt: int = DEFAULT_LEVEL,
        dispatch: KernelDispatchPolicy | str | None = None,
    ):
        check_policy(policy)
        check_level(opt)
        check_options(bind, passes, precision)
        self.given = graph
        self.target = target
        self.phases: dict[str, float] = {}
        self._preparing = bind, passes
        self._to_mir = to_mir(policy, precision, opt)
        self.dispatch_policy = policy_of(dispatch)
        self._to_lir = self.dispatch_policy.applied(target.pipeline)
        self._artifact: Artifact | None = None

    @property
    def compiler(self) -> Compiler:
        """What compiles for the target."""
        return backend_of(self.target.name).compiler

    # --- stages -----------------------------------------------------------------------------------

    @property
    def pipeline_text(self) -> str:
        """All passes from the graph as given to LIR, as text for `rlx-opt`."""
        return str(Pipeline.of([*preparing(*self._preparing), *self._from_prepared]))

    @property
    def _from_prepared(self) -> list[str]:
        return [self._to_mir, self._to_lir]

    @cached_property
    def prepared(self) -> Graph:
        """The graph with sizes bound and the user's passes run.

        Raises:
            Error: A symbol is unknown, the pipeline is wrong, or a pass failed.
        """
        return prepared(self.given, *self._preparing)

    @cached_property
    def mir(self) -> Graph:
        """The graph with blocks lowered, in the dtype to compute in.

        Raises:
            Error: As `prepared`.
        """
        return run(self.prepared, self._to_mir)

    @cached_property
    def lir(self) -> Graph:
        """The graph as the target takes it: what the target does not claim is decomposed, and all is verified.

        Raises:
            UnsupportedError: It lists every op that the target cannot take, with its location.
            Error: As `prepared`.
        """
        with timed(self.phases, "passes"):
            if "mir" in self.__dict__:
                return run(self.mir, self._to_lir)
            return run(self.prepared, self._from_prepared)

    def at(self, stage: str) -> Graph:
        """The graph at a stage: as given at its own, else `mir` or `lir`.

        Raises:
            StageError: The graph has passed that stage.
            Error: As `lir`.
        """
        if STAGES.index(stage) < STAGES.index(self.given.stage):
            raise StageError(f"'{self.given.name}' is at stage {self.given.stage}, so it has no {stage}")
        if stage == self.given.stage:
            return self.given
        return self.mir if stage == "mir" else self.lir

    @cached_property
    def signature(self) -> Signature:
        """What the program takes and gives."""
        return Signature.of(self.prepared)

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        """What has to hold of the sizes of symbols."""
        return requirements(self.prepared.module, self.lir.module)

    # --- the artifact -----------------------------------------------------------------------------

    def artifact(self, *, cache: DiskCache | None = None, timeout: float | None = None) -> Artifact:
        """Compile the graph for the target. The first call does the work.

        Args:
            cache: Where compiled programs are kept. A program that is there is found without any pass but the user's.
            timeout: Seconds that an attempt of the compiler may take.

        Raises:
            CompileError: It cannot be expressed or compiled for the target.
        """
        if self._artifact is None:
            self._artifact = self._compiled(cache, timeout)
        return self._artifact

    def _compiled(self, disk: DiskCache | None, timeout: float | None) -> Artifact:
        key = None
        if disk is not None:
            with timed(self.phases, "key"):
                key = self._key()
                artifact = None if key is None else cached(disk, key, self.prepared)
            if artifact is not None:
                self.phases["cached"] = 1.0
                return placed(artifact, self.prepared, lambda: self.lir)
        made = self.compiler.compile_program(self, timeout)
        common = {"requirements": [r.to_json() for r in self.requirements], "rlx": __version__}
        artifact = Artifact(self.target.name, self.target.arch, self.signature, made.program, {**made.info, **common})
        if disk is not None and key is not None and made.lasting:
            disk.put(key, artifact.to_bytes())
        return artifact

    def _key(self) -> str | None:
        """A hash of all that the program depends on; None where that is not known, as for an op defined at a prompt."""
        graph, compiler = self.prepared, self.compiler
        custom = sources(graph.module, self.target.rules)
        if custom is None:
            return None
        name = compiler.__name__ if inspect.ismodule(compiler) else type(compiler).__module__
        code = (code_fingerprint("rlx"), code_fingerprint(name))
        target = (compiler.version(), self.target.name, self.target.arch, self.target.fingerprint())
        return fingerprint(*code, *custom, *target, *self._from_prepared, str(graph.module), graph.name_symbol)
