"""The targets of IREE as data: devices, architectures, and the flags that measurements have shown to be best.

The reasons for the flags, measured with IREE 3.13 (ratios are of run time on one x86-64 core):

* With ``target-cpu=host``, O3 and data tiling together, programs are 1.5 to 5 times as fast as with the defaults.
  Data tiling below O2 crashes the compiler, so a lower rung of the ladder uses neither.
* With LLVM's loop passes in addition, a CNN takes 0.85 of the time, other programs are unchanged, and compiling takes 1.03.
* By default IREE converts f64 to f32, also in signatures.
* Constant evaluation runs the program inside the compiler, which hangs if the program writes out of bounds.
  Without it, constants are computed once, when the program is loaded, and compiling is up to 0.25 s faster.
  Quirk: `constants-evaluated`.
* Without debug symbols and source map, artifacts are a quarter smaller.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rlx.ir.dtype import DTYPES
from rlx.ir.op.costs import Costs
from rlx.support.errors import CompileError
from rlx.targets.flags import check_own
from rlx.targets.host import host_features
from rlx.targets.iree.alternatives import ALTERNATIVES, is_process_flag
from rlx.targets.iree.architectures import (
    CPU_ARCHS,
    CUDA_ARCHS,
    CUDA_NAMES,
    NEWER_THAN_IREE_KNOWS,
    ROCM_ARCHS,
    VULKAN_ARCHS,
    VULKAN_DEVICES,
    VULKAN_FEATURES,
    VULKAN_NOTES,
)
from rlx.targets.iree.cpu import assumed_arch
from rlx.targets.iree.cpu_operations import emulated_operations, has_byte_products, kernel_cpu
from rlx.targets.iree.lapack import has_lapack
from rlx.targets.protocol import Substitute

_COMMON = (
    "--iree-input-type=none",  # detecting the type, and its passes, take a tenth of a compilation
    "--iree-input-demote-f64-to-f32=false",
    "--iree-input-demote-i64-to-i32=false",
    "--iree-opt-const-eval=false",
    "--iree-vm-bytecode-module-strip-source-map",
    # Values are computed close to their uses, so that fewer are live in the VM.
    "--iree-vm-target-optimize-for-stack-size",
)
_LOCAL = ("--iree-hal-target-device=local",)
_LLVM_CPU = (
    *_LOCAL,
    "--iree-hal-local-target-device-backends=llvm-cpu",
    "--iree-llvmcpu-debug-symbols=false",
    "--iree-llvmcpu-stack-allocation-limit=262144",  # the default rejects some fused dispatches
)
_LLVM_LOOPS = ("--iree-llvmcpu-loop-unrolling", "--iree-llvmcpu-loop-vectorization", "--iree-llvmcpu-slp-vectorization")
# A separate loop for the remainder of a vectorised loop: small CNNs take 0.90 to 0.94 of the time, ResNet-18 takes 1.02, other
# programs are unchanged.
_PEELED = "--iree-llvmcpu-vector-pproc-strategy=peel"
# The number of operations that justifies another compiler process and 7 % more compile time at level 2. Without peeling,
# loops whose size is not a multiple of a workgroup's use masks throughout: adding two arrays of a million f32 takes 2.4
# times as long.
LARGE = 500_000
_EVALUATED_OPERATIONS = 3_000_000_000  # of a graph, that NumPy evaluates in a second or two
_NO_OPTIMISATION: tuple[str, ...] = ()
# By default transposes are moved into the contraction before them (for example, the heads of attention). On the CPU, the
# resulting nest of four or five loops does not run on packed tiles: the whole encoder takes 1.5 times as long. For GPUs,
# the compiler crashes on a weight that is a transposed parameter. Quirk: `transposes-propagated`.
_KEEP_TRANSPOSES = "--iree-global-opt-propagate-transposes=false"


# Fusions that do not slow down any program. Fusions that concatenate weights do: docs/performance.md.
_FUSIONS = (
    *("matmul-bias-act", "conv-bias-act", "matmul-residual", "residual-layer-norm", "residual-rms-norm"),
    *("ada-layer-norm", "gated-residual", "swiglu"),
    *("recognize-activations", "recognize-softmax", "recognize-norms", "recognize-attention"),
)
# Fusions that are applied only where the target's cost model predicts a gain.
_WEIGHED = ("swiglu-dual-matmul", "shared-input-matmul")


@dataclass(frozen=True)
class Target:
    """A device to compile for.

    Attributes:
        name: ``"cpu"``, ``"cuda"``, ``"rocm"``, ``"vulkan"``, ``"metal"`` or ``"vmvx"``.
        arch: The architecture that code is compiled for, in the target's own spelling.
        drivers: The runtime drivers that can run the program, in order of preference.
        flags: The flags of all attempts to compile.
        ladder: The additional flags of each attempt, the best first. If an attempt fails, the next one is tried.
        optimisations: Additional flags of the first attempt, at every optimisation level except 0.
        process_flags: Flags that apply to a whole compiler process, and so to all attempts.
        process_optimisations: Additional process flags for the first attempt at level 3, and for large programs at level 2.
        level: The optimisation level.
        unsupported_dtypes: The dtypes (``"f64"``, ``"bf16"`` …) that tensors cannot have.
        device: The attribute `hal.device.targets` of the module, for devices that no flag describes.
        features: The optional features that a device must have to run programs, by the driver's names.
        contracts_products: Whether the compiler rounds a product and a sum only once if the architecture can. Quirk:
            `contracted-products`.
        wide_registers: Whether integers of 8 and 16 bits are in 32-bit registers with undefined upper bits. Quirk:
            `wide-registers`.
        sums_in_order: Whether the elements of a sum are added sequentially. Quirk: `sums-in-order`.
        fences_reductions: Whether ops must not be fused with a preceding reduction (see `passes/fence_reductions.py`).
        reassociates: Whether devices reassociate sums, so that they must be decorated. Quirk: `reassociated-arithmetic`.
        takes_empty: Whether tensors may be empty.
        notes: Notes for users of this target.
        cross: Whether the code is for another CPU than this machine's.
        host_features: A hash of the host's CPU features, for code for the host's CPU.
        emulated: Operations that are expanded for IREE: keys of `EMULATED` in `passes/emulate.py`.
        fusions: The fusions that pay, or that the cost model decides about: `docs/performance.md`.
        costs: The cost model; None if it has not been measured.
        has_byte_products: Whether the CPU has instructions for sums of products of unsigned by signed bytes, and IREE uses
            them.
        kernel_cpu: The CPU that kernels are emitted for; empty if it is unknown, or if the target is not a CPU.
        quick: See `targets.protocol.Substituted`.
    """

    name: str
    arch: str
    drivers: tuple[str, ...]
    flags: tuple[str, ...]
    ladder: tuple[tuple[str, ...], ...]
    optimisations: tuple[str, ...] = ()
    process_flags: tuple[str, ...] = (_KEEP_TRANSPOSES,)
    process_optimisations: tuple[str, ...] = ()
    level: int = 2  # `rlx.targets.options.DEFAULT_LEVEL`, which a distribution that only runs programs lacks
    unsupported_dtypes: frozenset[str] = frozenset()
    device: str = ""
    features: tuple[str, ...] = ()
    contracts_products: bool = False
    wide_registers: bool = False
    sums_in_order: bool = False
    fences_reductions: bool = False
    reassociates: bool = False
    takes_empty: bool = True
    notes: tuple[str, ...] = ()
    cross: bool = False
    host_features: str = ""
    emulated: frozenset[str] = frozenset()
    fusions: tuple[str, ...] = _FUSIONS
    costs: Costs | None = None
    has_byte_products: bool = False
    kernel_cpu: str = ""
    quick: tuple[Substitute, ...] = ()

    @property
    def supports_f64(self) -> bool:
        """Whether tensors may be f64."""
        return "f64" not in self.unsupported_dtypes

    @property
    def attempts(self) -> tuple[tuple[str, ...], ...]:
        """The complete flags of each attempt to compile, the best first."""
        best, *others = self.ladder
        optimisations = self.optimisations if self.level else ()
        return (self.flags + optimisations + best, *(self.flags + rung for rung in others))

    @property
    def kernel_flags(self) -> tuple[str, ...]:
        """The flags for kernels, which have been optimised by hand: the best, at every optimisation level."""
        return self.flags + self.optimisations + self.ladder[0]

    def process_flags_of(self, attempt: tuple[str, ...]) -> tuple[str, ...]:
        """The flags of the compiler process for an attempt, one of `attempts`. The user's flags have priority."""
        if self.level < 3 or attempt != self.attempts[0]:
            return self.process_flags
        given = {flag.partition("=")[0] for flag in self.process_flags}
        return (*self.process_flags, *(f for f in self.process_optimisations if f.partition("=")[0] not in given))

    def at_level(self, level: int, flops: int = 0) -> Target:
        """The target at a level, for programs with a number of operations. Level 2 means level 3 for large programs."""
        return replace(self, level=3 if level == 2 and flops >= LARGE else level)

    @property
    def alternatives(self) -> tuple[tuple[str, ...], ...]:
        """The flags that tuning tries."""
        return ALTERNATIVES.get(self.name, ())

    @property
    def pipeline(self) -> str:
        """The passes from MIR to LIR."""
        from rlx.targets.iree.pipeline import passes_to_lir

        return passes_to_lir(self)

    @property
    def calls_lapack(self) -> bool:
        """Whether programs of sessions may call LAPACK, through SciPy: not if they are for a CPU that the user names."""
        is_here = not self.cross or self.arch == assumed_arch()
        return self.kernel_cpu.startswith("x86-64") and is_here and has_lapack()

    def lowering(self, level: int) -> str:
        """The passes from LIR to the linalg that IREE compiles."""
        from rlx.targets.iree.pipeline import lowering_passes

        return lowering_passes(self)

    def fingerprint(self) -> str:
        """All inputs of compiling except the module and the version of the compiler, as text."""
        properties = (
            self.name,
            self.arch,
            self.host_features,
            self.device,
            str(self.fences_reductions),
            str(self.reassociates),
        )
        process_flags = self.process_flags_of(self.attempts[0])
        return "\n".join([*properties, *process_flags, *map(" ".join, self.attempts)])


@dataclass(frozen=True)
class _DeviceFamily:
    """A device family: its architectures, their spellings, and the flags that they add."""

    base: Target
    default_arch: str
    arch_flag: str = ""
    archs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)


# A dtype is listed if IREE 3.13 fails on x + y, x @ y or softmax(x), with any fusions around these. `_with_made` adds the
# dtypes that are stored as a listed one.
_UNSUPPORTED = {
    ("vulkan", "default"): {"f64", "i64", "f16", "bf16", "i8", "u8", "i16"},
    ("vulkan", "desktop"): {"f64", "bf16"},
    ("vulkan", "valhall4"): {"f64", "i64", "bf16"},
    ("vulkan", "adreno"): {"f64", "i64", "bf16", "i8", "u8", "bool"},
    **{("vulkan", arch): {"f64", "bf16"} for arch in ("turing", "ampere", "ada", "rdna2", "rdna3", "rdna4")},
    ("metal", "default"): {"f64", "bf16"},
    ("vmvx", "default"): {"f16", "bf16", "c64", "u64"},
}
_INEXACT_ON_GPUS = frozenset(
    {"fma-f32", "functions", "remainders"}
)  # quirks: `imprecise-functions`, `narrow-remainders`
_ARCH_NOTES = {
    **{("rocm", arch): "a matmul of f16 must accumulate in f32" for arch in ("gfx90a", "gfx942", "gfx950")},
    **{
        (
            "cuda",
            arch,
        ): "a matmul of f16 crashes the compiler: compile for sm_60, whose code this device can run as well"
        for arch in ("sm_70", "sm_72", "sm_75")
    },
}

_FAMILIES = {
    "cpu": _DeviceFamily(
        Target(
            "cpu",
            "",
            ("local-sync", "local-task"),
            (*_COMMON, *_LLVM_CPU),
            (
                ("--iree-opt-level=O3", "--iree-dispatch-creation-data-tiling"),
                ("--iree-opt-level=O2",),
                _NO_OPTIMISATION,
            ),
            optimisations=_LLVM_LOOPS,
            process_optimisations=(_PEELED,),
            contracts_products=True,
            sums_in_order=True,
            fusions=(*_FUSIONS, *_WEIGHED),
            costs=Costs(flops=1.2e11, bytes=3.5e10, kernel_s=1.4e-7),
            quick=(
                Substitute("numpy", most_operations=_EVALUATED_OPERATIONS),
                Substitute("xla", ("--xla_backend_optimization_level=0",)),
            ),
            notes=(
                "f64 sin, cos, tan, atan and tanh do not link: expand them first",
                "f16 max and softmax do not link on x86: compute them in f32",
            ),
        ),
        "host",
        archs=CPU_ARCHS,
        aliases={"native": "host", "generic": "x86-64", "arm64": "aarch64", "x86_64": "x86-64"},
    ),
    "cuda": _DeviceFamily(
        Target(
            "cuda",
            "",
            ("cuda",),
            (*_COMMON, "--iree-hal-target-device=cuda"),
            (("--iree-opt-level=O1",), _NO_OPTIMISATION),  # at O2 and O3, bufferising a training step fails
        ),
        "sm_80",
        arch_flag="--iree-cuda-target=",
        archs=dict.fromkeys(CUDA_ARCHS, ()),
        aliases={**CUDA_NAMES, **dict.fromkeys(NEWER_THAN_IREE_KNOWS, "sm_89")},
    ),
    "rocm": _DeviceFamily(
        Target(
            "rocm",
            "",
            ("hip",),
            (*_COMMON, "--iree-hal-target-device=hip"),
            (("--iree-opt-level=O3",), ("--iree-opt-level=O2",), _NO_OPTIMISATION),
        ),
        "gfx1100",
        arch_flag="--iree-rocm-target=",
        archs=dict.fromkeys(ROCM_ARCHS, ()),
    ),
    "vulkan": _DeviceFamily(
        Target(
            "vulkan",
            "",
            ("vulkan",),
            (*_COMMON, "--iree-hal-target-device=vulkan"),
            (("--iree-opt-level=O1",), _NO_OPTIMISATION),
            fences_reductions=True,
            reassociates=True,
            wide_registers=True,  # quirk: `narrow-remainders`
            emulated=_INEXACT_ON_GPUS,
            takes_empty=False,
            notes=VULKAN_NOTES,
        ),
        "default",
        arch_flag="--iree-vulkan-target=",
        archs={"desktop": (), **dict.fromkeys(VULKAN_ARCHS, ())},
    ),
    "metal": _DeviceFamily(
        Target(
            "metal",
            "",
            ("metal",),
            (*_COMMON, "--iree-hal-target-device=metal", "--iree-metal-compile-to-metallib=false"),
            (("--iree-opt-level=O1",), _NO_OPTIMISATION),
            fences_reductions=True,
            reassociates=True,
            emulated=_INEXACT_ON_GPUS,
            notes=("shaders are compiled when the program is loaded", "a matmul of i8 does not compile"),
        ),
        "default",
    ),
    "vmvx": _DeviceFamily(
        Target(
            "vmvx",
            "",
            ("local-sync", "local-task"),
            (*_COMMON, *_LOCAL, "--iree-hal-local-target-device-backends=vmvx"),
            (("--iree-opt-level=O2",), _NO_OPTIMISATION),
            wide_registers=True,  # quirk: `wide-registers`
            emulated=frozenset({"truncation"}),  # quirk: `nearest-integers`
            notes=(
                "an interpreter: portable and slow",
                "what is NaN may be a number",
                "long sums of f32 lose digits: a million times 0.1 is 100,958",
            ),
        ),
        "default",
    ),
}
_TARGET_ALIASES = {"hip": "rocm", "amdgpu": "rocm", "nvidia": "cuda", "llvm-cpu": "cpu", "local": "cpu"}


def target_names() -> tuple[str, ...]:
    """The names that ``target`` accepts, including aliases."""
    return (*_FAMILIES, *_TARGET_ALIASES)


def device_names() -> tuple[str, ...]:
    """The names of the targets. IREE's runtime has a driver for each."""
    return tuple(_FAMILIES)


def archs(name: str) -> tuple[str, ...]:
    """The architectures of one target, the default first."""
    family = _FAMILIES[name]
    return (family.default_arch, *(arch for arch in family.archs if arch != family.default_arch))


def target(name: str, arch: str | None = None, extra_flags: Sequence[str] = ()) -> Target:
    """The target with a name, for an architecture or the default one (on the CPU: what `RLX_CPU_LEVEL` says, else the host).

    ``extra_flags`` are added to every attempt, after the target's own flags, so they have priority.

    Raises:
        CompileError: The target or architecture is unknown, or a flag belongs only to other targets.
    """
    name = _TARGET_ALIASES.get(name, name)
    check_own(name, extra_flags)
    if name not in _FAMILIES:
        raise _unknown("target", name, _FAMILIES)
    family = _FAMILIES[name]
    if arch is None and name == "cpu":
        arch = assumed_arch()
    arch_name = family.default_arch if arch is None else arch.lower()
    chosen = family.aliases.get(arch_name, arch_name)
    if chosen != family.default_arch and chosen not in family.archs:
        raise _unknown(f"architecture of {name}", arch_name, [*archs(name), *family.aliases])
    flags = family.archs.get(chosen, ())
    device = VULKAN_DEVICES.get(chosen, "") if name == "vulkan" else ""
    if family.arch_flag and chosen in family.archs and not device:
        flags = (family.arch_flag + chosen,)
    base = family.base
    process_flags = (*base.process_flags, *filter(is_process_flag, extra_flags))
    session_flags = [flag for flag in extra_flags if not is_process_flag(flag)]
    return replace(
        base,
        arch=chosen,
        flags=(*base.flags, *flags),
        ladder=tuple(dict.fromkeys((*rung, *session_flags) for rung in base.ladder)),
        process_flags=process_flags,
        device=device,
        features=VULKAN_FEATURES.get(chosen, ()) if name == "vulkan" else (),
        unsupported_dtypes=_with_made(_UNSUPPORTED.get((name, chosen), frozenset())),
        notes=_notes(base, arch_name, chosen),
        cross=name == "cpu" and chosen != "host",
        host_features=host_features() if name == "cpu" and chosen == "host" else "",
        emulated=emulated_operations(chosen, extra_flags) if name == "cpu" else base.emulated,
        kernel_cpu=kernel_cpu(chosen, extra_flags) if name == "cpu" else "",
        has_byte_products=name == "cpu" and has_byte_products(chosen, extra_flags),
        quick=base.quick if chosen == family.default_arch else (),
    )


def _with_made(lacking: Iterable[str]) -> frozenset[str]:
    """Return the dtypes that a target lacks, and the dtypes that programs store as one of these.

    Unsigned integers are stored as signed integers, storage dtypes as i8, and complex numbers as their parts.
    """
    without = {*lacking}
    return frozenset(
        kind.name
        for kind in DTYPES
        if without & {kind.name, kind.element.name, kind.part.name, "c64" if kind.is_complex else ""}
    )


def _notes(base: Target, arch_name: str, chosen: str) -> tuple[str, ...]:
    notes = list(base.notes)
    if arch_name in NEWER_THAN_IREE_KNOWS:
        notes.append(f"IREE cannot compile for {arch_name}; the driver compiles PTX for {chosen} to it")
    if note := _ARCH_NOTES.get((base.name, chosen)):
        notes.append(note)
    return tuple(notes)


def _unknown(kind: str, name: str, known: Iterable[str]) -> CompileError:
    known = list(dict.fromkeys(known))
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return CompileError(f"unknown {kind}: {name!r}", hint=f"{hint}known: {', '.join(known)}")
