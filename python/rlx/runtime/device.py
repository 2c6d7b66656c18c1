"""The devices that a session can be opened on."""

from __future__ import annotations

from enum import Enum
from typing import Any

from rlx.support.errors import Error
from rlx.support.short import shown
from rlx.support.suggestions import suggestion


class Device(Enum):
    """A kind of device. Values are the names of compile targets.

    The members are the devices of RLX's own back ends. A device of another package's has its name only: `Device("toy")` is
    there, always the same object, once its back end is registered.
    """

    CPU = "cpu"
    CUDA = "cuda"
    ROCM = "rocm"
    VULKAN = "vulkan"
    METAL = "metal"
    VMVX = "vmvx"
    XLA = "xla"
    C = "c"
    FPGA_SIM = "fpga-sim"

    @classmethod
    def of(cls, value: Any) -> Device:
        """A device from itself or its name.

        Raises:
            Error: There is no such device.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            try:
                return cls(value.lower())
            except ValueError:
                pass
        raise _unknown(value)

    @classmethod
    def _missing_(cls, value: object) -> Device | None:
        """The device of that name of another package's back end. Called by `Device(value)` for what is no member."""
        from rlx.targets.registry import device_names

        if not isinstance(value, str) or value not in device_names():
            return None
        device = object.__new__(cls)
        device._name_, device._value_ = value.upper(), value
        return _others.setdefault(value, device)


# By name: equal devices are one object, as members are.
_others: dict[str, Device] = {}


_GPUS = "rlx.Session('cuda') is NVIDIA's, 'rocm' AMD's, 'metal' Apple's, and 'vulkan' takes most GPUs"
# What other libraries call devices: the drivers to look for, and what to type.
_GENERAL = {
    "gpu": (("cuda", "hip", "metal", "vulkan"), _GPUS),
    "amd": (("hip",), "rlx.Session('rocm')"),
    "hip": (("hip",), "rlx.Session('rocm')"),
    "mps": (("metal",), "rlx.Session('metal')"),
    "tpu": ((), f"programs for TPUs are written as StableHLO (rlx compile --target=stablehlo); {_GPUS}"),
}


def _found(drivers: tuple[str, ...]) -> str:
    """The devices of some drivers, or what each of these lacks."""
    from rlx.targets.registry import runtime_of

    infos = [d for d in runtime_of("cuda").devices() if d.driver in drivers]
    found = [f"{d.name} ({d.uri})" for d in infos if d.available]
    missing = [f"{d.driver}: " + d.reason.partition(" (Error")[0] for d in infos if not d.available]
    absent = [f"{name}: not on this system" for name in drivers if name not in {d.driver for d in infos}]
    return ", ".join(found) or "; ".join(["no GPU", *missing, *absent])


def _unknown(value: Any) -> Error:
    from rlx.targets.registry import device_names, problems, runtime_of, target_names

    if isinstance(value, str) and value.lower() in target_names():
        runtime_of(value.lower())  # raises, where nothing runs it
    names = device_names()
    if isinstance(value, str) and value.lower() in _GENERAL:
        drivers, advice = _GENERAL[value.lower()]
        raise Error(f"{shown(value)} is no device: {advice}", hint=f"found here: {_found(drivers)}")
    close = suggestion(value.lower(), names) if isinstance(value, str) else ""
    left_out = "; ".join(map(str, problems())) or None
    return Error(f"unknown device {shown(value)}{close}; known: {', '.join(names)}", hint=left_out)
