"""The targets of the StableHLO lowering. Importing this imports neither MLIR nor JAX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from rlx.ir.op.costs import Costs
from rlx.support.errors import CompileError
from rlx.targets.flags import check_own
from rlx.targets.xla.flags import STABLEHLO_VERSION
from rlx.targets.xla.options import Options, from_flag

# Fusions that do not slow down any program: docs/performance.md. Fusions that concatenate weights are excluded: weights are
# arguments here, so they would be concatenated in every call.
_FUSIONS = (
    *("matmul-bias-act", "conv-bias-act", "matmul-residual", "residual-layer-norm", "residual-rms-norm"),
    *("ada-layer-norm", "gated-residual", "swiglu"),
    *("recognize-activations", "recognize-softmax", "recognize-norms"),
    *("swiglu-dual-matmul", "shared-input-matmul"),  # these are decided by the cost model
)

_COSTS = Costs(flops=1.5e11, bytes=1e10, kernel_s=5e-7)
_ALTERNATIVES = (
    ("--xla_cpu_prefer_vector_width=512",),
    ("--xla_cpu_enable_concurrency_optimized_scheduler=false",),
    ("--xla_cpu_multi_thread_eigen=false",),
    ("--xla_cpu_use_fusion_emitters=false",),
)


@dataclass(frozen=True)
class Target:
    """XLA, or a portable artifact for other programs. The generated code is the same.

    Attributes:
        name: `"xla"`, whose programs run on this machine, or `"stablehlo"`, which writes files.
        arch: `"cpu"`, or `"portable"` for `stablehlo`.
        options: XLA options in addition to those of all programs.
        fusions: The fusions that pay, or that the cost model decides about: `docs/performance.md`.
        costs: The cost model.
        version: The StableHLO version that artifacts are written for; None lets RLX choose.
    """

    name: str
    arch: str
    options: Options = ()
    fusions: tuple[str, ...] = _FUSIONS
    costs: Costs | None = _COSTS
    version: str | None = None

    @property
    def alternatives(self) -> tuple[tuple[str, ...], ...]:
        """The options that tuning tries. They do not change results."""
        return _ALTERNATIVES if self.name != PORTABLE else ()

    @property
    def pipeline(self) -> str:
        """The passes from MIR to LIR."""
        return _pipeline(self.name, self.arch)

    @property
    def calls_lapack(self) -> bool:
        """Whether programs of sessions may call LAPACK, through jaxlib, which needs SciPy."""
        return self.name != PORTABLE and all(find_spec(name) is not None for name in ("jaxlib", "scipy"))

    def lowering(self, level: int) -> str:
        """The passes from LIR to the StableHLO that XLA compiles, or that the artifact holds, with shardings as text."""
        return _lowering(self.name, level)

    def fingerprint(self) -> str:
        """The text of the options."""
        return repr(self.options if self.version is None else (self.options, self.version))


@cache
def _pipeline(name: str, arch: str) -> str:
    from rlx.passes.check_lir import CheckLir
    from rlx.targets.stages import to_lir

    return to_lir(CheckLir("rlx-to-stablehlo", target=name, arch=arch))


@cache
def _lowering(name: str, level: int) -> str:
    from rlx.targets.xla.pipeline import lowering_passes, to_stablehlo

    return to_stablehlo("text") if name == PORTABLE else lowering_passes(level)


PORTABLE = "stablehlo"
_ARCHS = {"xla": "cpu", PORTABLE: "portable"}


def target_names() -> tuple[str, ...]:
    """The names that `target` accepts."""
    return tuple(_ARCHS)


def target(name: str, arch: str | None = None, extra_flags: Sequence[str] = ()) -> Target:
    """Return the target with a name.

    Args:
        name: `"xla"` or `"stablehlo"`.
        arch: None, or the only architecture of this target.
        extra_flags: XLA options, `--xla_cpu_…=value`; for `stablehlo` also `--stablehlo-version=1.4.0`.

    Raises:
        CompileError: The architecture is unknown, a flag is not an allowed option, or the StableHLO version is unknown.
    """
    if arch not in (None, _ARCHS[name]):
        raise CompileError(f"unknown architecture of {name}: {arch!r}", hint=f"known: {_ARCHS[name]}")
    check_own(name, extra_flags, (STABLEHLO_VERSION,))
    versions = [f for f in extra_flags if f.partition("=")[0] == STABLEHLO_VERSION]
    options = tuple(from_flag(f) for f in extra_flags if f not in versions)
    return Target(name, _ARCHS[name], options, version=_version(name, versions[-1]) if versions else None)


def _version(name: str, flag: str) -> str:
    """Return the StableHLO version that a flag names.

    Raises:
        CompileError: The target does not write files, or the version is unknown.
    """
    if name != PORTABLE:
        raise CompileError(f"{flag}: target {name} writes no file of StableHLO", hint=f"--target={PORTABLE} does")
    from rlx.targets.xla.portable import checked_version

    return checked_version(flag.partition("=")[2])


def device_names() -> tuple[str, ...]:
    """The names of the targets whose programs XLA runs on this machine."""
    return ("xla",)
