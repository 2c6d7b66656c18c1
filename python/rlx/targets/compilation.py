"""`Compilation`: a graph at every stage of compiling it for a target."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import replace

from rlx import mlir
from rlx.ir.calls import Answered
from rlx.ir.graph.graph import Graph
from rlx.ir.interface import Requirement
from rlx.ir.op.custom import sources
from rlx.ir.op.requirements import requirements
from rlx.ir.op.signature import STAGES, bodies
from rlx.kernels.registry import own_sources
from rlx.passes import run
from rlx.passes.dtypes.precision_policies import precision_policy
from rlx.passes.history import dump_from_environment
from rlx.passes.lapack import has_factorizations
from rlx.passes.levels import to_mir
from rlx.passes.pipeline import PassPipeline
from rlx.passes.runner import Instrument
from rlx.support.cached_property import cached_property
from rlx.support.errors import CompileError, Error, StageError
from rlx.targets.artifacts.artifact import Artifact
from rlx.targets.artifacts.signature import Signature
from rlx.targets.building import cached_artifact, code_fingerprint, timed, with_locations
from rlx.targets.cache import DiskCache
from rlx.targets.contract import calling, check_compiled, check_info, check_lowering
from rlx.targets.dispatch import CallingLapack, policy_of, with_kernels, with_lapack
from rlx.targets.hashes import fingerprint
from rlx.targets.options import CompileOptions
from rlx.targets.protocol import Compiled, Compiler, Target
from rlx.targets.registry import Registered, backend_of
from rlx.targets.stages import check_of, lower, prepare_graph, preparing
from rlx.version import __version__


class Compilation(Answered):
    """A graph at every stage of compiling it for a target. Each stage is computed once, when it is first used.

    All steps are passes, and `pipeline_text` lists them: with this text, `rlx-opt` has the same result for the same module.
    If the environment variable `RLX_IR_DUMP` names a folder, the module is written there after each pass that changes it.

    Args:
        graph: HIR or MIR, with outputs. It must not be changed while the compilation is in use.
        target: The target; see `registry.target_of`.
        options: The options; the defaults when absent.
        symbol: The name of the function in the program; by default that of the graph.
        in_session: Whether the program runs in this process and is not saved. Then it may call LAPACK.

    Attributes:
        given: The graph passed to the constructor.
        target: The target.
        options: The options.
        dispatch_policy: The composite ops that the target lowers with its own rules.
        may_call_lapack: Whether the program may call LAPACK.
        cache: The cache of `artifact`, in which back ends may keep parts of programs.
        phases: The seconds that each phase took. An entry `cached_artifact` marks a program from the cache.
    """

    def __init__(
        self,
        graph: Graph,
        target: Target,
        options: CompileOptions | None = None,
        *,
        symbol: str | None = None,
        in_session: bool = False,
    ):
        options = options or CompileOptions()
        self._symbol = symbol
        self.given = graph
        self.target = target
        self.options = options
        self.phases: dict[str, float] = {}
        self._to_mir = to_mir(
            options.opt,
            fuse=options.policy == "direct",
            precision=precision_policy(options.precision).passes,
            target=target.name,
            fast_math=options.fast_math,
        )
        self.dispatch_policy = policy_of(options.dispatch)
        to_lir = with_kernels(target, options)
        # Other programs are the same in sessions and in files, and share the cache.
        self.may_call_lapack = (
            in_session
            and options.lapack == "auto"
            and isinstance(target, CallingLapack)
            and target.calls_lapack
            and has_factorizations(graph.module)
        )
        self._to_lir = self.dispatch_policy.applied(with_lapack(to_lir) if self.may_call_lapack else to_lir)
        self.cache: DiskCache | None = None
        self._artifact: Artifact | None = None
        self._cached_key: str | None = None
        self._observers = dump_from_environment(graph.name)

    @property
    def backend(self) -> Registered:
        """The back end of the target."""
        return backend_of(self.target.name)

    @property
    def compiler(self) -> Compiler:
        """The compiler for the target."""
        return self.backend.compiler

    # --- stages -----------------------------------------------------------------------------------

    @property
    def pipeline_text(self) -> str:
        """All passes from the given graph to the input of the target's compiler, as text for `rlx-opt`."""
        return str(PassPipeline.of([self.passes_to_lir, self.lowering]))

    @property
    def passes_to_mir(self) -> str:
        """The passes from the given graph to MIR, as text."""
        return str(PassPipeline.of([*preparing(self.options), self._to_mir]))

    @property
    def passes_to_lir(self) -> str:
        """The passes from the graph as given to LIR, as text."""
        return str(PassPipeline.of([*preparing(self.options), *self._from_prepared]))

    @cached_property
    def lowering(self) -> str:
        """The passes from LIR to the input of the target's compiler, as text; empty where the compiler reads LIR.

        Raises:
            CompileError: The back end does not return the text of passes.
        """
        with calling(self.backend, "lowering"):
            text = self.target.lowering(self.options.opt)
        check_lowering(self.backend, self.target.name, text)
        return text

    @property
    def _from_prepared(self) -> list[str]:
        return [self._to_mir, self._to_lir]

    @cached_property
    def prepared(self) -> Graph:
        """The graph with sizes bound, after the user's passes.

        Raises:
            Error: A symbol is unknown, the pipeline is wrong, or a pass failed.
        """
        return prepare_graph(self.given, self.options, instruments=self._observers)

    @cached_property
    def mir(self) -> Graph:
        """The graph with blocks lowered, in the dtype of the computation.

        Raises:
            Error: As for `prepare_graph`.
        """
        return run(self.prepared, self._to_mir, instruments=self._observers)

    @cached_property
    def lir(self) -> Graph:
        """The graph in the target's ops: ops without a rule in the target are decomposed, and the graph is verified.

        Raises:
            UnsupportedError: The target does not support some ops; the error lists them with their locations.
            CompileError: The pipeline of the target does not end at LIR.
            Error: As for `prepare_graph`.
        """
        with timed(self.phases, "passes"):
            source, steps = (
                (self.mir, [self._to_lir]) if "mir" in self.__dict__ else (self.prepared, self._from_prepared)
            )
            graph = run(source, steps, instruments=self._observers)
        if graph.stage != "lir":
            message = f"the pipeline of target {self.target.name} ends at stage {graph.stage}: {self._to_lir}"
            raise CompileError(
                message, hint="its last pass is rlx-check-lir: rlx.targets.stages.to_lir makes such a text"
            )
        return graph

    def lowered(self, instruments: Sequence[Instrument] = ()) -> mlir.Module:
        """A new module: the input of the target's compiler, which the passes of `lowering` make of the LIR.

        Args:
            instruments: Instruments that observe these passes.

        Raises:
            Error: As for `lir`, or a pass failed.
        """
        module = self.lir.clone().module
        (function,) = bodies(module)
        self.name_function(function)
        self.lower(module, instruments)
        return module

    def name_function(self, function: mlir.Operation) -> None:
        """Give a copy of the function at LIR its name in the program."""
        with mlir.entered():
            function.attributes["sym_name"] = mlir.ir.StringAttr.get(self.signature.name)

    def lower(self, module: mlir.Module, instruments: Sequence[Instrument] = ()) -> None:
        """Run the passes of `lowering` on a module at LIR, in place."""
        lower(module, self.lowering, [*self._observers, *instruments])

    def lowered_text(self) -> str:
        """The text of `lowered`, as `rlx-opt` prints it after the passes of `pipeline_text`.

        Raises:
            Error: As for `lowered`.
        """
        module = self.lowered()
        with mlir.unregistered_dialects_allowed():  # otherwise MLIR prints the generic form
            return str(module)

    def at(self, stage: str) -> Graph:
        """The graph at a stage: the given graph if it is at this stage, else `mir` or `lir`.

        Raises:
            StageError: The graph has passed that stage.
            Error: As for `lir`.
        """
        if STAGES.index(stage) < STAGES.index(self.given.stage):
            raise StageError(f"'{self.given.name}' is at stage {self.given.stage}, so it has no {stage}")
        if stage == self.given.stage:
            return self.given
        return self.mir if stage == "mir" else self.lir

    @cached_property
    def signature(self) -> Signature:
        """The arguments and outputs of the program."""
        signature = Signature.of(self.prepared)
        return signature if self._symbol is None else replace(signature, name=self._symbol)

    @cached_property
    def requirements(self) -> tuple[Requirement, ...]:
        """The requirements on the sizes of symbols."""
        return requirements(self.prepared.module, self.lir.module)

    # --- the artifact -----------------------------------------------------------------------------

    def is_cached(self, cache: DiskCache | None) -> bool:
        """Whether a cache has the compiled program. `artifact` then reads it.

        Raises:
            Error: As for `prepare_graph`.
        """
        if self._artifact is None and cache is not None:
            self._artifact = self.read(cache, self.key())
        return self._artifact is not None

    def artifact(self, *, cache: DiskCache | None = None, timeout: float | None = None) -> Artifact:
        """Compile the graph for the target. The first call does the work.

        Args:
            cache: The cache of compiled programs. For a program that is in it, only the user's passes are run.
            timeout: The time limit in seconds for each attempt of the compiler.

        Raises:
            CompileError: The graph cannot be expressed or compiled for the target.
        """
        if self._artifact is None:
            self.cache = cache
            self._artifact = self._compiled(cache, timeout)
        return self._artifact

    def for_file(self) -> Compilation:
        """Return the compilation of a copy of the graph to a program that may be saved: without calls of LAPACK."""
        return Compilation(self.prepared.clone(), self.target, self.options.prepared, symbol=self.signature.name)

    def _compiled(self, disk: DiskCache | None, timeout: float | None) -> Artifact:
        key = None
        if disk is not None:
            with timed(self.phases, "key"):
                key = self.key()
                artifact = self.read(disk, key)
            if artifact is not None:
                return artifact
        with calling(self.backend, "compile_program"):
            compiled = self.compiler.compile_program(self, timeout)
        return self.finished(compiled, disk, key)

    def finished(self, compiled: Compiled, disk: DiskCache | None, key: str | None) -> Artifact:
        """Return the artifact of what the compiler returned, after storing it in a cache."""
        check_compiled(self.backend, compiled)
        check_info(self.backend, self.compiler, compiled.info)
        common = {"requirements": [r.to_json() for r in self.requirements], "rlx": __version__}
        artifact = Artifact(
            self.target.name, self.target.arch, self.signature, compiled.program, {**compiled.info, **common}
        )
        if disk is not None and key is not None and compiled.lasting:
            disk.put(key, artifact.to_bytes())
        return artifact

    def read(self, disk: DiskCache, key: str | None, own_key: str | None = None) -> Artifact | None:
        """The program of a cache; None if it is not there, or if the passes are observed.

        Args:
            disk: The cache.
            key: The key of the entry.
            own_key: The result of `key`, if the entry has another one.
        """
        artifact = None if key is None or self._observers else cached_artifact(disk, key, self.signature)
        if artifact is None:
            return None
        self.phases["cached"] = 1.0
        self._cached_key = own_key or key
        return with_locations(artifact, self.prepared, lambda: self.lir)

    def check_unchanged(self) -> None:
        """Check that stages computed from now on still belong to the compiled program.

        Raises:
            Error: The program came from the cache, and the graph has been changed since.
        """
        if self._cached_key is not None and "lir" not in self.__dict__ and self.key() != self._cached_key:
            raise Error(f"graph '{self.given.name}' has been changed since it was compiled", hint="compile it again")

    def key(self) -> str | None:
        """A hash of everything that the program depends on; None if that is unknown, as for an op defined at a prompt."""
        graph, compiler = self.prepared, self.compiler
        custom = sources(graph.module, check_of(self.target.pipeline).lowering_rules)
        kernels = own_sources(graph.module)
        if custom is None or kernels is None:
            return None
        name = compiler.__name__ if inspect.ismodule(compiler) else type(compiler).__module__
        code = (code_fingerprint("rlx"), code_fingerprint(name))
        with calling(self.backend, "version or fingerprint"):
            target = (compiler.version(), self.target.name, self.target.arch, self.target.fingerprint())
        steps = (*self._from_prepared, self.lowering)
        return fingerprint(
            *code, *custom, *kernels, *target, str(self.options.opt), *steps, str(graph.module), self.signature.name
        )
