"""Flags of IREE's compiler that tuning tries. They do not change results, and make some programs faster and others slower.

The flags are from `iree-compile --help` of IREE 3.13. Flags that change results are excluded (fast minima, lower precision,
omitted rounding).
"""

from __future__ import annotations

from collections.abc import Mapping

# Flags that apply to a whole compiler process, and cannot be set for a session.
PROCESS_FLAGS = (
    "--iree-dispatch-creation-enable-fuse-horizontal-contractions",
    "--iree-llvmcpu-disable-vector-peeling",
    "--iree-llvmcpu-distribution-size",
    "--iree-llvmcpu-matmul-tile-bytes",
    "--iree-llvmcpu-max-allowed-number-of-native-vectors",
    "--iree-llvmcpu-vector-pproc-strategy",
)

# By target. Flags that change most programs are first, because the time may not suffice for all.
ALTERNATIVES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "cpu": (
        # Tiles, layouts and fusion.
        ("--iree-llvmcpu-matmul-tile-bytes=524288",),
        ("--iree-llvmcpu-matmul-tile-bytes=65536",),
        ("--iree-llvmcpu-distribution-size=128",),
        ("--iree-llvmcpu-distribution-size=32",),
        ("--iree-dispatch-creation-data-tiling=false",),
        ("--iree-dispatch-creation-enable-fuse-horizontal-contractions",),
        ("--iree-global-opt-use-im2col-for-convs",),
        # Code generation.
        ("--iree-llvmcpu-enable-ukernels=none",),
        ("--iree-llvmcpu-enable-inner-tiled",),
        (
            "--iree-llvmcpu-loop-unrolling=false",
            "--iree-llvmcpu-loop-vectorization=false",
            "--iree-llvmcpu-slp-vectorization=false",
        ),
        # Flags without effect on most programs.
        ("--iree-llvmcpu-vector-pproc-strategy=mask",),
        ("--iree-llvmcpu-vector-pproc-strategy=peel",),
        ("--iree-llvmcpu-max-allowed-number-of-native-vectors=64",),
        ("--iree-opt-level=O2",),
        ("--iree-dispatch-creation-enable-aggressive-fusion=false",),
        ("--iree-dispatch-creation-fuse-multi-use=false",),
        ("--iree-opt-generalize-matmul=false",),
        ("--iree-opt-outer-dim-concat=false",),
        ("--iree-opt-aggressively-propagate-transposes=false",),
    ),
    "cuda": (("--iree-opt-level=O2",), ("--iree-opt-level=O3",)),
    "rocm": (("--iree-opt-level=O2",), ("--iree-opt-level=O1",)),
    "vulkan": (("--iree-opt-level=O2",),),
    "metal": (("--iree-opt-level=O2",),),
}


def is_process_flag(flag: str) -> bool:
    """Whether a flag applies to a whole process of the compiler."""
    return flag.partition("=")[0] in PROCESS_FLAGS
