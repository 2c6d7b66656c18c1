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
# The baseline of Vulkan devices, and byte storage, which is needed for bool: if bytes were stored in words, the last bytes of
# a tensor would be lost (`storage-of-bytes`). `devices.check_features` checks for the features of an architecture.
_VULKAN_DEVICE = (
    '[#hal.device.target<"vulkan", [#hal.executable.target<"vulkan-spirv", "vulkan-spirv-fb", {{iree_codegen.target_info = '
    '#iree_gpu.target<arch = "vp_android_baseline_2022", features = "spirv:v1.3,cap:Shader", wgp = <'
    "compute = {compute}, storage = {storage}, subgroup = none, subgroup_size_choices = [64], "
    "max_workgroup_sizes = [128, 128, 64], max_thread_count_per_workgroup = 128, max_workgroup_memory_bytes = 16384, "
    "max_workgroup_counts = [65535, 65535, 65535]>>}}>]> : !hal.device]"
)
# By architecture: the attribute `hal.device.targets`, for architectures that no flag describes.
VULKAN_DEVICES = {
    "default": _VULKAN_DEVICE.format(compute="fp32|int32|int8", storage="b32|b8"),
    "desktop": _VULKAN_DEVICE.format(compute="fp32|fp16|int64|int32|int16|int8", storage="b64|b32|b16|b8"),
}
# By architecture: the features that a device must have, by Vulkan's names.
VULKAN_FEATURES = {
    "default": ("storageBuffer8BitAccess", "shaderInt8"),
    "desktop": (
        "storageBuffer8BitAccess",
        "storageBuffer16BitAccess",
        "shaderInt8",
        "shaderInt16",
        "shaderInt64",
        "shaderFloat16",
    ),
}
VULKAN_NOTES = (
    "a program for another arch than default and desktop is only correct on that device: others give wrong "
    "results without an error",
    "quotients, square roots and multiply-adds with constants are as accurate as the device's own instructions",
    "tensors without elements are rejected",
    "several loops at the same time may lose the device with Mesa 22.3, which is an error",
    "arch desktop also has f16 and integers of 8, 16 and 64 bits, which a device must support to load the program",
)
