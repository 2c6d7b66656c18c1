"""The architectures of IREE's targets, the flags that select them, and the names of devices with these architectures."""

from __future__ import annotations

_LINUX_GNU = "-unknown-linux-gnu"
CPU_ARCHS = {
    "host": ("--iree-llvmcpu-target-cpu=host",),
    **{
        arch: (f"--iree-llvmcpu-target-triple=x86_64{_LINUX_GNU}", f"--iree-llvmcpu-target-cpu={arch}")
        for arch in ("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4")
    },
    "aarch64": (f"--iree-llvmcpu-target-triple=aarch64{_LINUX_GNU}", "--iree-llvmcpu-target-cpu=generic"),
    "aarch64-android": (
        "--iree-llvmcpu-target-triple=aarch64-none-linux-android",
        "--iree-llvmcpu-target-cpu=generic",
    ),
    "neoverse-v1": (
        f"--iree-llvmcpu-target-triple=aarch64{_LINUX_GNU}",
        "--iree-llvmcpu-target-cpu=neoverse-v1",
    ),
    "apple": ("--iree-llvmcpu-target-triple=arm64-apple-darwin", "--iree-llvmcpu-target-cpu=apple-m1"),
    "riscv64": (
        f"--iree-llvmcpu-target-triple=riscv64{_LINUX_GNU}",
        "--iree-llvmcpu-target-cpu=generic-rv64",
        "--iree-llvmcpu-target-abi=lp64d",
        "--iree-llvmcpu-target-cpu-features=+m,+a,+f,+d,+c,+v",
    ),
}
NEWER_THAN_IREE_KNOWS = (
    "sm_90",
    "sm_90a",
    "sm_100",
    "sm_100a",
    "sm_120",
    "sm_120a",
    "hopper",
    "h100",
    "h200",
)
CUDA_ARCHS = ("sm_60", "sm_61", "sm_70", "sm_72", "sm_75", "sm_80", "sm_86", "sm_87", "sm_89")
CUDA_NAMES = {
    "turing": "sm_75",
    "ampere": "sm_80",
    "a100": "sm_80",
    "rtx3090": "sm_86",
    "ada": "sm_89",
    "l4": "sm_89",
    "l40": "sm_89",
    "rtx4090": "sm_89",
}
ROCM_ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1101", "gfx1150", "gfx1151", "gfx1200", "gfx1201")
VULKAN_ARCHS = ("turing", "ampere", "ada", "rdna2", "rdna3", "rdna4", "valhall4", "adreno")
