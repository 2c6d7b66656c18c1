"""The operations that code for a CPU target may use, by its architecture and the user's flags."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.targets.iree.cpu import host_cpu, host_level, machine

_TARGET_FLAG = "--iree-llvmcpu-target-"  # the prefix of flags that select the CPU
# The x86-64 feature that each operation needs; without it, the operation is emulated. All are part of the third level.
_X86_FEATURES = {"f16": "f16c", "fma": "fma"}
# IREE 3.13 does not use AVX-VNNI, which has these instructions for 256 bits.
_BYTE_PRODUCTS = {"avx512f", "avx512bw", "avx512vl", "avx512vnni"}
# The flag that makes IREE use these instructions. With it, f32 products take up to 1.2 times as long.
BYTE_PRODUCT_FLAGS = ("--iree-llvmcpu-enable-inner-tiled",)


def emulated_operations(arch: str, extra_flags: Sequence[str]) -> frozenset[str]:
    """Return the operations that the CPU may lack (all, if flags select the CPU), and rounding to bf16 on every CPU."""
    return _lacking(arch, extra_flags) | {"bf16"}  # quirk: `dropped-rounding`


def has_byte_products(arch: str, extra_flags: Sequence[str]) -> bool:
    """Whether the CPU has instructions for sums of products of unsigned by signed bytes, and IREE uses them."""
    return arch == "host" and not _select_cpu(extra_flags) and (host_cpu() or set()) >= _BYTE_PRODUCTS


def kernel_cpu(arch: str, extra_flags: Sequence[str]) -> str:
    """Return the CPU that kernels are emitted for, a name of `cpu_model`; empty if flags select the CPU."""
    if _select_cpu(extra_flags):
        return ""
    if arch != "host":
        return arch
    level = host_level() or machine()
    return f"{level}-vnni" if level == "x86-64-v4" and has_byte_products(arch, extra_flags) else level


def _lacking(arch: str, extra_flags: Sequence[str]) -> frozenset[str]:
    if _select_cpu(extra_flags):
        return frozenset(_X86_FEATURES)
    if arch == "host":
        if machine() == "x86_64":
            present = host_cpu() or frozenset()
            return frozenset(name for name, feature in _X86_FEATURES.items() if feature not in present)
        arch = machine()
    if arch == "riscv64":
        return frozenset({"f16"})
    return frozenset(_X86_FEATURES) if arch in ("x86-64", "x86-64-v2") else frozenset()


def _select_cpu(flags: Sequence[str]) -> bool:
    return any(flag.startswith(_TARGET_FLAG) for flag in flags)
