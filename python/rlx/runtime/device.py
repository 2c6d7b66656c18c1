"""Devices for sessions."""

from __future__ import annotations

from enum import Enum
from typing import Any

from rlx.support.errors import Error
from rlx.support.short import short_repr
from rlx.support.suggestions import suggestion


class Device(Enum):
    """A kind of device. Values are the names of compile targets.

    The members are the devices of RLX's own back ends. A device of another package has only a name: `Device("toy")` is
    available once its back end is registered, and is always the same object.
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
    NUMPY = "numpy"

    @classmethod
    def of(cls, value: Any) -> Device:
        """Return a device, given itself or its name.

        Raises:
            Error: The device does not exist.
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
        """Return the device of another package's back end. Called by `Device(value)` for values that are not members."""
        from rlx.targets.registry import device_names

        if not isinstance(value, str) or value not in device_names():
            return None
        device = object.__new__(cls)
        device._name_, device._value_ = value.upper(), value
        return _others.setdefault(value, device)


# By name: equal devices are one object, like members.
_others: dict[str, Device] = {}


_GPUS = "rlx.Session('cuda') is NVIDIA's, 'rocm' AMD's, 'metal' Apple's, and 'vulkan' takes most GPUs"
# Names of devices in other libraries: the drivers to look for, and the call to suggest.
_GENERAL = {
    "gpu": (("cuda", "hip", "metal", "vulkan"), _GPUS),
    "amd": (("hip",), "rlx.Session('rocm')"),
    "hip": (("hip",), "rlx.Session('rocm')"),
    "mps": (("metal",), "rlx.Session('metal')"),
    "tpu": ((), f"programs for TPUs are written as StableHLO (rlx compile --target=stablehlo); {_GPUS}"),
}


def _found(drivers: tuple[str, ...]) -> str:
    """Return the devices of some drivers, or the reasons why they are missing."""
    from rlx.targets.registry import runtime_of

    infos = [d for d in runtime_of("cuda").devices() if d.driver in drivers]
    found = [f"{d.name} ({d.uri})" for d in infos if d.available]
    missing = [f"{d.driver}: " + d.reason.partition(" (Error")[0] for d in infos if not d.available]
    absent = [f"{name}: not on this system" for name in drivers if name not in {d.driver for d in infos}]
    return ", ".join(found) or "; ".join(["no GPU", *missing, *absent])


def _unknown(value: Any) -> Error:
    from rlx.targets.registry import device_names, problems, runtime_of, target_names

    if isinstance(value, str) and value.lower() in target_names():
        runtime_of(value.lower())  # raises if no runtime supports it
    names = device_names()
    if isinstance(value, str) and value.lower() in _GENERAL:
        drivers, advice = _GENERAL[value.lower()]
        raise Error(f"{short_repr(value)} is no device: {advice}", hint=f"found here: {_found(drivers)}")
    close = suggestion(value.lower(), names) if isinstance(value, str) else ""
    left_out = "; ".join(map(str, problems())) or None
    return Error(f"unknown device {short_repr(value)}{close}; known: {', '.join(names)}", hint=left_out)
