"""The devices that a session can be opened on."""

from __future__ import annotations

from enum import Enum
from typing import Any

from rlx.ir.attributes import suggestion
from rlx.ir.errors import Error


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
        from rlx.backends.registry import device_names

        if not isinstance(value, str) or value not in device_names():
            return None
        device = object.__new__(cls)
        device._name_, device._value_ = value.upper(), value
        return _others.setdefault(value, device)


# By name: equal devices are one object, as members are.
_others: dict[str, Device] = {}


def _unknown(value: Any) -> Error:
    from rlx.backends.registry import device_names, problems, runtime_of, target_names

    if isinstance(value, str) and value.lower() in target_names():
        runtime_of(value.lower())  # raises, where nothing runs it
    names = device_names()
    close = suggestion(value.lower(), names) if isinstance(value, str) else ""
    left_out = "; ".join(map(str, problems())) or None
    return Error(f"unknown device {value!r}{close}; known: {', '.join(names)}", hint=left_out)
